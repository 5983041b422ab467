//! The classes of a server, loaded and verified in advance.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tokio::runtime::Builder;

use crate::database::display;
use crate::template::{stamp, template};

use super::ZooKeeperOptions;
use super::program::{JVM, Program};

/// Where a member that is asked to notes the classes that it loads, in its folder.
const LIST: &str = "classes";

/// The option of a JVM that takes its classes from an archive in the user's cache. With it, a server takes three quarters of the time to start.
///
/// To make the archive takes some seconds.
pub(super) fn from_archive(program: &Program) -> String {
    let name = format!("{}-{}", stamp(&program.java), stamp(&program.jar));
    let folder = template(&name, |folder| make(program, folder));
    format!("-XX:SharedArchiveFile={}", display(&archive(&folder)))
}

/// The option of a JVM that notes its classes instead.
pub(super) fn noting_classes(member: &Path) -> String {
    format!("-XX:DumpLoadedClassList={}", display(&member.join(LIST)))
}

fn make(program: &Program, folder: &Path) {
    fs::create_dir(folder).expect("temporary folders can be written");
    let list = folder.join(LIST);
    let classes: Vec<String> = used_classes().into_iter().collect();
    fs::write(&list, classes.join("\n")).expect("as before");
    let mut dump = Command::new(&program.java);
    dump.args(JVM).args(["-cp", &program.class_path(), "-Xshare:dump"]);
    dump.arg(format!("-XX:SharedClassListFile={}", display(&list)));
    dump.arg(format!("-XX:SharedArchiveFile={}", display(&archive(folder))));
    let output = dump.output().expect("java can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn archive(folder: &Path) -> PathBuf {
    folder.join("archive.jsa")
}

/// The classes of a leader and of its followers, which include nearly all of a single server.
fn used_classes() -> BTreeSet<String> {
    let options = ZooKeeperOptions { notes_classes: true, ..ZooKeeperOptions::new().members(3) };
    // The caller may be a task, in which no runtime may be driven.
    let training = thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        let mut zookeeper = runtime.expect("a thread can be driven").block_on(options.start());
        zookeeper.members.iter_mut().for_each(|member| member.instance.terminate());
        let read = |list: PathBuf| fs::read_to_string(list).expect("the member has noted them");
        let lists = zookeeper.members.iter().map(|member| read(member.folder.join(LIST)));
        lists.collect::<String>()
    });
    let lists = training.join().expect("ZooKeeper starts");
    lists.lines().map(str::to_owned).collect()
}
