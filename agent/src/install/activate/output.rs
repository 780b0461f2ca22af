//! What processes print: the end of it in memory for verdicts, the whole in a log file of bounded size.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::install::files::{Link, open_regular_as};

/// Kept of a process's output: a verdict carries at most 200 bytes of it, the log more.
const TAIL_BYTES: usize = 400;
/// Read at once.
const CHUNK_BYTES: usize = 8 * 1024;

/// The end of what was printed.
#[derive(Clone, Debug)]
pub struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    most_bytes: usize,
}

impl Default for Tail {
    fn default() -> Self {
        Self::of(TAIL_BYTES)
    }
}

impl Tail {
    /// One that keeps so many bytes.
    #[must_use]
    pub fn of(most_bytes: usize) -> Self {
        Self { kept: Arc::default(), most_bytes }
    }

    /// Adds what was printed.
    pub fn push(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes.iter().skip(bytes.len().saturating_sub(self.most_bytes)));
        let surplus = kept.len().saturating_sub(self.most_bytes);
        kept.drain(..surplus);
    }

    /// Forgets it.
    pub fn clear(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// All that is kept, as it was printed.
    #[must_use]
    pub fn raw(&self) -> String {
        let kept: Vec<u8> = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// The last whole lines, joined by ` | `.
    #[must_use]
    pub fn text(&self) -> String {
        let kept: Vec<u8> = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let text = String::from_utf8_lossy(&kept);
        // What was cut at its beginning is no line, unless it is all there is.
        let whole = match text.split_once('\n') {
            Some((_, rest)) if kept.len() >= self.most_bytes && !rest.trim().is_empty() => rest,
            _ => &text,
        };
        whole.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
    }
}

/// A log file that never grows beyond a bound; the one before it is kept as `NAME.1`.
#[derive(Debug)]
pub struct BoundedLog {
    path: PathBuf,
    most_bytes: u64,
    file: Option<File>,
    length: u64,
}

impl BoundedLog {
    /// The log at `path`; nothing is opened before something is printed.
    #[must_use]
    pub fn new(path: PathBuf, most_bytes: u64) -> Self {
        Self { path, most_bytes, file: None, length: 0 }
    }

    /// Appends; what cannot be written is lost, for a log never stops what it tells of.
    pub fn append(&mut self, bytes: &[u8]) {
        if let Err(error) = self.try_append(bytes) {
            tracing::debug!(path = %self.path.display(), %error, "output is not logged");
        }
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let surplus = bytes.len().saturating_sub(usize::try_from(self.most_bytes).unwrap_or(usize::MAX));
        let bytes = bytes.get(surplus..).unwrap_or_default();
        let added = bytes.len() as u64;
        let most_before = self.most_bytes.saturating_sub(added);
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        if self.length > most_before {
            let kept = fs::rename(&self.path, self.path.with_added_extension("1"));
            file = self.open()?;
            if self.length > most_before {
                tracing::debug!(path = %self.path.display(), ?kept, "what was logged cannot be kept beside it and is dropped");
                file.set_len(0)?;
                self.length = 0;
            }
        }
        file.write_all(bytes)?;
        self.length = self.length.saturating_add(added);
        self.file = Some(file);
        Ok(())
    }

    /// What is there already counts: of an earlier start, or of another who writes to it.
    fn open(&mut self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = open_regular_as(&self.path, Link::Followed, OpenOptions::new().append(true).create(true))?;
        self.length = file.metadata()?.len();
        Ok(file)
    }
}

/// Reads `stream` to its end into the tails and the log. Cancel safe: what is lost is only output.
pub async fn drain(mut stream: impl AsyncRead + Unpin, tails: Vec<Tail>, log: Option<Arc<Mutex<BoundedLog>>>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let chunk = buffer.get(..read).unwrap_or_default();
        tails.iter().for_each(|tail| tail.push(chunk));
        if let Some(log) = &log {
            log.lock().unwrap_or_else(PoisonError::into_inner).append(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_last_whole_lines() {
        let tail = Tail::default();
        for number in 0..200 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        let text = tail.text();
        assert!(text.starts_with("line ") && text.ends_with("line 198 | line 199"), "{text}");
        assert!(text.len() <= 2 * TAIL_BYTES);
        tail.push(&vec![b'x'; 10_000]);
        assert_eq!(tail.text().len(), TAIL_BYTES);
    }

    #[test]
    fn a_log_never_grows_beyond_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log").join("output.log");
        let mut log = BoundedLog::new(path.clone(), 1_000);
        for _ in 0..100 {
            log.append(&[b'y'; 100]);
        }
        assert!(fs::metadata(&path).unwrap().len() <= 1_000);
        assert!(fs::metadata(path.with_added_extension("1")).unwrap().len() <= 1_000);
        assert_eq!(fs::read_dir(folder.path().join("log")).unwrap().count(), 2);
    }

    #[test]
    fn the_first_lines_after_each_start_count_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output.log");
        for start in 0..40_u8 {
            BoundedLog::new(path.clone(), 250).append(&[b'a' + start % 26; 100]);
            let length = fs::metadata(&path).unwrap().len();
            assert!((100..=250).contains(&length), "{length} bytes after start {start}");
        }
        assert_eq!(fs::metadata(path.with_added_extension("1")).unwrap().len(), 200);

        // The bound was lowered in between, below a single piece of output: its end is kept.
        BoundedLog::new(path.clone(), 50).append(b"0123456789".repeat(10).as_slice());
        assert_eq!(fs::read(&path).unwrap(), b"0123456789".repeat(5));
    }

    #[test]
    fn where_the_older_file_cannot_be_kept_the_bound_holds_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output.log");
        fs::create_dir(path.with_added_extension("1")).unwrap();
        let mut log = BoundedLog::new(path.clone(), 250);
        for round in 0..40_u8 {
            log.append(&[b'a' + round % 26; 100]);
            let found = fs::read(&path).unwrap();
            assert!((100..=250).contains(&found.len()), "{} bytes after {round}", found.len());
            assert!(found.ends_with(&[b'a' + round % 26; 100]), "what was printed last is there");
        }
    }

    #[test]
    fn a_log_that_somebody_removes_is_begun_anew_once_it_would_have_been_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output.log");
        let mut log = BoundedLog::new(path.clone(), 250);
        log.append(&[b'a'; 200]);
        fs::remove_file(&path).unwrap();
        log.append(&[b'b'; 100]);
        assert_eq!(fs::read(&path).unwrap(), [b'b'; 100]);
    }
}
