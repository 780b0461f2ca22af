//! The bytes of `/groundswell/pieces/1`, read only within bounds known beforehand.
//!
//! The opener says which blob: `sha256 | u64 size | u8 wants the hash list`. The acceptor answers `1`, and the hash
//! list when it is wanted, or `0 | u8 reason` and closes. From then on both sides speak
//! [`Message`]s, whose bytes are the core's: `u8 tag | u32 length | payload`. Integers are big-endian.

use futures::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use groundswell_core::blob::exchange::Message;
use groundswell_core::blob::exchange::message::{HEADER_BYTES, PART, PLACE_BYTES, Part};
use groundswell_core::blob::{HashList, Layout};
use groundswell_core::digest::Digest;

use crate::blobs::wire::{WireError, flush, read_exact, write_all};

/// What the opener says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// SHA-256 of the blob.
    pub sha256: Digest,
    /// Its size in bytes, as the signed manifest has it.
    pub size_bytes: u64,
    /// Whether the hash list is to come with the answer.
    pub wants_list: bool,
}

/// Length of an [`Opening`] in bytes.
pub const OPENING_BYTES: usize = 41;

/// Why an acceptor takes no part with the opener. Numbers are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// It neither holds nor fetches anything of the blob, or gives nothing.
    #[error("it is not here")]
    NotHere = 1,
    /// It fetches the blob and has no hash list yet.
    #[error("its hash list is not here yet")]
    NoList = 2,
    /// It exchanges the blob with as many as it can.
    #[error("it has too many neighbours")]
    Busy = 3,
    /// There is a stream between the two already, opened by the side with the smaller id.
    #[error("there is a stream already")]
    Twice = 4,
    /// The blob has another size there.
    #[error("it has another size")]
    Size = 5,
}

impl Refusal {
    fn of(number: u8) -> Option<Self> {
        [Self::NotHere, Self::NoList, Self::Busy, Self::Twice, Self::Size].into_iter().find(|it| *it as u8 == number)
    }
}

/// Writes an opening and sends it. Not cancel-safe.
///
/// # Errors
/// When the stream fails or takes nothing for long.
pub async fn write_opening(stream: &mut (impl AsyncWrite + Unpin), opening: &Opening) -> Result<(), WireError> {
    let mut bytes = Vec::with_capacity(OPENING_BYTES);
    bytes.extend_from_slice(&opening.sha256.0);
    bytes.extend_from_slice(&opening.size_bytes.to_be_bytes());
    bytes.push(u8::from(opening.wants_list));
    write_all(stream, &bytes).await?;
    flush(stream).await
}

/// Reads an opening. Not cancel-safe.
///
/// # Errors
/// When it cannot be one, or the stream fails or stalls.
pub async fn read_opening(stream: &mut (impl AsyncRead + Unpin)) -> Result<Opening, WireError> {
    let mut bytes = [0; OPENING_BYTES];
    read_exact(stream, &mut bytes).await?;
    let (sha256, rest) = bytes.split_first_chunk::<32>().ok_or(WireError::Request)?;
    let (size, wants) = rest.split_first_chunk::<8>().ok_or(WireError::Request)?;
    let wants_list = match wants {
        [0] => false,
        [1] => true,
        _ => return Err(WireError::Request),
    };
    Ok(Opening { sha256: Digest(*sha256), size_bytes: u64::from_be_bytes(*size), wants_list })
}

/// Refuses an opening and closes the stream. Not cancel-safe.
///
/// # Errors
/// When the stream fails or takes nothing for long.
pub async fn write_refusal(stream: &mut (impl AsyncWrite + Unpin), refusal: Refusal) -> Result<(), WireError> {
    write_all(stream, &[0, refusal as u8]).await?;
    flush(stream).await?;
    stream.close().await.map_err(WireError::Io)
}

/// The bytes in front of the first message of an acceptor that takes part.
#[must_use]
pub fn accepted(list: Option<&HashList>) -> Vec<u8> {
    let mut bytes = vec![1];
    if let Some(list) = list {
        bytes.extend_from_slice(&list.to_bytes());
    }
    bytes
}

/// Reads the answer to an opening: the hash list's bytes, not verified, when it was wanted. Not cancel-safe.
///
/// # Errors
/// When it cannot be one, or the stream fails or stalls.
pub async fn read_answer(
    stream: &mut (impl AsyncRead + Unpin),
    layout: Layout,
    wants_list: bool,
) -> Result<Result<Option<Vec<u8>>, Refusal>, WireError> {
    let mut tag = [0; 1];
    read_exact(stream, &mut tag).await?;
    match tag {
        [1] if wants_list => {
            let mut list = vec![0; HashList::bytes_for(layout)];
            read_exact(stream, &mut list).await?;
            Ok(Ok(Some(list)))
        }
        [1] => Ok(Ok(None)),
        [0] => {
            let mut reason = [0; 1];
            read_exact(stream, &mut reason).await?;
            let [reason] = reason;
            Refusal::of(reason).map(Err).ok_or(WireError::Request)
        }
        _ => Err(WireError::Request),
    }
}

/// Reads the next message; `None` at the end of the stream. Between two messages it waits for as long as it takes,
/// within one not. Allocates only what the layout allows. Not cancel-safe.
///
/// # Errors
/// When it is no message about such a blob, or the stream fails or stalls.
pub async fn read_message(stream: &mut (impl AsyncRead + Unpin), layout: Layout) -> Result<Option<Message>, WireError> {
    let mut header = [0; HEADER_BYTES];
    let (first, rest) = header.split_at_mut(1);
    if stream.read(first).await.map_err(WireError::Io)? == 0 {
        return Ok(None);
    }
    read_exact(stream, rest).await?;
    let (tag, length) = Message::header(header, layout)?;
    if tag == PART {
        // Its bytes are most of all that comes: they are read into where they stay.
        let mut place = [0; PLACE_BYTES];
        read_exact(stream, &mut place).await?;
        let length = length.saturating_sub(PLACE_BYTES);
        let (piece, offset) = Part::place(place, length, layout)?;
        let mut bytes = vec![0; length];
        read_exact(stream, &mut bytes).await?;
        return Ok(Some(Message::Part(Part { piece, offset, bytes })));
    }
    let mut payload = vec![0; length];
    read_exact(stream, &mut payload).await?;
    Ok(Some(Message::decode(tag, payload, layout)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::io::Cursor;

    /// Waits as the real thing does: with time limits.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
    }

    fn layout() -> Layout {
        Layout::of(20 * 65_536 - 7).expect("a size of a blob")
    }

    #[test]
    fn an_opening_is_read_as_it_was_written() {
        for wants_list in [false, true] {
            let opening = Opening { sha256: Digest([7; 32]), size_bytes: 1_234_567, wants_list };
            let mut stream = Cursor::new(Vec::new());
            block_on(write_opening(&mut stream, &opening)).expect("written");
            assert_eq!(stream.get_ref().len(), OPENING_BYTES);
            assert_eq!(block_on(read_opening(&mut Cursor::new(stream.into_inner()))).expect("read"), opening);
        }
        assert!(block_on(read_opening(&mut Cursor::new(vec![2; OPENING_BYTES]))).expect_err("no flag").is_breach());
    }

    #[test]
    fn an_answer_is_a_list_of_the_right_length_or_a_known_refusal() {
        let read = |bytes: Vec<u8>, wants| block_on(read_answer(&mut Cursor::new(bytes), layout(), wants));
        let list = [vec![1], vec![9; 20 * 32]].concat();
        assert_eq!(read(list.clone(), true).expect("a list"), Ok(Some(vec![9; 20 * 32])));
        assert!(matches!(read(list[..640].to_vec(), true), Err(WireError::Closed)));
        assert_eq!(read(vec![1], false).expect("accepted"), Ok(None));
        for refusal in [Refusal::NotHere, Refusal::NoList, Refusal::Busy, Refusal::Twice, Refusal::Size] {
            assert_eq!(read(vec![0, refusal as u8], true).expect("refused"), Err(refusal));
        }
        assert!(read(vec![0, 6], true).expect_err("unknown").is_breach());
        assert!(read(vec![2], true).expect_err("unknown").is_breach());
    }

    #[test]
    fn a_part_is_read_as_it_was_written_and_one_beyond_its_piece_is_refused_before_its_bytes_come() {
        let part = Part { piece: 19, offset: 65_000, bytes: vec![7; 529] };
        let frame = Message::Part(part.clone()).to_frame();
        let read = |bytes: &[u8]| block_on(read_message(&mut Cursor::new(bytes.to_vec()), layout()));
        assert_eq!(read(&frame).expect("read"), Some(Message::Part(part)));
        assert!(matches!(read(&frame[..frame.len() - 1]), Err(WireError::Closed)));
        let beyond = Part::header(19, 65_001, 529);
        assert!(read(&beyond).expect_err("piece 19 has 65,529 bytes").is_breach());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_messages_or_a_typed_error(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            let mut stream = Cursor::new(bytes);
            while let Ok(Some(_)) = block_on(read_message(&mut stream, layout())) {}
            let _ = block_on(read_opening(&mut stream));
        }
    }
}
