//! The blob store as the mesh's source: serves whole blobs and the verified pieces of downloads under way.

use std::sync::Arc;

use groundswell_core::blob::{HashList, PieceSet};
use groundswell_core::digest::Digest;
use groundswell_net::blobs::{BlobSource, Described, PieceSink, ReadError};

use super::partial::read_verified;
use super::store::{BlobStore, LookupError};

impl BlobSource for BlobStore {
    fn describe(&self, sha256: &Digest) -> Option<Described> {
        if let Some(list) = self.shared.list_of(sha256) {
            return Some(Described { size_bytes: list.layout().size_bytes(), held: PieceSet::full(list.layout()) });
        }
        let partial = self.shared.partial_of(sha256)?;
        Some(Described { size_bytes: partial.name().size_bytes, held: partial.held() })
    }

    fn hash_list(&self, sha256: &Digest) -> Option<HashList> {
        let whole = self.shared.list_of(sha256).map(Arc::unwrap_or_clone);
        whole.or_else(|| self.shared.partial_of(sha256)?.hash_list())
    }

    fn read_piece(&self, sha256: &Digest, piece: u32) -> Result<Vec<u8>, ReadError> {
        let Some(list) = self.shared.list_of(sha256) else {
            return self.shared.partial_of(sha256).ok_or(ReadError::NoBlob)?.read_piece(piece);
        };
        if piece >= list.layout().count() {
            return Err(ReadError::Beyond(piece));
        }
        let file = match self.open_blob(sha256) {
            Ok(file) => file,
            Err(LookupError::NotHere(_) | LookupError::Damaged(_)) => return Err(ReadError::NoBlob),
            Err(LookupError::Io(_, error)) => return Err(error.into()),
        };
        // An honest node with a failing disk must not look like a liar: what it sends, it has checked.
        read_verified(&file, &list, piece)?.ok_or_else(|| {
            self.shared.damaged(sha256);
            ReadError::NoBlob
        })
    }
}
