//! Faults of the network between clients and servers, by the proxies in front of the servers.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, NetworkFault};
use tokio::time::sleep;

/// The delay in each direction, so a reply takes 0.1 s, as between continents.
const DELAY: Duration = Duration::from_millis(50);

/// The address that clients come from. Servers behind proxies have others.
const CLIENTS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Causes a fault of the network for `time`. Returns `None` if the fault is not a fault of the network.
pub(super) async fn change(
    proxies: &[&FaultProxy],
    kind: FaultKind,
    time: Duration,
) -> Option<String> {
    let fault = match kind {
        FaultKind::NetworkSlow => NetworkFault::Slow(DELAY),
        FaultKind::NetworkSilent => NetworkFault::BlackHole,
        FaultKind::RepliesLost => NetworkFault::HoldReplies,
        FaultKind::ConnectionsReset => NetworkFault::Reset,
        _ => return None,
    };
    set(proxies, fault);
    sleep(time).await;
    if fault == NetworkFault::HoldReplies {
        // The servers have done the requests, and no client ever hears of it.
        set(proxies, NetworkFault::Reset);
        sleep(DELAY).await;
    }
    set(proxies, NetworkFault::None);
    Some("all clients and servers".to_owned())
}

fn set(proxies: &[&FaultProxy], fault: NetworkFault) {
    proxies.iter().for_each(|proxy| proxy.set_network_fault_from(CLIENTS, fault));
}

pub(super) fn ports(proxies: &[&FaultProxy]) -> Vec<u16> {
    proxies.iter().map(|proxy| proxy.port()).collect()
}
