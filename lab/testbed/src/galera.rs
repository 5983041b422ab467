//! Galera clusters of MariaDB servers.

use std::path::Path;

use tokio::task::JoinSet;

use crate::{MariaDb, MariaDbOptions, free_port, until};

/// The path of the replication library in Debian's package.
const LIBRARY: &str = "/usr/lib/galera/libgalera_smm.so";

/// A running Galera cluster on loopback, in which every node accepts writes. All nodes are killed
/// when the cluster is dropped.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<MariaDb>,
}

impl Galera {
    /// Starts a cluster with this number of nodes, and waits until all nodes have the same data.
    ///
    /// # Panics
    ///
    /// Panics if the library is missing, if the server does not support it, or if a node does not
    /// start.
    pub async fn start(nodes: usize) -> Self {
        assert!(Path::new(LIBRARY).is_file(), "galera-4 is missing: run scripts/install");
        let port = free_port();
        let first = options(port, "gcomm://").start().await;
        let mut joining = JoinSet::new();
        for _ in 1..nodes {
            joining.spawn(options(free_port(), &format!("gcomm://127.0.0.1:{port}")).start());
        }
        let mut cluster = Self { nodes: vec![first] };
        while let Some(node) = joining.join_next().await {
            cluster.nodes.push(node.expect("the node starts"));
        }
        for node in &cluster.nodes {
            let size = format!("wsrep_cluster_size\t{nodes}");
            until("a node has the data of the cluster", async || {
                let status = node.sql("SHOW STATUS LIKE 'wsrep_%'").await;
                status.contains("Synced") && status.contains(&size)
            })
            .await;
        }
        cluster
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[MariaDb] {
        &self.nodes
    }

    /// Returns the URL of each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(MariaDb::url).collect()
    }
}

/// Returns the options of a node that other nodes reach at this port. An empty cluster address
/// creates a new cluster.
fn options(port: u16, cluster: &str) -> MariaDbOptions {
    let provider = format!(
        "base_port={port};gmcast.listen_addr=tcp://127.0.0.1:{port};ist.recv_addr=127.0.0.1:{};gcache.size=16M",
        free_port()
    );
    MariaDbOptions::new()
        .set("binlog-format", "ROW")
        .set("innodb-autoinc-lock-mode", "2")
        .set("wsrep-on", "ON")
        .set("wsrep-provider", LIBRARY)
        .set("wsrep-provider-options", &provider)
        .set("wsrep-cluster-address", cluster)
        .set("wsrep-node-address", &format!("127.0.0.1:{port}"))
        .set("wsrep-sst-method", "rsync")
        .set("wsrep-sst-receive-address", &format!("127.0.0.1:{}", free_port()))
}
