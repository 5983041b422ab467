//! One node of a cluster.

use std::path::PathBuf;

use crate::port::free_port;

use super::super::node::Node;
use super::super::server::Login;

/// A node, the port on which it talks to the other nodes, and the id by which they know it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) bus_port: u16,
    pub(super) id: String,
}

impl Member {
    pub(super) fn new(folder: PathBuf, login: Option<Login>) -> Self {
        Self { node: Node::new(folder, login), bus_port: free_port(), id: new_id() }
    }
}

/// An id that no other node has: forty hexadecimal digits.
pub(super) fn new_id() -> String {
    format!("{:032x}{:08x}", fastrand::u128(..), fastrand::u32(..))
}
