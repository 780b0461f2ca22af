//! `swell publish`: hands documents and files to any agent, and waits until enough members hold them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use groundswell_agent::api::client::{Client, PublishOutcome};
use groundswell_agent::observer::publish::{Held, Progress};
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
use crate::online::socket::{self, SocketArgs};
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
    /// How many members must hold everything before this command ends. Default: 2 with --to, else the local agent alone.
    #[arg(long, value_name = "N")]
    copies: Option<usize>,
    /// How long to wait for that.
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
    copies: usize,
}

/// Does it.
pub(crate) fn run(args: &PublishArgs) -> Result<(), Failure> {
    let mut gathered = Gathered::read(&args.paths)?;
    for half in &gathered.half_signed {
        eprintln!("left out, not signed enough: {half}");
    }
    let done = Done {
        documents: gathered.documents.iter().map(|document| document.digest).collect(),
        files: gathered.files.iter().map(|file| file.sha256).collect::<BTreeSet<_>>().into_iter().collect(),
        copies: args.copies.unwrap_or(if args.to.is_empty() { 1 } else { 2 }),
    };
    let within = Duration::from_secs(args.within.0);
    if args.to.is_empty() {
        block_on(to_socket(args, &gathered, done.copies, within))?;
    } else {
        let folder = args.fleet.clone().or_else(|| gathered.fleet.clone());
        let folder = folder.ok_or_else(|| Failure::invalid("--fleet is missing: the fleet folder says who is a member"))?;
        let known = Known::of(&FleetFolder::open(&folder)?);
        let sources = Arc::new(std::mem::take(&mut gathered.sources));
        block_on(to_mesh(args, &gathered, sources, known, done.copies, within))?;
    }
    let (documents, files) = (counted(done.documents.len(), "document"), counted(done.files.len(), "file"));
    let text = format!("published: {documents} and {files}");
    args.output.print(&text, &done);
    Ok(())
}

async fn to_mesh(
    args: &PublishArgs,
    gathered: &Gathered,
    sources: Arc<groundswell_agent::observer::files::ReleaseFiles>,
    known: Known,
    copies: usize,
    within: Duration,
) -> Result<(), Failure> {
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
    shown.show(&say.borrow().held);
    ended.map_err(observer::failure)?;
    observer.end().await.map_err(observer::failure)
}

async fn to_socket(args: &PublishArgs, gathered: &Gathered, copies: usize, within: Duration) -> Result<(), Failure> {
    let client = args.socket.client();
    let mut shown = Shown::new(args.output.json);
    // Files first: whoever hears of the rollout finds them here.
    for (sha256, path) in gathered.sources.paths() {
        let name = path.display().to_string();
        let new = client.put_blob(sha256, path).await.map_err(|error| socket::failure(&name, error))?;
        shown.line(&format!("{name}: {}", if new { "taken" } else { "known already" }));
    }
    for document in &gathered.documents {
        let published = client.publish(document.bytes.clone()).await.map_err(|error| socket::failure(&document.name, error))?;
        let outcome = if published.outcome == PublishOutcome::Accepted { "accepted" } else { "known already" };
        shown.line(&format!("{}: {outcome}", document.name));
    }
    if copies <= 1 {
        return Ok(());
    }
    let waited = tokio::time::timeout(within, async {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            let held = held(&client, gathered, copies).await?;
            shown.show(&held);
            if held.iter().all(|held| held.have >= held.need) {
                return Ok(());
            }
        }
    });
    let late = || Failure::Failed {
        what: format!("fewer than {copies} members hold everything after {} s", within.as_secs()),
        source: None,
    };
    waited.await.map_err(|_| late())?
}

/// How many members hold each rollout and file, this agent included: by what their records say.
async fn held(client: &Client, gathered: &Gathered, copies: usize) -> Result<Vec<Held>, Failure> {
    let failed = |error| socket::failure("the request", error);
    let peers: Vec<PeerView> = client.get("/v1/peers").await.map_err(failed)?;
    let rollouts: Vec<RolloutView> = client.get("/v1/rollouts").await.map_err(failed)?;
    let members = 1 + peers.iter().filter(|peer| peer.pool.is_some()).count();
    let need = copies.min(members);
    let mut held = Vec::new();
    for file in &gathered.files {
        let others = peers.iter().filter(|peer| peer.serves.contains(&file.sha256)).count();
        held.push(Held { name: file.name.clone(), have: (1 + others).min(need), need });
    }
    let published = gathered.documents.iter().filter(|document| document.kind == Kind::Rollout);
    for document in published {
        let id = rollout_id(&document.bytes);
        let Some(rollout) = rollouts.iter().find(|rollout| Some(&rollout.id) == id.as_ref()) else { continue };
        let seen = rollout.nodes.iter().filter(|node| node.standing != Standing::Unseen).count();
        let need = need.min(rollout.nodes.len().max(1));
        held.push(Held { name: document.name.clone(), have: seen.clamp(1, need), need });
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

/// Progress on standard error, a line for each change; nothing with `--json`.
struct Shown {
    quiet: bool,
    last: Vec<Held>,
}

impl Shown {
    fn new(quiet: bool) -> Self {
        Self { quiet, last: Vec::new() }
    }

    fn line(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    fn show(&mut self, held: &[Held]) {
        for item in held {
            if !self.last.contains(item) {
                self.line(&format!("{}: held by {} of {}", item.name, item.have, counted(item.need, "member")));
            }
        }
        self.last = held.to_vec();
    }
}
