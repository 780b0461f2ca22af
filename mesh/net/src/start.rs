//! Builds the swarm and brings up its listeners; from then on the driver has it.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use libp2p::core::transport::ListenerId;
use libp2p::dns::{ResolverConfig, ResolverOpts};
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, noise, tcp, yamux};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::admission::Admission;
use crate::behaviour::Mesh;
use crate::config::{COMMANDS, Config, EVENTS};
use crate::door::{Keeper, SESSION_BYTES, Turns, node_id};
use crate::driver::Driver;
use crate::event::NetworkEvent;
use crate::network::{Network, Shared, StartError};
use crate::outer::serve::OuterDoor;
use crate::streams;

/// Inbound streams being negotiated on one connection: what a stranger can occupy is small.
const NEGOTIATING: usize = 32;
/// What the muxer bounds of one connection: the windows of all its streams.
const MUXER_BYTES: usize = 1024 * 1024 * 1024;
/// The window that each of its streams has at least.
const LEAST_WINDOW_BYTES: usize = 256 * 1024;
/// By how much all windows of a connection may grow together: enough for 1 Gbit/s over 120 ms. So much more a peer may have us
/// keep, beside the least window of each stream, when this node reads slowly.
const WINDOWS_GROW_BYTES: usize = 16 * 1024 * 1024;
/// A handshake (TCP or QUIC, noise, yamux) takes at most this long.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A connection without links, gossip or blobs is closed after this long.
const IDLE: Duration = Duration::from_secs(30);
/// An address that is not listened on by then never will be.
const LISTEN_WITHIN: Duration = Duration::from_secs(10);
/// An address in use is tried again for so long: an agent that has just ended gave it up, and a child that it was starting has it
/// until it runs its own program.
const FREED_WITHIN: Duration = Duration::from_secs(3);
const FREED_RETRY: Duration = Duration::from_millis(50);
/// What operating systems say of such an address, in whatever the error comes wrapped.
const IN_USE: &str = "in use";

pub(crate) async fn start(
    config: Config,
    mut secret: [u8; 32],
    admission: Arc<dyn Admission>,
) -> Result<(Network, mpsc::Receiver<NetworkEvent>), StartError> {
    let identity = Keypair::ed25519_from_bytes(&mut secret).map_err(|_| StartError::Secret)?;
    let local_id = node_id(identity.public().to_peer_id()).ok_or(StartError::Secret)?;
    let listen = config.listen.iter().map(|text| read(text)).collect::<Result<Vec<_>, _>>()?;
    let external = config.external.iter().map(|text| read(text)).collect::<Result<Vec<_>, _>>()?;

    let shared = Arc::new(Shared::default());
    let (streams, behaviour) = streams::streams(Arc::clone(&shared.tally));
    let outer =
        admission.outer().map(|source| OuterDoor::new(admission.fleet(), source, &config.rates, Arc::clone(&shared.tally)));
    let keeper = Keeper {
        admission: Arc::clone(&admission),
        session: session()?,
        within: config.admit_within,
        most_peers: config.most_peers,
        outer,
        only_outer: config.only_outer_door,
        turns: Turns::new(),
    };
    let mesh =
        Mesh::new(&identity, keeper, behaviour, config.mdns).map_err(|(part, reason)| StartError::Part { part, reason })?;
    let mut swarm = swarm(&identity, mesh)?;
    let addresses = bring_up(&mut swarm, &config.listen, listen).await?;

    let (commands, asked) = mpsc::channel(COMMANDS);
    let (events, heard) = mpsc::channel(EVENTS);
    let (stop, stopped) = watch::channel(false);
    let (ending, ended) = watch::channel(false);
    let driver = Driver::new(swarm, admission.fleet(), external, addresses, events, Arc::clone(&shared), streams.clone());
    // Owned by the handles: it ends when `stop` says so or the last of them drops its end of `commands`.
    tokio::spawn(async move {
        driver.run(asked, stopped).await;
        ending.send_replace(true);
    });
    Ok((Network { local_id, commands, shared, streams, stop: Arc::new(stop), ended }, heard))
}

fn read(address: &str) -> Result<Multiaddr, StartError> {
    address.parse().map_err(|_| StartError::Address { address: address.to_owned() })
}

/// A random name for this run.
fn session() -> Result<[u8; SESSION_BYTES], StartError> {
    let mut session = [0; SESSION_BYTES];
    getrandom::fill(&mut session).map_err(|error| StartError::Part { part: "randomness", reason: error.to_string() })?;
    Ok(session)
}

/// How streams share a connection. A stream's window grows while it is read fast for its round trip, which the other side can
/// make look long. What all of them grow by comes out of one bound of the connection, of which the least window of as many
/// streams as there may be is set aside: so many more than the protocols here take are allowed for, to leave little.
fn muxer() -> yamux::Config {
    let mut config = yamux::Config::default();
    config.set_max_num_streams((MUXER_BYTES - WINDOWS_GROW_BYTES) / LEAST_WINDOW_BYTES);
    config
}

fn swarm(identity: &Keypair, mesh: Mesh) -> Result<Swarm<Mesh>, StartError> {
    let failed = |part: &'static str, reason: String| StartError::Part { part, reason };
    let transports = || {
        SwarmBuilder::with_existing_identity(identity.clone())
            .with_tokio()
            .with_tcp(tcp::Config::default().nodelay(true), noise::Config::new, muxer)
            .map_err(|error| failed("TCP", error.to_string()))
            .map(|builder| builder.with_quic())
    };
    let settings = |config: libp2p::swarm::Config| {
        config.with_max_negotiating_inbound_streams(NEGOTIATING).with_idle_connection_timeout(IDLE)
    };
    match transports()?.with_dns() {
        Ok(builder) => {
            let Ok(builder) = builder.with_behaviour(|_| mesh);
            Ok(builder.with_swarm_config(settings).with_connection_timeout(CONNECT_WITHIN).build())
        }
        // A device without DNS settings still reaches numeric addresses.
        Err(error) => {
            tracing::warn!(%error, "no DNS settings: names in addresses cannot be resolved");
            let none = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
            let Ok(builder) = transports()?.with_dns_config(none, ResolverOpts::default()).with_behaviour(|_| mesh);
            Ok(builder.with_swarm_config(settings).with_connection_timeout(CONNECT_WITHIN).build())
        }
    }
}

/// Listens on every address and waits until each is heard on. Returns what they became.
async fn bring_up(swarm: &mut Swarm<Mesh>, texts: &[String], listen: Vec<Multiaddr>) -> Result<Vec<Multiaddr>, StartError> {
    let refused = |address: &str, reason: String| StartError::Listen { address: address.to_owned(), reason };
    let mut waiting: HashMap<ListenerId, &String> = HashMap::new();
    let give_up = Instant::now() + FREED_WITHIN;
    for (text, address) in texts.iter().zip(listen) {
        let id = loop {
            match listen_on(swarm, &address) {
                Ok(id) => break id,
                Err(reason) if reason.contains(IN_USE) && Instant::now() < give_up => sleep(FREED_RETRY).await,
                Err(reason) => return Err(refused(text, reason)),
            }
        };
        waiting.insert(id, text);
    }
    let mut addresses = Vec::new();
    let all = async {
        while !waiting.is_empty() {
            match swarm.select_next_some().await {
                SwarmEvent::NewListenAddr { listener_id, address } => {
                    waiting.remove(&listener_id);
                    addresses.push(address);
                }
                SwarmEvent::ListenerError { listener_id, error }
                | SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. } => {
                    if let Some(text) = waiting.remove(&listener_id) {
                        return Err(refused(text, error.to_string()));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    };
    match timeout(LISTEN_WITHIN, all).await {
        Ok(result) => result?,
        Err(_) => {
            let text = waiting.values().next().map_or("", |text| text.as_str());
            return Err(refused(text, "no network interface has that address".into()));
        }
    }
    // A wildcard becomes one address for each interface: take those that are known already.
    while let Some(Some(event)) = swarm.next().now_or_never() {
        if let SwarmEvent::NewListenAddr { address, .. } = event {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn listen_on(swarm: &mut Swarm<Mesh>, address: &Multiaddr) -> Result<ListenerId, String> {
    free(address).map_err(|error| error.to_string())?;
    swarm.listen_on(address.clone()).map_err(|error| chain(&error))
}

/// libp2p listens on TCP with SO_REUSEPORT, so a second process of the same user would share the port without an error
/// and each would get half of the connections. A plain listener finds that out.
fn free(address: &Multiaddr) -> std::io::Result<()> {
    let mut parts = address.iter();
    let ip = match parts.next() {
        Some(Protocol::Ip4(ip)) => ip.into(),
        Some(Protocol::Ip6(ip)) => ip.into(),
        _ => return Ok(()),
    };
    match parts.next() {
        Some(Protocol::Tcp(port)) if port != 0 => TcpListener::bind(std::net::SocketAddr::new(ip, port)).map(drop),
        _ => Ok(()),
    }
}

/// An error and what lies under it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let deeper = error.to_string();
        if !text.contains(&deeper) {
            text.push_str(": ");
            text.push_str(&deeper);
        }
        source = error.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b3_windows_grow_no_further_than_they_may_by_the_muxers_own_bounds() {
        let config = format!("{:?}", muxer());
        let number = |name: &str| {
            let (_, rest) = config.split_once(name).unwrap_or_else(|| panic!("{name} is not in {config}"));
            let digits: String = rest.chars().skip_while(|it| !it.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().unwrap()
        };
        let set_aside = number("max_num_streams") * LEAST_WINDOW_BYTES;
        assert_eq!(number("max_connection_receive_window"), MUXER_BYTES);
        assert!(MUXER_BYTES - set_aside <= WINDOWS_GROW_BYTES, "{config}");
    }
}
