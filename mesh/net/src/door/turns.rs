//! Whose proof is looked at next. Anybody can have as many identities as it likes, and each of their proofs costs signatures to
//! verify: so many a second are looked at, those of peers that are not known here one after the other, as they came. Who waits
//! here is let wait, not sent away; so that those from one network leave room for others, the places are divided like
//! handshakes. One identity has a rate of its own beside that.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use groundswell_core::node_id::NodeId;
use tokio::time::{Instant, sleep};

use crate::origin::{Origin, has_room};
use crate::outer::bucket::Buckets;
use crate::outer::limits::{ALL_PROOFS, PROOF_COST, PROOFS, TURNS};

/// When to come again who found no place: all that wait have been looked at then.
const AGAIN_MS: u32 = 2_000;

const _: () = assert!(TURNS as u64 * PROOF_COST * 1_000 == ALL_PROOFS.per_second * AGAIN_MS as u64);

/// Proofs that wait to be looked at.
pub(crate) struct Turns {
    waiting: Mutex<Vec<Origin>>,
    rates: Mutex<Buckets>,
    /// Held by the one that is next; the others come after it in order.
    next: tokio::sync::Mutex<()>,
}

/// A place among those that wait.
pub(crate) struct Place<'a> {
    turns: &'a Turns,
    peer: NodeId,
    origin: Origin,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let rates = Mutex::new(Buckets::new(PROOFS, ALL_PROOFS));
        Self { waiting: Mutex::default(), rates, next: tokio::sync::Mutex::default() }
    }

    /// A place for a proof of `peer`, which comes from `origin`.
    ///
    /// # Errors
    /// After how many milliseconds to come again.
    pub(crate) fn place(&self, peer: NodeId, origin: Origin) -> Result<Place<'_>, u32> {
        self.rates().wait_of(peer, PROOF_COST, Instant::now())?;
        let mut waiting = self.waiting();
        if !has_room(waiting.iter().copied(), origin, TURNS) {
            return Err(AGAIN_MS);
        }
        waiting.push(origin);
        Ok(Place { turns: self, peer, origin })
    }

    fn rates(&self) -> MutexGuard<'_, Buckets> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Origin>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits until it is its turn. Dropping it gives the place away.
    ///
    /// # Errors
    /// As of [`Turns::place`]: another connection of the same peer has used up what it has alone.
    pub(crate) async fn turn(self) -> Result<(), u32> {
        let _next = self.turns.next.lock().await;
        loop {
            let now = Instant::now();
            let wait_ms = {
                let mut rates = self.turns.rates();
                rates.wait_of(self.peer, PROOF_COST, now)?;
                match rates.take(self.peer, PROOF_COST, now) {
                    Ok(()) => return Ok(()),
                    Err(wait_ms) => wait_ms,
                }
            };
            sleep(Duration::from_millis(wait_ms.into())).await;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.turns.waiting();
        if let Some(at) = waiting.iter().position(|origin| *origin == self.origin) {
            waiting.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    const CROWD: Origin = Origin::V4([10, 0, 0]);
    const OTHER: Origin = Origin::V4([10, 0, 1]);

    fn peer(n: u16) -> NodeId {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&n.to_be_bytes());
        NodeId(id)
    }

    /// Uses up what may be looked at without waiting.
    async fn busy() -> Turns {
        let turns = Turns::new();
        for n in 0..u16::try_from(ALL_PROOFS.burst / PROOF_COST).unwrap() {
            turns.place(peer(n), CROWD).unwrap().turn().await.unwrap();
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_one_network_fills_half_of_the_places_and_others_wait_behind_it_for_no_longer_than_that() {
        let turns = busy().await;
        let crowd: Vec<_> = (0..200).filter_map(|n| turns.place(peer(1_000 + n), CROWD).ok()).collect();
        assert_eq!(crowd.len(), TURNS / 2);
        let began = Instant::now();
        let crowd = join_all(crowd.into_iter().map(Place::turn));
        let newcomer = async {
            turns.place(peer(1), OTHER).unwrap().turn().await.unwrap();
            began.elapsed()
        };
        let (_, waited) = tokio::join!(crowd, newcomer);
        assert!(waited <= Duration::from_millis((TURNS as u64 / 2 + 1) * 125), "{waited:?}");
        assert!(turns.waiting().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_a_second_are_looked_at_and_who_finds_no_place_is_told_when() {
        let turns = busy().await;
        let began = Instant::now();
        let places = [CROWD, OTHER].map(|origin| (0..16).filter_map(|n| turns.place(peer(2_000 + n), origin).ok()).collect());
        let [crowd, other]: [Vec<_>; 2] = places;
        assert_eq!((crowd.len(), other.len()), (TURNS / 2, TURNS / 4));
        assert_eq!(turns.place(peer(3_000), CROWD).err(), Some(AGAIN_MS));
        let looked_at = crowd.len() + other.len();
        assert!(join_all(crowd.into_iter().chain(other).map(Place::turn)).await.into_iter().all(|turn| turn.is_ok()));
        assert_eq!(began.elapsed(), Duration::from_millis(looked_at as u64 * 125));
    }

    #[tokio::test(start_paused = true)]
    async fn one_identity_waits_for_itself_alone_and_who_goes_away_keeps_nobody_waiting() {
        let turns = busy().await;
        for _ in 0..6 {
            turns.place(peer(1), CROWD).unwrap().turn().await.unwrap();
        }
        let (held, more) = (turns.place(peer(1), CROWD).unwrap(), turns.place(peer(1), CROWD));
        held.turn().await.unwrap();
        assert!(matches!(more.unwrap().turn().await, Err(1..=4_000)), "a place was had, and the rate used up meanwhile");
        assert!(matches!(turns.place(peer(1), CROWD).err(), Some(1..=4_000)));
        let (mut left, stays) = (Box::pin(turns.place(peer(2), CROWD).unwrap().turn()), turns.place(peer(3), OTHER).unwrap());
        assert!(futures::poll!(&mut left).is_pending(), "it is next");
        drop(left);
        let began = Instant::now();
        stays.turn().await.unwrap();
        assert!(began.elapsed() <= Duration::from_millis(125));
    }
}
