//! The addresses of a name, found on a thread of its own.
//!
//! The system's resolver blocks, and in an outage of the name service it does so for longer than any probe waits. On the pool
//! for blocking work such look-ups would pile up until the agent can write nothing down any more. So there is one at a time:
//! while it hangs, nothing can be said of what it is for.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::sync::oneshot;

type LookUp = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up, one at a time. Clones share that.
#[derive(Clone)]
pub struct Names {
    look_up: Arc<LookUp>,
    busy: Arc<AtomicBool>,
}

impl Default for Names {
    fn default() -> Self {
        Self::by(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Names {
    /// Asks `look_up`, which may block.
    #[must_use]
    pub fn by(look_up: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self { look_up: Arc::new(look_up), busy: Arc::default() }
    }

    /// The addresses of a name, or the address that it is. Cancel safe: a look-up goes on, and until it ends there is no other.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let unresolved = |why: &dyn fmt::Display| format!("cannot resolve the name: {why}");
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(unresolved(&"an earlier look-up has not ended"));
        }
        let (tell, told) = oneshot::channel();
        let (names, name) = (self.clone(), host.to_owned());
        let looks = move || {
            let found = (names.look_up)(&name, port);
            names.busy.store(false, Ordering::Release);
            // Nobody may wait for it any more.
            let _ = tell.send(found);
        };
        if let Err(error) = thread::Builder::new().name("names".to_owned()).spawn(looks) {
            self.busy.store(false, Ordering::Release);
            return Err(unresolved(&error));
        }
        match told.await {
            Ok(found) => found.map_err(|error| unresolved(&error)),
            Err(_) => Err(unresolved(&"the look-up broke off")),
        }
    }
}
