//! What waits for the disk that blobs are on, beside the loop: old ones are removed, and some give way to the copy in a slot.
//! A disk that is slow there delays that alone, and what the same device says next.

use std::collections::{BTreeMap, VecDeque};

use groundswell_core::digest::Digest;
use groundswell_core::node::input::Report;
use groundswell_core::text::Product;
use tokio::task::JoinSet;

use crate::blobs::BlobStore;

/// Reports that wait behind one for which room is made. Beyond, no device is heard until it was: their own queue waits.
const WAITING: usize = 64;

/// What goes on. One sweep at a time, and for each product one that makes room.
#[derive(Debug, Default)]
pub(super) struct Housekeeping {
    tasks: JoinSet<Done>,
    sweeping: bool,
    /// What devices said since room is made for them, in order: first why it is made.
    waiting: BTreeMap<Product, VecDeque<Report>>,
}

#[derive(Debug)]
enum Done {
    Swept,
    Room(Product),
}

impl Housekeeping {
    /// Removes blobs. Does nothing while some are being removed: what is still here then is found the next time.
    pub(super) fn sweep(&mut self, store: BlobStore, blobs: Vec<Digest>) {
        if self.sweeping || blobs.is_empty() {
            return;
        }
        self.sweeping = true;
        self.tasks.spawn_blocking(move || {
            for blob in blobs {
                match store.remove(&blob) {
                    Ok(()) => tracing::info!("removed blob {blob}: no rollout needs it any more"),
                    Err(error) => tracing::warn!("the old blob {blob} cannot be removed: {error}"),
                }
            }
            Done::Swept
        });
    }

    /// A device said something, which is given back when it is to be heard now. With `room`, what makes room for it, it is
    /// heard once that is done; so is what the same device says meanwhile.
    pub(super) fn report(&mut self, product: Product, report: Report, room: Option<Room>) -> Option<(Product, Report)> {
        if let Some(waiting) = self.waiting.get_mut(&product) {
            waiting.push_back(report);
            return None;
        }
        let Some(room) = room else { return Some((product, report)) };
        self.waiting.insert(product.clone(), VecDeque::from([report]));
        self.tasks.spawn_blocking(move || {
            room();
            Done::Room(product)
        });
        None
    }

    /// Whether there is a place for what a device says next.
    pub(super) fn hears(&self) -> bool {
        self.waiting.values().all(|waiting| waiting.len() < WAITING)
    }

    /// Waits until room was made for a device: what it said. `None` when nothing goes on. Cancel-safe.
    pub(super) async fn made(&mut self) -> Option<(Product, VecDeque<Report>)> {
        loop {
            match self.tasks.join_next().await? {
                Ok(Done::Swept) => self.sweeping = false,
                Ok(Done::Room(product)) => {
                    let reports = self.waiting.remove(&product).unwrap_or_default();
                    return Some((product, reports));
                }
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
    }
}

/// Makes room; may wait for a disk.
pub(super) type Room = Box<dyn FnOnce() + Send>;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;

    use super::*;

    fn product(name: &str) -> Product {
        Product::new(name).unwrap()
    }

    fn report(number: u8) -> Report {
        Report::NoSource { sha256: Digest([number; 32]) }
    }

    #[tokio::test]
    async fn while_a_disk_is_slow_to_make_room_for_one_device_the_others_are_heard_and_its_own_reports_wait_in_order() {
        let mut housekeeping = Housekeeping::default();
        let (go_on, slow) = mpsc::channel::<()>();
        let room: Room = Box::new(move || slow.recv().unwrap());
        assert_eq!(housekeeping.report(product("one"), report(1), Some(room)), None);
        assert_eq!(housekeeping.report(product("two"), report(2), None), Some((product("two"), report(2))));
        assert_eq!(housekeeping.report(product("one"), report(3), None), None);
        assert_eq!(housekeeping.made().now_or_never(), None, "the loop takes what else there is");
        go_on.send(()).unwrap();
        assert_eq!(housekeeping.made().await, Some((product("one"), VecDeque::from([report(1), report(3)]))));
        assert_eq!(housekeeping.made().await, None);
        assert_eq!(housekeeping.report(product("one"), report(4), None), Some((product("one"), report(4))));
    }

    #[tokio::test]
    async fn what_waits_behind_a_slow_disk_is_bounded() {
        let mut housekeeping = Housekeeping::default();
        let (go_on, slow) = mpsc::channel::<()>();
        let room: Room = Box::new(move || slow.recv().unwrap());
        housekeeping.report(product("one"), report(0), Some(room));
        for number in 1..64 {
            assert!(housekeeping.hears(), "{number}");
            housekeeping.report(product("one"), report(number), None);
        }
        assert!(!housekeeping.hears());
        go_on.send(()).unwrap();
        assert_eq!(housekeeping.made().await.map(|(_, reports)| reports.len()), Some(WAITING));
        assert!(housekeeping.hears());
    }

    #[tokio::test]
    async fn blobs_are_removed_beside_the_loop() {
        let folder = tempfile::tempdir().unwrap();
        let settings = crate::blobs::Settings { folder: folder.path().into(), quota_bytes: 1 << 20, reserve_bytes: 0 };
        let store = BlobStore::open(settings).unwrap();
        let mut housekeeping = Housekeeping::default();
        for content in [b"one", b"two"] {
            let blob = store.put_bytes(content).unwrap().sha256;
            housekeeping.sweep(store.clone(), vec![blob]);
            // A second one waits for its time.
            housekeeping.sweep(store.clone(), vec![blob]);
            assert_eq!(housekeeping.tasks.len(), 1);
            assert_eq!(housekeeping.made().await, None);
            assert!(!store.holds(&blob));
        }
    }
}
