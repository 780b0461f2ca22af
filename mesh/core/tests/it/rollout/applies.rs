//! To whom a rollout does not apply, and why.

use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::documents::release::{Artifact, Release};
use groundswell_core::documents::tag::{ReleaseType, Spec1};
use groundswell_core::number::Sequence;
use groundswell_core::record::status::Running;
use groundswell_core::rollout::applies::{Applies, Facts, Skip, applies};
use groundswell_core::text::{ArtifactName, Platform, Version};
use groundswell_core::time::Timestamp;

use super::fixture::*;

fn sequence(number: u64) -> Sequence {
    Sequence::new(number).unwrap()
}

fn release() -> Release {
    let rollout = rollout("a", percents(&[1_000_000]));
    Release {
        kind: ReleaseType,
        spec: Spec1,
        product: rollout.release.product,
        version: rollout.release.version,
        sequence: rollout.release.sequence,
        issued_at: Timestamp::from_seconds(1),
        expires_at: Timestamp::LAST,
        keys: Vec::new(),
        artifacts: vec![Artifact {
            name: ArtifactName::new("linux-amd64").unwrap(),
            platform: Some(Platform::new("linux-amd64").unwrap()),
            sha256: Hex32([1; 32]),
            size: 1,
            blake3: Hex32([2; 32]),
        }],
        upgrade_from: None,
        dead_end: None,
        blocks: Vec::new(),
        notes: None,
    }
}

fn running(version: &str, number: u64) -> Running {
    Running { version: Version::new(version).unwrap(), sequence: sequence(number), release: Digest::of(version.as_bytes()) }
}

fn decide(change: impl FnOnce(&mut Facts<'_>)) -> Applies {
    let (platform, old) = (Platform::new("linux-amd64").unwrap(), running("1.3.0", 13));
    let mut facts = Facts {
        configured: true,
        observe_only: false,
        version_lock: None,
        platform: &platform,
        running: Some(&old),
        floor: sequence(13),
    };
    change(&mut facts);
    applies(&rollout("a", percents(&[1_000_000])), &release(), &facts)
}

#[test]
fn it_applies_unless_something_speaks_against_it() {
    assert_eq!(decide(|_| {}), Applies::Upgrade);
    assert_eq!(decide(|facts| facts.running = None), Applies::Upgrade);
    assert_eq!(decide(|facts| facts.configured = false), Applies::Skip(Skip::NotConfigured));
    assert_eq!(decide(|facts| facts.observe_only = true), Applies::Skip(Skip::ObserveOnly));
    assert_eq!(decide(|facts| facts.version_lock = Some("1.3.0")), Applies::Skip(Skip::VersionLock("1.3.0".into())));
    assert_eq!(decide(|facts| facts.version_lock = Some("1.4.0")), Applies::Upgrade);
    assert_eq!(decide(|facts| facts.floor = sequence(14)), Applies::Upgrade);
    let floor = Skip::Floor { floor: sequence(15), release: sequence(14) };
    assert_eq!(decide(|facts| facts.floor = sequence(15)), Applies::Skip(floor));
}

#[test]
fn a_platform_without_an_artifact_is_skipped_by_name() {
    let (platform, old) = (Platform::new("linux-arm64").unwrap(), running("1.3.0", 13));
    let facts = Facts {
        configured: true,
        observe_only: false,
        version_lock: None,
        platform: &platform,
        running: Some(&old),
        floor: sequence(13),
    };
    let answer = applies(&rollout("a", percents(&[1_000_000])), &release(), &facts);
    assert_eq!(answer, Applies::Skip(Skip::NoArtifact(platform.clone())));
}

#[test]
fn barriers_and_from_look_at_what_runs() {
    let (platform, old) = (Platform::new("linux-amd64").unwrap(), running("1.3.0", 13));
    let facts = Facts {
        configured: true,
        observe_only: false,
        version_lock: None,
        platform: &platform,
        running: Some(&old),
        floor: sequence(13),
    };
    let mut barrier = release();
    barrier.upgrade_from = Some(sequence(14));
    let mut rollout = rollout("a", percents(&[1_000_000]));
    assert_eq!(applies(&rollout, &barrier, &facts), Applies::Skip(Skip::Barrier { lowest: sequence(14) }));
    barrier.upgrade_from = Some(sequence(13));
    assert_eq!(applies(&rollout, &barrier, &facts), Applies::Upgrade);
    let other = Version::new("1.2.0").unwrap();
    rollout.from = Some(other.clone());
    assert_eq!(applies(&rollout, &release(), &facts), Applies::Skip(Skip::From(other)));
    let there = Running { release: rollout.release.digest, ..running("1.4.0", 14) };
    let on_it = Facts { running: Some(&there), version_lock: Some("1.3.0"), ..facts };
    assert_eq!(applies(&rollout, &release(), &on_it), Applies::AlreadyThere);
}
