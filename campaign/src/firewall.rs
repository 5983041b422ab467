//! The firewall of the network namespace in which the campaign runs.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The groups of client processes, one after the other: a packet belongs to the client that opened its connection.
const FIRST_GROUP: u32 = 30_001;

/// More than there are clients.
const GROUPS: u32 = 64;

/// A firewall that drops and refuses packets by the client that opened their connection.
///
/// The campaign must be alone in its network namespace.
#[derive(Debug)]
pub struct Firewall(());

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
        let groups: Vec<_> =
            (FIRST_GROUP..FIRST_GROUP + GROUPS).map(|group| format!("{group} : {group}")).collect();
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
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let (ports, group) = (ports.join(", "), group_of(place));
        let [requests, replies] =
            ["dport", "sport"].map(|port| format!("tcp {port} {{ {ports} }} "));
        let of_client = |way: &str, verdict: &str| format!("{way} ct mark {group} {verdict}");
        let lost = "numgen random mod 100 < 20 drop";
        let rules = match cut {
            Cut::BothWays => vec![of_client(&requests, "drop"), of_client(&replies, "drop")],
            Cut::Requests => vec![of_client(&requests, "drop")],
            Cut::Replies => vec![of_client(&replies, "drop")],
            Cut::Loss => vec![requests + lost, replies + lost],
            Cut::Reset => vec![of_client(&requests, "reject with tcp reset")],
        };
        let add = |rule: String| format!("add rule inet campaign faults {rule}\n");
        nft(&rules.into_iter().map(add).collect::<String>()).await;
    }

    /// Lets all packets pass again.
    pub async fn heal(&self) {
        nft("flush chain inet campaign faults").await;
    }
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
