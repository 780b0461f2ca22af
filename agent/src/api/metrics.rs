//! Numbers for Prometheus, in its text form: what `/v1/status` and `/v1/blobs` say, as counters and gauges.
//!
//! Only blobs that are being exchanged have series of their own, at most as many as there are swarms at once.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::Surface;
use super::failure::Failure;
use crate::handle::{BlobView, StatusView};

/// The form's content type.
const TEXT: &str = "text/plain; version=0.0.4";

pub(super) async fn metrics(State(surface): State<Surface>) -> Result<impl IntoResponse, Failure> {
    let (status, blobs) = (surface.handle.status().await?, surface.handle.blobs().await?);
    Ok(([(header::CONTENT_TYPE, TEXT)], text(&status, &blobs)))
}

fn text(status: &StatusView, blobs: &[BlobView]) -> String {
    let mut text = String::new();
    let agent = &status.agent;
    family(&mut text, "info", "gauge", "Constant 1; the labels say which build of the agent runs on which node.");
    let _ = writeln!(text, "groundswell_info{{version=\"{}\",node=\"{}\"}} 1", agent.version, status.node.node);
    gauge(&mut text, "peers", "Members that are connected.", u64::from(status.node.peers));
    gauge(&mut text, "faults", "What does not work on this machine now.", count(agent.faults.len()));
    gauge(&mut text, "blobs", "Artifacts that are here whole.", count(agent.blobs.len()));
    gauge(&mut text, "downloads", "Artifacts on their way here.", count(agent.downloads.len()));
    for (name, value) in &agent.counters {
        let unit = name.strip_suffix("_total").unwrap_or(name);
        family(&mut text, &format!("{unit}_total"), "counter", "Counted since the agent started.");
        let _ = writeln!(text, "groundswell_{unit}_total {value}");
    }
    let moving: Vec<&BlobView> = blobs.iter().filter(|blob| !blob.peers.is_empty() || blob.held < blob.pieces).collect();
    let sum = |rate: fn(&crate::handle::BlobPeerView) -> u64| {
        move |blob: &BlobView| blob.peers.iter().map(rate).sum::<u64>().to_string()
    };
    let copies = |blob: &BlobView| format!("{}.{:06}", blob.copies_ppm / 1_000_000, blob.copies_ppm % 1_000_000);
    each(&mut text, &moving, "blob_pieces", "Pieces of an artifact that is exchanged now.", |blob| blob.pieces.to_string());
    each(&mut text, &moving, "blob_pieces_held", "Of these, pieces that are here.", |blob| blob.held.to_string());
    each(&mut text, &moving, "blob_peers", "Members that exchange it with this node.", |blob| blob.peers.len().to_string());
    each(&mut text, &moving, "blob_holders", "Other members that have all of it.", |blob| blob.holders.to_string());
    each(&mut text, &moving, "blob_copies", "Whole copies that the others have together, piece by piece.", copies);
    each(&mut text, &moving, "blob_received_bytes_per_second", "What comes, lately.", sum(|peer| peer.received_bytes_per_second));
    each(&mut text, &moving, "blob_sent_bytes_per_second", "What goes out, lately.", sum(|peer| peer.sent_bytes_per_second));
    text
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP groundswell_{name} {help}\n# TYPE groundswell_{name} {kind}");
}

fn gauge(text: &mut String, name: &str, help: &str, value: u64) {
    family(text, name, "gauge", help);
    let _ = writeln!(text, "groundswell_{name} {value}");
}

fn each(text: &mut String, blobs: &[&BlobView], name: &str, help: &str, value: impl Fn(&BlobView) -> String) {
    if blobs.is_empty() {
        return;
    }
    family(text, name, "gauge", help);
    for blob in blobs {
        let _ = writeln!(text, "groundswell_{name}{{sha256=\"{}\"}} {}", blob.sha256.hex(), value(blob));
    }
}
