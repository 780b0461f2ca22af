//! How slots look to others: what `swell leases` shows and which slots look free.

use groundswell_core::lease::claim::SeenClaim;
use groundswell_core::lease::view::{free_slots, slots_of};
use groundswell_core::record::status::Phase;
use groundswell_core::text::Pool;
use groundswell_core::time::Time;

use super::mesh::{Mesh, claim, edge, name, node, policy, pool_map, seen, slot};

use super::stage::{DAY_MS, START_WITHIN_MS};

fn claims_in(mesh: &Mesh) -> Vec<SeenClaim> {
    mesh.candidates().into_iter().map(|candidate| candidate.claim).collect()
}

#[test]
fn d15_l6_a_claimant_that_died_after_two_of_seven_grants_is_shown_and_does_not_block_the_others() {
    let map = pool_map(7, policy(1, 7));
    let mut mesh = Mesh::default();
    mesh.says(node(2), 5, Phase::Claiming, Some(claim(5, 0)));
    for warden in map.wardens(&slot(0)).unwrap().nodes.iter().take(2) {
        mesh.grants_to(*warden, &[&seen(node(2), &claim(5, 0))]);
    }
    let look = |mesh: &Mesh| slots_of(&map, &edge(), &claims_in(mesh), mesh).remove(0);
    mesh.unheard_ms.insert(node(2), START_WITHIN_MS);
    let view = look(&mesh);
    assert!(!view.free, "it may still win");
    mesh.unheard_ms.insert(node(2), START_WITHIN_MS + 1);
    let view = look(&mesh);
    let occupant = view.occupant.expect("shown as claimed by a silent node");
    assert_eq!((occupant.holder, occupant.claim, occupant.grants, occupant.active), (node(2), name(5), 2, false));
    assert_eq!((view.wardens, view.quorum), (7, 5));
    assert_eq!(occupant.presumed_lost_in_ms, Some(DAY_MS - START_WITHIN_MS - 1));
    assert!(view.free, "the other five are a quorum");
    mesh.written_off.insert(node(2), name(5));
    assert_eq!(look(&mesh).occupant, None);
}

#[test]
fn a_holder_in_its_upgrade_keeps_its_slot_from_looking_free_while_it_is_silent() {
    let map = pool_map(9, policy(1, 9));
    let mut mesh = Mesh::default();
    mesh.says(node(2), 5, Phase::Activating, Some(claim(5, 0)));
    mesh.unheard_ms.insert(node(2), DAY_MS - 1);
    mesh.grants_to(map.wardens(&slot(0)).unwrap().nodes[0], &[&seen(node(2), &claim(5, 0))]);
    assert!(!slots_of(&map, &edge(), &claims_in(&mesh), &mesh)[0].free);
    mesh.unheard_ms.insert(node(2), DAY_MS);
    assert!(slots_of(&map, &edge(), &claims_in(&mesh), &mesh)[0].free, "presumed lost");
}

#[test]
fn l8_a_budget_below_the_leases_held_is_a_wait() {
    let mut policy = policy(1, 9);
    policy.urgent_budget_ppm = groundswell_core::number::Ppm::ALL;
    let map = pool_map(9, policy);
    let mut mesh = Mesh::default();
    for number in 0..4_u8 {
        mesh.says(node(number), 5, Phase::Activating, Some(claim(5, u16::from(number))));
    }
    for warden in 0..9 {
        let held: Vec<SeenClaim> = (0..4_u8).map(|number| seen(node(number), &claim(5, u16::from(number)))).collect();
        mesh.grants_to(node(warden), &held.iter().collect::<Vec<_>>());
    }
    let views = slots_of(&map, &edge(), &claims_in(&mesh), &mesh);
    let seats = map.pool(&edge()).unwrap();
    assert_eq!(free_slots(&views, seats, false), [] as [u16; 0], "four held, one budgeted");
    assert_eq!(free_slots(&views, seats, true), [4, 5, 6, 7, 8]);
    let mut queue = groundswell_core::lease::queue::Queue::default();
    let turn = queue.turn(Time(0), 0, &free_slots(&views, seats, false));
    assert_eq!(turn, groundswell_core::lease::queue::Turn::Wait(groundswell_core::lease::queue::Turnless::NoneFree));
}

#[test]
fn a_pool_that_no_roster_lists_has_no_slots() {
    let map = pool_map(9, policy(1, 9));
    assert!(slots_of(&map, &Pool::new("core").unwrap(), &[], &Mesh::default()).is_empty());
}
