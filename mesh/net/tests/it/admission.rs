//! Who gets through the door.

use std::time::Duration;

use groundswell_net::{Config, NetworkEvent};

use crate::node::{Over, Password, TestNode, listen, pair};

#[tokio::test]
async fn members_admit_each_other_over_tcp_and_over_quic() {
    for over in [Over::Tcp, Over::Quic] {
        let (mut left, mut right) = (TestNode::member(1, over).await, TestNode::member(2, over).await);
        left.dial(&right);
        let (dialled, address) = left
            .hear(|event| match event {
                NetworkEvent::PeerUp { dialled, address, .. } => Some((dialled, address)),
                _ => None,
            })
            .await;
        assert!(dialled, "{over:?}");
        assert!(right.address.starts_with(address.split("/p2p/").next().unwrap_or_default()), "{address} {}", right.address);
        let dialled = right
            .hear(|event| match event {
                NetworkEvent::PeerUp { dialled, .. } => Some(dialled),
                _ => None,
            })
            .await;
        assert!(!dialled, "{over:?}");
    }
}

#[tokio::test]
async fn a_peer_without_a_valid_proof_is_refused_and_both_sides_say_why() {
    for over in [Over::Tcp, Over::Quic] {
        let mut member = TestNode::member(1, over).await;
        let mut outsider = TestNode::start(2, listen(over), Password { fleet: 1, own: "forged" }).await;
        outsider.dial(&member);
        let (peer, reason) = member.refused().await;
        assert_eq!((peer, reason), (outsider.id(), format!("revoked: {}", outsider.id())));
        let (peer, reason) = outsider.refused().await;
        assert_eq!((peer, reason), (member.id(), format!("it refused this node: revoked: {}", outsider.id())));
        assert!(!member.heard_of(outsider.id()));
        assert!(!outsider.heard_of(member.id()), "the member may be admitted there, but it did not admit: no PeerUp");
    }
}

#[tokio::test]
async fn a_dialled_peer_without_a_valid_proof_is_refused_too() {
    let mut member = TestNode::member(1, Over::Tcp).await;
    let mut outsider = TestNode::start(2, listen(Over::Tcp), Password { fleet: 1, own: "forged" }).await;
    member.dial(&outsider);
    assert_eq!(member.refused().await.0, outsider.id());
    assert_eq!(outsider.refused().await.0, member.id());
    assert!(!member.heard_of(outsider.id()) && !outsider.heard_of(member.id()));
}

#[tokio::test]
async fn a_node_of_another_fleet_is_refused_by_its_fleet() {
    let mut member = TestNode::member(1, Over::Tcp).await;
    let mut other = TestNode::start(2, listen(Over::Tcp), Password { fleet: 9, own: "member" }).await;
    other.dial(&member);
    assert!(member.refused().await.1.starts_with("fleet: it belongs to sha256/0909"));
    assert!(other.refused().await.1.starts_with("it refused this node: fleet: it belongs to sha256/0909"));
}

#[tokio::test]
async fn a_refused_peer_is_admitted_once_its_proof_is_valid() {
    let mut member = TestNode::member(1, Over::Tcp).await;
    let mut outsider = TestNode::start(2, listen(Over::Tcp), Password { fleet: 1, own: "expired" }).await;
    outsider.dial(&member);
    member.refused().await;
    outsider.refused().await;
    outsider.network.shutdown().await;
    let mut renewed = TestNode::member(2, Over::Tcp).await;
    renewed.dial(&member);
    member.up(renewed.id()).await;
    renewed.up(member.id()).await;
}

#[tokio::test]
async fn a_peer_that_proves_nothing_is_hung_up_on_in_time() {
    let config = Config { admit_within: Duration::from_secs(1), ..listen(Over::Tcp) };
    let mut member = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
    let mut silent = crate::stranger::Stranger::start();
    silent.dial(&member.address);
    let ((peer, reason), _) = futures::join!(member.refused(), silent.closed());
    assert_eq!((peer, reason.as_str()), (silent.id(), "it did not prove its certificate within 1000 ms"));
}

#[tokio::test]
async fn a_peer_that_restarted_is_down_and_up_again() {
    for over in [Over::Tcp, Over::Quic] {
        let (mut left, right) = pair(over).await;
        let id = right.id();
        right.network.shutdown().await;
        left.down(id).await;
        let mut again = TestNode::member(2, over).await;
        left.dial(&again);
        left.up(id).await;
        again.up(left.id()).await;
    }
}

#[tokio::test]
async fn a_restart_whose_old_connection_was_not_seen_to_close_still_comes_as_down_and_up() {
    let (mut left, right) = pair(Over::Tcp).await;
    // A second process under the same identity: to its peers that is what a restart after a power cut looks like.
    let mut again = TestNode::member(2, Over::Tcp).await;
    again.dial(&left);
    left.down(right.id()).await;
    left.up(right.id()).await;
    again.up(left.id()).await;
    assert!(left.network.send(right.id(), b"to the new one".to_vec()));
    assert_eq!(again.frame().await, (left.id(), b"to the new one".to_vec()));
}

#[tokio::test]
async fn a_member_that_has_no_place_for_one_more_has_answered_all_the_same() {
    for over in [Over::Tcp, Over::Quic] {
        let config = Config { most_peers: 1, ..listen(over) };
        let mut full = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
        let friend = TestNode::member(2, over).await;
        friend.dial(&full);
        full.up(friend.id()).await;
        let mut late = TestNode::member(3, over).await;
        late.dial(&full);
        let address = late
            .hear(|event| match event {
                NetworkEvent::Reached { peer, address } if peer == full.id() => Some(address),
                _ => None,
            })
            .await;
        assert_eq!(address, full.address, "{over:?}: the address that was given is the one that is left alone from now on");
        let (peer, _) = late.refused().await;
        assert_eq!(peer, full.id());
        assert!(!late.heard_of(full.id()));
    }
}
