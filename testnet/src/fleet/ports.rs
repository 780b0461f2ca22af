//! Free ports on loopback, outside the range from which the kernel takes ports for outgoing connections.
//!
//! The tests of agents use this file too.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Below the kernel's range (32768 to 60999), or an outgoing connection could take a port before its agent listens.
const RANGE: Range<u16> = 20_000..32_000;
/// Ports of a block. A process that has the first of them has all of them.
const BLOCK: u16 = 100;

/// The blocks of this process.
struct Blocks {
    /// The first port of each, held for as long as the process runs: other processes take other blocks.
    held: Vec<TcpListener>,
    /// Blocks that were looked at.
    looked_at: u16,
    /// What is left of the newest block.
    left: Range<u16>,
}

/// `count` ports that nothing listens on now; `None` when there are too few. What was handed out may not be listened on yet, so
/// no port is handed out twice, neither in this process nor in another.
pub fn free(count: usize) -> Option<Vec<u16>> {
    static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks { held: Vec::new(), looked_at: 0, left: 0..0 });
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    (0..count).map(|_| blocks.next()).collect()
}

impl Blocks {
    fn next(&mut self) -> Option<u16> {
        loop {
            // What listens here is no test.
            let is_free = |port: &u16| {
                let address = ("127.0.0.1", *port);
                TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
            };
            if let Some(port) = self.left.by_ref().find(is_free) {
                return Some(port);
            }
            let blocks = (RANGE.end - RANGE.start) / BLOCK;
            if self.looked_at == blocks {
                return None;
            }
            // Different processes begin at different places.
            let here = u16::try_from(std::process::id() % u32::from(blocks)).unwrap_or(0);
            let first = RANGE.start + (here + self.looked_at) % blocks * BLOCK;
            self.looked_at += 1;
            if let Ok(held) = TcpListener::bind(("127.0.0.1", first)) {
                self.held.push(held);
                self.left = first + 1..first + BLOCK;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_and_none_that_somebody_listens_on() {
        let before = free(3).unwrap();
        // The next one, unless another test was given it.
        let taken = before[2] + 1;
        let _listens = TcpListener::bind(("127.0.0.1", taken));
        let after = free(BLOCK.into()).unwrap();
        assert!(!after.contains(&taken));
        assert!(after.iter().all(|port| RANGE.contains(port) && !before.contains(port)));
        assert!(after.iter().any(|port| port.abs_diff(taken) >= BLOCK), "it goes on in another block");
    }

    #[test]
    fn another_process_takes_another_block() {
        let [port] = free(1).unwrap()[..] else { panic!("one was asked for") };
        let first = RANGE.start + (port - RANGE.start) / BLOCK * BLOCK;
        assert!(TcpListener::bind(("127.0.0.1", first)).is_err(), "{first} is held for {port}");
    }
}
