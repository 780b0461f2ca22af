//! Publishing through any peer: hand documents in, let members fetch the files, leave when enough of them hold everything.
//!
//! A document counts as held by a connected peer that gives it back when asked, and a rollout also by a member whose
//! record names that generation. A file counts as held by a member whose record says that it serves it whole.

use std::collections::BTreeSet;
use std::time::Duration;

use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::documents::release::Release;
use groundswell_core::node::Node;
use groundswell_core::node_id::NodeId;
use tokio::sync::watch;

use super::{LOOK_EVERY, Observer, ObserverError};

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
    /// Members that hold it, counted up to `need`.
    pub have: usize,
    /// Members that must.
    pub need: usize,
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
        self.held.iter().all(|held| held.have >= held.need)
    }

    /// What is missing, for people.
    #[must_use]
    pub fn missing(&self) -> String {
        let open = self.held.iter().filter(|held| held.have < held.need);
        let lines: Vec<String> = open.map(|held| format!("{} is held by {} of {}", held.name, held.have, held.need)).collect();
        lines.join("; ")
    }
}

impl Observer {
    /// Hands in `documents` in their order and waits until `copies` members (or all, where there are fewer) hold each of
    /// them and each of `files`. Files of platforms that no node of the rollout has are not waited for.
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
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            let now = self.progress(documents, &files, copies).await;
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

    async fn progress(&self, documents: &[Named], files: &[(NamedFile, usize)], copies: usize) -> Progress {
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
            held.push(Held { name: document.name.clone(), have: holders.len().min(need), need });
        }
        for (file, takers) in files {
            let have = statuses.iter().filter(|(_, status)| status.serves.contains(&file.sha256)).count();
            let need = copies.min(*takers);
            held.push(Held { name: file.name.clone(), have: have.min(need), need });
        }
        Progress { peers: connected.len(), held }
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
