//! Who is in which wave: sizes at every edge, and what holds for every list and every fleet.

use std::collections::{BTreeMap, BTreeSet};

use groundswell_core::documents::rollout::{Hosts, Rollout, Wave};
use groundswell_core::rollout::member::Member;
use groundswell_core::rollout::wave::Waves;
use groundswell_core::text::{LabelKey, LabelValue};
use proptest::prelude::*;

use super::fixture::*;

fn sizes(count: usize, parts: &[u32]) -> Vec<usize> {
    let certificates = fleet(count);
    let waves = Waves::assign(&rollout("rollout_a", percents(parts)), &members(&certificates));
    (0..waves.count()).map(|wave| waves.members(wave).len()).collect()
}

#[test]
fn the_sizes_of_the_design_come_out() {
    assert_eq!(sizes(20, &[100_000, 500_000, 1_000_000]), [2, 8, 10]);
    let defaults = [10_000, 100_000, 500_000, 1_000_000];
    assert_eq!(sizes(200, &defaults), [2, 18, 80, 100]);
    assert_eq!(sizes(5, &defaults), [1, 1, 1, 2]);
    assert_eq!(sizes(3, &defaults), [1, 1, 1, 0]);
}

#[test]
fn w1_every_wave_has_a_node_while_nodes_remain() {
    for count in 0..=20 {
        let sizes = sizes(count, &[10_000, 100_000, 500_000, 1_000_000]);
        assert_eq!(sizes.iter().sum::<usize>(), count);
        let mut left = count;
        for size in sizes {
            assert!(size >= left.min(1), "{count} nodes");
            left -= size;
        }
    }
}

#[test]
fn w7_another_rollout_of_the_same_release_has_other_canaries() {
    let certificates = fleet(200);
    let canaries = |id: &str| -> BTreeSet<_> {
        let waves = Waves::assign(&rollout(id, percents(&[50_000, 1_000_000])), &members(&certificates));
        waves.members(0).iter().copied().collect()
    };
    assert_eq!(canaries("rollout_a"), canaries("rollout_a"));
    let both = canaries("rollout_a").intersection(&canaries("rollout_b")).count();
    assert!(both <= 4, "{both} of 10 canaries are the same");
}

#[test]
fn dormant_nodes_come_last_in_every_order() {
    let certificates = fleet(30);
    let mut members = members(&certificates);
    for member in members.iter_mut().take(10) {
        member.dormant = true;
    }
    let waves = Waves::assign(&rollout("rollout_a", percents(&[500_000, 1_000_000])), &members);
    let last: BTreeSet<_> = waves.order()[20..].iter().copied().collect();
    assert_eq!(last, members.iter().take(10).map(|member| member.id).collect());
    assert_eq!(waves.wave_of(&node(0)), Some(1));
}

#[test]
fn a_wave_is_the_union_of_its_hosts_its_matches_and_its_share() {
    let mut certificates = fleet(20);
    label(&mut certificates[3], "env", "stage");
    label(&mut certificates[4], "env", "stage");
    let hosts = Hosts { attribute: "name".into(), values: vec!["n1".into(), "nobody".into()] };
    let labels = [(LabelKey::new("env").unwrap(), LabelValue::new("stage").unwrap())].into();
    let first = Wave { hosts: Some(hosts), ..Wave::default() };
    let second = Wave { labels: Some(labels), percent_ppm: Some(ppm(250_000)), ..Wave::default() };
    let waves = Waves::assign(&rollout("rollout_a", vec![first, second, percent(1_000_000)]), &members(&certificates));
    assert_eq!(waves.members(0), [node(1)]);
    assert_eq!(waves.wave_of(&node(3)), Some(1));
    assert_eq!(waves.wave_of(&node(4)), Some(1));
    assert_eq!(waves.members(1).len(), 4, "five of twenty, one of them in the first wave");
    assert_eq!(waves.members(2).len(), 15);
}

#[test]
fn d10_what_no_wave_names_stays_where_it_is() {
    let mut certificates = fleet(10);
    for certificate in certificates.iter_mut().take(6) {
        label(certificate, "ring", "one");
    }
    let labels = [(LabelKey::new("ring").unwrap(), LabelValue::new("one").unwrap())].into();
    let by_wave = rollout("rollout_a", vec![Wave { labels: Some(labels), ..Wave::default() }]);
    let waves = Waves::assign(&by_wave, &members(&certificates));
    assert_eq!(waves.members(0).len(), 6);
    assert!(!waves.is_total());
    assert_eq!(waves.wave_of(&node(9)), None);

    let mut by_scope = rollout("rollout_a", percents(&[1_000_000]));
    by_scope.scope.labels.insert(LabelKey::new("ring").unwrap(), LabelValue::new("one").unwrap());
    let waves = Waves::assign(&by_scope, &members(&certificates));
    assert_eq!(waves.order().len(), 6);
    assert_eq!(waves.wave_of(&node(9)), None);
}

#[test]
fn wary_nodes_come_after_the_others_and_before_dormant_ones() {
    let mut certificates = fleet(20);
    for certificate in certificates.iter_mut().take(12) {
        label(certificate, "care", "high");
    }
    label(&mut certificates[0], "canary", "yes");
    let labels = |key, value| BTreeMap::from([(LabelKey::new(key).unwrap(), LabelValue::new(value).unwrap())]);
    let opted = Wave { labels: Some(labels("canary", "yes")), ..Wave::default() };
    let mut rollout = rollout("rollout_a", vec![opted, percent(400_000), percent(1_000_000)]);
    let mut members = members(&certificates);
    members[19].dormant = true;
    let early = |waves: &Waves| waves.members(1).iter().filter(|id| (0..12).any(|n| **id == node(n))).count();
    assert!(early(&Waves::assign(&rollout, &members)) > 0, "the shuffle alone spares nobody");

    rollout.wary = labels("care", "high");
    let waves = Waves::assign(&rollout, &members);
    assert_eq!(waves.members(0), [node(0)], "who is named goes all the same");
    assert_eq!((waves.members(1).len(), early(&waves)), (7, 0));
    assert!(waves.order()[7..19].iter().all(|id| (0..12).any(|n| *id == node(n))));
    assert_eq!(waves.order()[19], node(19));
    assert!(Waves::assign(&Rollout { wary: BTreeMap::new(), ..rollout }, &members).order()[..7] != waves.order()[..7]);
}

#[test]
fn equal_values_of_hashed_attributes_move_together() {
    let mut certificates = fleet(40);
    for (n, certificate) in certificates.iter_mut().enumerate() {
        label(certificate, "rack", &format!("r{}", n / 5));
    }
    let mut rollout = rollout("rollout_a", percents(&[100_000, 500_000, 1_000_000]));
    rollout.hash_attributes = vec!["rack".into()];
    let waves = Waves::assign(&rollout, &members(&certificates));
    for rack in 0..8 {
        let of_rack: BTreeSet<_> = (rack * 5..rack * 5 + 5).map(|n| waves.wave_of(&node(n))).collect();
        assert_eq!(of_rack.len(), 1, "rack {rack} is split");
    }
    assert_eq!(waves.members(0).len(), 5);
}

#[test]
fn an_observer_is_in_no_wave() {
    let mut certificates = fleet(3);
    certificates[1].pool = None;
    let waves = Waves::assign(&rollout("rollout_a", percents(&[1_000_000])), &members(&certificates));
    assert_eq!(waves.order().len(), 2);
    assert_eq!(waves.wave_of(&node(1)), None);
}

#[test]
fn the_guard_rail_on_the_first_wave_always_allows_one_node() {
    let certificates = fleet(10);
    let assign = |parts| Waves::assign(&rollout("rollout_a", percents(&[parts, 1_000_000])), &members(&certificates));
    assert_eq!(assign(100_000).first_wave_exceeds(ppm(10_000)), None);
    assert_eq!(assign(300_000).first_wave_exceeds(ppm(200_000)), Some((3, 2)));
    assert_eq!(assign(200_000).first_wave_exceeds(ppm(200_000)), None);
}

proptest! {
    #[test]
    fn w2_the_waves_hold_all_nodes_and_none_twice(count in 0_usize..=300, parts in proptest::collection::btree_set(1_u32..1_000_000, 0..10)) {
        let parts: Vec<u32> = parts.into_iter().chain([1_000_000]).collect();
        let certificates = fleet(count);
        let waves = Waves::assign(&rollout("rollout_a", percents(&parts)), &members(&certificates));
        let mut held = 0;
        let mut target = 0;
        for (wave, share) in (0..).zip(&parts) {
            held += waves.members(wave).len();
            target = count.min(ppm(*share).ceil_of(count).max(target + 1));
            prop_assert_eq!(held, target, "wave {}", wave);
        }
        let all: BTreeSet<_> = (0..waves.count()).flat_map(|wave| waves.members(wave)).collect();
        prop_assert_eq!((held, all.len()), (count, count));
    }

    #[test]
    fn membership_only_widens_as_shares_grow(count in 1_usize..100, small in 1_u32..500_000, large in 500_000_u32..1_000_000) {
        let certificates = fleet(count);
        let assign = |parts| Waves::assign(&rollout("rollout_a", percents(&[parts, 1_000_000])), &members(&certificates));
        let (before, after) = (assign(small), assign(large));
        prop_assert!(before.members(0).iter().all(|node| after.members(0).contains(node)));
    }

    #[test]
    fn the_order_of_the_roster_does_not_matter(count in 0_usize..50, seed in any::<u64>()) {
        let certificates = fleet(count);
        let mut shuffled: Vec<Member<'_>> = members(&certificates);
        shuffled.sort_by_key(|member| member.id.0[7] as u64 ^ seed.wrapping_mul(31));
        let rollout = rollout("rollout_a", percents(&[10_000, 500_000, 1_000_000]));
        prop_assert_eq!(Waves::assign(&rollout, &members(&certificates)), Waves::assign(&rollout, &shuffled));
    }
}
