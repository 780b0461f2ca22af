//! Making rollouts and their next generations: bodies that every agent would accept, before anybody signs them.

use std::path::Path;

use groundswell_core::digest::Digest;
use groundswell_core::documents::fleet::Role;
use groundswell_core::documents::release::Release;
use groundswell_core::documents::rollout::{Forgiven, Rollout, RosterRef, State};
use groundswell_core::documents::tag::{RolloutType, Spec1};
use groundswell_core::documents::{Body, Kind};
use groundswell_core::number::Generation;
use groundswell_core::rollout::counts::supersedes;
use groundswell_core::rollout::member::Member;
use groundswell_core::rollout::wave::Waves;
use groundswell_core::text::{Reason, RolloutId};
use groundswell_core::time::Timestamp;
use groundswell_core::trust::key::{Algorithm, ListedKey};

use super::clock::now;
use super::folder::{FleetFolder, Signed, read_document};
use super::manifest;
use super::rollout_file::{RolloutFile, Target};
use super::roster::Cut;
use crate::failure::Failure;

/// The keys of a role as bodies list them.
pub(crate) fn listed_keys(role: &Role) -> Vec<ListedKey> {
    let mut keys: Vec<ListedKey> =
        role.keys.iter().map(|key| ListedKey { kid: key.pin(), alg: Algorithm::Es256, spki: key.clone() }).collect();
    keys.sort_by_key(|key| key.kid);
    keys
}

/// The release that a rollout file names. One from a manifest outside the folder is taken into it.
pub(crate) fn find_release(folder: &mut FleetFolder, target: &Target) -> Result<(Digest, Release, Option<Signed>), Failure> {
    match target {
        Target::Release(product, version) => {
            let wanted = |release: &&Release| release.product == *product && release.version == *version;
            let found = folder.shelf().releases().find(|(_, release)| wanted(release));
            let found = found.map(|(digest, release)| (digest, release.clone(), None));
            found.ok_or_else(|| {
                let dir = folder.dir().join("releases");
                Failure::invalid(format!("{} holds no complete release {product} {version}: sign it with --fleet", dir.display()))
            })
        }
        Target::Manifest(path) => {
            let (envelope, body, _) = read_document(path)?;
            let Body::Release(release) = body.clone() else {
                return Err(Failure::invalid(format!("{} is a {}, not a manifest", path.display(), envelope.kind.name())));
            };
            let digest = envelope.digest();
            let place = folder.place(&body);
            let signed = folder.take(envelope, body, place)?;
            match signed.lacks.clone() {
                Some(rejection) => Err(Failure::refused(path, rejection)),
                None => Ok((digest, release, Some(signed))),
            }
        }
    }
}

/// Generation 1 of the rollout that `file` describes; without an id in the file, under one that follows from the draft.
pub(crate) fn draft(
    folder: &FleetFolder,
    file: &RolloutFile,
    digest: Digest,
    release: &Release,
    cut: &Cut,
) -> Result<Rollout, Failure> {
    if let Some(id) = file.id.as_ref().filter(|id| folder.shelf().rollout(id).is_some()) {
        return Err(Failure::invalid(format!(
            "rollout {id} exists already: give another id, or steer it by pause, resume, abort"
        )));
    }
    let issued_at = now();
    let size = Body::Roster(cut.roster.clone()).encode().len();
    let mut rollout = Rollout {
        kind: RolloutType,
        spec: Spec1,
        fleet: folder.id(),
        id: file.id.clone().unwrap_or_else(|| RolloutId::new("rollout").expect("a plain word")),
        generation: Generation::FIRST,
        previous: None,
        mode: file.mode,
        state: State::Running,
        rollback: false,
        reason: file.reason.clone(),
        urgent: file.urgent,
        from: file.from.clone(),
        release: groundswell_core::documents::rollout::ReleaseRef {
            product: release.product.clone(),
            version: release.version.clone(),
            sequence: release.sequence,
            digest,
        },
        roster: RosterRef {
            version: cut.roster.version,
            digest: cut.digest,
            size: u64::try_from(size).expect("a roster's length fits 64 bits"),
        },
        scope: file.scope.clone(),
        hash_attributes: file.hash_attributes.clone(),
        wary: file.wary.clone(),
        waves: file.waves.clone(),
        open_waves: file.open_waves,
        min_soaked_ppm: file.min_soaked_ppm,
        halt: file.halt,
        confirm_after_seconds: file.confirm_after_seconds,
        upgrade_timeout_seconds: file.upgrade_timeout_seconds,
        revert_timeout_seconds: file.revert_timeout_seconds,
        offline_after_seconds: file.offline_after_seconds,
        grace_seconds: file.grace_seconds,
        prefetch: file.prefetch,
        windows: Vec::new(),
        promotion: None,
        forgiven: Vec::new(),
        issued_at,
        expires_at: issued_at.plus_seconds(file.expires_after_seconds),
        keys: listed_keys(&folder.fleet().roles.rollout),
    };
    if file.id.is_none() {
        rollout.id = derived_id(folder, &rollout);
    }
    Ok(rollout)
}

/// The id of a draft that was given none: the same for `plan` and `create` as long as the file says the same and release,
/// roster version and keys are the same. The same draft signed once more gets the next one.
fn derived_id(folder: &FleetFolder, draft: &Rollout) -> RolloutId {
    let mut timeless = draft.clone();
    timeless.issued_at = Timestamp::from_seconds(0);
    timeless.expires_at = Timestamp::from_seconds(draft.expires_at.seconds().saturating_sub(draft.issued_at.seconds()));
    // A roster that is not signed yet says when it was cut: its version tells as much.
    timeless.roster.digest = Digest::of(&[]);
    timeless.roster.size = 0;
    let draft = Body::Rollout(timeless).encode();
    let id = |turn: u32| {
        let digest = Digest::of(&[&draft[..], &turn.to_be_bytes()].concat());
        let hex: String = digest.0.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
        RolloutId::new(format!("rollout_{hex}")).expect("hex digits are plain")
    };
    (0..).map(id).find(|id| !is_taken(folder, id)).expect("a folder has fewer rollouts than there are turns")
}

/// Whether the folder has a rollout of this id, a half-signed one included.
fn is_taken(folder: &FleetFolder, id: &RolloutId) -> bool {
    let is_it = |body: &Body| matches!(body, Body::Rollout(rollout) if rollout.id == *id);
    folder.shelf().rollout(id).is_some() || folder.half_signed().any(|half| is_it(&half.body))
}

/// The rollouts in the folder that are over as soon as `draft` is published: those that no other has taken over yet.
pub(crate) fn taken_over(folder: &FleetFolder, draft: &Rollout) -> Vec<RolloutId> {
    let all = || folder.shelf().rollouts().map(|stands| &stands.rollout);
    let over = |rollout: &Rollout| all().any(|other| supersedes(other, rollout));
    let live = folder.shelf().rollouts().filter(|stands| stands.state() != State::Aborted).map(|stands| &stands.rollout);
    live.filter(|rollout| supersedes(draft, rollout) && !over(rollout)).map(|rollout| rollout.id.clone()).collect()
}

/// What [`taken_over`] means, a line for each.
pub(crate) fn show_taken_over(taken_over: &[RolloutId], draft: &Rollout) -> String {
    let line = |id| format!("supersedes {id}: its remaining nodes go straight to {}\n", draft.release.version);
    taken_over.iter().map(line).collect()
}

/// Checks against its roster what no agent could check alone: somebody is meant, and the first wave is within root's limit.
pub(crate) fn check_draft(folder: &FleetFolder, path: &Path, rollout: &Rollout, cut: &Cut) -> Result<(), Failure> {
    rollout.validate().map_err(|rejection| Failure::not_signable(path.display().to_string(), rejection))?;
    for check in [
        groundswell_core::trust::guard_rails::check_roster(&folder.fleet().limits, &cut.roster),
        groundswell_core::trust::guard_rails::check_rollout(&folder.fleet().limits, rollout),
        groundswell_core::trust::guard_rails::check_presumed_lost(rollout, &cut.roster),
    ] {
        check.map_err(|rejection| Failure::not_signable(path.display().to_string(), rejection))?;
    }
    let members = members(folder, cut);
    let waves = Waves::assign(rollout, &members);
    if waves.order().is_empty() {
        let what = format!("{}: scope: no node of roster {} is in it: nothing was signed", path.display(), cut.roster.version);
        return Err(Failure::invalid(what));
    }
    if let Some((size, most)) = waves.first_wave_exceeds(folder.fleet().limits.max_first_wave_ppm) {
        let what = format!(
            "{}: waves[0]: limits: holds {size} of {} nodes, the fleet document allows {most}: nothing was signed",
            path.display(),
            waves.order().len()
        );
        return Err(Failure::invalid(what));
    }
    Ok(())
}

/// The nodes of a roster as waves see them.
pub(crate) fn members<'a>(folder: &'a FleetFolder, cut: &'a Cut) -> Vec<Member<'a>> {
    let listed = cut.roster.nodes.iter();
    listed
        .filter_map(|listed| {
            let certificate = folder.shelf().certificate_by_digest(&listed.certificate)?;
            Some(Member { id: listed.id, certificate, dormant: listed.dormant })
        })
        .collect()
}

/// Names of candidates for whose platform the release has no binary: they will skip it.
pub(crate) fn without_binary(folder: &FleetFolder, rollout: &Rollout, release: &Release, cut: &Cut) -> Vec<String> {
    let platforms = manifest::platforms(release);
    let members = members(folder, cut);
    let waves = Waves::assign(rollout, &members);
    let lacks =
        members.iter().filter(|member| waves.order().contains(&member.id) && !platforms.contains(&member.certificate.platform));
    lacks.map(|member| member.certificate.name.to_string()).collect()
}

/// What an operator tells a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing starts.
    Pause,
    /// Go on, accepting these failures.
    Resume(Vec<Forgiven>),
    /// Nothing starts, for good; with rollback, what is not confirmed goes back.
    Abort {
        /// Send back what is not confirmed.
        rollback: bool,
    },
}

/// The next generation of `id`.
pub(crate) fn next_generation(folder: &FleetFolder, id: &RolloutId, step: Step, reason: Reason) -> Result<Rollout, Failure> {
    let stands = folder.shelf().rollout(id).ok_or_else(|| {
        let known: Vec<String> = folder.shelf().rollouts().map(|stands| stands.rollout.id.to_string()).collect();
        let dir = folder.dir().join("rollouts");
        Failure::invalid(format!("{} holds no complete rollout {id}; it has: {}", dir.display(), list(&known)))
    })?;
    let before = &stands.rollout;
    if stands.state() == State::Aborted {
        return Err(Failure::invalid(format!(
            "rollout {id} is aborted, which is final: make a new one by `swell rollout create`"
        )));
    }
    let generation = before
        .generation
        .next()
        .ok_or_else(|| Failure::invalid(format!("rollout {id} has had its last generation: make a new one")))?;
    let mut forgiven = before.forgiven.clone();
    let (state, rollback) = match step {
        Step::Pause => (State::Paused, false),
        Step::Abort { rollback } => (State::Aborted, rollback),
        Step::Resume(more) => {
            for entry in more {
                forgiven.retain(|other| other.order() != entry.order());
                forgiven.push(entry);
            }
            forgiven.sort_by_key(Forgiven::order);
            (State::Running, false)
        }
    };
    // Signed after the generation before, even when the last signer's clock was a little ahead.
    let issued_at = now().max(before.issued_at);
    Ok(Rollout {
        generation,
        previous: Some(stands.digest),
        state,
        rollback,
        reason,
        forgiven,
        issued_at,
        keys: listed_keys(&folder.fleet().roles.rollout),
        ..before.clone()
    })
}

/// A document's kind for people.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    kind.name().trim_start_matches("groundswell.")
}

/// `a, b, c`, or `nothing`.
pub(crate) fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}
