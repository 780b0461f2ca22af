//! Each kind of fault, and how a seed draws it.
//!
//! To add one, add a variant to [`Act`], do it in [`super::acting`], and give it a line in [`FAULTS`].

use std::ops::RangeInclusive;

use super::act::{Act, Odd, Terms};
use super::device::Behaviour;
use super::draw::{Drawing, State, one_of, share};
use super::liar::Lie;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
/// Before its end a seed of the shortest kind has room for what is to meet.
const ROOM_MS: u64 = 2 * MINUTE;
/// One wave of everybody.
const AT_ONCE: &[u64] = &[1_000_000];

/// A kind of fault.
pub(super) struct Fault {
    /// Each seed draws a weight from these; the larger, the more often it happens beside the others.
    pub(super) weights: RangeInclusive<u64>,
    /// Draws one.
    pub(super) draw: fn(&mut Drawing),
}

/// Everything that may happen to a seed's fleet.
pub(super) const FAULTS: &[Fault] = &[
    Fault { weights: 0..=7, draw: power },
    Fault { weights: 0..=1, draw: site_power },
    Fault { weights: 0..=3, draw: suspend },
    Fault { weights: 0..=1, draw: crash_loop },
    Fault { weights: 0..=3, draw: partition },
    Fault { weights: 0..=1, draw: moving_partition },
    Fault { weights: 0..=2, draw: deaf },
    Fault { weights: 0..=2, draw: slow },
    Fault { weights: 0..=2, draw: clock },
    Fault { weights: 0..=1, draw: roster },
    Fault { weights: 0..=1, draw: breakage },
    Fault { weights: 1..=8, draw: operator },
    Fault { weights: 0..=2, draw: lie },
    Fault { weights: 0..=1, draw: set_back },
    Fault { weights: 0..=1, draw: clone },
    Fault { weights: 0..=1, draw: lose },
    Fault { weights: 0..=1, draw: retire },
    Fault { weights: 0..=1, draw: join },
];

fn power(drawing: &mut Drawing) {
    let (machine, for_ms) = (drawing.anybody(), Some(drawing.outage_ms()));
    drawing.happens(Act::PowerOff { machine, for_ms });
}

fn site_power(drawing: &mut Drawing) {
    let Some(pool) = drawing.a_pool() else { return };
    let (for_ms, apart_ms) = (drawing.outage_ms(), drawing.roll(MINUTE));
    drawing.happens(Act::SitePowerOff { pool, for_ms, apart_ms });
}

fn suspend(drawing: &mut Drawing) {
    let (machine, for_ms) = (drawing.anybody(), 1 + drawing.roll(10 * MINUTE));
    let act = if drawing.roll(3) == 0 { Act::Freeze { machine, for_ms } } else { Act::Suspend { machine, for_ms } };
    drawing.happens(act);
}

fn partition(drawing: &mut Drawing) {
    let act = match drawing.roll(4) {
        0 => Act::Mend,
        1 => Act::Partition { groups: vec![(0..drawing.anybody()).collect()] },
        2 => Act::PartPools,
        _ => Act::Partition { groups: vec![drawing.some()] },
    };
    drawing.happens(act);
}

fn deaf(drawing: &mut Drawing) {
    let (from, to) = (drawing.anybody(), drawing.anybody());
    let act = match drawing.roll(4) {
        0 => Act::Undeafen,
        1 => Act::OneWay { from: drawing.some(), to: drawing.some() },
        _ => Act::Deafen { from, to },
    };
    drawing.happens(act);
}

/// A machine is restarted again and again.
fn crash_loop(drawing: &mut Drawing) {
    let (machine, pause_ms) = (drawing.anybody(), 500 + drawing.roll(10 * SECOND));
    let mut at_ms = 0;
    for _ in 0..3 + drawing.roll(6) {
        let for_ms = Some(drawing.roll(2 * SECOND));
        drawing.happens_after(at_ms, Act::PowerOff { machine, for_ms });
        at_ms += 2 * SECOND + drawing.roll(pause_ms);
    }
}

/// A partition that moves on: whoever was cut off is in touch again, and the next one is not.
fn moving_partition(drawing: &mut Drawing) {
    let (width, every_ms) = (1 + drawing.roll(3), 10 * SECOND + drawing.roll(MINUTE));
    let steps = 3 + drawing.roll(6);
    for step in 0..steps {
        let group = (0..width).map(|place| u32::try_from((step + place) % drawing.machines).expect("few machines"));
        drawing.happens_after(step * every_ms, Act::Partition { groups: vec![group.collect()] });
    }
    drawing.happens_after(steps * every_ms, Act::Mend);
}

/// A machine's links are slow, or one way is clogged for a while.
fn slow(drawing: &mut Drawing) {
    let for_ms = 1 + drawing.roll(5 * MINUTE);
    let act = if drawing.roll(2) == 0 {
        Act::Slow { machine: drawing.anybody(), by_ms: drawing.roll(20 * SECOND), for_ms }
    } else {
        Act::Clog { from: drawing.anybody(), to: drawing.anybody(), for_ms: for_ms / 2 }
    };
    drawing.happens(act);
}

/// The next roster: as it is, with another budget, or by two operators at once; often while a rollout has only just begun. A
/// release follows that names it.
fn roster(drawing: &mut Drawing) {
    if drawing.roll(2) == 0 {
        publish(drawing);
        drawing.now_ms += 2 * SECOND + drawing.roll(2 * MINUTE);
    }
    let Some(pool) = drawing.a_pool() else { return };
    let pick = drawing.roll(5);
    let budget_ppm = share(one_of(&[50_000, 100_000, 250_000, 500_000, 750_000], pick));
    match drawing.roll(4) {
        0 => drawing.happens(Act::CutRoster),
        1 => {
            let (at_machine, and_machine) = (drawing.anybody(), drawing.anybody());
            drawing.state = State::Running;
            return drawing.happens(Act::Rivals { at_machine, and_machine, pool, budget_ppm });
        }
        _ => drawing.happens(Act::Rebudget { pool, budget_ppm }),
    }
    publish(drawing);
}

fn clock(drawing: &mut Drawing) {
    let (machine, pick) = (drawing.anybody(), drawing.roll(6));
    let skew_seconds = one_of(&[0_i64, -3_600, 3_600, -1_795_000_000, 86_400 * 400, 30], pick);
    if drawing.roll(3) == 0 {
        let ppm = i64::try_from(drawing.roll(10_000)).expect("below 10,000") - 5_000;
        return drawing.happens(Act::Drift { machine, ppm });
    }
    drawing.happens(Act::Clock { machine, skew_seconds });
}

fn breakage(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    let act = if drawing.roll(2) == 0 { Act::Break { machine } } else { Act::Repair { machine } };
    drawing.happens(act);
}

fn operator(drawing: &mut Drawing) {
    let at_machine = drawing.anybody();
    match (drawing.roll(10), drawing.state) {
        (0 | 1, _) | (_, State::Aborted) => publish(drawing),
        (2 | 3, State::Running) => {
            drawing.state = State::Paused;
            drawing.happens(Act::Pause { at_machine });
        }
        (4..=6, State::Paused) => {
            drawing.state = State::Running;
            drawing.happens(Act::Resume { at_machine });
        }
        (7, _) => {
            drawing.state = State::Aborted;
            let rollback = drawing.roll(2) == 0;
            drawing.happens(Act::Abort { at_machine, rollback });
        }
        (8, State::Running) => {
            drawing.state = State::Paused;
            let and_machine = drawing.anybody();
            drawing.happens(Act::Disagree { at_machine, and_machine, goes_on: false });
        }
        _ => drawing.happens(Act::Forgive { at_machine }),
    }
}

/// A good release whose health check says nothing for a while: shorter than an upgrade may take, or longer.
fn unclear(drawing: &mut Drawing) -> Behaviour {
    Behaviour::UnclearFor(SECOND + drawing.roll(3 * MINUTE))
}

/// A new release, perhaps a bad one, and a rollout of it.
pub(super) fn publish(drawing: &mut Drawing) {
    let at_machine = drawing.anybody();
    let behaviour = match drawing.roll(10) {
        5 => unclear(drawing),
        4 => Behaviour::Crashes(500 + drawing.roll(4_000)),
        0 => Behaviour::Unhealthy,
        1 => Behaviour::Mute,
        2 => Behaviour::DegradesAfter(1_000 + drawing.roll(60_000)),
        3 => Behaviour::WontStart,
        _ => Behaviour::Good,
    };
    let mut terms = drawing.terms();
    if drawing.roll(5) == 0 {
        terms.expires_after_ms = MINUTE + drawing.roll(10 * MINUTE);
    }
    let mut odd = Vec::new();
    // Some machines have their own ideas of a good one.
    if behaviour == Behaviour::Good && drawing.lossy {
        for machine in 0..u32::try_from(drawing.machines).expect("few machines") {
            if drawing.roll(20) == 0 {
                let behaviour = match drawing.roll(3) {
                    0 => Behaviour::Unhealthy,
                    1 => unclear(drawing),
                    _ => Behaviour::Hangs,
                };
                odd.push(Odd { machine, behaviour });
            }
        }
    }
    drawing.state = State::Running;
    drawing.happens(Act::Publish { at_machine, behaviour, terms, odd });
}

/// Somebody lies: mostly one who has done so before, as far as its pool tolerates that.
fn lie(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    let machine = match drawing.liars.first().copied() {
        Some(known) if drawing.roll(4) > 0 => known,
        _ => machine,
    };
    drawing.liars.insert(0, machine);
    let how = match drawing.roll(8) {
        0 => Lie::Equivocate,
        1 => Lie::Boast,
        2 => Lie::Forge,
        3 => Lie::Replay,
        4 => Lie::Flood,
        _ => Lie::GrantTwice,
    };
    let for_ms = 2 * SECOND + drawing.roll(5 * MINUTE);
    drawing.happens(Act::Lie { machine, how, for_ms });
}

/// Somebody is set back to an older store.
fn set_back(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    if let Some(taken) = drawing.snapshots.pop() {
        let for_ms = drawing.outage_ms();
        let device = drawing.roll(2) == 0;
        drawing.happens(Act::SetBack { machine: taken, device, for_ms });
    } else {
        drawing.snapshots.push(machine);
        drawing.happens(Act::Snapshot { machine });
    }
}

/// Somebody is cloned. The copy is one machine more, that everything may happen to.
fn clone(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    drawing.machines += 1;
    drawing.happens(Act::Clone { machine });
}

/// Somebody loses its disk, and comes back as somebody else.
fn lose(drawing: &mut Drawing) {
    let machine = drawing.anybody();
    drawing.happens(Act::Lose { machine });
    if drawing.roll(2) == 0 {
        join(drawing);
    }
}

/// Somebody is retired, and sometimes switched on again all the same.
fn retire(drawing: &mut Drawing) {
    let (machine, at_machine, back_ms) = (drawing.anybody(), drawing.anybody(), drawing.outage_ms());
    drawing.happens(Act::Retire { machine, at_machine });
    if drawing.roll(2) == 0 {
        drawing.happens_after(back_ms, Act::PowerOn { machine });
    }
}

/// A machine more, that no roster lists.
fn join(drawing: &mut Drawing) {
    let Some(pool) = drawing.a_pool() else { return };
    let at_machine = drawing.anybody();
    let newer = drawing.roll(3) == 0;
    drawing.machines += 1;
    drawing.happens(Act::Join { pool, at_machine, newer });
}

/// What shows a broken rule only when it meets something else, arranged to meet, each in some seeds.
pub(super) fn meet(drawing: &mut Drawing, lasts_ms: u64) {
    for place in 0..drawing.acts.len() {
        let so = drawing.roll(4) > 0;
        if let Some(Act::Disagree { goes_on, .. }) = drawing.acts.get_mut(place).map(|scheduled| &mut scheduled.act) {
            *goes_on = so;
        }
    }
    // Later than everybody has begun, and early enough to come to its end.
    if drawing.roll(3) == 0 {
        drawing.now_ms = 10 * SECOND + drawing.roll(lasts_ms - ROOM_MS);
        squeeze(drawing);
    }
    if drawing.roll(4) == 0 {
        drawing.now_ms = 10 * SECOND + drawing.roll(lasts_ms - ROOM_MS);
        silent_holder(drawing);
    }
    if drawing.roll(4) == 0 {
        drawing.now_ms = lasts_ms - 40 * SECOND;
        lost_holder(drawing);
    }
}

/// A good release for everybody, in these waves.
fn good(drawing: &mut Drawing, waves: &[u64], confirm_after_ms: u64, odd: Vec<Odd>) {
    let at_machine = drawing.anybody();
    let waves_ppm = waves.iter().map(|parts| share(*parts)).collect();
    let terms = Terms { waves_ppm, confirm_after_ms, max_failure_ppm: share(300_000), ..drawing.terms() };
    drawing.happens(Act::Publish { at_machine, behaviour: Behaviour::Good, terms, odd });
}

/// A pool's budget shrinks while its last slots are held and its first may be free: whoever goes by the new one alone
/// disrupts one node too many.
fn squeeze(drawing: &mut Drawing) {
    let pool = drawing.largest.clone();
    drawing.happens(Act::Rebudget { pool: pool.clone(), budget_ppm: share(750_000) });
    let unclear = |drawing: &mut Drawing| Behaviour::UnclearFor(MINUTE + drawing.roll(MINUTE));
    let odd = drawing.some().into_iter().map(|machine| Odd { machine, behaviour: unclear(drawing) }).collect();
    good(drawing, AT_ONCE, 2 * SECOND, odd);
    drawing.now_ms += 8 * SECOND + drawing.roll(17 * SECOND);
    drawing.happens(Act::Rebudget { pool, budget_ppm: share(50_000) });
    good(drawing, AT_ONCE, 2 * SECOND, Vec::new());
}

/// A holder loses power in its trial, for less long than any pool presumes it lost after; others wait for its slot.
fn silent_holder(drawing: &mut Drawing) {
    good(drawing, AT_ONCE, 20 * SECOND, Vec::new());
    drawing.now_ms += 10 * SECOND + drawing.roll(10 * SECOND);
    let from = drawing.anybody();
    drawing.happens(Act::PowerOffHolder { from, for_ms: 3 * MINUTE });
}

/// A holder's disk is lost under the last rollout that there is before the world is healed: a later wave opens, and its slot
/// is free, only once the mesh calls it silent.
fn lost_holder(drawing: &mut Drawing) {
    good(drawing, &[500_000, 1_000_000], 20 * SECOND, Vec::new());
    drawing.now_ms += 5 * SECOND + drawing.roll(20 * SECOND);
    let from = drawing.anybody();
    drawing.happens(Act::LoseHolder { from });
}

/// What shows a broken rule only when it meets something else, found later than [`meet`]: with dice of its own, so that where it
/// is not drawn a seed is what it was before.
pub(super) fn meet_again(drawing: &mut Drawing, lasts_ms: u64) {
    if drawing.roll(8) == 0 {
        drawing.now_ms = 10 * SECOND + drawing.roll(lasts_ms - ROOM_MS);
        taken_back(drawing);
    }
}

/// A member says that it failed, while others wait for their turn, and takes it back: whoever has seen it halts all the same.
fn taken_back(drawing: &mut Drawing) {
    let at_machine = drawing.anybody();
    let waves_ppm = AT_ONCE.iter().map(|parts| share(*parts)).collect();
    // One failure is too many.
    let terms = Terms { waves_ppm, confirm_after_ms: 5 * SECOND, max_failure_ppm: share(50_000), ..drawing.terms() };
    drawing.happens(Act::Publish { at_machine, behaviour: Behaviour::Good, terms, odd: Vec::new() });
    let anybody = drawing.anybody();
    let machine = drawing.liars.first().copied().unwrap_or(anybody);
    drawing.now_ms += 5 * SECOND + drawing.roll(10 * SECOND);
    drawing.happens(Act::Lie { machine, how: Lie::Recant, for_ms: 2 * MINUTE });
}
