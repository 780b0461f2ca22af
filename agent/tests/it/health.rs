//! HTTP probes against a small server, and against places where there is none.

use std::time::Duration;

use groundswell_agent::config::{HttpTarget, TcpTarget};
use groundswell_agent::health::http::get;
use groundswell_agent::health::tcp::probe;
use groundswell_agent::health::{Names, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::workshop::PATIENCE;

const LIMIT: Duration = PATIENCE;

/// The verdict on a server that answers with `answer`.
async fn verdict_on(answer: &'static str) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let read = stream.read(&mut request).await.unwrap();
        assert!(request[..read].starts_with(b"GET /health?deep=1 HTTP/1.1\r\n"));
        stream.write_all(answer.as_bytes()).await.unwrap();
    };
    let target = HttpTarget::parse(&format!("http://127.0.0.1:{port}/health?deep=1")).unwrap();
    let names = Names::default();
    tokio::join!(get(&target, LIMIT, &names), serve).0
}

/// An address that refuses connections as long as it is held: one that was merely let go may be another test's by now.
fn refusing() -> (TcpSocket, String) {
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap().to_string();
    (held, address)
}

#[tokio::test]
async fn success_and_redirection_pass() {
    assert_eq!(verdict_on("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await, Verdict::Pass);
    assert_eq!(verdict_on("HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n").await, Verdict::Pass);
}

#[tokio::test]
async fn an_error_fails_with_the_beginning_of_its_body() {
    let verdict = verdict_on("HTTP/1.1 500 Oops\r\ncontent-length: 11\r\n\r\ndb is gone\n").await;
    assert!(matches!(&verdict, Verdict::Fail(why) if why.ends_with("answers 500: db is gone")), "{verdict:?}");
}

#[tokio::test]
async fn i6_429_decides_nothing() {
    let verdict = verdict_on("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n").await;
    assert!(matches!(verdict, Verdict::Unclear(_)), "{verdict:?}");
}

#[tokio::test]
async fn what_is_not_http_fails() {
    let verdict = verdict_on("SSH-2.0-OpenSSH_9.9\r\n").await;
    assert!(matches!(verdict, Verdict::Fail(_)), "{verdict:?}");
}

#[tokio::test]
async fn on_this_machine_a_refused_connection_and_silence_are_the_version_s_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = HttpTarget::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let silent = get(&target, Duration::from_millis(100), &Names::default()).await;
    assert!(matches!(&silent, Verdict::Fail(why) if why.contains("no answer within 100 ms")), "{silent:?}");
    let (_held, address) = refusing();
    let refused = get(&HttpTarget::parse(&format!("http://{address}/")).unwrap(), LIMIT, &Names::default()).await;
    assert!(matches!(&refused, Verdict::Fail(why) if why.contains("cannot connect")), "{refused:?}");
}

#[tokio::test]
async fn i6_elsewhere_they_may_be_the_network_s_alone() {
    // 192.0.2.0/24 is set aside for documentation: nobody answers, or the network says so at once.
    let target = HttpTarget::parse("http://192.0.2.1:9/").unwrap();
    let verdict = get(&target, Duration::from_millis(200), &Names::default()).await;
    assert!(matches!(&verdict, Verdict::Unclear(why) if why.contains("not on this machine")), "{verdict:?}");
    let nowhere = HttpTarget::parse("http://health.invalid/").unwrap();
    let verdict = get(&nowhere, LIMIT, &Names::default()).await;
    assert!(matches!(verdict, Verdict::Unclear(_)), "{verdict:?}");
}

#[test]
fn targets_are_plain_http_addresses() {
    let target = HttpTarget::parse("http://[::1]:8080").unwrap();
    assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 8080, "/"));
    for bad in ["https://localhost/", "localhost:80", "http://user@host/", "ftp://x/", "http:///x", ""] {
        assert!(HttpTarget::parse(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_connection_passes_and_one_that_this_machine_refuses_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = TcpTarget::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    assert_eq!(probe(&target, LIMIT, &Names::default()).await, Verdict::Pass);
    let (_held, address) = refusing();
    let refused = probe(&TcpTarget::parse(&address).unwrap(), LIMIT, &Names::default()).await;
    assert!(matches!(&refused, Verdict::Fail(why) if why.contains("cannot connect")), "{refused:?}");
}

#[tokio::test]
async fn i6_no_connection_to_another_machine_decides_nothing() {
    // An address of the documentation's: nobody has it.
    let target = TcpTarget::parse("192.0.2.1:9").unwrap();
    let verdict = probe(&target, Duration::from_millis(100), &Names::default()).await;
    assert!(matches!(&verdict, Verdict::Unclear(why) if why.contains("not on this machine")), "{verdict:?}");
    let target = TcpTarget::parse("no-such-name.invalid:80").unwrap();
    let verdict = probe(&target, LIMIT, &Names::default()).await;
    assert!(matches!(&verdict, Verdict::Unclear(_)), "{verdict:?}");
}

/// The verdict on a server that sends this and then nothing more, and keeps the connection.
async fn verdict_on_half(answer: &'static str) -> Verdict {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = HttpTarget::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<Verdict>().await
    };
    let names = Names::default();
    tokio::select! {
        verdict = get(&target, Duration::from_secs(5), &names) => verdict,
        never = serve => never,
    }
}

#[tokio::test]
async fn i6_a_status_counts_although_its_body_does_not_come() {
    let (throttled, failed, good) = tokio::join!(
        verdict_on_half("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 9\r\n\r\n"),
        verdict_on_half("HTTP/1.1 500 Oops\r\ncontent-length: 9\r\n\r\ndb"),
        verdict_on_half("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
    );
    assert!(matches!(&throttled, Verdict::Unclear(why) if why.contains("429")), "{throttled:?}");
    assert!(matches!(&failed, Verdict::Fail(why) if why.ends_with("answers 500")), "{failed:?}");
    assert_eq!(good, Verdict::Pass);
}

#[test]
fn i6_a_name_service_that_hangs_holds_up_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build().unwrap();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (held, asked) = (std::sync::Mutex::new(held), std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0)));
    let counts = std::sync::Arc::clone(&asked);
    let names = Names::by(move |_, port| {
        counts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let _ = held.lock().unwrap().recv();
        Ok(vec![([127, 0, 0, 1], port).into()])
    });
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = TcpTarget::parse(&format!("service.example:{}", listener.local_addr().unwrap().port())).unwrap();
        let http = HttpTarget::parse("http://service.example/").unwrap();
        let first = probe(&target, Duration::from_millis(5), &names).await;
        assert!(matches!(&first, Verdict::Unclear(_)), "{first:?}");
        // It is looked up on a thread of its own, which takes its time to start.
        while asked.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..25 {
            for verdict in
                [probe(&target, Duration::from_millis(5), &names).await, get(&http, Duration::from_millis(5), &names).await]
            {
                assert!(matches!(&verdict, Verdict::Unclear(_)), "{verdict:?}");
            }
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1, "one look-up at a time");
        let written = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(|| "written")).await;
        assert_eq!(written.unwrap().unwrap(), "written");
        // It is over: names are found again.
        drop(release);
        while probe(&target, LIMIT, &names).await != Verdict::Pass {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
