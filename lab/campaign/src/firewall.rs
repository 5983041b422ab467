//! The firewall of the network namespace in which the campaign runs.

use std::process::Stdio;

use leasehold_testbed::give_groups;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The groups of client processes, one after the other: the firewall knows the process that opened a connection by its group.
const FIRST_GROUP: u32 = 30_001;

/// The groups of servers. One that starts again has another.
const FIRST_SERVER: u32 = 31_000;

/// More than there are clients and starts of servers in a campaign of a day.
const GROUPS: u32 = 30_000;

/// A firewall that drops and refuses packets by the process that opened their connection.
///
/// The campaign must be alone in its network namespace.
#[derive(Debug)]
pub struct Firewall(());

/// A server among others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: u32,
    /// The ports on which it listens for the others.
    pub own: Vec<u16>,
    /// The ports on which they listen for it.
    pub others: Vec<u16>,
}

/// The traffic that a firewall hits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cut {
    /// The packets of both ways.
    BothWays,
    /// The packets of the client.
    Requests,
    /// The packets of the servers.
    Replies,
    /// A fifth of the packets of both ways, of all clients.
    Loss,
    /// All packets of the client: its connections are reset.
    Reset,
}

/// The traffic between a server and the others that a firewall drops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Isolation {
    /// The packets of both ways.
    BothWays,
    /// The packets to the server.
    Deaf,
    /// The packets from the server.
    Mute,
}

/// The group of a client process, by its place.
pub fn group_of(place: usize) -> u32 {
    FIRST_GROUP + u32::try_from(place).expect("clients are few")
}

impl Firewall {
    /// Takes over the firewall of the namespace.
    ///
    /// # Panics
    ///
    /// If the kernel or the user's rights do not allow it.
    pub async fn take_over() -> Self {
        give_groups(FIRST_SERVER);
        let groups = FIRST_GROUP..FIRST_GROUP + GROUPS;
        let groups: Vec<_> = groups.map(|group| format!("{group} : {group}")).collect();
        let groups = groups.join(", ");
        nft(&format!(
            "table inet campaign {{
               map groups {{ type gid : mark; elements = {{ {groups} }} }}
               chain openers {{
                 type filter hook output priority -150; policy accept;
                 ct state new ct mark set meta skgid map @groups
               }}
               chain faults {{ type filter hook input priority 0; policy accept; }}
             }}"
        ))
        .await;
        Self(())
    }

    /// Cuts traffic between the client at a place and the servers on these ports, until [`Self::heal`].
    pub async fn cut(&self, cut: Cut, place: usize, ports: &[u16]) {
        let group = group_of(place);
        let [requests, replies] = [to(ports), from(ports)];
        let of_client = |way: &str, verdict: &str| format!("{way} ct mark {group} {verdict}");
        let lost = "numgen random mod 100 < 20 counter drop";
        let rules = match cut {
            Cut::BothWays => {
                vec![of_client(&requests, "counter drop"), of_client(&replies, "counter drop")]
            }
            Cut::Requests => vec![of_client(&requests, "counter drop")],
            Cut::Replies => vec![of_client(&replies, "counter drop")],
            Cut::Loss => vec![requests + lost, replies + lost],
            Cut::Reset => vec![of_client(&requests, "counter reject with tcp reset")],
        };
        add(rules).await;
    }

    /// Drops packets between a server and the others, until [`Self::heal`].
    pub async fn isolate(&self, peer: &Peer, isolation: Isolation) {
        let Peer { group, own, others, .. } = peer;
        // It has opened some of the connections, and the others have opened the rest.
        let heard = [
            format!("{} ct mark {group} counter drop", from(others)),
            format!("{} counter drop", to(own)),
        ];
        let said = [
            format!("{} ct mark {group} counter drop", to(others)),
            format!("{} counter drop", from(own)),
        ];
        let rules = match isolation {
            Isolation::BothWays => [heard, said].concat(),
            Isolation::Deaf => heard.into(),
            Isolation::Mute => said.into(),
        };
        add(rules).await;
    }

    /// Lets all packets pass again, and returns how many did not.
    pub async fn heal(&self) -> u64 {
        let list =
            Command::new("nft").args(["list", "chain", "inet", "campaign", "faults"]).output();
        let list = list.await.expect("nft can be started").stdout;
        nft("flush chain inet campaign faults").await;
        packets(&String::from_utf8_lossy(&list))
    }
}

fn to(ports: &[u16]) -> String {
    format!("tcp dport {{ {} }} ", list(ports))
}

fn from(ports: &[u16]) -> String {
    format!("tcp sport {{ {} }} ", list(ports))
}

fn list(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// The sum of all counters of a chain.
fn packets(chain: &str) -> u64 {
    let counts = chain.split("counter packets ").skip(1);
    counts.filter_map(|count| count.split(' ').next()?.parse::<u64>().ok()).sum()
}

async fn add(rules: Vec<String>) {
    let add = |rule: String| format!("add rule inet campaign faults {rule}\n");
    nft(&rules.into_iter().map(add).collect::<String>()).await;
}

async fn nft(rules: &str) {
    let mut nft = Command::new("nft");
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft can be started");
    let mut input = nft.stdin.take().expect("it is piped");
    input.write_all(rules.as_bytes()).await.expect("nft reads its rules");
    drop(input);
    let status = nft.wait().await.expect("a child can be waited for");
    assert!(status.success(), "nft refuses: {rules}");
}

#[cfg(test)]
mod tests {
    use super::packets;

    #[test]
    fn all_counters_of_a_chain_count() {
        let chain = "tcp dport 1 counter packets 12 bytes 720 drop\n\ttcp sport 1 counter packets 3 bytes 9 drop";

        assert_eq!(packets(chain), 15);
    }
}
