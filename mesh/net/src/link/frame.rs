//! A frame on the wire: its length (32 bits, big-endian), then its bytes.

use std::io;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use groundswell_core::limits::FRAME_BYTES;

/// What a frame's buffer starts with; it grows as bytes arrive, so an announced length alone costs nothing.
const FIRST_BYTES: usize = 64 * 1024;

/// Why no further frame can be read from a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The announced length is over the limit.
    #[error("too-large: it announced a frame of {0} bytes, at most {FRAME_BYTES}")]
    TooLarge(usize),
    /// The stream broke, or ended inside a frame.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads one frame; `None` when the stream ended between two. Not cancel-safe: a dropped read loses the stream.
pub(crate) async fn read<R: AsyncRead + Unpin>(stream: &mut R) -> Result<Option<Vec<u8>>, FrameError> {
    let mut length = [0; 4];
    let (first, rest) = length.split_at_mut(1);
    if stream.read(first).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(rest).await?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > FRAME_BYTES {
        return Err(FrameError::TooLarge(length));
    }
    let mut bytes = Vec::with_capacity(length.min(FIRST_BYTES));
    let limit = u64::try_from(length).unwrap_or(u64::MAX);
    AsyncReadExt::take(stream, limit).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some(bytes))
}

/// Writes one frame, not flushed. Not cancel-safe: a dropped write loses the stream.
pub(crate) async fn write<W: AsyncWrite + Unpin>(stream: &mut W, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::io::Cursor;

    #[test]
    fn a_frame_reads_back_and_the_end_between_frames_is_no_error() {
        block_on(async {
            let mut wire = Vec::new();
            write(&mut wire, b"one").await.expect("memory");
            write(&mut wire, b"").await.expect("memory");
            assert_eq!(wire, b"\0\0\0\x03one\0\0\0\0");
            let mut stream = Cursor::new(wire);
            assert_eq!(read(&mut stream).await.expect("whole"), Some(b"one".to_vec()));
            assert_eq!(read(&mut stream).await.expect("whole"), Some(Vec::new()));
            assert_eq!(read(&mut stream).await.expect("ended"), None);
        });
    }

    #[test]
    fn a_length_over_the_limit_and_a_frame_cut_short_are_refused() {
        block_on(async {
            let mut long = Cursor::new(0xFFFF_FFFFu32.to_be_bytes());
            assert!(matches!(read(&mut long).await, Err(FrameError::TooLarge(_))));
            let mut cut = Cursor::new(b"\0\0\0\x05abc");
            assert!(matches!(read(&mut cut).await, Err(FrameError::Io(_))));
            let mut header = Cursor::new(b"\0\0");
            assert!(matches!(read(&mut header).await, Err(FrameError::Io(_))));
        });
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let mut stream = Cursor::new(bytes);
            block_on(async { while let Ok(Some(_)) = read(&mut stream).await {} });
        }
    }
}
