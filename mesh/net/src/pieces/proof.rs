//! Whether a member has what it says it has: a few pieces of it, asked for and verified. Whoever relies on others to keep a
//! blob, since it is about to leave, does not go by words alone.

use std::sync::Arc;
use std::time::Duration;

use groundswell_core::blob::HashList;
use groundswell_core::digest::Digest;
use groundswell_core::node_id::NodeId;
use tokio::time::timeout;

use super::Swarms;
use crate::blobs::wire::{self, Request, WireError};
use crate::blobs::{Charge, Duplex, blocking};

/// So many pieces are asked for: who lacks a fifth of them is found out every other time.
const ASKED: u64 = 3;
/// All of them must be here by then.
const PROVEN_WITHIN: Duration = Duration::from_secs(20);

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It gave what it was asked for.
    Given,
    /// It refused, was silent, or gave something else; for that it was charged.
    Withheld,
    /// It cannot be asked: there is no stream to it, or the blob is not here to compare with.
    NotAsked,
}

impl Swarms {
    /// Asks a member for some pieces of a blob that is held here, which `chance` chooses, and verifies them. What is not
    /// the piece that was asked for costs the member its standing.
    pub async fn prove(&self, peer: NodeId, blob: Digest, chance: u64) -> Proof {
        let source = Arc::clone(&self.shared.source);
        let Some(list) = blocking(move || source.hash_list(&blob)).await else { return Proof::NotAsked };
        let Ok(mut stream) = self.shared.connect.connect(peer).await else { return Proof::NotAsked };
        let asked = async {
            for nth in 0..ASKED {
                let piece = drawn(chance, nth, list.layout().count());
                if !gives(&mut stream, blob, &list, piece, u32::try_from(nth).unwrap_or(0)).await? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let outcome: Result<bool, Fault> = timeout(PROVEN_WITHIN, asked).await.unwrap_or(Ok(false));
        match outcome {
            Ok(true) => Proof::Given,
            Ok(false) => Proof::Withheld,
            Err(Fault(charge)) => {
                charge.into_iter().for_each(|charge| self.shared.standings.charge(peer, charge));
                Proof::Withheld
            }
        }
    }
}

/// What a member is charged with, if with anything.
struct Fault(Option<Charge>);

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self(error.is_breach().then_some(Charge::Breach))
    }
}

async fn gives(stream: &mut Box<dyn Duplex>, blob: Digest, list: &HashList, piece: u32, number: u32) -> Result<bool, Fault> {
    let length = list.layout().length(piece).expect("only pieces that there are are drawn");
    wire::write_request(stream, number, &Request::Piece { blob, piece }).await?;
    wire::flush(stream).await?;
    if wire::begin_piece(stream, number, length).await?.is_some() {
        return Ok(false);
    }
    let bytes = wire::read_part(stream, length).await?;
    list.verify_piece(piece, &bytes).map(|()| true).map_err(|_| Fault(Some(Charge::BadPiece)))
}

/// A piece that nobody can tell beforehand who does not know `chance`.
fn drawn(chance: u64, nth: u64, count: u32) -> u32 {
    let [b0, b1, b2, b3, ..] = Digest::of(&[chance.to_be_bytes(), nth.to_be_bytes()].concat()).0;
    u32::from_be_bytes([b0, b1, b2, b3]) % count.max(1)
}
