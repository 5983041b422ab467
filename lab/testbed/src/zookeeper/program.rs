//! Java and the jars of ZooKeeper.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The jar of Debian's package `libzookeeper-java`. The jar's manifest names all other required
/// jars except [`CODEC`].
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// The records of ZooKeeper's protocol, in the directory of [`JAR`].
const RECORDS: &str = "zookeeper-jute.jar";

/// Writes the log to the standard error output. The jar is part of Debian's package
/// `libslf4j-java`, which ZooKeeper requires.
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";

/// Required for TLS.
const CODEC: &str = "/usr/share/java/netty-codec.jar";

/// Little memory, and no optimizations that pay off in days: a server of a test lives for seconds.
pub(super) const JVM: [&str; 5] = [
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// The class with the `main` method.
pub(super) const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A Java runtime and the jar of a ZooKeeper version.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) java: PathBuf,
    pub(super) jar: PathBuf,
}

impl Program {
    pub(super) fn find() -> Self {
        let jar = env::var_os("LEASEHOLD_ZOOKEEPER_SERVER");
        let jar = jar.map_or_else(|| JAR.into(), PathBuf::from);
        // A server on a small disk runs as a user who may not be able to read the directory of a
        // link to the jar.
        let jar = fs::canonicalize(&jar)
            .unwrap_or_else(|_| panic!("{} is missing: run scripts/install", jar.display()));
        let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
        let path = env::var_os("PATH").unwrap_or_default();
        let mut directories = home.into_iter().chain(env::split_paths(&path));
        let java = directories.find_map(|directory| {
            let java = directory.join("java");
            java.is_file().then_some(java)
        });
        Self { java: java.expect("java is missing: run scripts/install"), jar }
    }

    /// The records come first, because the manifest of the jar names the installed records, which
    /// may have a different version.
    pub(super) fn class_path(&self) -> String {
        let records = self.jar.with_file_name(RECORDS);
        format!("{}:{}:{LOGGER}:{CODEC}", records.display(), self.jar.display())
    }
}
