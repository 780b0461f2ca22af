//! The bytes of `/groundswell/admit/1` and the two halves of the exchange. Nothing here knows the swarm.

use std::io;
use std::sync::Arc;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;

use super::Keeper;
use super::handler::Caller;
use crate::blobs::blocking;
use crate::config::{PROOF_BYTES, REFUSAL_BYTES};

/// Length of a session's random name, in bytes.
pub(crate) const SESSION_BYTES: usize = 16;

const REFUSED: u8 = 0;
const HELLO: u8 = 1;
const ACCEPTED: u8 = 2;
const READY: u8 = 3;

/// How the reason begins that is told to who may come again soon.
const LATER: &str = "later:";

/// Why a connection is not admitted. Display is the reason shown to operators.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It took too long.
    #[error("it did not prove its certificate within {0} ms")]
    Late(u128),
    /// It belongs to another fleet.
    #[error("fleet: it belongs to {0}")]
    Fleet(Digest),
    /// Its proof was not accepted here.
    #[error("{0}")]
    Here(String),
    /// It did not accept this node.
    #[error("it refused this node: {0}")]
    There(String),
    /// It is not known here, and too many proofs of such peers have been looked at of late.
    #[error("{LATER} the proofs of too many unknown peers wait to be looked at; again in {0} ms")]
    Later(u32),
    /// Its proof is longer than a certificate may be.
    #[error("too-large: a proof of {0} bytes, at most {PROOF_BYTES}")]
    TooLarge(usize),
    /// It does not follow the exchange.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// It does not speak the protocol at all.
    #[error("it does not speak {protocol}", protocol = super::PROTOCOL)]
    Protocol,
    /// A test's build that speaks nothing else.
    #[error("this build speaks only the outer door's protocol")]
    OnlyOuter,
    /// The connection broke.
    #[error("the connection broke before it was admitted: {0}")]
    Broken(#[from] io::Error),
}

impl Refusal {
    /// Whether the other side wants this one to come again, and said nothing against it.
    pub(crate) fn comes_again(&self) -> bool {
        matches!(self, Self::There(reason) if reason.starts_with(LATER))
    }
}

/// One side's first message.
struct Hello {
    fleet: Digest,
    session: [u8; SESSION_BYTES],
    proof: Vec<u8>,
}

/// The dialler's first half: both proofs were accepted when it returns; the acceptor still waits for [`dialler_finishes`].
pub(crate) async fn dialler_proves<S>(stream: &mut S, peer: NodeId, keeper: &Keeper) -> Result<[u8; SESSION_BYTES], Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    write_hello(stream, keeper).await?;
    let hello = read_hello(stream).await?;
    // This side chose whom it dials, and how often.
    check(stream, peer, hello, keeper, None).await
}

/// The dialler's second half: says that it is ready to listen, and hears that the acceptor is.
pub(crate) async fn dialler_finishes<S>(stream: &mut S) -> Result<(), Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    write_byte(stream, ACCEPTED).await?;
    expect(stream, READY).await
}

/// The acceptor's first half.
pub(super) async fn acceptor_proves<S>(stream: &mut S, caller: &Caller, keeper: &Keeper) -> Result<[u8; SESSION_BYTES], Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let hello = read_hello(stream).await?;
    let session = check(stream, caller.peer, hello, keeper, Some(caller)).await?;
    write_hello(stream, keeper).await?;
    expect(stream, ACCEPTED).await?;
    Ok(session)
}

/// The acceptor's second half: says that it is ready.
pub(crate) async fn acceptor_finishes<S>(stream: &mut S) -> Result<(), Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    write_byte(stream, READY).await?;
    Ok(stream.close().await?)
}

/// Judges the other side's proof; when it is refused, says so to the peer. A `caller` that is not known here waits its turn for
/// that.
async fn check<S>(
    stream: &mut S,
    peer: NodeId,
    hello: Hello,
    keeper: &Keeper,
    caller: Option<&Caller>,
) -> Result<[u8; SESSION_BYTES], Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Hello { fleet, session, proof } = hello;
    let refusal = if fleet != keeper.admission.fleet() {
        Refusal::Fleet(fleet)
    } else if let Err(wait_ms) = keeper.may_look(caller).await {
        Refusal::Later(wait_ms)
    } else {
        // Signatures to verify, as many as the peer likes, and a lock to wait for: nothing for a task that others wait for.
        let admission = Arc::clone(&keeper.admission);
        match blocking(move || admission.admit(peer, &proof)).await {
            Ok(()) => return Ok(session),
            Err(reason) => Refusal::Here(reason),
        }
    };
    // The peer learns the reason when it can; the refusal stands either way.
    if let Err(error) = refuse(stream, &refusal.to_string()).await {
        tracing::debug!(%peer, %error, "the refusal did not reach the peer");
    }
    Err(refusal)
}

impl Keeper {
    /// Waits until the proof of a caller may be looked at, or says after how many milliseconds to come again. A member that is
    /// known here costs nothing and waits for nobody.
    async fn may_look(&self, caller: Option<&Caller>) -> Result<(), u32> {
        let Some(&Caller { peer, origin, ref tenure }) = caller else { return Ok(()) };
        let admission = Arc::clone(&self.admission);
        if blocking(move || admission.knows(peer)).await {
            return Ok(());
        }
        let place = self.turns.place(peer, origin)?;
        tenure.grant();
        place.turn().await
    }
}

/// Tells the reason. The connection is to stay open until the peer has read it: see [`linger`].
async fn refuse<S>(stream: &mut S, reason: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut end = reason.len().min(REFUSAL_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let text = reason.as_bytes().get(..end).unwrap_or_default();
    let mut message = vec![REFUSED, u8::try_from(text.len()).unwrap_or(u8::MAX)];
    message.extend_from_slice(text);
    stream.write_all(&message).await?;
    stream.close().await
}

/// Waits until the peer has closed its side, so that closing the connection does not overtake the reason that it was told.
/// The connection's deadline bounds the wait.
pub(crate) async fn linger<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut rest = [0; 64];
    while let Ok(1..) = stream.read(&mut rest).await {}
}

async fn write_hello<S: AsyncWrite + Unpin>(stream: &mut S, keeper: &Keeper) -> Result<(), Refusal> {
    let proof = keeper.admission.own_proof();
    if proof.len() > PROOF_BYTES {
        return Err(Refusal::Here(format!("this node's own proof has {} bytes", proof.len())));
    }
    let length = u32::try_from(proof.len()).expect("PROOF_BYTES fits 32 bits");
    let mut message = vec![HELLO];
    message.extend_from_slice(&keeper.admission.fleet().0);
    message.extend_from_slice(&keeper.session);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(&proof);
    stream.write_all(&message).await?;
    Ok(stream.flush().await?)
}

async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Hello, Refusal> {
    read_tag(stream, HELLO).await?;
    let mut fleet = [0; 32];
    stream.read_exact(&mut fleet).await?;
    let mut session = [0; SESSION_BYTES];
    stream.read_exact(&mut session).await?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > PROOF_BYTES {
        return Err(Refusal::TooLarge(length));
    }
    let mut proof = vec![0; length];
    stream.read_exact(&mut proof).await?;
    Ok(Hello { fleet: Digest(fleet), session, proof })
}

async fn expect<S: AsyncRead + Unpin>(stream: &mut S, tag: u8) -> Result<(), Refusal> {
    read_tag(stream, tag).await
}

/// Reads one tag; a refusal in its place is the peer's reason.
async fn read_tag<S: AsyncRead + Unpin>(stream: &mut S, wanted: u8) -> Result<(), Refusal> {
    let mut tag = [0; 1];
    stream.read_exact(&mut tag).await?;
    match tag {
        [REFUSED] => {
            let mut length = [0; 1];
            stream.read_exact(&mut length).await?;
            let [length] = length;
            let mut reason = vec![0; usize::from(length)];
            stream.read_exact(&mut reason).await?;
            // Shown to people: whatever the peer sends becomes plain printable text.
            let reason: String = String::from_utf8_lossy(&reason).chars().filter(|c| !c.is_control()).collect();
            Err(Refusal::There(reason))
        }
        [tag] if tag == wanted => Ok(()),
        _ => Err(Refusal::Malformed("another message of the exchange was due")),
    }
}

async fn write_byte<S: AsyncWrite + Unpin>(stream: &mut S, byte: u8) -> io::Result<()> {
    stream.write_all(&[byte]).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use futures::io::Cursor;
    use tokio::time::Instant;

    use super::super::crowded::Tenure;
    use crate::admission::Admission;
    use crate::door::Turns;
    use crate::origin::Origin;
    use crate::outer::limits::{ALL_PROOFS, PROOF_COST, TURNS};

    /// Whose fleet it is, and how many proofs it has looked at. It knows node 77.
    struct Fleet(u8, AtomicU64);

    impl Admission for Fleet {
        fn fleet(&self) -> Digest {
            Digest([self.0; 32])
        }
        fn knows(&self, peer: NodeId) -> bool {
            peer == NodeId([77; 32])
        }
        fn own_proof(&self) -> Vec<u8> {
            b"proof".to_vec()
        }
        fn admit(&self, _: NodeId, proof: &[u8]) -> Result<(), String> {
            self.1.fetch_add(1, Ordering::Relaxed);
            if proof == b"proof" { Ok(()) } else { Err("unknown-key: no such certificate".into()) }
        }
    }

    fn keeper(fleet: u8) -> Keeper {
        keeper_with(&Arc::new(Fleet(fleet, AtomicU64::new(0))))
    }

    fn keeper_with(fleet: &Arc<Fleet>) -> Keeper {
        Keeper {
            admission: Arc::<Fleet>::clone(fleet),
            session: [9; SESSION_BYTES],
            within: Duration::from_secs(5),
            most_peers: 64,
            outer: None,
            only_outer: false,
            turns: Turns::new(),
        }
    }

    fn caller(peer: [u8; 32], origin: Origin) -> Caller {
        Caller { peer: NodeId(peer), origin, tenure: Tenure::default() }
    }

    /// What a peer sends, played against the acceptor.
    fn acceptor_hears(bytes: Vec<u8>) -> Result<[u8; SESSION_BYTES], Refusal> {
        // One cursor for both directions: what is written lands behind what is read.
        let mut stream = Cursor::new(bytes);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(acceptor_proves(&mut stream, &caller([1; 32], Origin::Elsewhere), &keeper(7)))
    }

    fn hello(fleet: u8, length: u32, proof: &[u8]) -> Vec<u8> {
        let mut bytes = vec![HELLO];
        bytes.extend_from_slice(&[fleet; 32]);
        bytes.extend_from_slice(&[3; SESSION_BYTES]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(proof);
        bytes
    }

    #[test]
    fn another_fleet_is_refused_before_its_proof_is_looked_at() {
        assert!(matches!(acceptor_hears(hello(8, 5, b"other")), Err(Refusal::Fleet(fleet)) if fleet == Digest([8; 32])));
    }

    #[test]
    fn a_proof_that_is_not_accepted_is_refused_with_the_owners_reason() {
        let refusal = acceptor_hears(hello(7, 5, b"forge")).expect_err("a forged proof");
        assert_eq!(refusal.to_string(), "unknown-key: no such certificate");
    }

    #[tokio::test(start_paused = true)]
    async fn proofs_of_ever_new_peers_are_looked_at_only_so_often_and_others_get_in_all_the_same() {
        let fleet = Arc::new(Fleet(7, AtomicU64::new(0)));
        let (keeper, burst) = (keeper_with(&fleet), ALL_PROOFS.burst / PROOF_COST);
        let looked_at = || fleet.1.load(Ordering::Relaxed);
        let (crowd, other) = (Origin::V4([10, 0, 0]), Origin::V4([10, 0, 1]));
        let comes = async |peer: u8, origin: Origin, proof: &[u8]| {
            let mut stream = Cursor::new(hello(7, u32::try_from(proof.len()).unwrap_or(u32::MAX), proof));
            let caller = caller([peer; 32], origin);
            let refusal = acceptor_proves(&mut stream, &caller, &keeper).await;
            (refusal.expect_err("nobody says that it accepts this side"), caller.tenure.is_granted())
        };
        for n in 0..u8::try_from(burst).unwrap() {
            assert!(matches!(comes(n, crowd, b"forge").await, (Refusal::Here(_), true)), "{n}");
        }
        let began = Instant::now();
        let flood = join_all((100..200).map(|n| comes(n, crowd, b"forge")));
        let member = async {
            // It comes when the crowd is there. Its proof is accepted: what it does not say is its own acceptance.
            tokio::task::yield_now().await;
            let (refusal, has_tenure) = comes(60, other, b"proof").await;
            assert!(matches!(refusal, Refusal::Broken(_) | Refusal::Malformed(_)) && has_tenure, "{refusal}");
            began.elapsed()
        };
        let known = async {
            let (refusal, _) = comes(77, crowd, b"proof").await;
            assert!(matches!(refusal, Refusal::Broken(_) | Refusal::Malformed(_)), "{refusal}");
            assert_eq!(began.elapsed(), Duration::ZERO, "a member that is known here waits for nobody");
        };
        let (flood, waited, ()) = tokio::join!(flood, member, known);
        assert!(waited <= Duration::from_secs(2), "{waited:?}");
        let waited_too = flood.iter().filter(|(refusal, _)| matches!(refusal, Refusal::Here(_))).count();
        assert_eq!(waited_too, TURNS / 2, "so many of one network wait");
        let later = |(refusal, has_tenure): &(Refusal, bool)| matches!(refusal, Refusal::Later(1..)) && !has_tenure;
        assert_eq!(flood.iter().filter(|it| later(it)).count(), 100 - TURNS / 2);
        assert_eq!(looked_at(), burst + TURNS as u64 / 2 + 2);
    }

    #[test]
    fn who_is_told_to_come_later_knows_it() {
        let said = Refusal::Later(2_000).to_string();
        let mut bytes = vec![REFUSED, u8::try_from(said.len()).unwrap()];
        bytes.extend_from_slice(said.as_bytes());
        assert!(acceptor_hears(bytes).expect_err("refused").comes_again());
        for never in [Refusal::There("unknown-key: later: no".into()), Refusal::Here(said), Refusal::Later(1)] {
            assert!(!never.comes_again(), "{never}");
        }
    }

    #[test]
    fn an_announced_length_over_the_limit_is_refused_before_anything_is_allocated() {
        assert!(matches!(acceptor_hears(hello(7, u32::MAX, b"")), Err(Refusal::TooLarge(_))));
    }

    #[test]
    fn a_truncated_hello_and_a_wrong_tag_are_refused() {
        assert!(matches!(acceptor_hears(hello(7, 5, b"pro")), Err(Refusal::Broken(_))));
        assert!(matches!(acceptor_hears(vec![READY]), Err(Refusal::Malformed(_))));
        assert!(matches!(acceptor_hears(Vec::new()), Err(Refusal::Broken(_))));
    }

    #[test]
    fn a_refusal_is_shown_without_control_characters() {
        let mut bytes = vec![REFUSED, 6];
        bytes.extend_from_slice(b"no\x1b[2J");
        assert_eq!(acceptor_hears(bytes).expect_err("refused").to_string(), "it refused this node: no[2J");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_admit_and_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            proptest::prop_assert!(acceptor_hears(bytes).is_err());
        }
    }
}
