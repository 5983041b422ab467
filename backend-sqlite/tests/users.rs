//! Several users share a file, or may only read it, or are root.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use leasehold_core::backend::LockBackend;
use leasehold_core::{LockClient, LockOptions, TryLockError};
use leasehold_sqlite::{SqliteBackend, SqliteConfig};
use leasehold_testbed::Folder;

use crate::processes::{client, file, folder_of_the_test, rest};

/// The shell functions of all scripts, which run as root in an empty directory.
///
/// `as_user 1 2 tries` runs a test of this program as user 1, with the groups 1 and 2. `keep 1 2` has this user hold a lock until `stop`.
/// The functions start the program by its descriptor, because the directories above it may be closed to other users.
const FUNCTIONS: &str = r#"
exec 9<"$PROGRAM"
as_user() { (become "$@"); }
as_root() { as_user 0 0 "$1"; }
become() { exec setpriv --reuid "$1" --regid "$1" --groups "$2" /proc/self/fd/9 --exact "users::$3" --nocapture; }
keep() {
  become "$1" "$2" keeps >"$DIRECTORY/kept" & kept=$!
  until grep -q granted "$DIRECTORY/kept"; do kill -0 $kept; sleep 0.01; done
}
stop() { kill -KILL $kept; wait $kept || true; }
trap '[ -z "${kept-}" ] || kill -KILL $kept 2>/dev/null || true' EXIT
"#;

/// Runs a script as root of this machine or, without the right to that, of a namespace with several users. Returns what its processes say.
fn as_root(script: &str) -> Vec<String> {
    let folder = Folder::in_memory("sqlite-");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-auto", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-euc", &format!("{FUNCTIONS}{script}")]);
    command.current_dir(folder.path()).env("DIRECTORY", folder.path());
    command.env("PROGRAM", env::current_exe().unwrap());
    command.env("LEASEHOLD_SQLITE_FOLDER", folder.path().join("locks"));

    let output = command.output().unwrap();

    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    let said = shown.lines().filter_map(|line| line.split_once("says: "));
    said.map(|(_, said)| said.to_owned()).collect()
}

/// The part of a process that tries to lock; it does nothing when it is run like any test.
#[tokio::test]
async fn tries() {
    let Some(folder) = folder_of_the_test() else { return };
    let backend = SqliteBackend::connect_lazily(SqliteConfig::new(file(&folder)).unwrap());
    let client = LockClient::new(backend.clone());
    match client.mutex("job").unwrap().try_lock().await {
        Ok(guard) => {
            println!("says: granted");
            guard.release().await.unwrap();
        }
        Err(TryLockError::Busy(_)) => println!("says: held"),
        Err(TryLockError::Failed(error)) => println!("says: {:?}: {error}", error.kind()),
    }
    // If no other process has the file open, SQLite deletes its log.
    backend.close().await;
}

/// The part of a process that inspects the lock.
#[tokio::test]
async fn looks() {
    let Some(folder) = folder_of_the_test() else { return };
    let client = client(&folder, LockOptions::new()).await;
    let inspection = client.admin().inspect("job").await.unwrap();
    println!("says: {}", if inspection.is_held() { "held" } else { "free" });
}

/// The part of a process that keeps the lock.
#[tokio::test]
async fn keeps() {
    let Some(folder) = folder_of_the_test() else { return };
    let client = client(&folder, LockOptions::new()).await;
    let _guard = client.mutex("job").unwrap().lock().await.unwrap();
    println!("granted");
    rest().await;
}

#[test]
fn the_users_of_a_group_exclude_each_other() {
    let said = as_root(
        "umask 077
         mkdir locks; chgrp 9 locks; chmod 770 locks
         : >locks/locks.db; chgrp 9 locks/locks.db; chmod 660 locks/locks.db
         keep 1 9; as_user 2 9 tries; stop
         as_user 2 9 tries; as_user 1 9 tries; as_root tries",
    );

    assert_eq!(said[0], "held");
    // The lease of a process that was killed lasts for its TTL.
    assert_eq!(said[1..], ["held", "held", "held"]);
}

#[test]
fn a_user_who_may_not_write_the_file_is_told_its_owner_and_its_mode() {
    let said = as_root(
        "mkdir -m 777 locks; as_user 1 1 tries
         as_user 2 2 tries",
    );

    assert_eq!(said[0], "granted");
    assert!(said[1].starts_with("Denied: ") && said[1].contains("mode 600, owner 1,"), "{said:?}");
}

#[test]
fn a_user_who_may_not_write_a_file_next_to_it_is_told_how_it_gets_its_group() {
    let said = as_root(
        "mkdir -m 777 locks; : >locks/locks.db; chown 1:9 locks/locks.db; chmod 660 locks/locks.db
         keep 1 1
         as_user 2 9 tries; stop",
    );

    assert!(said[0].starts_with("Denied: ") && said[0].contains("chmod g+s"), "{said:?}");
}

#[test]
fn what_root_creates_in_the_directory_of_a_user_belongs_to_that_user() {
    let said = as_root(
        "mkdir home; chown 1:1 home
         LEASEHOLD_SQLITE_FOLDER=$DIRECTORY/home/new/locks
         as_root tries
         keep 0 0; as_user 1 1 tries; stop
         rm -r home/new/locks/*; as_user 1 1 tries
         stat -c 'says: %u:%g %a' home/new home/new/locks",
    );

    assert_eq!(said, ["granted", "held", "granted", "1:1 700", "1:1 700"]);
}

#[test]
fn a_new_directory_can_be_entered_whatever_the_umask_is() {
    let said = as_root(
        "mkdir home; chown 1:1 home
         LEASEHOLD_SQLITE_FOLDER=$DIRECTORY/home/new/locks
         umask 0777; as_user 1 1 tries
         umask 0177; as_user 1 1 tries
         stat -c 'says: %a' home/new home/new/locks home/new/locks/locks.db",
    );

    assert_eq!(said, ["granted", "granted", "700", "700", "600"]);
}

#[test]
fn a_user_who_may_only_read_sees_locks_and_gets_none() {
    let said = as_root(
        "mkdir locks; as_root tries; chmod 644 locks/locks.db
         as_user 1 1 looks; as_user 1 1 tries
         keep 0 0; as_user 1 1 looks; as_user 1 1 tries; stop
         as_user 1 1 looks",
    );

    assert_eq!([&*said[0], &said[1], &said[3]], ["granted", "free", "held"]);
    for refused in [&said[2], &said[4]] {
        assert!(
            refused.starts_with("Denied: ") && refused.contains("user 1 is not allowed to write"),
            "{said:?}"
        );
    }
    // The log of a process that was killed has the lease.
    assert_eq!(said[5], "held");
}

#[test]
fn locks_are_seen_where_the_file_system_is_read_only_and_none_is_granted() {
    let said = as_root(
        "mkdir locks view; as_root tries
         mount --bind locks view; mount -o remount,bind,ro view
         LEASEHOLD_SQLITE_FOLDER=$DIRECTORY/view as_root looks
         LEASEHOLD_SQLITE_FOLDER=$DIRECTORY/view as_root tries
         keep 0 0; LEASEHOLD_SQLITE_FOLDER=$DIRECTORY/view as_root looks; stop",
    );

    assert_eq!([&*said[0], &said[1], &said[3]], ["granted", "free", "held"]);
    assert!(said[2].starts_with("Refused: ") && said[2].contains("is read-only"), "{said:?}");
}
