//! How much is sent ahead: measured bandwidth × delay, so that the uplink is never idle and words never wait long
//! behind bytes.
//!
//! Two windows. What is on the wire and not yet acknowledged is bounded by rate × (the peer's least delay + a short
//! standing queue), for the whole uplink and for each peer. What is offered or taken and not yet sent is bounded by
//! rate × (how long an offer waits for its answer). A rate is the highest of the last seconds, as bytes were
//! acknowledged.

use core::time::Duration;

use crate::limits::BLOB_PART_BYTES;

/// How many intervals the highest rate is taken over.
const INTERVALS: usize = 24;
/// How many of them tell what a link does lately.
const LATELY: usize = 2;
/// An interval lasts this long at least.
const INTERVAL: Duration = Duration::from_millis(100);
/// And so long that this many parts arrive in it, or chance decides.
const INTERVAL_PARTS: u64 = 4;
/// But no longer than this.
const INTERVAL_MOST: Duration = Duration::from_secs(2);
/// The queue that is allowed to stand in front of a link: enough to bridge the pauses of a busy machine, and on a long link
/// a quarter of its delay, or it would take minutes to find out what the link carries.
const STANDING: Duration = Duration::from_millis(40);
/// A part takes about so long to leave, or less.
const PART: Duration = Duration::from_millis(16);
/// Least bytes of a part: below that its frame and what it waits for cost more than it brings.
const LEAST_PART_BYTES: u64 = 8 * 1024;
/// Most bytes on the wire, or ahead: what a small device can spare.
const MOST_BYTES: u64 = 8 * 1024 * 1024;
/// Assumed before anything was measured, in bytes per second.
const FIRST_RATE: u64 = 2_000_000;
/// How long an offer waits for its answer, before one was answered.
pub(super) const FIRST_ANSWER: Duration = Duration::from_millis(50);

/// However many offers are in vain, one in five is counted on, so that their number stays bounded.
const LEAST_TAKEN_MILLI: u64 = 200;

/// What is agreed on ahead grows at most so often, shrinks after so long, and grows at most to so many parts per thousand.
const BOOST_EVERY: Duration = Duration::from_millis(50);
const BOOST_FOR: Duration = Duration::from_secs(1);
const MOST_BOOST_MILLI: u64 = 4_000;

/// The rate of one link, from bytes that were acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    rates: [u64; INTERVALS],
    at: usize,
    measured: bool,
    since: Duration,
    bytes: u64,
}

impl Meter {
    pub(super) fn new(now: Duration) -> Self {
        Self { rates: [0; INTERVALS], at: 0, measured: false, since: now, bytes: 0 }
    }

    /// Bytes of parts were acknowledged.
    pub(super) fn acknowledged(&mut self, now: Duration, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let lasted = now.saturating_sub(self.since);
        let enough = self.bytes >= INTERVAL_PARTS * (BLOB_PART_BYTES as u64);
        if lasted < INTERVAL || (!enough && lasted < INTERVAL_MOST) {
            return;
        }
        if let Some(rate) = self.rates.get_mut(self.at) {
            *rate = self.bytes.saturating_mul(1_000_000) / micros(lasted).max(1);
        }
        self.at = (self.at + 1) % INTERVALS;
        self.measured = true;
        self.restart(now);
    }

    /// The link had nothing to carry: this interval says nothing of its rate.
    pub(super) fn restart(&mut self, now: Duration) {
        self.since = now;
        self.bytes = 0;
    }

    /// In bytes per second.
    pub(super) fn rate(&self) -> u64 {
        if self.measured { self.rates.iter().copied().max().unwrap_or(0).max(1) } else { FIRST_RATE }
    }

    /// The higher one of the last two intervals, in bytes per second: a link that was fast once is not for ever.
    pub(super) fn lately(&self) -> u64 {
        if !self.measured {
            return FIRST_RATE;
        }
        let last = (1..=LATELY).filter_map(|back| self.rates.get((self.at + INTERVALS - back) % INTERVALS));
        last.copied().max().unwrap_or(0).max(1)
    }

    /// How many bytes may be on the wire at this least delay.
    pub(super) fn wire_bytes(&self, delay: Duration) -> u64 {
        self.in_time(delay.saturating_add(standing(delay))).clamp(2 * LEAST_PART_BYTES, MOST_BYTES)
    }

    /// How many bytes of a piece are sent at once.
    pub(super) fn part_bytes(&self) -> usize {
        let most = u64::try_from(BLOB_PART_BYTES).expect("64 KiB");
        let bytes = self.in_time(PART).clamp(LEAST_PART_BYTES, most);
        usize::try_from(bytes).expect("64 KiB at most").next_multiple_of(1024)
    }

    /// How long so many bytes take.
    pub(super) fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate())
    }

    fn in_time(&self, time: Duration) -> u64 {
        self.rate().saturating_mul(micros(time)) / 1_000_000
    }

    /// How many bytes it carries in this time as it does lately.
    pub(super) fn lately_in(&self, time: Duration) -> u64 {
        self.lately().saturating_mul(micros(time)) / 1_000_000
    }
}

/// How far ahead of the bytes pieces are agreed on. One for each blob that a node exchanges.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    pub(super) uplink: Meter,
    /// Share of offers that are taken, in parts per thousand.
    taken_milli: u64,
    /// More is agreed on ahead by this factor, in parts per thousand, where the uplink ran dry in spite of it.
    boost_milli: u64,
    boosted: Duration,
}

impl Pace {
    pub(super) fn new(now: Duration) -> Self {
        Self { uplink: Meter::new(now), taken_milli: 1000, boost_milli: 1000, boosted: now }
    }

    /// An offer was answered.
    pub(super) fn answered(&mut self, taken: bool) {
        self.taken_milli = (self.taken_milli * 15 + if taken { 1000 } else { 0 }) / 16;
    }

    /// The uplink has nothing to send though it could, and offers are waiting for their answers.
    pub(super) fn ran_dry(&mut self, now: Duration, answer: Duration) {
        if now.saturating_sub(self.boosted) >= answer.max(BOOST_EVERY) {
            self.boosted = now;
            self.boost_milli = (self.boost_milli * 5 / 4).min(MOST_BOOST_MILLI);
        }
    }

    /// Forgets what was added long ago.
    pub(super) fn settle(&mut self, now: Duration) {
        if now.saturating_sub(self.boosted) >= BOOST_FOR {
            self.boosted = now;
            self.boost_milli = (self.boost_milli * 7 / 8).max(1000);
        }
    }

    /// How many bytes are offered or taken ahead of what is sent, where offers are answered after `answer`.
    pub(super) fn ahead_bytes(&self, answer: Duration, piece_bytes: u64) -> u64 {
        let usual = self.usual_bytes(answer, piece_bytes);
        (usual.saturating_mul(self.boost_milli) / 1000).min(MOST_BYTES.max(2 * piece_bytes))
    }

    /// How long the uplink is kept busy by that, where it has not run dry.
    pub(super) fn ahead(&self, answer: Duration, piece_bytes: u64) -> Duration {
        self.uplink.time_for(self.usual_bytes(answer, piece_bytes))
    }

    fn usual_bytes(&self, answer: Duration, piece_bytes: u64) -> u64 {
        self.uplink.in_time(answer + answer / 4).max(piece_bytes)
    }

    /// For how many bytes ahead so many offered bytes count: as many as are taken as offers go, and fewer when their
    /// answer (usually after `answer`) is waited for longer than the `soonest`.
    pub(super) fn counted_bytes(&self, offered: u64, answer: Duration, soonest: Duration) -> u64 {
        let taken = offered.saturating_mul(self.taken_milli.max(LEAST_TAKEN_MILLI)) / 1000;
        taken.saturating_mul(micros(soonest).max(1)) / micros(answer).max(micros(soonest)).max(1)
    }
}

/// How long a part may be in front of the uplink or underway when the nearest neighbour has this least delay: what was sent
/// longer ago has left, whether the other side says so or not.
pub(super) fn underway(delay: Duration) -> Duration {
    delay.saturating_add(standing(delay)).saturating_mul(4)
}

fn standing(delay: Duration) -> Duration {
    STANDING.max(delay / 4)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
