//! A real `swell helper` on a folder of its own, and an agent's side of its socket that sends whatever a test likes.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use groundswell_agent::helper::channel;
use groundswell_agent::helper::wire::{Kind, Order, Outcome, Reply, State, Why, decode_reply, encode_order};
use groundswell_core::digest::Digest;
use groundswell_core::record::{ClaimName, Stamp};
use groundswell_core::text::Reason;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::world::{Papers, World, product};

/// Longer than anything may take on a busy machine, and than twice the longest pause after which anything here is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A helper and its folder.
pub(crate) struct Bench {
    pub(crate) world: World,
    folder: tempfile::TempDir,
    config: String,
    child: Option<Child>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn claim() -> ClaimName {
    ClaimName(Stamp { incarnation: 1, counter: 7 })
}

/// Puts a program where every user may run it: the build folder may lie where only root may look. A second name for the
/// same file where that can be, for a file that is written cannot be run while any child still has it open.
pub(crate) fn lend(program: &Path, to: &Path) {
    if fs::hard_link(program, to).is_err() {
        fs::copy(program, to).unwrap();
    }
}

/// Starts a program; one that was just written may be busy for as long as a child of another test has it open.
pub(crate) fn spawn(command: &mut Command) -> Child {
    loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::sleep(Duration::from_millis(10)),
            spawned => return spawned.unwrap(),
        }
    }
}

/// Says that a test shows nothing on this machine, past the harness that keeps what passing tests print. Where the caller has
/// found that the machine gives all rights (`GROUNDSWELL_IS_ROOT` is set) it is a failure.
pub(crate) fn not_tested(why: &str) {
    assert!(std::env::var_os("GROUNDSWELL_IS_ROOT").is_none(), "{why}, though whoever started the tests is root");
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "NOT TESTED: {}: {why}", thread.name().unwrap_or_default());
}

/// Who these tests run as.
pub(crate) fn own_account() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Bench {
    /// A helper that runs, with further lines in its configuration: those of the top level, and those of the product.
    pub(crate) fn start_with(top: &str, of_product: &str) -> Self {
        let mut bench = Self::prepare(top, of_product);
        bench.start();
        bench
    }

    pub(crate) fn running() -> Self {
        Self::start_with("", "")
    }

    /// Its folder and configuration; nothing runs.
    pub(crate) fn prepare(top: &str, of_product: &str) -> Self {
        let world = World::new();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (uid, gid) = own_account();
        let home = folder.path().display();
        // What a version prints when it is started tells which one was.
        let config = format!(
            r#"
data-dir = "{home}/data"
fleet = "{fleet}"
node = "{node}"
socket = "{home}/helper.sock"
{top}
[agent]
user = "{uid}"
group = "{gid}"
[product.bcd]
activator = {{ type = "command", run = ["/bin/sh", "-c", "{{binary}} >> {home}/started"], stop = ["/bin/sh", "-c", "echo stop >> {home}/started"] }}
{of_product}
"#,
            fleet = world.fleet_id(),
            node = world.node(),
        );
        fs::write(folder.path().join("helper.toml"), &config).unwrap();
        Self { world, folder, config, child: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Rewrites its configuration, for the next start.
    pub(crate) fn configure(&mut self, from: &str, to: &str) {
        assert!(self.config.contains(from), "{from}");
        self.config = self.config.replace(from, to);
        fs::write(self.path("helper.toml"), &self.config).unwrap();
    }

    /// Adds lines at its end.
    pub(crate) fn append(&mut self, lines: &str) {
        self.config.push_str(lines);
        fs::write(self.path("helper.toml"), &self.config).unwrap();
    }

    pub(crate) fn home(&self) -> String {
        self.folder.path().display().to_string()
    }

    pub(crate) fn command(&self) -> Command {
        // Whoever runs the tests may have SIGHUP ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_swell"), "helper", "--config"]).arg(self.path("helper.toml"));
        command
    }

    /// Starts it, and waits until its socket is there.
    pub(crate) fn start(&mut self) {
        let mut child = self.command().stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut seen = Vec::new();
        let up = log.any(|line| {
            seen.push(line.clone());
            line.contains("installing for")
        });
        assert!(up, "the helper ended before it ran: {seen:#?}");
        // Whoever writes a log must not wait for a reader.
        std::thread::spawn(move || log.for_each(drop));
        self.child = Some(child);
    }

    /// What it says when it cannot start.
    pub(crate) fn refuses_to_start(&self) -> String {
        let output = self.command().output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends signals and waits for its end.
    pub(crate) fn signalled(&mut self, signals: &[Signal]) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        signals.iter().for_each(|signal| kill_process(Pid::from_child(&child), *signal).unwrap());
        child.wait().unwrap()
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    pub(crate) async fn client(&self) -> Client {
        Client { stream: UnixStream::connect(self.path("helper.sock")).await.unwrap() }
    }

    /// A new file with this content, open for reading.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> File {
        fs::write(self.path(name), content).unwrap();
        File::open(self.path(name)).unwrap()
    }

    /// Shows documents and asks to stage; the reply to the order.
    pub(crate) async fn stage(&self, documents: &[Vec<u8>], release: Digest, content: &[u8]) -> Reply {
        let mut client = self.client().await;
        for document in documents {
            client.document(document).await;
        }
        client.stage(release, Some(&self.file("artifact", content))).await
    }

    /// Stages what `papers` say, which must work.
    pub(crate) async fn staged(&self, papers: &Papers, content: &[u8]) -> Client {
        let mut client = self.client().await;
        for document in self.world.published(papers) {
            let reply = client.document(&document).await;
            assert!(matches!(reply, Reply::Taken { .. }), "{reply:?}");
        }
        let reply = client.stage(papers.id(), Some(&self.file("artifact", content))).await;
        assert_eq!(outcome(&reply), &Outcome::Staged);
        client
    }

    /// Installs and confirms it.
    pub(crate) async fn installed(&self, papers: &Papers, content: &[u8]) -> Client {
        let mut client = self.staged(papers, content).await;
        assert_eq!(outcome(&client.activate(papers.id()).await), &Outcome::Activated);
        assert_eq!(outcome(&client.confirm(papers.id()).await), &Outcome::Confirmed);
        client
    }

    /// Changes what the last entry of the journal says of how far it is.
    pub(crate) fn rewrite_mark(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let path = self.path("data/products/bcd/journal");
        let journal = fs::read_to_string(&path).unwrap();
        let (_, json) = journal.lines().last().unwrap().split_once(' ').unwrap();
        let mut entry: serde_json::Value = serde_json::from_str(json).unwrap();
        change(&mut entry["mark"]);
        let json = entry.to_string();
        let sum = blake3::hash(json.as_bytes()).to_hex();
        fs::write(path, format!("{} {json}\n", &sum[..16])).unwrap();
    }

    /// The bytes that `current` leads to.
    pub(crate) fn current(&self) -> Option<Vec<u8>> {
        fs::read(self.path("data/products/bcd/current/bcd")).ok()
    }

    /// Whether any slot holds a described version.
    pub(crate) fn holds_nothing(&self) -> bool {
        let described = |slot: &str| self.path(&format!("data/products/bcd/slots/{slot}/slot.json")).exists();
        self.current().is_none() && !described("a") && !described("b")
    }

    /// The lines that versions printed when they were started.
    pub(crate) fn started(&self) -> Vec<String> {
        fs::read_to_string(self.path("started")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// One connection.
pub(crate) struct Client {
    stream: UnixStream,
}

impl Client {
    pub(crate) async fn document(&mut self, bytes: &[u8]) -> Reply {
        channel::write(&mut self.stream, Kind::Document, bytes, None).await.unwrap();
        self.reply().await.expect("a reply")
    }

    pub(crate) async fn order(&mut self, order: &Order, file: Option<&File>) -> Reply {
        channel::write(&mut self.stream, Kind::Order, &encode_order(order), file).await.unwrap();
        self.reply().await.expect("a reply")
    }

    pub(crate) async fn stage(&mut self, release: Digest, file: Option<&File>) -> Reply {
        self.order(&Order::Stage { product: product(), release }, file).await
    }

    pub(crate) async fn activate(&mut self, release: Digest) -> Reply {
        self.order(&Order::Activate { product: product(), release, claim: claim() }, None).await
    }

    pub(crate) async fn confirm(&mut self, release: Digest) -> Reply {
        self.order(&Order::Confirm { product: product(), release }, None).await
    }

    pub(crate) async fn revert(&mut self, release: Digest) -> Reply {
        let reason = Reason::lossy("unhealthy");
        self.order(&Order::Revert { product: product(), release, reason, at_fault: true }, None).await
    }

    pub(crate) async fn told(&mut self) -> Reply {
        self.order(&Order::State { product: product() }, None).await
    }

    pub(crate) async fn state(&mut self) -> State {
        match self.told().await {
            Reply::State(state) => state,
            reply => panic!("{reply:?}"),
        }
    }

    /// Any bytes.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        // The other side may have hung up already.
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(crate) async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next reply; `None` when the connection ended.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        let frame = timeout(PATIENCE, channel::read(&mut self.stream, &[Kind::Reply])).await.expect("an answer or an end");
        let frame = frame.ok().flatten()?;
        Some(decode_reply(&frame.body).unwrap())
    }
}

pub(crate) fn outcome(reply: &Reply) -> &Outcome {
    match reply {
        Reply::Done { outcome, .. } => outcome,
        reply => panic!("{reply:?}"),
    }
}

/// A refusal of this kind that says this.
pub(crate) fn refused(reply: &Reply, kind: Why, says: &str) {
    match reply {
        Reply::Refused { why, text } => {
            assert_eq!(*why, kind, "{}", text.as_str());
            assert!(text.contains(says), "`{}` does not say `{says}`", text.as_str());
        }
        reply => panic!("not refused: {reply:?}"),
    }
}

/// Waits until a file is there: the only sign that a hook has come so far.
pub(crate) async fn appears(path: &Path) {
    let look = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{} does not appear", path.display()));
}
