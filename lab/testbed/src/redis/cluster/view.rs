//! A node's view of its cluster.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The nodes of a cluster as reported by one node, by their IDs.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) myself: String,
    pub(super) nodes: BTreeMap<String, Node>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Its primary, if it is a replica.
    pub(super) primary: Option<String>,
    pub(super) epoch: u64,
    /// Whether it is there, and no other node suspects that it is not.
    pub(super) connected: bool,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl View {
    /// Reads the reply to `CLUSTER NODES`.
    pub(super) fn parse(reply: &str) -> Self {
        let mut view = Self::default();
        // The first line of the reply is its length.
        for line in reply.lines().skip(1) {
            let fields: Vec<_> = line.split(' ').collect();
            let [id, _address, flags, primary, _ping, _pong, epoch, link, slots @ ..] = &fields[..]
            else {
                continue;
            };
            let flags: Vec<_> = flags.split(',').collect();
            if flags.contains(&"myself") {
                view.myself = (*id).to_owned();
            }
            let is_unwell = |flag: &&str| !matches!(*flag, "myself" | "master" | "slave");
            let node = Node {
                primary: (*primary != "-").then(|| (*primary).to_owned()),
                epoch: epoch.parse().unwrap_or_default(),
                connected: *link == "connected" && !flags.iter().any(is_unwell),
                slots: slots.iter().filter_map(|slots| parse_slots(slots)).collect(),
            };
            view.nodes.insert((*id).to_owned(), node);
        }
        view
    }

    /// The owners of the slots.
    pub(super) fn owners(&self) -> Vec<(&str, &[RangeInclusive<u16>])> {
        let owners = self.nodes.iter().filter(|(_, node)| !node.slots.is_empty());
        owners.map(|(id, node)| (id.as_str(), &node.slots[..])).collect()
    }

    /// The node's own entry.
    pub(super) fn own(&self) -> Option<&Node> {
        self.nodes.get(&self.myself)
    }
}

impl Node {
    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|slots| slots.contains(&slot))
    }
}

/// Reads `7` or `0-5460`; a slot on its way to another node, `[7->-id]`, is told once more without that.
fn parse_slots(slots: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_tells_the_owners_of_slots() {
        let view = View::parse(
            "$1\r\n\
             a 127.0.0.1:1@2 myself,master - 0 0 3 connected 0-8 10 [10->-b]\n\
             b 127.0.0.1:3@4 master,fail? - 0 0 2 connected 9 11-16383\n\
             c 127.0.0.1:5@6 slave a 0 0 3 connected\n",
        );

        assert_eq!(view.owners(), [("a", &[0..=8, 10..=10][..]), ("b", &[9..=9, 11..=16383][..])]);
        assert!(view.own().is_some_and(|own| own.owns(10) && !own.owns(9) && own.epoch == 3));
        assert!(!view.nodes["b"].connected);
        assert_eq!(view.nodes["c"].primary.as_deref(), Some("a"));
    }
}
