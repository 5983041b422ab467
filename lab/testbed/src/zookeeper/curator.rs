//! Locks of Apache Curator, taken by a Java program.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::template::{stamp, template};

use super::ZooKeeper;
use super::archive::from_archive;
use super::program::{JVM, Program};

/// Where Debian's package `libcurator-recipes-java` puts it. Its manifest names the jars that it needs.
const JAR: &str = "/usr/share/java/curator-recipes.jar";

const SOURCE: &str = include_str!("Curator.java");

/// An event comes within milliseconds of its cause, after an election within seconds.
const EVENT_WAIT: Duration = Duration::from_secs(60);

/// A process with locks of Apache Curator. Each lock is a job's, which has a name, a thread and a session of its own. The process is killed when
/// dropped; its sessions end later.
#[derive(Debug)]
pub struct Curator {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    child: Child,
}

/// A report of a job, with its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CuratorEvent {
    /// It holds its lock from now on.
    Held(String),
    /// It is asked to release its lock.
    Asked(String),
    /// It will release its lock now.
    Releases(String),
    /// It has released its lock.
    Released(String),
    /// It has done its work, in so much time.
    Done(String, Duration),
}

impl ZooKeeper {
    /// Starts a process with locks of Apache Curator. The servers end its sessions so long after it is gone.
    ///
    /// # Panics
    ///
    /// If the Java runtime, its compiler or Curator's jars are missing.
    pub async fn curator(&self, session: Duration) -> Curator {
        let (program, classes) = (Program::find(), classes());
        // The archive is good for class paths that begin with that of the servers.
        let class_path = format!("{}:{JAR}:{}", program.class_path(), classes.display());
        let mut command = Command::new(&program.java);
        command.args(JVM).args(self.compiler()).args([
            &from_archive(&program),
            "-cp",
            &class_path,
            "Curator",
        ]);
        command.arg(self.endpoints().join(","));
        command.arg(session.as_millis().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("java can be started");
        let input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let mut curator = Curator { input, output: BufReader::new(output).lines(), child };
        assert_eq!(curator.line().await, "ready");
        curator
    }
}

impl Curator {
    /// Has a job take a mutex, at the path of an `InterProcessMutex`, and hold it until [`release`](Self::release).
    pub async fn mutex(&mut self, job: &str, path: &str) {
        self.tell(&["mutex", job, path]).await;
    }

    /// Has a job take a lock for reading, at the path of an `InterProcessReadWriteLock`.
    pub async fn read(&mut self, job: &str, path: &str) {
        self.tell(&["read", job, path]).await;
    }

    /// Has a job take a lock for writing, at the path of an `InterProcessReadWriteLock`.
    pub async fn write(&mut self, job: &str, path: &str) {
        self.tell(&["write", job, path]).await;
    }

    /// Has a job that holds its lock release it.
    pub async fn release(&mut self, job: &str) {
        self.tell(&["release", job]).await;
    }

    /// Has a job ask the holder of the mutex at a path to release it.
    pub async fn revoke(&mut self, job: &str, path: &str) {
        self.tell(&["revoke", job, path]).await;
    }

    /// Has a job take and release the mutex at a path, so many times.
    pub async fn cycles(&mut self, job: &str, path: &str, count: usize) {
        self.tell(&["cycles", job, path, &count.to_string()]).await;
    }

    /// Makes a job acquire this number of mutexes in sequence, at `path-0` and so on, and keep
    /// them. All mutexes belong to one session.
    pub async fn many(&mut self, job: &str, path: &str, count: usize) {
        self.tell(&["many", job, path, &count.to_string()]).await;
    }

    /// Waits for the next event.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the event comes with the next call.
    ///
    /// # Panics
    ///
    /// If there is no event for one minute, or if a job has failed.
    pub async fn event(&mut self) -> CuratorEvent {
        let line = self.line().await;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["held", job] => CuratorEvent::Held(job.to_owned()),
            ["asked", job] => CuratorEvent::Asked(job.to_owned()),
            ["releases", job] => CuratorEvent::Releases(job.to_owned()),
            ["released", job] => CuratorEvent::Released(job.to_owned()),
            ["done", job, nanos] => {
                let took = Duration::from_nanos(nanos.parse().expect("it is a number"));
                CuratorEvent::Done(job.to_owned(), took)
            }
            _ => panic!("curator: {line}"),
        }
    }

    /// The process id.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn id(&self) -> u32 {
        self.child.id().expect("curator runs")
    }

    async fn tell(&mut self, words: &[&str]) {
        let line = words.join(" ") + "\n";
        self.input.write_all(line.as_bytes()).await.expect("curator runs");
    }

    async fn line(&mut self) -> String {
        let line = timeout(EVENT_WAIT, self.output.next_line()).await.expect("an event in time");
        line.expect("it can be read").expect("curator runs")
    }
}

/// The folder with the compiled program. To compile it takes some seconds.
fn classes() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    SOURCE.hash(&mut hasher);
    let name = format!("curator-{:016x}-{}", hasher.finish(), stamp(Path::new(JAR)));
    template(&name, |classes| {
        let source = classes.join("Curator.java");
        std::fs::create_dir(classes).expect("temporary folders can be written");
        std::fs::write(&source, SOURCE).expect("as before");
        let mut javac = process::Command::new("javac");
        javac.args(["-proc:none", "-cp", JAR, "-d"]).arg(classes).arg(&source);
        let output = javac.output().expect("javac is missing: run scripts/install");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    })
}
