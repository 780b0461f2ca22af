//! Events: the recent ones as a JSON array, or followed as Server-Sent Events.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt as _};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::Surface;
use super::failure::Failure;
use crate::events::{Entry, KEPT};

/// Events handed to a follower at once.
const AT_ONCE: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    #[serde(default)]
    follow: bool,
    /// Events after this number; absent: all that are kept.
    #[serde(default)]
    after: u64,
}

pub(super) async fn events(State(surface): State<Surface>, Query(query): Query<EventsQuery>) -> Result<Response, Failure> {
    if !query.follow {
        let entries = surface.handle.events().since(query.after, KEPT).entries;
        let entries: Vec<Entry> = entries.iter().map(|entry| Entry::clone(entry)).collect();
        return Ok(Json(entries).into_response());
    }
    let permit = Arc::clone(&surface.followers).try_acquire_owned().map_err(|_| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "events", "too many clients follow events: end one and try again")
    })?;
    Ok(Sse::new(follow(surface, query.after, permit)).keep_alive(KeepAlive::default()).into_response())
}

/// Ends with the agent, or when the client goes. A gap is told as an event `missed`.
fn follow(surface: Surface, after: u64, permit: OwnedSemaphorePermit) -> impl Stream<Item = Result<Event, axum::Error>> {
    let news = surface.handle.events().follow();
    let start = (surface, news, after, permit);
    futures::stream::unfold(start, async |(surface, mut news, after, permit)| {
        let mut stop = surface.stop.clone();
        loop {
            let batch = surface.handle.events().since(after, AT_ONCE);
            let Some(last) = batch.entries.last().map(|entry| entry.number) else {
                tokio::select! {
                    changed = news.wait_for(|last| *last > after) => { changed.ok()?; }
                    _ = stop.wait_for(|stop| *stop) => return None,
                }
                continue;
            };
            let gap = (batch.missed > 0).then(|| Ok(Event::default().event("missed").data(batch.missed.to_string())));
            let told = batch.entries.into_iter().map(|entry| Event::default().id(entry.number.to_string()).json_data(&*entry));
            let events: Vec<_> = gap.into_iter().chain(told).collect();
            return Some((futures::stream::iter(events), (surface, news, last, permit)));
        }
    })
    .flatten()
}
