//! A member that spoils swarms, for the lab's harder settings: it fetches a blob as all do, and in one piece of ten that it
//! passes on a bit is wrong; or it takes pieces, promises pieces, and sends none.
//!
//! A process of its own over the real network, with a certificate of the fleet. Nothing of it is in an agent: what an honest
//! node would send is changed on its way out. It says `ready` once it is connected, and begins when it reads a line.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to the bench that started it")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use futures::future::BoxFuture;
use futures::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use groundswell_core::blob::exchange::message::HEADER_BYTES;
use groundswell_core::blob::{BlobName, HashList, HashListBuilder, Layout, PieceSet};
use groundswell_core::digest::{Digest, Hex32};
use groundswell_core::node_id::NodeId;
use groundswell_net::blobs::{
    BlobSource, Connect, ConnectError, Described, Duplex, Fetcher, PieceSink, Progress, ReadError, SinkError,
};
use groundswell_net::pieces::frames::OPENING_BYTES;
use groundswell_net::pieces::{Swarms, Terms};
use groundswell_net::{Admission, Config, Network, NetworkEvent};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::compat::TokioAsyncReadCompatExt as _;

/// The tag of a part of a piece.
const PART: u8 = 8;
/// Bytes between it and the network, either way.
const PIPE_BYTES: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Manner {
    /// One piece of ten is wrong.
    Lie,
    /// No piece is ever sent.
    Stall,
}

/// A member that spoils swarms.
#[derive(Debug, Parser)]
struct Args {
    /// How.
    #[arg(long)]
    manner: Manner,
    /// Its key, as `swell node init` makes it.
    #[arg(long)]
    key: PathBuf,
    /// Its certificate in its published form.
    #[arg(long)]
    certificate: PathBuf,
    /// The fleet's id.
    #[arg(long)]
    fleet: Digest,
    /// Where it listens.
    #[arg(long)]
    listen: String,
    /// The file that it fetches: only its name is taken from here.
    #[arg(long)]
    artifact: PathBuf,
    /// Whom it dials.
    peers: Vec<String>,
}

/// Lets everybody in: it has nothing to lose.
struct Open {
    fleet: Digest,
    proof: Vec<u8>,
}

impl Admission for Open {
    fn fleet(&self) -> Digest {
        self.fleet
    }

    fn own_proof(&self) -> Vec<u8> {
        self.proof.clone()
    }

    fn admit(&self, _: NodeId, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// What it holds, in memory.
struct Shelf {
    name: BlobName,
    layout: Layout,
    pieces: Mutex<BTreeMap<u32, Vec<u8>>>,
    list: Mutex<Option<HashList>>,
}

impl Shelf {
    fn pieces(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Vec<u8>>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PieceSink for Shelf {
    fn held(&self) -> PieceSet {
        let mut held = PieceSet::empty(self.layout);
        self.pieces().keys().for_each(|piece| {
            held.insert(*piece);
        });
        held
    }

    fn hash_list(&self) -> Option<HashList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_hash_list(&self, list: &HashList) -> Result<(), SinkError> {
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = Some(list.clone());
        Ok(())
    }

    fn write_piece(&self, piece: u32, bytes: &[u8]) -> Result<(), SinkError> {
        self.pieces().insert(piece, bytes.to_vec());
        Ok(())
    }

    fn finish(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

struct Source(Arc<Shelf>);

impl BlobSource for Source {
    fn describe(&self, sha256: &Digest) -> Option<Described> {
        let Self(shelf) = self;
        (*sha256 == shelf.name.sha256).then(|| Described { size_bytes: shelf.name.size_bytes, held: shelf.held() })
    }

    fn hash_list(&self, sha256: &Digest) -> Option<HashList> {
        let Self(shelf) = self;
        (*sha256 == shelf.name.sha256).then(|| PieceSink::hash_list(shelf.as_ref())).flatten()
    }

    fn read_piece(&self, _: &Digest, piece: u32) -> Result<Vec<u8>, ReadError> {
        let Self(shelf) = self;
        shelf.pieces().get(&piece).cloned().ok_or(ReadError::NotHeld(piece))
    }
}

/// The network, with every stream of pieces spoiled.
struct Spoiled {
    network: Network,
    manner: Manner,
    layout: Layout,
}

impl Connect for Spoiled {
    fn connect(&self, peer: NodeId) -> BoxFuture<'static, Result<Box<dyn Duplex>, ConnectError>> {
        self.network.connect(peer)
    }

    fn pieces(&self, peer: NodeId) -> BoxFuture<'static, Result<Option<Box<dyn Duplex>>, ConnectError>> {
        let (opened, manner, layout) = (self.network.pieces(peer), self.manner, self.layout);
        Box::pin(async move { Ok(opened.await?.map(|stream| spoil(stream, true, manner, layout))) })
    }
}

/// A stream whose outgoing parts are changed or left out. The one who opened it speaks first.
fn spoil(stream: Box<dyn Duplex>, opener: bool, manner: Manner, layout: Layout) -> Box<dyn Duplex> {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (from_here, to_here) = far.compat().split();
    let (from_there, to_there) = stream.split();
    let (said, heard) = oneshot::channel();
    tokio::spawn(async move {
        // Whichever ends first ends both.
        tokio::select! {
            _ = listen(from_there, to_here, (!opener).then_some(said)) => {}
            _ = speak(from_here, to_there, (!opener).then_some(heard), manner, layout) => {}
        }
    });
    Box::new(near.compat())
}

async fn listen<R: Duplex, W: Duplex>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    said: Option<oneshot::Sender<bool>>,
) -> std::io::Result<()> {
    if let Some(said) = said {
        let mut opening = [0; OPENING_BYTES];
        from.read_exact(&mut opening).await?;
        // Whether the hash list stands in front of the first message.
        let _ = said.send(opening.last() == Some(&1));
        to.write_all(&opening).await?;
    }
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return to.close().await;
        }
        to.write_all(bytes.get(..count).unwrap_or_default()).await?;
        to.flush().await?;
    }
}

async fn speak<R: Duplex, W: Duplex>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    wants_list: Option<oneshot::Receiver<bool>>,
    manner: Manner,
    layout: Layout,
) -> std::io::Result<()> {
    let before = match wants_list {
        None => OPENING_BYTES,
        Some(wants) => {
            let wants_list = wants.await.unwrap_or(false);
            let mut answer = [0];
            from.read_exact(&mut answer).await?;
            to.write_all(&answer).await?;
            match answer {
                [1] if wants_list => HashList::bytes_for(layout),
                [1] => 0,
                // A reason, and the end.
                _ => 1,
            }
        }
    };
    let mut first = vec![0; before];
    from.read_exact(&mut first).await?;
    to.write_all(&first).await?;
    to.flush().await?;
    loop {
        let mut header = [0; HEADER_BYTES];
        from.read_exact(&mut header).await?;
        let [tag, length @ ..] = header;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap_or(0)];
        from.read_exact(&mut payload).await?;
        if tag == PART {
            let piece = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            match manner {
                Manner::Stall => continue,
                Manner::Lie if piece.is_multiple_of(10) => payload.last_mut().into_iter().for_each(|byte| *byte ^= 1),
                Manner::Lie => {}
            }
        }
        to.write_all(&header).await?;
        to.write_all(&payload).await?;
        to.flush().await?;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    match run(Args::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let name = name_of(&args.artifact)?;
    let layout = Layout::of(name.size_bytes)?;
    let key = std::fs::read_to_string(&args.key)?;
    let secret: Hex32 = key.lines().nth(1).ok_or("the key file has two lines")?.trim().parse()?;
    let admission = Arc::new(Open { fleet: args.fleet, proof: std::fs::read(&args.certificate)? });
    let config = Config { listen: vec![args.listen.clone()], ..Config::default() };
    let (network, mut events) = Network::start(config, secret.0, admission).await?;
    for peer in &args.peers {
        network.dial(None, vec![peer.clone()])?;
    }
    let peers = watch::Sender::new(Vec::new());
    while peers.borrow().len() < args.peers.len() {
        hear(events.recv().await.ok_or("the network ended")?, &peers);
    }
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new())).await??;

    let shelf = Arc::new(Shelf { name, layout, pieces: Mutex::default(), list: Mutex::default() });
    let line = Arc::new(Spoiled { network: network.clone(), manner: args.manner, layout });
    let swarms = Swarms::new(line, Arc::new(Source(Arc::clone(&shelf))), network.local_id(), Terms::default());
    let mut incoming = network.incoming_pieces().ok_or("the streams of pieces are taken")?;
    let (passed, streams) = mpsc::channel(16);
    let manner = args.manner;
    let passes = async {
        while let Some((peer, stream)) = incoming.recv().await {
            let stream = spoil(Box::new(stream), false, manner, layout);
            if passed.send((peer, stream)).await.is_err() {
                return;
            }
        }
    };
    let fetcher = Fetcher::new(swarms.clone());
    let fetches = async {
        if let Err(error) = fetcher.fetch(name, shelf, peers.subscribe(), watch::Sender::new(Progress::default())).await {
            eprintln!("{error}");
        }
        std::future::pending::<()>().await;
    };
    let hears = async {
        while let Some(event) = events.recv().await {
            hear(event, &peers);
        }
    };
    tokio::select! {
        () = passes => {}
        () = fetches => {}
        () = hears => {}
        () = swarms.serve(streams) => {}
    }
    Ok(())
}

fn hear(event: NetworkEvent, peers: &watch::Sender<Vec<NodeId>>) {
    match event {
        NetworkEvent::PeerUp { peer, .. } => peers.send_modify(|known| known.push(peer)),
        NetworkEvent::PeerDown { peer } => peers.send_modify(|known| known.retain(|other| *other != peer)),
        _ => {}
    }
}

fn name_of(path: &PathBuf) -> Result<BlobName, Box<dyn Error>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.read_to_end(&mut bytes)?;
    let size_bytes = u64::try_from(bytes.len())?;
    let mut builder = HashListBuilder::new(Layout::of(size_bytes)?);
    builder.update(&bytes);
    let list = builder.finish().ok_or("the file is not as long as it was")?;
    Ok(BlobName { sha256: Digest::of(&bytes), size_bytes, blake3: list.root() })
}
