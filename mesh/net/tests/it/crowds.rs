//! Crowds at the door: who fills it with silent connections keeps nobody else out.

use std::net::SocketAddr;

use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use groundswell_net::Config;
use groundswell_net::config::{HANDSHAKES, UNADMITTED};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::node::{Over, PATIENCE, Password, TestNode, listen};
use crate::stranger::Stranger;

/// Where a node listens.
fn socket_address(node: &TestNode) -> SocketAddr {
    let mut parts = node.address.split('/').skip(2);
    let (ip, port) = (parts.next().unwrap(), parts.nth(1).unwrap());
    format!("{ip}:{port}").parse().unwrap()
}

/// Another way to `node`: what comes there goes on to the node from `origin`. It lasts as long as the tasks.
async fn way_from(origin: &str, node: &TestNode, tasks: &mut JoinSet<()>) -> String {
    let (origin, target) = (SocketAddr::new(origin.parse().unwrap(), 0), socket_address(node));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let way = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut passing = JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            passing.spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(origin).unwrap();
                let mut far = socket.connect(target).await.unwrap();
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    format!("/ip4/127.0.0.1/tcp/{}", way.port())
}

async fn gets_in(member: &mut TestNode, node: &mut TestNode, way: &str) {
    member.network.dial(Some(node.id()), vec![way.to_owned()]).unwrap();
    member.up(node.id()).await;
    node.up(member.id()).await;
}

/// So many strangers that connect to a node and say nothing.
async fn silent_crowd(node: &TestNode, size: usize) -> Vec<Stranger> {
    let mut crowd = Vec::new();
    for _ in 0..size {
        let mut silent = Stranger::start();
        silent.connected(&node.address).await;
        crowd.push(silent);
    }
    crowd
}

#[tokio::test]
async fn silent_connections_from_one_network_keep_no_member_of_another_out() {
    // Long enough that none of them is hung up on for its silence.
    let config = Config { admit_within: 2 * PATIENCE, ..listen(Over::Tcp) };
    let mut node = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
    let _crowd = silent_crowd(&node, UNADMITTED).await;
    let mut tasks = JoinSet::new();
    let way = way_from("127.0.1.1", &node, &mut tasks).await;
    let mut member = TestNode::member(2, Over::Tcp).await;
    gets_in(&mut member, &mut node, &way).await;
}

#[tokio::test]
async fn whoever_has_said_hello_keeps_its_place_whoever_comes_after_it() {
    let config = Config { admit_within: 2 * PATIENCE, ..listen(Over::Tcp) };
    let mut node = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
    // The oldest of the fullest network, and about to be admitted.
    let mut first = Stranger::start();
    first.dial(&node.address);
    let (mut stream, _) = first.hello().await;
    let _crowd = silent_crowd(&node, UNADMITTED - 1).await;
    let mut tasks = JoinSet::new();
    let way = way_from("127.0.1.1", &node, &mut tasks).await;
    let mut member = TestNode::member(2, Over::Tcp).await;
    gets_in(&mut member, &mut node, &way).await;
    stream.write_all(&[2]).await.unwrap();
    stream.flush().await.unwrap();
    let mut ready = [0];
    stream.read_exact(&mut ready).await.unwrap();
    assert_eq!(ready, [3]);
    node.up(first.id()).await;
}

#[tokio::test]
async fn handshakes_that_never_end_keep_no_member_of_another_network_out() {
    let mut node = TestNode::member(1, Over::Tcp).await;
    let mut silent = Vec::new();
    for _ in 0..2 * HANDSHAKES {
        silent.push(TcpStream::connect(socket_address(&node)).await.unwrap());
    }
    let mut tasks = JoinSet::new();
    let way = way_from("127.0.1.1", &node, &mut tasks).await;
    let mut member = TestNode::member(2, Over::Tcp).await;
    gets_in(&mut member, &mut node, &way).await;
}
