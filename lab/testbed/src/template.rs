//! Folders that take long to make, such as the data that servers start with.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::cache;
use crate::memory::Folder;
use crate::unprivileged;

/// Fills the folder `data` with a copy of a [`template`]: a copy takes milliseconds, a new data folder seconds.
///
/// # Panics
///
/// If the cache cannot be written.
pub(crate) fn copy_template(name: &str, make: impl FnOnce(&Path), data: &Path) {
    copy(&template(name, make), data);
}

/// The folder in the user's cache that `make` once made, perhaps in another test run.
///
/// `make` is given a folder that does not exist yet; `name` names all that its result depends on.
///
/// # Panics
///
/// If the cache cannot be written.
pub(crate) fn template(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let templates = cache().join("templates");
    fs::create_dir_all(&templates).expect("the user's cache can be written");
    let lock = File::create(templates.join(format!("{name}.lock"))).expect("as before");
    lock.lock().expect("files can be locked");
    let template = templates.join(name);
    if !template.exists() {
        let folder = Folder::in_memory("template-");
        unprivileged::give(folder.path());
        let made = folder.path().join("data");
        make(&made);
        // Under its name there is only ever a whole one.
        let unfinished = templates.join(format!("{name}.unfinished"));
        drop(fs::remove_dir_all(&unfinished));
        copy(&made, &unfinished);
        fs::rename(&unfinished, &template).expect("as before");
    }
    template
}

/// Copies a folder, with its owners.
fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let status = command.args(["-a", "--reflink=auto"]).args([from, to]).status();
    assert!(status.expect("cp can be started").success(), "{} is copied", from.display());
}

/// A name for a program as it lies there: another version has another size or date, and to ask a server for its version takes a tenth of
/// its start.
pub(crate) fn stamp(program: &Path) -> String {
    let found = fs::metadata(program);
    let found = found.unwrap_or_else(|error| {
        panic!("{} is missing, run scripts/install: {error}", program.display())
    });
    let name = program.display().to_string().replace('/', "-");
    format!("{}-{}-{}", name.trim_matches('-'), found.size(), found.mtime())
}
