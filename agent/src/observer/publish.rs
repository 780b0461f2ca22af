//! Publishing through any peer: hand documents in, let members fetch the files, leave when enough of them hold everything.
//!
//! A document counts as held by a connected peer that gives it back when asked, and a rollout also by a member whose
//! record names that generation. Of a file the copies count that the members have together ([`crate::spread`]): once each
//! piece is at enough of them, they complete each other without whoever published it. Before that is taken for true, those
//! that have a whole copy give some pieces of it back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use groundswell_core::blob::PieceSet;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::documents::release::Release;
use groundswell_core::node::Node;
use groundswell_core::node_id::NodeId;
use groundswell_net::pieces::Proof;
use groundswell_net::pieces::glimpse::{Glimpse, Neighbour};
use tokio::sync::watch;

use super::{LOOK_EVERY, Observer, ObserverError};
use crate::handle::Copies;
use crate::spread::{self, Spread};

/// A proof holds for so long; who gave none may have the file by then.
const PROVEN_FOR: Duration = Duration::from_secs(60);

/// One document to publish.
#[derive(Clone, Debug)]
pub struct Named {
    /// How to speak of it: its file.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its body digest.
    pub digest: Digest,
    /// Its published form.
    pub bytes: Vec<u8>,
}

/// One file to publish.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// How to speak of it: its file.
    pub name: String,
    /// The release that it belongs to.
    pub release: Digest,
    /// Its digest.
    pub sha256: Digest,
}

/// How far something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The file or document.
    pub name: String,
    /// Whole copies that members have together, in parts per million.
    pub copies_ppm: u64,
    /// Copies that there must be.
    pub need: usize,
    /// Who takes it from here now; of documents nobody.
    pub takers: Vec<Taker>,
}

/// A member that takes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taker {
    /// Its name, or its id where no certificate tells it.
    pub name: String,
    /// Pieces that it has.
    pub held: u32,
    /// Pieces that there are.
    pub pieces: u32,
    /// Bytes a second from here to it, lately.
    pub bytes_per_second: u64,
}

impl Held {
    /// Whether there are as many copies as there must be.
    #[must_use]
    pub fn done(&self) -> bool {
        self.copies_ppm >= u64::try_from(self.need).unwrap_or(u64::MAX).saturating_mul(1_000_000)
    }
}

/// How far it all is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Connected peers.
    pub peers: usize,
    /// One line per document and file.
    pub held: Vec<Held>,
}

impl Progress {
    /// Whether everything is held by as many as must.
    #[must_use]
    pub fn done(&self) -> bool {
        self.held.iter().all(Held::done)
    }

    /// What is missing, for people.
    #[must_use]
    pub fn missing(&self) -> String {
        let line = |held: &Held| format!("of {} members have {} of {} copies", held.name, Copies(held.copies_ppm), held.need);
        let lines: Vec<String> = self.held.iter().filter(|held| !held.done()).map(line).collect();
        lines.join("; ")
    }
}

impl Observer {
    /// Hands in `documents` in their order and waits until `copies` members (or all, where there are fewer) hold each of
    /// them, and members have as many copies of each of `files` together. Files of platforms that no node of the rollout has are not waited for.
    ///
    /// # Errors
    /// When a document is refused, no rollout asks for the files, or it does not come about in time.
    pub async fn publish(
        &self,
        documents: &[Named],
        files: &[NamedFile],
        copies: usize,
        within: Duration,
        progress: &watch::Sender<Progress>,
    ) -> Result<(), ObserverError> {
        let deadline = tokio::time::Instant::now() + within;
        self.complete(within).await?;
        for document in documents {
            self.hand_in(&document.name, document.bytes.clone()).await?;
        }
        // A rollout may name a roster that the mesh has and this command was not given.
        self.complete(within).await?;
        let files = self.wanted(files)?;
        let mut words = Words::default();
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            let mut now = self.progress(documents, &files, copies, &words).await;
            if now.done() && self.hear_out(&files, copies, &mut words).await {
                // Somebody does not have what it said: it does not count from now on.
                now = self.progress(documents, &files, copies, &words).await;
            }
            progress.send_if_modified(|last| {
                let news = *last != now;
                last.clone_from(&now);
                news
            });
            if now.done() {
                return Ok(());
            }
            if self.task.is_finished() {
                return Err(ObserverError::Ended(None));
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(ObserverError::Late { within_seconds: within.as_secs(), missing: now.missing() });
            }
        }
    }

    /// Of `files`, those that some node of a rollout will fetch, with how many nodes may.
    fn wanted(&self, files: &[NamedFile]) -> Result<Vec<(NamedFile, usize)>, ObserverError> {
        let node = self.node.lock();
        let mut wanted = Vec::new();
        for file in files {
            let takers = takers(&node, file).ok_or(ObserverError::NoRollout(file.release))?;
            if takers > 0 {
                wanted.push((file.clone(), takers));
            }
        }
        Ok(wanted)
    }

    async fn progress(&self, documents: &[Named], files: &[(NamedFile, usize)], copies: usize, words: &Words) -> Progress {
        let (connected, all, statuses) = {
            let node = self.node.lock();
            let me = node.id();
            let members: BTreeSet<NodeId> =
                node.shelf().certificates().filter(|(_, it)| it.node != me && it.pool.is_some()).map(|(_, it)| it.node).collect();
            let views = node.peers(crate::clock::now());
            let connected: Vec<NodeId> = views.into_iter().filter(|peer| peer.connected).map(|peer| peer.node).collect();
            let statuses: Vec<_> = node.ledger().statuses().map(|(who, status)| (*who, status.clone())).collect();
            (connected, members.len().max(1), statuses)
        };
        let mut held = Vec::new();
        for document in documents {
            let says = |status: &groundswell_core::record::status::Status| {
                status
                    .products
                    .values()
                    .any(|section| section.rollout.as_ref().is_some_and(|seen| seen.digest == document.digest))
            };
            let mut holders: BTreeSet<NodeId> = statuses.iter().filter(|(_, status)| says(status)).map(|(who, _)| *who).collect();
            let need = copies.min(all);
            for peer in &connected {
                if holders.len() >= need {
                    break;
                }
                if !holders.contains(peer) && self.gives_back(*peer, document.digest, document.kind).await {
                    holders.insert(*peer);
                }
            }
            let copies_ppm = u64::try_from(holders.len().min(need)).unwrap_or(u64::MAX).saturating_mul(1_000_000);
            held.push(Held { name: document.name.clone(), copies_ppm, need, takers: Vec::new() });
        }
        let glimpses = self.swarms.glimpses();
        let lean: BTreeSet<NodeId> = statuses.iter().filter(|(_, status)| status.lean).map(|(who, _)| *who).collect();
        for (file, takers) in files {
            let serves = statuses.iter().filter(|(_, status)| status.serves.contains(&file.sha256)).map(|(who, _)| *who);
            let glimpse = glimpses.get(&file.sha256);
            let not_counted = lean.union(&words.broken(&file.sha256)).copied().collect();
            let Spread { copies_ppm, .. } = Spread::of(glimpse, serves, &not_counted);
            let takers_now = glimpse.map(|glimpse| self.takers_in(glimpse)).unwrap_or_default();
            held.push(Held { name: file.name.clone(), copies_ppm, need: copies.min(*takers), takers: takers_now });
        }
        Progress { peers: connected.len(), held }
    }

    /// Has members that count as having a file prove it, until there are as many as must be. Those that cannot be asked are
    /// believed: their word is signed. Whether somebody did not.
    async fn hear_out(&self, files: &[(NamedFile, usize)], copies: usize, words: &mut Words) -> bool {
        let glimpses = self.swarms.glimpses();
        let mut broken = false;
        for (file, takers) in files {
            let (serves, lean) = {
                let node = self.node.lock();
                let statuses = || node.ledger().statuses();
                let serves = statuses().filter(|(_, status)| status.serves.contains(&file.sha256)).map(|(who, _)| *who);
                let lean = statuses().filter(|(_, status)| status.lean).map(|(who, _)| *who);
                (serves.collect::<BTreeSet<_>>(), lean.collect::<BTreeSet<_>>())
            };
            let not_counted = lean.union(&words.broken(&file.sha256)).copied().collect();
            let holders = spread::holders(glimpses.get(&file.sha256), serves, &not_counted);
            for peer in holders.into_iter().take(copies.min(*takers)) {
                if words.stands(&file.sha256, &peer) {
                    continue;
                }
                let mut chance = [0; 8];
                // Without chance the pieces can be foretold, and are asked for all the same.
                if let Err(error) = getrandom::fill(&mut chance) {
                    tracing::warn!(%error, "no randomness");
                }
                let proof = self.swarms.prove(peer, file.sha256, u64::from_be_bytes(chance)).await;
                let given = proof != Proof::Withheld;
                broken |= !given;
                words.heard.insert((file.sha256, peer), Word { given, at: tokio::time::Instant::now() });
            }
        }
        broken
    }

    fn takers_in(&self, glimpse: &Glimpse) -> Vec<Taker> {
        let node = self.node.lock();
        let name = |peer: &NodeId| node.shelf().certificate(peer).map_or_else(|| peer.short(), |it| it.name.to_string());
        let taker = |neighbour: &Neighbour| Taker {
            name: name(&neighbour.peer),
            held: neighbour.holds.as_ref().map_or(0, PieceSet::held),
            pieces: glimpse.pieces,
            bytes_per_second: neighbour.sent.bytes_per_second(),
        };
        glimpse.neighbours.iter().map(taker).collect()
    }
}

/// What members proved, or did not, of what they say they have.
#[derive(Debug, Default)]
struct Words {
    heard: BTreeMap<(Digest, NodeId), Word>,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    given: bool,
    at: tokio::time::Instant,
}

impl Words {
    /// Whether a member was heard out of late.
    fn stands(&self, sha256: &Digest, peer: &NodeId) -> bool {
        self.heard.get(&(*sha256, *peer)).is_some_and(|word| word.at.elapsed() < PROVEN_FOR)
    }

    /// Those that did not prove it of late.
    fn broken(&self, sha256: &Digest) -> BTreeSet<NodeId> {
        let of_it = self.heard.iter().filter(|((of, _), word)| of == sha256 && !word.given && word.at.elapsed() < PROVEN_FOR);
        of_it.map(|((_, peer), _)| *peer).collect()
    }
}

/// How many nodes of the rollouts in force that name the file's release have its platform; `None` when there is no such
/// rollout.
fn takers(node: &Node, file: &NamedFile) -> Option<usize> {
    let shelf = node.shelf();
    let platform = shelf.release(&file.release).and_then(|release| platform_of(release, &file.sha256));
    let mut rollouts = shelf.rollouts().filter(|in_force| in_force.rollout.release.digest == file.release).peekable();
    rollouts.peek()?;
    let Some(platform) = platform else { return Some(0) };
    let members = rollouts.filter_map(|in_force| shelf.roster_members(&in_force.rollout.roster.digest));
    let takers = members.flatten().filter(|(_, certificate)| certificate.platform == platform);
    Some(takers.map(|(listed, _)| listed.id).collect::<BTreeSet<_>>().len())
}

fn platform_of(release: &Release, sha256: &Digest) -> Option<groundswell_core::text::Platform> {
    let artifact = release.artifacts.iter().find(|artifact| Digest::from(artifact.sha256) == *sha256)?;
    artifact.platform.clone()
}
