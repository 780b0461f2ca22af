//! `swell fleet pull`: rebuilds or refreshes a fleet folder from any agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use groundswell_agent::handle::DocumentView;
use groundswell_core::digest::Digest;
use groundswell_core::documents::Body;
use groundswell_core::documents::envelope::Envelope;
use serde::Serialize;

use crate::authoring::files::Batch;
use crate::authoring::folder::{FleetFolder, place, read_document};
use crate::failure::Failure;
use crate::online::block_on;
use crate::online::observer::{self, Known, ObserverArgs};
use crate::online::socket::{self, SocketArgs};
use crate::output::OutputArgs;

/// How long a complete sync may take.
const WITHIN: Duration = Duration::from_secs(120);

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The fleet folder: made when it is not there.
    dir: PathBuf,
    /// A peer to pull from, e.g. 10.0.0.7:7490; repeat for several. Left out: the local agent's socket.
    #[arg(long = "from", value_name = "ADDR", conflicts_with = "socket")]
    from: Vec<String>,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    observer: ObserverArgs,
    /// With --from into an empty folder: the fleet document and the observer's certificate, to be let in.
    #[arg(long = "known", value_name = "FILE")]
    known: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    documents: usize,
    written: Vec<String>,
}

/// Does it.
pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let existing = if args.dir.join("fleet-1.json").is_file() { Some(FleetFolder::open(&args.dir)?) } else { None };
    let documents = if args.from.is_empty() { from_socket(args)? } else { from_mesh(args, existing.as_ref())? };
    let (mut batch, mut written) = (Batch::default(), Vec::new());
    for bytes in &documents {
        let envelope = Envelope::parse(bytes)
            .map_err(|rejection| Failure::Refused { what: "a document of the agent".to_owned(), rejection })?;
        let body = Body::parse(envelope.kind, &envelope.body)
            .map_err(|rejection| Failure::Refused { what: format!("document {}", envelope.digest()), rejection })?;
        let mut path = existing
            .as_ref()
            .and_then(|folder| folder.path(&envelope.digest()))
            .map_or_else(|| place(&args.dir, &body), PathBuf::from);
        if path.is_file() {
            let (known, _, known_bytes) = read_document(&path)?;
            if known.digest() != envelope.digest() {
                // A rival under the same identity: both are kept, as the agents keep them.
                let hex = envelope.digest().hex().to_string();
                let short: String = hex.chars().take(12).collect();
                path.set_extension(format!("{short}.json"));
            } else if known.signatures.len() >= envelope.signatures.len() || known_bytes == *bytes {
                continue;
            }
        }
        written.push(path.display().to_string());
        batch.public(&path, bytes.clone());
    }
    batch.write()?;
    // Everything is verified again, under the fleet's own keys.
    let folder = FleetFolder::open(&args.dir)?;
    let text = format!("fleet {}: {} documents, {} of them new", folder.id(), documents.len(), written.len());
    args.output.print(&text, &Pulled { documents: documents.len(), written });
    Ok(())
}

fn from_socket(args: &PullArgs) -> Result<Vec<Vec<u8>>, Failure> {
    block_on(async {
        let client = args.socket.client();
        let failed = |error| socket::failure("the request", error);
        let list: Vec<DocumentView> = client.get("/v1/documents").await.map_err(failed)?;
        let mut documents = Vec::new();
        for document in list {
            let bytes = client.get_bytes(&format!("/v1/documents/{}", document.digest.hex())).await.map_err(failed)?;
            check(&bytes, document.digest)?;
            documents.push(bytes);
        }
        Ok(documents)
    })
}

fn check(bytes: &[u8], digest: Digest) -> Result<(), Failure> {
    if Envelope::parse(bytes).is_ok_and(|envelope| envelope.digest() == digest) {
        return Ok(());
    }
    Err(Failure::Failed { what: format!("the agent answers with another document than {digest}"), source: None })
}

fn from_mesh(args: &PullArgs, existing: Option<&FleetFolder>) -> Result<Vec<Vec<u8>>, Failure> {
    let mut loose = Vec::new();
    for path in &args.known {
        loose.push(read_document(path)?.2);
    }
    let known = match existing {
        Some(folder) => {
            let mut known = Known::of(folder);
            known.documents.extend(loose);
            known
        }
        None => Known::loose(loose).ok_or_else(|| {
            Failure::invalid(format!(
                "{} is empty: name the fleet document and the observer's certificate by --known, or pull through an agent's --socket",
                args.dir.display()
            ))
        })?,
    };
    block_on(async {
        let observer = args.observer.join(known, &args.from, Arc::default()).await?;
        let pulled = observer.pull(WITHIN).await.map_err(observer::failure)?;
        observer.end().await.map_err(observer::failure)?;
        Ok(pulled.into_iter().map(|(_, _, bytes)| bytes).collect())
    })
}
