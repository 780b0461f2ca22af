//! Lists of byte strings as frames hold them: each its length and its bytes, written and read whole rather than byte by byte.
//! On the wire this is what serde writes of lists of bytes anyway.

use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, SerializeSeq as _, Serializer};

/// One of them.
pub(crate) struct Packed<'a>(pub(crate) &'a [u8]);
struct Owned(Vec<u8>);
struct OwnedVisitor;

impl Serialize for Packed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(OwnedVisitor)
    }
}

impl Visitor<'_> for OwnedVisitor {
    type Value = Owned;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Owned, E> {
        Ok(Owned(bytes.to_vec()))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Owned, E> {
        Ok(Owned(bytes))
    }
}

pub(super) fn serialize<S: Serializer>(list: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
    let mut written = serializer.serialize_seq(Some(list.len()))?;
    for bytes in list {
        written.serialize_element(&Packed(bytes))?;
    }
    written.end()
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
    let list = Vec::<Owned>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|Owned(bytes)| bytes).collect())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Packed(#[serde(with = "super")] Vec<Vec<u8>>);

    #[test]
    fn the_bytes_are_those_of_a_plain_list_of_lists() {
        for list in [vec![], vec![vec![]], vec![vec![0, 255], vec![7; 300], vec![]], vec![vec![1]; 200]] {
            let plain = postcard::to_allocvec(&list).unwrap();
            assert_eq!(postcard::to_allocvec(&Packed(list.clone())).unwrap(), plain);
            assert_eq!(postcard::from_bytes::<Packed>(&plain).unwrap().0, list);
            for cut in 0..plain.len() {
                assert!(postcard::from_bytes::<Packed>(&plain[..cut]).is_err());
            }
        }
    }
}
