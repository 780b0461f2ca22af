//! Free TCP ports on loopback, outside the range from which the kernel takes ports for outgoing connections.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::FleetError;

/// Below the kernel's range (32768 to 60999), or an outgoing connection could take a port before its agent listens.
const RANGE: Range<u16> = 20_000..32_000;

/// `count` ports that nothing listens on now. Different processes begin at different places.
///
/// # Errors
/// When there are too few.
pub fn free(count: usize) -> Result<Vec<u16>, FleetError> {
    // Fleets of one process never get the same port twice: what was handed out may not be listened on yet.
    static HANDED_OUT: AtomicU32 = AtomicU32::new(0);
    let width = u32::from(RANGE.end - RANGE.start);
    let first = std::process::id().wrapping_mul(97) % width;
    let ports = (0..width).filter_map(|_| {
        let step = HANDED_OUT.fetch_add(1, Ordering::Relaxed);
        let port = RANGE.start + u16::try_from(first.wrapping_add(step) % width).ok()?;
        let tcp = TcpListener::bind(("127.0.0.1", port)).ok()?;
        let udp = UdpSocket::bind(("127.0.0.1", port)).ok()?;
        Some((port, tcp, udp))
    });
    // Held until all are found, so that none is found twice.
    let found: Vec<_> = ports.take(count).collect();
    if found.len() < count {
        return Err(FleetError::NoPorts(count));
    }
    Ok(found.into_iter().map(|(port, ..)| port).collect())
}
