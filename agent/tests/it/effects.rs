//! Effects run in order, and nothing is done that depends on what is not durable.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use groundswell_agent::effects::{self, Durable, Hands};
use groundswell_agent::store::{Change, CommitError};
use groundswell_core::node::effect::Effect;

/// What happened, in order.
type Told = Arc<Mutex<Vec<String>>>;

struct Disk {
    told: Told,
    full: Mutex<bool>,
}

impl Durable for Disk {
    fn commit(&self, batch: &[Change]) -> Result<(), CommitError> {
        let keys: Vec<_> = batch.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
        if *self.full.lock().unwrap() {
            return Err(CommitError { folder: PathBuf::from("/data/store"), source: std::io::ErrorKind::StorageFull.into() });
        }
        self.told.lock().unwrap().push(format!("durable {}", keys.join("+")));
        Ok(())
    }
}

struct Publisher(Told);

impl Hands for Publisher {
    fn perform(&mut self, effect: Effect) {
        let Effect::Gossip { bytes } = effect else { panic!("{effect:?}") };
        self.0.lock().unwrap().push(format!("published {}", String::from_utf8_lossy(&bytes)));
    }
}

fn persist(key: &str) -> Effect {
    Effect::Persist { key: key.as_bytes().to_vec(), value: Some(vec![1]) }
}

fn publish(text: &str) -> Effect {
    Effect::Gossip { bytes: text.as_bytes().to_vec() }
}

fn setup(full: bool) -> (Told, Arc<Disk>, Arc<dyn Durable>, Publisher) {
    let told = Told::default();
    let disk = Arc::new(Disk { told: Arc::clone(&told), full: Mutex::new(full) });
    let durable: Arc<dyn Durable> = Arc::<Disk>::clone(&disk);
    (Arc::clone(&told), disk, durable, Publisher(told))
}

/// As an agent runs them.
async fn run(queue: &mut VecDeque<Effect>, durable: &Arc<dyn Durable>, hands: &mut Publisher) -> Result<(), CommitError> {
    while let Some(batch) = effects::next_batch(queue, hands) {
        let (batch, outcome) = effects::commit(Arc::clone(durable), batch).await;
        if let Err(error) = outcome {
            effects::put_back(queue, batch);
            return Err(error);
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_published_is_durable_before() {
    let (told, _, durable, mut hands) = setup(false);
    let mut queue = VecDeque::from([publish("0"), persist("a"), persist("b"), publish("1"), persist("c"), publish("2")]);
    run(&mut queue, &durable, &mut hands).await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["published 0", "durable a+b", "published 1", "durable c", "published 2"]);
    assert!(queue.is_empty());
}

#[tokio::test]
async fn b2_nothing_behind_a_failed_commit_is_published_until_it_is_durable() {
    let (told, disk, durable, mut hands) = setup(true);
    let mut queue = VecDeque::from([publish("0"), persist("a"), persist("b"), publish("1")]);
    assert!(run(&mut queue, &durable, &mut hands).await.is_err());
    assert!(run(&mut queue, &durable, &mut hands).await.is_err());
    assert_eq!(*told.lock().unwrap(), ["published 0"]);
    // What the core asks for meanwhile stands behind it.
    queue.extend([persist("c"), publish("2")]);
    *disk.full.lock().unwrap() = false;
    run(&mut queue, &durable, &mut hands).await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["published 0", "durable a+b", "published 1", "durable c", "published 2"]);
}
