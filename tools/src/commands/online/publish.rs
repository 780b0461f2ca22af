//! `swell publish`: hands documents and files to any agent, and waits until the members have enough copies together.
//!
//! It may be interrupted and run again, and others may publish the same: nothing is sent that is there already. A local agent
//! that is replaced meanwhile, perhaps by what is published, is waited for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use groundswell_agent::api::client::{Client, ClientError, PublishOutcome};
use groundswell_agent::handle::{BlobView, StatusView};
use groundswell_agent::observer::publish::{Held, Progress, Taker};
use groundswell_core::digest::Digest;
use groundswell_core::documents::Kind;
use groundswell_core::node::view::{PeerView, RolloutView, Standing};
use serde::Serialize;
use tokio::sync::watch;

use crate::authoring::folder::FleetFolder;
use crate::authoring::measure::Period;
use crate::failure::Failure;
use crate::online::block_on;
use crate::online::gather::Gathered;
use crate::online::observer::{self, Known, ObserverArgs};
use crate::online::shown::Shown;
use crate::online::socket::{self, Patient, SocketArgs};
use crate::output::{OutputArgs, counted};

/// How often the local agent is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// Documents, release folders (manifest.json with its files), fleet folders, files that a manifest names.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// A peer to publish through, e.g. 10.0.0.7:7490; repeat for several. Left out: the local agent's socket.
    #[arg(long = "to", value_name = "ADDR", conflicts_with = "socket")]
    to: Vec<String>,
    #[command(flatten)]
    socket: SocketArgs,
    /// The fleet folder; with --to, unless it is among what is published.
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
    #[command(flatten)]
    observer: ObserverArgs,
    /// How many whole copies other members must have together, piece by piece, before this command ends. Default: 2 with
    /// --to; else 0, for the local agent goes on by itself.
    #[arg(long, value_name = "N")]
    copies: Option<usize>,
    /// How long to wait for that. Run again it goes on where it was.
    #[arg(long, default_value = "10m", value_name = "TIME")]
    within: Period,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed with `--json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    documents: Vec<Digest>,
    files: Vec<Digest>,
    /// Copies that were asked for.
    copies: usize,
    /// What the others have now; empty where nothing was asked for.
    held: Vec<Copied>,
}

/// How many copies of one document or file the other members have together.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Copied {
    name: String,
    copies_ppm: u64,
    need: usize,
}

/// Does it.
pub(crate) fn run(args: &PublishArgs) -> Result<(), Failure> {
    let mut gathered = Gathered::read(&args.paths)?;
    for half in &gathered.half_signed {
        eprintln!("left out, not signed enough: {half}");
    }
    let copies = args.copies.unwrap_or(if args.to.is_empty() { 0 } else { 2 });
    let within = Duration::from_secs(args.within.0);
    let held = if args.to.is_empty() {
        block_on(to_socket(args, &gathered, copies, within))?
    } else {
        let folder = args.fleet.clone().or_else(|| gathered.fleet.clone());
        let folder = folder.ok_or_else(|| Failure::invalid("--fleet is missing: the fleet folder says who is a member"))?;
        let known = Known::of(&FleetFolder::open(&folder)?);
        let sources = Arc::new(std::mem::take(&mut gathered.sources));
        block_on(to_mesh(args, &gathered, sources, known, copies, within))?
    };
    let documents: Vec<Digest> = gathered.documents.iter().map(|document| document.digest).collect();
    let files: BTreeSet<Digest> = gathered.files.iter().map(|file| file.sha256).collect();
    let what = format!("published: {} and {}", counted(documents.len(), "document"), counted(files.len(), "file"));
    let text = match (held.iter().map(|held| held.need).max(), args.to.is_empty()) {
        (None, _) => format!("{what}; the agent passes them on, and --copies says when others have them"),
        (Some(_), true) => format!("{what}; the others have enough copies: this machine may leave"),
        (Some(_), false) => format!("{what}; the members have enough copies"),
    };
    let copied = held.into_iter().map(|Held { name, copies_ppm, need, .. }| Copied { name, copies_ppm, need });
    let files = files.into_iter().collect();
    args.output.print(&text, &Done { documents, files, copies, held: copied.collect() });
    Ok(())
}

async fn to_mesh(
    args: &PublishArgs,
    gathered: &Gathered,
    sources: Arc<groundswell_agent::observer::files::ReleaseFiles>,
    known: Known,
    copies: usize,
    within: Duration,
) -> Result<Vec<Held>, Failure> {
    let observer = args.observer.join(known, &args.to, sources).await?;
    let (say, mut seen) = watch::channel(Progress::default());
    let mut shown = Shown::new(args.output.json);
    let ended = {
        let publish = observer.publish(&gathered.documents, &gathered.files, copies, within, &say);
        tokio::pin!(publish);
        loop {
            tokio::select! {
                ended = &mut publish => break ended,
                Ok(()) = seen.changed() => shown.show(&seen.borrow_and_update().held),
            }
        }
    };
    let held = say.borrow().held.clone();
    shown.show(&held);
    ended.map_err(observer::failure)?;
    observer.end().await.map_err(observer::failure)?;
    Ok(held)
}

async fn to_socket(args: &PublishArgs, gathered: &Gathered, copies: usize, within: Duration) -> Result<Vec<Held>, Failure> {
    let deadline = tokio::time::Instant::now() + within;
    let mut agent = Patient::until(args.socket.client(), deadline);
    let mut shown = Shown::new(args.output.json);
    // Files first: whoever hears of the rollout finds them here.
    for (sha256, path) in gathered.sources.paths() {
        let name = path.display().to_string();
        let sent = hand_over(&mut agent, &mut shown, sha256, path, deadline);
        let sent = sent.await.map_err(|error| socket::failure(&name, error))?;
        shown.line(&format!(
            "{name}: {}",
            sent.map_or_else(|| "known already".to_owned(), |sent| format!("taken, {sent} bytes sent"))
        ));
    }
    for document in &gathered.documents {
        let published = agent.ask(|| shown.waits(), async |client| client.publish(document.bytes.clone()).await);
        let published = published.await.map_err(|error| socket::failure(&document.name, error))?;
        let outcome = if published.outcome == PublishOutcome::Accepted { "accepted" } else { "known already" };
        shown.line(&format!("{}: {outcome}", document.name));
    }
    if copies == 0 {
        return Ok(Vec::new());
    }
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        let held = agent.ask(|| shown.waits(), async |client| held(client, gathered, copies).await);
        let held = held.await.map_err(|error| socket::failure("the request", error))?;
        shown.show(&held);
        if held.iter().all(Held::done) {
            return Ok(held);
        }
        if tokio::time::Instant::now() >= deadline {
            let what = format!(
                "the other members have fewer than {copies} copies after {} s: {}; run it again to go on",
                within.as_secs(),
                Progress { peers: 0, held }.missing()
            );
            return Err(Failure::Failed { what, source: None });
        }
    }
}

/// Hands a file in. While another brings the same one, waits for that; `None` when nothing had to be sent.
async fn hand_over(
    agent: &mut Patient,
    shown: &mut Shown,
    sha256: Digest,
    path: &Path,
    deadline: tokio::time::Instant,
) -> Result<Option<u64>, ClientError> {
    loop {
        match agent.ask(|| shown.waits(), async |client| client.put_blob(sha256, path).await).await {
            Err(ClientError::Refused { body, .. }) if body.reason == "busy" && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            done => return done,
        }
    }
}

/// How many copies of each rollout and file the other members have, by what this agent sees.
async fn held(client: &Client, gathered: &Gathered, copies: usize) -> Result<Vec<Held>, ClientError> {
    let status: StatusView = client.get("/v1/status").await?;
    let peers: Vec<PeerView> = client.get("/v1/peers").await?;
    let rollouts: Vec<RolloutView> = client.get("/v1/rollouts").await?;
    let blobs: Vec<BlobView> = client.get("/v1/blobs").await?;
    let others = peers.iter().filter(|peer| peer.pool.is_some()).count();
    let mut held = Vec::new();
    for file in &gathered.files {
        let blob = blobs.iter().find(|blob| blob.sha256 == file.sha256);
        let takers = blob.and_then(|blob| blob.takers).map_or(others, |takers| usize::try_from(takers).unwrap_or(usize::MAX));
        let name = |node: &groundswell_agent::handle::BlobPeerView| node.name.clone().unwrap_or_else(|| node.node.short());
        let taker = |peer: &groundswell_agent::handle::BlobPeerView| Taker {
            name: name(peer),
            held: peer.held,
            pieces: blob.map_or(0, |blob| blob.pieces),
            bytes_per_second: peer.sent_bytes_per_second,
        };
        held.push(Held {
            name: file.name.clone(),
            copies_ppm: blob.map_or(0, |blob| blob.copies_ppm),
            need: copies.min(takers),
            takers: blob.map(|blob| blob.peers.iter().map(taker).collect()).unwrap_or_default(),
        });
    }
    let published = gathered.documents.iter().filter(|document| document.kind == Kind::Rollout);
    for document in published {
        let id = rollout_id(&document.bytes);
        let Some(rollout) = rollouts.iter().find(|rollout| Some(&rollout.id) == id.as_ref()) else { continue };
        let listed = rollout.nodes.iter().filter(|node| node.node != status.node.node);
        let seen = listed.clone().filter(|node| node.standing != Standing::Unseen).count();
        let copies_ppm = u64::try_from(seen).unwrap_or(u64::MAX).saturating_mul(1_000_000);
        held.push(Held { name: document.name.clone(), copies_ppm, need: copies.min(listed.count()), takers: Vec::new() });
    }
    Ok(held)
}

fn rollout_id(bytes: &[u8]) -> Option<String> {
    use groundswell_core::documents::Body;
    let envelope = groundswell_core::documents::envelope::Envelope::parse(bytes).ok()?;
    match Body::parse(envelope.kind, &envelope.body) {
        Ok(Body::Rollout(rollout)) => Some(rollout.id.to_string()),
        _ => None,
    }
}
