//! `leasehold list`

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use leasehold::{ErrorKind, LockClient, LockKey};

use crate::cmd::status;
use crate::exit::Failure;
use crate::help::Help;
use crate::key::Key;
use crate::out::{self, Report};
use crate::store::Backend;

/// Lists the locks that are held or have waiters, with their holders.
///
/// A lock that is acquired or released while the list is being read may be missing from the list. On Redis, this subcommand scans the whole
/// database and requires an additional permission, which `leasehold acl --list` prints.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// List only locks whose names start with this text.
    #[arg(value_name = "START", default_value = "", hide_default_value = true)]
    start: OsString,

    #[command(flatten)]
    backend: Backend,
}

pub(crate) const HELP: Help = Help {
    status: "0    at least one lock is listed\n1    no lock is listed",
    examples: "leasehold list\nleasehold list import:",
    ..Help::CONNECTING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let client = args.backend.connect().await?;
    let mut pages = client.admin().list(args.start.as_bytes())?;
    let mut is_empty = true;
    // Some stores list a lock twice, once as held and once for its waiters.
    let mut listed = HashSet::new();
    while let Some(page) = pages.next_page().await? {
        for key in page {
            if !listed.insert(key.clone()) {
                continue;
            }
            match show(&client, key).await? {
                Shown::Listed => is_empty = false,
                Shown::Gone | Shown::Foreign => {}
                Shown::Unread => return Ok(ExitCode::SUCCESS),
            }
        }
    }
    Ok(ExitCode::from(u8::from(is_empty)))
}

/// The outcome of one key.
enum Shown {
    Listed,
    /// The lock has become free in the meantime and has no waiters.
    Gone,
    /// Not a lock, or not a lock that this user may inspect.
    Foreign,
    /// The reader of the output has exited.
    Unread,
}

async fn show(client: &LockClient, key: LockKey) -> Result<Shown, Failure> {
    let inspection = match client.admin().inspect(&key).await {
        Ok(inspection) => inspection,
        Err(error) if error.kind() == ErrorKind::WrongType => {
            return tell(&Key::of(key), "not a lock, but other data");
        }
        Err(error) if error.kind() == ErrorKind::Denied => {
            return tell(&Key::of(key), "not visible to this user: permission denied");
        }
        Err(error) => return Err(error.into()),
    };
    let waiting = inspection.waiting().unwrap_or(0);
    if !inspection.is_held() && waiting == 0 {
        return Ok(Shown::Gone);
    }
    let key = Key::of(key);
    let line = if out::style().json {
        format!("{}\n", status::to_json(&key, &inspection)).into_bytes()
    } else {
        let waiting = if waiting > 0 { format!("; {waiting} waiting") } else { String::new() };
        let holders: Vec<_> = inspection.holders().iter().map(ToString::to_string).collect();
        let mut report = Report::new(&key);
        match &holders[..] {
            [] => report.say(format_args!("free{waiting}")),
            [holder] => report.say(format_args!("held by {holder}{waiting}")),
            [holder, rest @ ..] => {
                report.say(format_args!("held by {holder} and {} more{waiting}", rest.len()));
            }
        }
        report.into_bytes()
    };
    Ok(if out::print_on(&line)? { Shown::Listed } else { Shown::Unread })
}

/// Says why a key is not shown as a lock.
fn tell(key: &Key, why: &str) -> Result<Shown, Failure> {
    if out::style().json {
        out::insist(format!("{} is {why}", key.quoted()));
        return Ok(Shown::Foreign);
    }
    let mut report = Report::new(key);
    report.say(why);
    Ok(if out::print_on(&report.into_bytes())? { Shown::Foreign } else { Shown::Unread })
}
