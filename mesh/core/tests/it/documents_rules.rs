//! The structural rules of each kind: what is refused, under which code, about which field.

use groundswell_core::documents::Body;
use groundswell_core::documents::rejection::Reason;
use groundswell_core::documents::rollout::{Forgiven, Rollout, State, Wave};
use groundswell_core::number::Ppm;
use groundswell_core::text::{ArtifactName, Platform};

use crate::fixture::{Fixture, at, next, node};

fn broken(body: Body) -> (Reason, String) {
    let rejection = Body::parse(body.kind(), &body.encode()).expect_err("the body must be refused");
    (rejection.reason, rejection.field)
}

fn malformed(field: &str) -> (Reason, String) {
    (Reason::Malformed, field.to_string())
}

fn percentages(rollout: &Rollout, parts: &[u32]) -> Body {
    let wave = |parts: &u32| Wave { percent_ppm: Ppm::new(*parts).ok(), soak_seconds: 600, ..Wave::default() };
    Body::Rollout(Rollout { waves: parts.iter().map(wave).collect(), ..rollout.clone() })
}

#[test]
fn the_fixture_itself_is_sound() {
    let fixture = Fixture::new();
    let (release, roster, rollout) = fixture.scene();
    for body in [
        Body::Fleet(fixture.fleet.clone()),
        Body::Release(release),
        Body::Roster(roster),
        Body::Rollout(rollout),
        Body::Node(fixture.certificate(31, 1)),
    ] {
        assert_eq!(Body::parse(body.kind(), &body.encode()), Ok(body));
    }
}

#[test]
fn w5_percentages_rise_from_above_zero_to_all() {
    let (_, _, rollout) = Fixture::new().scene();
    assert_eq!(broken(percentages(&rollout, &[500_000, 500_000, 1_000_000])), malformed("waves[1].percentPpm"));
    assert_eq!(broken(percentages(&rollout, &[100_000, 900_000])), malformed("waves[1].percentPpm"));
    assert_eq!(broken(percentages(&rollout, &[0, 1_000_000])), malformed("waves[0].percentPpm"));
    assert_eq!(broken(percentages(&rollout, &[600_000, 500_000, 1_000_000])), malformed("waves[1].percentPpm"));
    assert_eq!(broken(percentages(&rollout, &[])), malformed("waves"));
    let mut text = String::from_utf8(Body::Rollout(rollout).encode()).unwrap();
    text = text.replace("\"percentPpm\":1000000", "\"percentPpm\":1000001");
    let rejection = Body::parse(groundswell_core::documents::Kind::Rollout, text.as_bytes()).unwrap_err();
    assert_eq!((rejection.reason, rejection.field), malformed("waves[1].percentPpm"));
}

#[test]
fn w9_no_failure_ratio_is_no_default() {
    let (_, _, rollout) = Fixture::new().scene();
    let text = String::from_utf8(Body::Rollout(rollout).encode()).unwrap();
    for (bad, field) in [("\"maxFailurePpm\":\"5%\"", "halt.maxFailurePpm"), ("\"maxFailurePpm\":null", "halt.maxFailurePpm")] {
        let text = text.replace("\"maxFailurePpm\":50000", bad);
        let rejection = Body::parse(groundswell_core::documents::Kind::Rollout, text.as_bytes()).unwrap_err();
        assert_eq!((rejection.reason, rejection.field), malformed(field));
    }
    let gone = text.replace("\"maxFailurePpm\":50000,", "");
    let rejection = Body::parse(groundswell_core::documents::Kind::Rollout, gone.as_bytes()).unwrap_err();
    assert_eq!((rejection.reason, rejection.field), malformed("halt.maxFailurePpm"));
}

#[test]
fn b5_an_artifact_without_sha256_is_malformed() {
    let release = Fixture::new().release("1.0.0", 1);
    let text = String::from_utf8(Body::Release(release).encode()).unwrap();
    let sha256 = format!(",\"sha256\":\"{}\"", "01".repeat(32));
    assert!(text.contains(&sha256), "{text}");
    let rejection = Body::parse(groundswell_core::documents::Kind::Release, text.replace(&sha256, "").as_bytes()).unwrap_err();
    assert_eq!((rejection.reason, rejection.field), malformed("artifacts[0].sha256"));
}

#[test]
fn k6_artifact_names_are_sorted_and_differ_in_more_than_case() {
    let mut release = Fixture::new().release("1.0.0", 1);
    let mut upper = release.artifacts[0].clone();
    upper.name = ArtifactName::new("BCD-linux-amd64").unwrap();
    upper.platform = None;
    release.artifacts.insert(0, upper);
    assert_eq!(broken(Body::Release(release.clone())), malformed("artifacts[1].name"));
    release.artifacts.reverse();
    assert_eq!(broken(Body::Release(release.clone())), malformed("artifacts[1]"));
    let text = String::from_utf8(Body::Release(Fixture::new().release("1.0.0", 1)).encode()).unwrap();
    for bad in ["../x", "a/b", ".", "", "a\\u0000b", &"x".repeat(300)] {
        let text = text.replace("bcd-linux-amd64", bad);
        let rejection = Body::parse(groundswell_core::documents::Kind::Release, text.as_bytes()).unwrap_err();
        assert_eq!((rejection.reason, rejection.field), malformed("artifacts[0].name"), "{bad}");
    }
}

#[test]
fn a_release_has_one_bare_binary_per_platform_and_no_empty_file() {
    let mut release = Fixture::new().release("1.0.0", 1);
    let mut second = release.artifacts[0].clone();
    second.name = ArtifactName::new("other-linux-amd64").unwrap();
    release.artifacts.push(second);
    assert_eq!(broken(Body::Release(release.clone())), malformed("artifacts[1].platform"));
    release.artifacts[1].platform = Some(Platform::new("linux-arm64").unwrap());
    assert!(release.validate().is_ok());
    release.artifacts[1].size = 0;
    assert_eq!(broken(Body::Release(release)), malformed("artifacts[1].size"));
}

#[test]
fn a_fleet_role_asks_for_one_key_to_all() {
    let mut fleet = Fixture::new().fleet;
    fleet.roles.rollout.threshold = 4;
    assert_eq!(broken(Body::Fleet(fleet.clone())), malformed("roles.rollout.threshold"));
    fleet.roles.rollout.threshold = 0;
    assert_eq!(broken(Body::Fleet(fleet.clone())), malformed("roles.rollout.threshold"));
    fleet.roles.rollout.threshold = 3;
    assert!(fleet.validate().is_ok());
    let twice = fleet.roles.rollout.keys[0].clone();
    fleet.roles.rollout.keys.insert(0, twice);
    assert_eq!(broken(Body::Fleet(fleet)), malformed("roles.rollout.keys[1]"));
}

#[test]
fn a_rollout_names_its_predecessor_exactly_when_it_has_one() {
    let (_, _, rollout) = Fixture::new().scene();
    let orphan = Rollout { previous: None, ..next(&rollout) };
    assert_eq!(broken(Body::Rollout(orphan)), malformed("previous"));
    let rollback = Rollout { rollback: true, state: State::Paused, ..rollout.clone() };
    assert_eq!(broken(Body::Rollout(rollback)), malformed("rollback"));
    let backwards = Rollout { expires_at: at(0), ..rollout };
    assert_eq!(broken(Body::Rollout(backwards)), malformed("expiresAt"));
}

#[test]
fn forgiven_entries_are_sorted_and_bounded() {
    let (_, _, rollout) = Fixture::new().scene();
    let entry = |seed| Forgiven { node: node(seed), claim: None, retry: false };
    let mut forgiven = vec![entry(31), entry(31)];
    assert_eq!(broken(Body::Rollout(Rollout { forgiven: forgiven.clone(), ..rollout.clone() })), malformed("forgiven[1]"));
    forgiven = (0..1025).map(|_| entry(31)).collect();
    assert_eq!(broken(Body::Rollout(Rollout { forgiven, ..rollout })), (Reason::TooLarge, "forgiven".to_string()));
}

#[test]
fn a_roster_lists_each_node_once_and_nobody_who_left() {
    let fixture = Fixture::new();
    let (_, mut roster, _) = fixture.scene();
    roster.removed = vec![roster.nodes[1].id];
    assert_eq!(broken(Body::Roster(roster.clone())), malformed("removed[0]"));
    roster.removed.clear();
    roster.nodes.swap(0, 1);
    assert_eq!(broken(Body::Roster(roster.clone())), malformed("nodes[1]"));
    roster.nodes.swap(0, 1);
    roster.version = 2;
    assert_eq!(broken(Body::Roster(roster)), malformed("previous"));
}

#[test]
fn unknown_fields_and_wrong_outer_kinds_are_malformed() {
    let body = Body::Node(Fixture::new().certificate(31, 1));
    let text = String::from_utf8(body.encode()).unwrap().replace("\"type\"", "\"sudo\":true,\"type\"");
    let rejection = Body::parse(body.kind(), text.as_bytes()).unwrap_err();
    assert_eq!(rejection.reason, Reason::Malformed);
    assert!(rejection.detail.contains("sudo"), "{rejection}");
    let rejection = Body::parse(groundswell_core::documents::Kind::Rollout, &body.encode()).unwrap_err();
    assert_eq!(rejection.reason, Reason::Malformed);
}
