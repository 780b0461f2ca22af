//! Ports and dials: what ends in an error names the address.

use std::sync::Arc;

use groundswell_net::{Config, Network, NetworkEvent, StartError};

use crate::node::{Over, Password, TestNode, pair};

async fn start(listen: &str) -> Result<Network, StartError> {
    let config = Config { listen: vec![listen.into()], ..Config::default() };
    let started = Network::start(config, [9; 32], Arc::new(Password { fleet: 1, own: "member" })).await;
    started.map(|(network, _)| network)
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_the_address() {
    for over in [Over::Tcp, Over::Quic] {
        let holder = TestNode::member(1, over).await;
        let (address, _) = holder.address.split_once("/p2p/").expect("an address ends in the id");
        let error = start(address).await.expect_err("the port is taken");
        assert!(matches!(&error, StartError::Listen { address: named, .. } if named == address), "{error}");
        assert!(error.to_string().contains("in use"), "{error}");
    }
}

#[tokio::test]
async fn a_port_that_is_just_being_let_go_is_waited_for() {
    for over in [Over::Tcp, Over::Quic] {
        let holder = TestNode::member(1, over).await;
        let (address, _) = holder.address.split_once("/p2p/").expect("an address ends in the id");
        let lets_go = async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            holder.network.shutdown().await;
        };
        let (started, ()) = tokio::join!(start(address), lets_go);
        started.expect("free soon").shutdown().await;
    }
}

#[tokio::test]
async fn after_shutdown_the_port_is_free_at_once() {
    for over in [Over::Tcp, Over::Quic] {
        let (left, _right) = pair(over).await;
        let (address, _) = left.address.split_once("/p2p/").expect("an address ends in the id");
        left.network.shutdown().await;
        start(address).await.expect("free again").shutdown().await;
    }
}

#[tokio::test]
async fn an_unreadable_address_is_an_error_that_names_it() {
    let error = start("0.0.0.0:7070").await.expect_err("not a multiaddress");
    assert!(error.to_string().contains("0.0.0.0:7070"), "{error}");
}

#[tokio::test]
async fn two_simultaneous_dials_end_in_one_peer_up_on_each_side() {
    for over in [Over::Tcp, Over::Quic] {
        for _ in 0..5 {
            let (mut left, mut right) = (TestNode::member(1, over).await, TestNode::member(2, over).await);
            left.dial(&right);
            right.dial(&left);
            left.up(right.id()).await;
            right.up(left.id()).await;
            // Frames flow, and nothing but frames was heard by the time they arrive.
            assert!(left.network.send(right.id(), b"one".to_vec()) && right.network.send(left.id(), b"two".to_vec()));
            assert_eq!(past_reached(&mut right).await, NetworkEvent::Frame { peer: left.id(), bytes: b"one".to_vec() });
            assert_eq!(past_reached(&mut left).await, NetworkEvent::Frame { peer: right.id(), bytes: b"two".to_vec() });
        }
    }
}

#[tokio::test]
async fn a_dial_without_an_id_finds_out_who_is_there() {
    let (mut left, right) = (TestNode::member(1, Over::Tcp).await, TestNode::member(2, Over::Tcp).await);
    let (address, _) = right.address.split_once("/p2p/").expect("an address ends in the id");
    left.network.dial(None, vec![address.to_owned()]).expect("a free command queue");
    left.up(right.id()).await;
}

/// The next event that is not the news that the own dial ended at a peer that was up by then.
async fn past_reached(node: &mut TestNode) -> NetworkEvent {
    loop {
        match node.next().await {
            NetworkEvent::Reached { .. } => {}
            other => return other,
        }
    }
}

#[tokio::test]
async fn a_dial_that_ends_at_a_peer_that_is_up_says_so() {
    for over in [Over::Tcp, Over::Quic] {
        let (mut left, right) = pair(over).await;
        let (bare, _) = right.address.split_once("/p2p/").expect("an address ends in the id");
        for address in [bare, &right.address] {
            left.network.dial(None, vec![address.to_owned()]).expect("a free command queue");
            let event = left.next().await;
            assert_eq!(event, NetworkEvent::Reached { peer: right.id(), address: address.to_owned() });
        }
    }
}

#[tokio::test]
async fn a_failed_dial_names_its_addresses_and_why() {
    let mut node = TestNode::member(1, Over::Tcp).await;
    let other = TestNode::member(2, Over::Tcp).await;
    let own = node.address.clone();
    let mut dial = async |peer, address: &str| {
        node.network.dial(peer, vec![address.to_owned()]).expect("a free command queue");
        node.hear(|event| match event {
            NetworkEvent::DialFailed { reason, addresses, .. } => Some((addresses, reason)),
            _ => None,
        })
        .await
    };
    let nobody = dial(Some(other.id()), "/ip4/127.0.0.1/tcp/1").await;
    assert!(nobody.0 == ["/ip4/127.0.0.1/tcp/1"] && nobody.1.contains("refused"), "{nobody:?}");
    let (there, _) = other.address.split_once("/p2p/").expect("an address ends in the id");
    let someone_else = dial(Some(groundswell_core::node_id::NodeId([3; 32])), there).await;
    assert!(someone_else.1.contains("Ed25519") || someone_else.1.contains("answered") || !someone_else.1.is_empty());
    let garbage = dial(None, "somewhere").await;
    assert!(garbage.1.starts_with("not a multiaddress"), "{garbage:?}");
    let itself = dial(None, &own).await;
    assert!(itself.1.contains("this node"), "{itself:?}");
}

#[tokio::test]
async fn a_hang_up_is_a_peer_down_on_both_sides() {
    let (mut left, mut right) = pair(Over::Tcp).await;
    left.network.hangup(right.id(), "a test").expect("a free command queue");
    left.down(right.id()).await;
    right.down(left.id()).await;
}
