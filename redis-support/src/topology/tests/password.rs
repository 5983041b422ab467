//! Tests of which servers receive passwords.

use leasehold_settings::{Server, Tls};
use leasehold_testbed::Warnings;

use super::*;
use crate::address::Address;

fn tcp(host: &str) -> Address {
    Address::Tcp(Server { host: host.to_owned(), port: 1 })
}

/// Returns the number of warnings about an unencrypted password when a client connects to `servers`
/// twice.
async fn warnings(servers: Endpoints, password: Option<&str>, fake: Fake) -> usize {
    let (warnings, _guard) = Warnings::record();
    for address in ["h:1", "localhost:1", "[::1]:1", "/run/socket"] {
        fake.serve(address, |_| Some(Ok(Reply::Other)));
    }
    let access = Access { password: password.map(str::to_owned), ..Access::default() };
    let store = Store::with(servers, &access, fake);
    for _ in 0..2 {
        store.servers.connect().await.unwrap();
        store.servers.disconnect();
    }
    warnings.all().len()
}

#[tokio::test(start_paused = true)]
async fn that_crosses_a_network_in_the_clear_is_warned_of_once() {
    let at = |address| Endpoints::Single(address);

    assert_eq!(warnings(at(tcp("h")), Some("p"), Fake::default()).await, 1);
    assert_eq!(warnings(at(tcp("h")), None, Fake::default()).await, 0);
    let tls = Fake::new(Some(Tls::default())).unwrap();
    assert_eq!(warnings(at(tcp("h")), Some("p"), tls).await, 0);
    for local in [tcp("localhost"), tcp("::1"), Address::Unix("/run/socket".into())] {
        assert_eq!(warnings(at(local), Some("p"), Fake::default()).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn is_warned_of_where_it_goes_to_and_not_where_that_is_asked_for() {
    for (master, expected) in [("h", 1), ("localhost", 0)] {
        let fake = Fake::default();
        let reply = sentinel::of_master_alone(master, 1);
        fake.serve("localhost:11", move |words| match words[1].as_str() {
            "MYID" => Some(Ok(bytes("id"))),
            _ => Some(Ok(reply.clone())),
        });
        let sentinels = vec![Address::Tcp(Server { host: "localhost".to_owned(), port: 11 })];
        let servers = Endpoints::Sentinel { sentinels, master: "m".to_owned() };

        assert_eq!(warnings(servers, Some("p"), fake).await, expected, "{master}");
    }
}
