//! The board of slots that is kept up record by record says what looking at all slots anew says, whatever happened.

use groundswell_core::lease::board::Board;
use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::claims::Claims;
use groundswell_core::lease::view::{free_slots, slots_of};
use groundswell_core::record::status::Phase;
use groundswell_core::record::{RecordKey, RecordKind};
use proptest::prelude::*;

use super::mesh::{Mesh, claim, edge, node, policy, pool_map, seen};

const NODES: u8 = 12;
const SLOTS: u16 = 4;
const ME: u8 = 11;

/// Something that one node does, or time that passes.
#[derive(Clone, Debug)]
enum Happens {
    Says { who: u8, phase: u8, slot: u16 },
    Withdraws { who: u8 },
    Grants { warden: u8, to: Vec<u8> },
    Convicted { who: u8, kind: RecordKind },
    Passes { ms: u64 },
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..NODES, 0_u8..4, 0..SLOTS).prop_map(|(who, phase, slot)| Happens::Says { who, phase, slot }),
        2 => (0..NODES).prop_map(|who| Happens::Withdraws { who }),
        4 => (0..NODES, proptest::collection::vec(0..NODES, 0..3)).prop_map(|(warden, to)| Happens::Grants { warden, to }),
        1 => (0..NODES, prop_oneof![Just(RecordKind::Status), Just(RecordKind::Grants)]).prop_map(|(who, kind)| Happens::Convicted { who, kind }),
        2 => prop_oneof![0_u64..40_000, 59_000_u64..62_000, 86_000_000_u64..87_000_000].prop_map(|ms| Happens::Passes { ms }),
    ]
}

proptest! {
    #[test]
    fn the_board_kept_up_record_by_record_says_what_all_slots_seen_anew_say(steps in proptest::collection::vec(happens(), 1..60)) {
        let map = pool_map(NODES, policy(SLOTS, NODES));
        let (mut mesh, mut claims, mut counter, mut up_ms) = (Mesh::default(), Claims::default(), 1, 0);
        let mut board = Board::new(node(ME), &map, &edge());
        for step in steps {
            counter += 1;
            let changed = match step {
                Happens::Says { who, phase, slot } => {
                    let phase = [Phase::Claiming, Phase::Activating, Phase::Confirmed, Phase::Staged][usize::from(phase)];
                    mesh.says(node(who), counter, phase, Some(claim(counter, slot)));
                    mesh.unheard_ms.insert(node(who), 0);
                    Some((who, RecordKind::Status))
                }
                Happens::Withdraws { who } => {
                    mesh.says(node(who), counter, Phase::Waiting, None);
                    mesh.unheard_ms.insert(node(who), 0);
                    Some((who, RecordKind::Status))
                }
                Happens::Grants { warden, to } => {
                    let standing = |who: &u8| mesh.statuses.get(&node(*who)).map(|(_, status)| status.clone());
                    let to: Vec<SeenClaim> = to.iter().filter_map(|who| {
                        let section = standing(who)?.products.into_values().next()?;
                        Some(seen(node(*who), &section.claim?))
                    }).collect();
                    mesh.grants_to(node(warden), &to.iter().collect::<Vec<_>>());
                    Some((warden, RecordKind::Grants))
                }
                Happens::Convicted { who, kind } => {
                    mesh.convicted.insert(node(who));
                    Some((who, kind))
                }
                Happens::Passes { ms } => {
                    up_ms += ms;
                    mesh.unheard_ms.values_mut().for_each(|unheard| *unheard += ms);
                    None
                }
            };
            if let Some((who, kind)) = changed {
                let changed = node(who);
                let convicted = mesh.convicted.contains(&changed);
                let now = mesh.statuses.get(&changed).map(|(_, status)| SeenClaim::standing(changed, status).collect());
                claims.set(changed, now.unwrap_or_default());
                board.record_changed(&map, &RecordKey { node: changed, kind }, convicted);
                claims.of(&changed).for_each(|claim| board.claim_came(&claim.slot));
            }
            board.refresh(&map, &claims, &mesh, up_ms);
            let others: Vec<SeenClaim> = claims.all().filter(|claim| claim.holder != node(ME)).cloned().collect();
            let anew = slots_of(&map, &edge(), &others, &mesh);
            let seats = map.pool(&edge()).unwrap();
            prop_assert_eq!(board.free(seats.slots(false)), free_slots(&anew, seats, false));
            let holders: Vec<_> = anew.iter().filter_map(|view| Some(view.occupant?.holder)).collect();
            prop_assert_eq!(board.holders().copied().collect::<Vec<_>>(), holders);
            prop_assert!(!board.is_stale(up_ms));
        }
    }
}
