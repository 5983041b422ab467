//! Where Java and ZooKeeper's jar are.

use std::env;
use std::path::{Path, PathBuf};

/// Where Debian's package `libzookeeper-java` puts it. Its manifest names the jars that it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// Writes to the standard error output. It is in Debian's package `libslf4j-java`, which the jar needs anyway.
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";

/// TLS needs it, and the manifest of Debian's jar leaves it out.
const CODEC: &str = "/usr/share/java/netty-codec.jar";

/// The class with the `main` method.
pub(super) const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A runtime and the jars that it runs.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) java: PathBuf,
    pub(super) jar: PathBuf,
}

impl Program {
    pub(super) fn find() -> Self {
        let jar = env::var_os("LEASEHOLD_ZOOKEEPER").map_or_else(|| JAR.into(), PathBuf::from);
        assert!(jar.is_file(), "{} is missing: run scripts/install", jar.display());
        let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders = home.into_iter().chain(env::split_paths(&path));
        let java = folders.find_map(|folder| {
            let java = folder.join("java");
            java.is_file().then_some(java)
        });
        Self { java: java.expect("java is missing: run scripts/install"), jar }
    }

    pub(super) fn class_path(&self) -> String {
        format!("{}:{LOGGER}:{CODEC}", self.jar.display())
    }
}
