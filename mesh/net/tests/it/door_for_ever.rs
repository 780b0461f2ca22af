//! What the outer door stands on for ever: TCP, noise, yamux and multistream-select, in the bytes that a build of the first
//! year sends.
//!
//! The door's own messages have golden bytes; they are worth nothing to a node that is years old if the way to them has
//! changed. So here all but the cipher is written and read by hand.

use std::collections::VecDeque;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use groundswell_net::outer::wire::Ask;
use libp2p::core::upgrade::OutboundConnectionUpgrade as _;
use libp2p::{identity, noise};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::compat::TokioAsyncReadCompatExt as _;

use crate::node::{Over, PATIENCE, listen};
use crate::outer_mesh::keeper;
use crate::outer_world::{FLEET, Shelf};

/// What both sides of multistream-select begin with: a length in one byte, the name, a line feed.
const MULTISTREAM: &[u8] = b"\x13/multistream/1.0.0\n";
const NOISE: &[u8] = b"\x07/noise\n";
const YAMUX: &[u8] = b"\x0d/yamux/1.0.0\n";
const DOOR: &[u8] = b"\x14/groundswell/door/1\n";

/// Yamux: version 0, then the type of the frame.
const DATA: u8 = 0;
const WINDOW: u8 = 1;
const PING: u8 = 2;
const SYN: u8 = 1;
/// The first stream of who dialled.
const STREAM: u8 = 1;

/// Proposes a protocol, and reads that the other side takes it.
async fn agrees(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), protocol: &[u8]) {
    stream.write_all(&[MULTISTREAM, protocol].concat()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = vec![0; MULTISTREAM.len() + protocol.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [MULTISTREAM, protocol].concat(), "{}", String::from_utf8_lossy(&answer));
}

/// One stream over yamux, frame by frame.
struct Yamux<S> {
    under: S,
    opened: bool,
    arrived: VecDeque<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Yamux<S> {
    async fn send(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        let flags = if std::mem::replace(&mut self.opened, true) { 0 } else { SYN };
        let head = [&[0, DATA, 0, flags, 0, 0, 0, STREAM], length.as_slice()].concat();
        self.under.write_all(&[&head, bytes].concat()).await.unwrap();
        self.under.flush().await.unwrap();
    }

    async fn receive(&mut self, length: usize) -> Vec<u8> {
        while self.arrived.len() < length {
            let mut head = [0; 12];
            self.under.read_exact(&mut head).await.unwrap();
            let [version, kind, _, _, a, b, c, d, e, f, g, h] = head;
            assert_eq!(version, 0);
            match kind {
                DATA => {
                    assert_eq!([a, b, c, d], [0, 0, 0, STREAM]);
                    let mut payload = vec![0; usize::try_from(u32::from_be_bytes([e, f, g, h])).unwrap()];
                    self.under.read_exact(&mut payload).await.unwrap();
                    self.arrived.extend(payload);
                }
                WINDOW | PING => {}
                kind => panic!("a frame of type {kind}: the stream was not taken"),
            }
        }
        self.arrived.drain(..length).collect()
    }
}

#[tokio::test]
async fn the_way_to_the_door_is_what_the_first_builds_speak() {
    let keeper = keeper(1, listen(Over::Tcp), Shelf::default()).await;
    let mut parts = keeper.address.split('/').skip(2);
    let address = format!("{}:{}", parts.next().unwrap(), parts.nth(1).unwrap());
    let goes = async {
        let mut tcp = TcpStream::connect(address).await.unwrap().compat();
        agrees(&mut tcp, NOISE).await;
        let visitor = identity::Keypair::generate_ed25519();
        let (_, mut secured) = noise::Config::new(&visitor).unwrap().upgrade_outbound(tcp, "/noise").await.unwrap();
        agrees(&mut secured, YAMUX).await;
        let mut stream = Yamux { under: secured, opened: false, arrived: VecDeque::new() };
        stream.send(&[MULTISTREAM, DOOR].concat()).await;
        let taken = stream.receive(MULTISTREAM.len() + DOOR.len()).await;
        assert_eq!(taken, [MULTISTREAM, DOOR].concat(), "{}", String::from_utf8_lossy(&taken));
        let hello = Ask::Hello { fleet: FLEET, certificate: Vec::new() }.encode();
        stream.send(&[&u32::try_from(hello.len()).unwrap().to_be_bytes(), hello.as_slice()].concat()).await;
        assert_eq!(stream.receive(6).await, [0, 0, 0, 2, 1, 0], "welcome, stranger");
    };
    timeout(PATIENCE, goes).await.expect("an answer in time");
}
