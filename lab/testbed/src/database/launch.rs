//! How a server comes up.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::certificates::Certificates;
use crate::disk::SmallDisk;
use crate::memory::Folder;
use crate::port::free_port;
use crate::template::{copy_template, stamp};
use crate::unprivileged;

use super::options::Small;
use super::processes::Processes;
use super::{DatabaseKind, DatabaseOptions, DatabaseServer, LOG};

/// A server takes less than a second to start, or some seconds on a machine that is busy with a build.
const START_WAIT: Duration = Duration::from_secs(60);

impl<K: DatabaseKind> DatabaseOptions<K> {
    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If the server cannot be started. The environment variables `LEASEHOLD_MYSQL_SERVER` and
    /// `LEASEHOLD_POSTGRES_SERVER` name the server's program, such as MySQL's `mysqld`. Without
    /// them, the server is the `mariadbd` on the path or in `/usr/sbin`, or the newest PostgreSQL
    /// in `/usr/lib/postgresql`.
    pub async fn start(self) -> DatabaseServer<K> {
        for _ in 0..10 {
            if let Some(server) = DatabaseServer::launch(self.clone()).await {
                return server;
            }
            // Another process took the port.
        }
        panic!("{} does not start, see its output above", K::NAME);
    }
}

impl<K: DatabaseKind> DatabaseServer<K> {
    async fn launch(options: DatabaseOptions<K>) -> Option<Self> {
        let place = if options.durable { Folder::on_disk } else { Folder::in_memory };
        let folder = place(&format!("{}-", K::NAME));
        unprivileged::give(folder.path());
        let path = folder.path();
        let certificates =
            options.tls.map(|_| Certificates::create(path, &["localhost", "127.0.0.1"]));
        copy_template(&format!("{}-1", stamp(&K::program())), K::init, &path.join("data"));
        let small_folder = match options.small_disk {
            Some(Small::Tables) => Some(K::SMALL_FOLDER),
            Some(Small::Log) => Some(LOG),
            None => None,
        };
        let disk = small_folder.map(|small| SmallDisk::mount(path.join(small)));
        let port = free_port();
        let mut server = Self { options, processes: None, disk, folder, port, certificates };
        server.prepare();
        if !server.try_launch().await {
            return None;
        }
        if let (Some(Small::Tables), Some(disk)) = (server.options.small_disk, &server.disk) {
            K::use_disk(&server, disk.folder()).await;
        }
        Some(server)
    }

    /// Writes the files beside the data.
    fn prepare(&self) {
        let (name, text) = K::file(&self.options);
        let file = self.folder().join(name);
        fs::write(&file, text).expect("temporary files can be written");
        unprivileged::give(&file);
        if let Some(certificates) = &self.certificates {
            unprivileged::give_secret(&certificates.server_key());
        }
        self.move_log();
    }

    pub(super) async fn try_launch(&mut self) -> bool {
        let mut command = self.command(K::program());
        let settings = K::settings(self).into_iter();
        let settings = settings.map(|(name, value)| format!("--{name}={value}"));
        command.args(K::ARGS).args(settings).args(&self.options.args);
        self.processes = Some(Processes::spawn(command, self.folder(), &self.log(), K::segment));
        self.comes_up().await
    }

    /// Waits until it answers. If it does not, its output is shown.
    async fn comes_up(&mut self) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if K::is_up(self).await {
                return true;
            }
            let processes = self.processes.as_mut().expect("it was started");
            if processes.exited() || Instant::now() > give_up {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}
