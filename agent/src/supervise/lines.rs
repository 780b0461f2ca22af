//! Lines for an output whose reader may not read: written by a thread, and lost where that does not keep up.
//!
//! A supervisor must not wait for whoever reads its log: while it does, no agent is watched, stopped or started again.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// So many lines wait at most.
const MOST_LINES: usize = 512;
/// A longer line is cut.
const LINE_BYTES: usize = 16 * 1024;

/// Takes lines, one with each write, and never waits. Clones share the output.
#[derive(Clone, Debug)]
pub struct Lines {
    queue: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Item {
    Line(Vec<u8>),
    /// Everything before it was written.
    Reached(SyncSender<()>),
}

impl Lines {
    /// Lines to `out`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, items) = sync_channel(MOST_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        thread::Builder::new().name("log".to_owned()).spawn(move || write_all(out, &items, &counted))?;
        Ok(Self { queue, lost })
    }

    /// Waits until what was taken is written, for `limit` at most; not at all where the queue is full.
    pub fn flush_within(&self, limit: Duration) {
        let (reached, wait) = sync_channel(1);
        if self.queue.try_send(Item::Reached(reached)).is_ok() {
            let _ = wait.recv_timeout(limit);
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let kept = line.get(..LINE_BYTES).map_or_else(|| line.to_vec(), |cut| [cut, b"\n"].concat());
        if self.queue.try_send(Item::Line(kept)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(mut out: impl Write, items: &Receiver<Item>, lost: &AtomicU64) {
    for item in items {
        match item {
            Item::Line(line) => {
                // What cannot be written is lost: a log never stops what it tells of.
                let _ = out.write_all(&line).and_then(|()| out.flush());
                let missing = lost.swap(0, Ordering::Relaxed);
                if missing > 0 {
                    let _ = writeln!(out, "{missing} lines are missing in this log: it was not read fast enough");
                }
            }
            Item::Reached(reached) => {
                let _ = reached.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    /// An output that writes nothing before it is released.
    struct Stalled(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_an_output_that_takes_nothing_and_what_is_lost_is_told() {
        let (release, held) = mpsc::channel::<()>();
        let written = Arc::default();
        let mut lines = Lines::to(Stalled(held, Arc::clone(&written))).unwrap();
        // All of this returns.
        for number in 0..3 * MOST_LINES {
            lines.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        lines.flush_within(Duration::ZERO);
        drop(release);
        let text = || String::from_utf8(written.lock().unwrap().clone()).unwrap();
        while !text().contains("lines are missing") || !text().contains(&format!("line {}\n", MOST_LINES - 1)) {
            thread::yield_now();
        }
        lines.write_all(&vec![b'x'; 2 * LINE_BYTES]).unwrap();
        lines.write_all(b"the last one\n").unwrap();
        lines.flush_within(Duration::from_secs(60));
        let text = text();
        assert!(text.starts_with("line 0\n") && text.ends_with("x\nthe last one\n"), "{text}");
        let told: Vec<usize> = text.lines().filter_map(|line| line.split_once(" lines are missing")?.0.parse().ok()).collect();
        let kept = text.lines().filter(|line| line.starts_with("line ")).count();
        assert_eq!(told.iter().sum::<usize>() + kept, 3 * MOST_LINES);
    }
}
