//! Faults of the network between clients and servers, by the proxies in front of the servers.

use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_conformance::FaultKind;
use leasehold_testbed::{FaultProxy, Weather};
use tokio::time::sleep;

/// Replies come after a tenth of a second: two hops of a continent.
const DELAY: Duration = Duration::from_millis(50);

/// The address that clients come from. Servers behind proxies have others.
const CLIENTS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Causes a fault of the network for `time`. Returns `None` if the fault is not a fault of the network.
pub(super) async fn change(
    proxies: &[&FaultProxy],
    kind: FaultKind,
    time: Duration,
) -> Option<String> {
    let weather = match kind {
        FaultKind::NetworkSlow => Weather::Slow(DELAY),
        FaultKind::NetworkSilent => Weather::BlackHole,
        FaultKind::RepliesLost => Weather::HoldReplies,
        FaultKind::ConnectionsReset => Weather::Reset,
        _ => return None,
    };
    set(proxies, weather);
    sleep(time).await;
    if weather == Weather::HoldReplies {
        // The servers have done the requests, and no client ever hears of it.
        set(proxies, Weather::Reset);
        sleep(DELAY).await;
    }
    set(proxies, Weather::Fair);
    Some("all clients and servers".to_owned())
}

fn set(proxies: &[&FaultProxy], weather: Weather) {
    proxies.iter().for_each(|proxy| proxy.set_weather_from(CLIENTS, weather));
}

pub(super) fn ports(proxies: &[&FaultProxy]) -> Vec<u16> {
    proxies.iter().map(|proxy| proxy.port()).collect()
}
