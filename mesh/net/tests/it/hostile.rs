//! Peers that break the rules on purpose, inside and outside the door.

use std::time::Duration;

use futures::{AsyncReadExt, AsyncWriteExt};
use groundswell_net::{Config, NetworkEvent};

use crate::node::{Over, Password, TestNode, listen};
use crate::stranger::{MEMBERS_ONLY, Stranger};

#[tokio::test]
async fn s7_a_peer_in_the_middle_of_the_exchange_has_no_protocol_yet() {
    let config = Config { admit_within: Duration::from_secs(6), ..listen(Over::Tcp) };
    let mut member = TestNode::start(1, config, Password { fleet: 1, own: "member" }).await;
    let mut stranger = Stranger::start();
    stranger.dial(&member.address);
    // Its proof is valid, but it never says that it admits the member.
    let (_exchange, answer) = stranger.hello().await;
    assert_eq!(answer, 1, "a hello");
    for protocol in MEMBERS_ONLY {
        assert!(stranger.open(protocol).await.is_none(), "{protocol}");
    }
    stranger.closed().await;
    assert_eq!(member.refused().await.0, stranger.id());
    assert!(!member.heard_of(stranger.id()));
}

#[tokio::test]
async fn a_member_that_announces_a_huge_frame_is_hung_up_on_and_nothing_is_allocated() {
    let mut member = TestNode::member(1, Over::Tcp).await;
    let mut hostile = Stranger::start();
    hostile.admitted(&member.address).await;
    member.up(hostile.id()).await;
    let mut link = hostile.open("/groundswell/link/1").await.expect("it is a member");
    link.write_all(b"\0\0\0\x02ok\xFF\xFF\xFF\xFF").await.expect("an open stream");
    link.flush().await.expect("an open stream");
    let (reason, _) = futures::join!(
        member.hear(|event| match event {
            NetworkEvent::Refused { reason, .. } => Some(reason),
            NetworkEvent::Frame { bytes, .. } => {
                assert_eq!(bytes, b"ok");
                None
            }
            _ => None,
        }),
        hostile.closed()
    );
    assert_eq!(reason, "too-large: it announced a frame of 4294967295 bytes, at most 524288");
    member.down(hostile.id()).await;
    assert_eq!(member.network.counters().frames_oversize, 1);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_in_so_many_words() {
    let member = TestNode::member(1, Over::Tcp).await;
    let mut hostile = Stranger::start();
    hostile.admitted(&member.address).await;
    // Nobody serves blobs there, so the streams wait to be taken up.
    let mut streams = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..40 {
        let mut stream = hostile.open("/groundswell/blob/1").await.expect("it is a member");
        let mut answer = [9];
        stream.read_exact(&mut answer).await.expect("an answer");
        answers.extend(answer);
        streams.push(stream);
    }
    let (taken, busy) = answers.split_at(32);
    assert!(taken.iter().all(|answer| *answer == 1) && busy.iter().all(|answer| *answer == 0), "{answers:?}");
    assert_eq!(member.network.counters().streams_refused, 8);
}
