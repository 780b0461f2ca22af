//! What survives a restart, a set-back store, and a newer roster (rules 2, 7, 8).

use groundswell_core::lease::warden::{Decision, Warden, WardenError};
use groundswell_core::limits::PROMISES;
use groundswell_core::record::grants::Grants;
use groundswell_core::record::status::Phase;

use super::mesh::{claim, name, node, roster, seen};

use super::stage::{DAY_MS, Watch};

#[test]
fn promises_survive_a_restart_and_the_record_says_the_same() {
    let mut watch = Watch::over(9, 1);
    watch.mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
    watch.considers();
    let before = watch.warden.record();
    watch.restarts();
    assert_eq!(watch.warden.record(), before);
    assert_eq!(before.declared, Some(roster()));
    watch.mesh.says(node(1), 7, Phase::Claiming, Some(claim(7, 0)));
    assert_eq!(watch.holders(), [node(2)]);
}

#[test]
fn damaged_promises_are_an_error_and_never_an_empty_list() {
    assert_eq!(Warden::from_bytes(&[]), Err(WardenError::Malformed));
    assert_eq!(Warden::from_bytes(&[2, 0]), Err(WardenError::Version(2)));
    assert_eq!(Warden::from_bytes(&[1, 9, 9]), Err(WardenError::Malformed));
    let mut bytes = Warden::default().to_bytes();
    assert_eq!(bytes, [1, 0, 0, 0], "golden bytes");
    bytes.push(0);
    assert_eq!(Warden::from_bytes(&bytes), Err(WardenError::Malformed), "nothing may follow");
}

#[test]
fn d34_a_set_back_warden_waits_declares_nothing_and_then_honours_what_stands() {
    let mut watch = Watch::over(9, 1);
    let lost = seen(node(2), &claim(5, 0)).promise();
    let taken_back = Grants { declared: Some(roster()), promises: vec![lost.clone()] };
    watch.warden.set_back(Some(&taken_back), 0, Some(DAY_MS));
    watch.mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    watch.mesh.says(node(4), 7, Phase::Claiming, Some(claim(7, 0)));
    let considered = watch.considers();
    assert_eq!(considered.look_again_after_ms, Some(DAY_MS));
    assert_eq!(watch.warden.record(), Grants { declared: None, promises: vec![lost.clone()] });
    // A day of up time later both standing claims count as granted by it, so neither can count on it.
    watch.restarts();
    (0..9).for_each(|number| watch.synced.note(node(number)));
    watch.up_ms = DAY_MS;
    let other = seen(node(4), &claim(7, 0)).promise();
    assert_eq!(watch.considers().decisions, [Decision::Adopt(other), Decision::Remembers]);
    assert_eq!(watch.warden.record().declared, Some(roster()));
    watch.mesh.says(node(2), 6, Phase::Confirmed, None);
    assert_eq!(watch.holders(), [node(4)]);
    assert_eq!(watch.warden.amnesia_left_ms(watch.up_ms), None, "it is not mute for ever");
}

#[test]
fn what_a_set_back_store_takes_back_beyond_what_a_record_holds_is_kept_and_listed_by_whole_slots() {
    let mut watch = Watch::over(9, 1);
    let promise = |holder: u8, number: u16| {
        let mut promise = seen(node(holder), &claim(5, 0)).promise();
        promise.slot = number;
        promise
    };
    let many = |holder: u8| Grants {
        declared: Some(roster()),
        promises: (0..u16::try_from(PROMISES).unwrap()).map(|number| promise(holder, number)).collect(),
    };
    watch.warden.set_back(Some(&many(2)), 0, Some(DAY_MS));
    watch.warden.set_back(Some(&many(4)), 0, Some(DAY_MS));
    assert_eq!(watch.warden.promises().count(), 2 * PROMISES, "none is forgotten");
    watch.restarts();
    let record = watch.warden.record();
    assert!(record.promises.len() <= PROMISES, "{}", record.promises.len());
    let on = |number: u16| record.promises.iter().filter(|promise| promise.slot == number).count();
    assert!((0..u16::try_from(PROMISES).unwrap()).all(|number| on(number) != 1), "a slot is listed whole or not at all");
    // With more than a record holds it does not come back either.
    (0..9).for_each(|number| watch.synced.note(node(number)));
    watch.up_ms = DAY_MS;
    assert_eq!(watch.considers().decisions, []);
    assert!(watch.warden.amnesia_left_ms(watch.up_ms).is_some());
    watch.mesh.written_off.insert(node(2), name(5));
    watch.considers();
    assert_eq!(watch.warden.amnesia_left_ms(watch.up_ms), None);
    assert_eq!(watch.warden.promises().count(), PROMISES);
}
