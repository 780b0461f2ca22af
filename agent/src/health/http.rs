//! A GET over plain HTTP, judged: which failures are the version's own, and which can be the network's alone.
//!
//! On this machine a refused connection or a timeout is the version's fault. On another machine both may be the
//! network's, so they decide nothing; 429 decides nothing anywhere (case I6).

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::judge::Verdict;
use super::names::Names;
use super::tcp::{Site, reach};
use crate::config::HttpTarget;

/// Of the body of a failure, this much is shown.
const SHOWN_BYTES: usize = 200;
/// A body longer than this is not read.
const BODY_BYTES: usize = 16 * 1024;

/// Asks once, within `limit`. The status decides once it is there, however long the body takes.
pub async fn get(target: &HttpTarget, limit: Duration, names: &Names) -> Verdict {
    let url = format!("http://{}:{}{}", target.host, target.port, target.path);
    let (mut site, mut status) = (Site::Unknown, None);
    let heard = timeout(limit, ask(target, names, &mut site, &mut status)).await;
    match (status, heard) {
        (Some(status), _) if status.is_success() || status.is_redirection() => Verdict::Pass,
        (Some(StatusCode::TOO_MANY_REQUESTS), _) => Verdict::Unclear(format!("{url} answers 429: throttled")),
        (Some(status), heard) => {
            let body = heard.ok().and_then(Result::ok).unwrap_or_default();
            Verdict::Fail(format!("{url} answers {}{body}", status.as_u16()))
        }
        (None, Ok(Err(why))) => site.judge(&url, &why),
        (None, _) => site.judge(&url, &format!("no answer within {} ms", limit.as_millis())),
    }
}

/// The beginning of the body of a failure. `site` is set once it is known where the target is, `answered` once it has answered.
async fn ask(target: &HttpTarget, names: &Names, site: &mut Site, answered: &mut Option<StatusCode>) -> Result<String, String> {
    let stream = reach(&target.host, target.port, names, site).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| format!("{error}"))?;
    // The set owns the task that drives the connection, and ends it when this function returns.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let request = Request::get(&target.path)
        .header(header::HOST, format!("{}:{}", target.host, target.port))
        .header(header::USER_AGENT, "groundswell")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("{error}"))?;
    let response = sender.send_request(request).await.map_err(|error| format!("no valid answer: {error}"))?;
    let status = response.status();
    *answered = Some(status);
    let says_why = status != StatusCode::TOO_MANY_REQUESTS && (status.is_client_error() || status.is_server_error());
    Ok(if says_why { shown(response).await } else { String::new() })
}

async fn shown(response: Response<hyper::body::Incoming>) -> String {
    let Ok(body) = Limited::new(response.into_body(), BODY_BYTES).collect().await else { return String::new() };
    let bytes = body.to_bytes();
    let text = String::from_utf8_lossy(bytes.get(..SHOWN_BYTES.min(bytes.len())).unwrap_or_default()).trim().to_owned();
    if text.is_empty() { text } else { format!(": {text}") }
}
