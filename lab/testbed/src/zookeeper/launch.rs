//! How an ensemble comes up.

use std::process::Command;

use crate::certificates::Certificates;
use crate::memory::Folder;
use crate::process::Process;

use super::archive::{from_archive, noting_classes};
use super::member::Member;
use super::program::{JVM, MAIN, Program};
use super::{ZooKeeper, ZooKeeperOptions};

/// No code is optimized: to do so takes longer than the server lives.
const FRUGAL: &str = "-XX:TieredStopAtLevel=1";

impl ZooKeeperOptions {
    /// Starts the ensemble and waits until all members serve clients.
    ///
    /// # Panics
    ///
    /// If the ensemble cannot be started. The environment variable `LEASEHOLD_ZOOKEEPER_SERVER` names
    /// ZooKeeper's jar, and `zookeeper-jute.jar` must be in the same directory. Without the variable,
    /// the ensemble uses the jar of Debian's package `libzookeeper-java`. The `java` program comes
    /// from `JAVA_HOME` or from the path.
    pub async fn start(self) -> ZooKeeper {
        for _ in 0..10 {
            if let Some(zookeeper) = ZooKeeper::launch(self.clone()).await {
                return zookeeper;
            }
            // Another process took one of the ports.
        }
        panic!("ZooKeeper does not start, see its output above");
    }
}

impl ZooKeeper {
    /// Starts a new ensemble, unless another process has taken one of its ports.
    async fn launch(options: ZooKeeperOptions) -> Option<Self> {
        let place = if options.durable { Folder::on_disk } else { Folder::in_memory };
        let folder = place("zookeeper-");
        let path = folder.path();
        let certificates =
            options.tls.map(|_| Certificates::create(path, &["localhost", "127.0.0.1"]));
        let members = 0..options.members;
        let members = members.map(|i| Member::new(path.join(format!("member-{i}")))).collect();
        let mut zookeeper = Self { options, members, folder, certificates };
        zookeeper.prepare();
        zookeeper.try_launch().await.then_some(zookeeper)
    }

    /// Starts all members with the data that they have, and waits until they serve clients.
    pub(super) async fn try_launch(&mut self) -> bool {
        for i in 0..self.members.len() {
            self.spawn(i);
        }
        for member in &mut self.members {
            if !member.serves().await {
                return false;
            }
        }
        true
    }

    pub(super) fn spawn(&mut self, i: usize) {
        let program = Program::find();
        let member = &self.members[i];
        let mut command = match &member.disk {
            Some(disk) => disk.command(&program.java, &member.folder),
            None => Command::new(&program.java),
        };
        let classes = match self.options.notes_classes {
            true => noting_classes(&member.folder),
            false => from_archive(&program),
        };
        command
            .args(JVM)
            .args(self.compiler())
            .arg(classes)
            .args(self.properties())
            .args(["-cp", &program.class_path()]);
        command.arg(MAIN).arg(member.folder.join("zoo.cfg"));
        let process = Process::spawn(&mut command, &member.log()).unwrap_or_else(|error| {
            panic!("{} cannot be started: {error}", program.java.display())
        });
        self.members[i].instance.put(process);
    }

    /// The option of a JVM that says how much it optimizes.
    pub(super) fn compiler(&self) -> Option<&'static str> {
        (!self.options.optimized).then_some(FRUGAL)
    }
}
