//! The wave of a node: a pure function of the descriptor and its roster (design, section 6).
//!
//! Candidates are the listed nodes in scope, ordered by (dormant last, wary behind the others,
//! blake3(domain ‖ rollout id ‖ node id)), or ‖ the values of `hashAttributes` so that equal values stay together. A wave's cohort is the union of its hosts,
//! its matches and all earlier cohorts, filled up from that order until it holds the cumulative target
//! `min(n, max(ceil(n·p), size so far + 1))`. A wave without a percentage is not filled up.
//! Integer arithmetic only; membership only ever widens from wave to wave. Which lists of waves are refused at
//! `create` (case W5) stands with the document, in [`crate::documents::rollout`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::member::{Member, attribute, carries, in_scope, named};
use crate::documents::rollout::{Rollout, Wave};
use crate::node_id::NodeId;
use crate::number::Ppm;

const DOMAIN: &[u8] = b"groundswell.wave.1\0";

/// Where a node stands in a rollout's order: earlier waves first, within a wave by the rollout's own shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The wave, from 0; the number of waves for the implicit last one.
    pub wave: u32,
    /// Dormant nodes come last.
    pub dormant: bool,
    /// Nodes that let others go first come before them, and after everybody else.
    pub wary: bool,
    /// The shuffle.
    pub hash: [u8; 32],
    /// Ties go by id.
    pub node: NodeId,
}

impl Place {
    /// What nodes of equal hashed attributes have in common: such a group is not split between waves.
    fn group(&self) -> (bool, bool, [u8; 32]) {
        (self.dormant, self.wary, self.hash)
    }
}

/// Who is in which wave of one rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waves {
    order: Vec<NodeId>,
    places: BTreeMap<NodeId, Place>,
    waves: Vec<Vec<NodeId>>,
    total: bool,
}

impl Waves {
    /// Divides the candidates among `members` (all nodes that the rollout's roster lists) into waves.
    #[must_use]
    pub fn assign(rollout: &Rollout, members: &[Member<'_>]) -> Self {
        let mut candidates: Vec<(Place, &Member<'_>, Option<u32>)> = members
            .iter()
            .filter(|member| in_scope(&rollout.scope, member.certificate))
            .map(|member| (place(rollout, member, 0), member, None))
            .collect();
        candidates.sort_by_key(|(place, ..)| *place);
        candidates.dedup_by_key(|(_, member, _)| member.id);

        let count = candidates.len();
        let mut size = 0;
        for (index, wave) in (0_u32..).zip(&rollout.waves) {
            let before = size;
            for (_, member, assigned) in &mut candidates {
                if assigned.is_none() && names(wave, member) {
                    *assigned = Some(index);
                    size += 1;
                }
            }
            let Some(share) = wave.percent_ppm else { continue };
            let target = count.min(share.ceil_of(count).max(before + 1));
            let mut group = None;
            for (place, _, assigned) in &mut candidates {
                let same_group = !rollout.hash_attributes.is_empty() && group == Some(place.group());
                if size >= target && !same_group {
                    break;
                }
                if assigned.is_none() {
                    *assigned = Some(index);
                    group = Some(place.group());
                    size += 1;
                }
            }
        }

        let mut waves = alloc::vec![Vec::new(); rollout.waves.len()];
        let mut places = BTreeMap::new();
        for (place, member, assigned) in &candidates {
            let Some(index) = *assigned else { continue };
            let wave = usize::try_from(index).ok().and_then(|index| waves.get_mut(index));
            wave.expect("a wave is assigned by its index in the rollout").push(member.id);
            places.insert(member.id, Place { wave: index, ..*place });
        }
        Self { order: candidates.iter().map(|(_, member, _)| member.id).collect(), places, waves, total: is_total(rollout) }
    }

    /// All candidates in the rollout's shuffled order, wary and then dormant ones last; also those in no wave.
    #[must_use]
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// The node's wave, from 0; `None` when it is no candidate, or when no wave names it.
    #[must_use]
    pub fn wave_of(&self, node: &NodeId) -> Option<u32> {
        self.places.get(node).map(|place| place.wave)
    }

    /// The node's place in the order of starting; `None` like [`Waves::wave_of`].
    #[must_use]
    pub fn place_of(&self, node: &NodeId) -> Option<Place> {
        self.places.get(node).copied()
    }

    /// How many waves the descriptor has; the implicit last wave has this index.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.waves.len()).unwrap_or(u32::MAX)
    }

    /// The members of `wave` that are in no earlier one, in its order; empty beyond the last wave.
    #[must_use]
    pub fn members(&self, wave: u32) -> &[NodeId] {
        usize::try_from(wave).ok().and_then(|wave| self.waves.get(wave)).map_or(&[], Vec::as_slice)
    }

    /// Whether the last target is all candidates: only then is there an implicit last wave for late joiners.
    #[must_use]
    pub fn is_total(&self) -> bool {
        self.total
    }

    /// Checks the first wave against the fleet's guard rail `maxFirstWavePpm` of the candidates; one node is
    /// always allowed. `Some((size, most))` when it is too large.
    #[must_use]
    pub fn first_wave_exceeds(&self, most: Ppm) -> Option<(usize, usize)> {
        let size = self.members(0).len();
        let most = most.floor_of(self.order.len()).max(1);
        (size > most).then_some((size, most))
    }
}

/// Whether the last target of `rollout` is all candidates: only then are late joiners offered it.
#[must_use]
pub fn is_total(rollout: &Rollout) -> bool {
    rollout.waves.iter().any(|wave| wave.percent_ppm == Some(Ppm::ALL))
}

/// The place of a node that the rollout's roster does not list: after everybody, in the implicit last wave.
#[must_use]
pub fn late_place(rollout: &Rollout, member: &Member<'_>) -> Place {
    place(rollout, member, u32::try_from(rollout.waves.len()).unwrap_or(u32::MAX))
}

fn names(wave: &Wave, member: &Member<'_>) -> bool {
    wave.hosts.as_ref().is_some_and(|hosts| named(member.certificate, hosts))
        || wave.labels.as_ref().is_some_and(|labels| carries(member.certificate, labels))
}

fn place(rollout: &Rollout, member: &Member<'_>, wave: u32) -> Place {
    let mut hasher = blake3::Hasher::new();
    hasher.update(DOMAIN).update(rollout.id.as_bytes()).update(&[0]);
    if rollout.hash_attributes.is_empty() {
        hasher.update(&member.id.0);
    }
    for name in &rollout.hash_attributes {
        // Length first, so that no two lists of values run together; an absent attribute is not an empty one.
        match attribute(member.certificate, name) {
            Some(value) => {
                let length = u64::try_from(value.len()).unwrap_or(u64::MAX);
                hasher.update(&[1]).update(&length.to_be_bytes()).update(value.as_bytes())
            }
            None => hasher.update(&[0]),
        };
    }
    let wary = !rollout.wary.is_empty() && carries(member.certificate, &rollout.wary);
    Place { wave, dormant: member.dormant, wary, hash: *hasher.finalize().as_bytes(), node: member.id }
}
