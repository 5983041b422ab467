//! `leasehold release`

use std::ffi::OsString;
use std::process::ExitCode;

use leasehold::admin::Revocation;
use leasehold::backend::Fingerprint;
use leasehold::{Holder, LockClient};
use serde_json::json;

use crate::exit::Failure;
use crate::help::Help;
use crate::key::Key;
use crate::obtain::holders_to_json;
use crate::out::{self, Report};
use crate::store::Backend;

/// Releases the lock of another holder, or asks the holder to release it.
///
/// With --ask, a command under `leasehold run` receives SIGTERM, unless it runs with `--on-asked ignore`. A program that uses the library
/// can react to the request. Other programs do not notice the request.
///
/// With --force, the lock becomes free immediately. The former holder is notified shortly afterwards, and may continue to work until then.
/// To prevent late writes from the former holder, make your data store reject fencing tokens smaller than the printed token.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the lock. Put `--` before a name that starts with `-`.
    key: OsString,

    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    how: How,

    /// Release only the lease with this fingerprint (as shown by `leasehold status`). All other leases on the lock remain valid.
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint, help_heading = "Release")]
    lease: Option<Fingerprint>,
}

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Release")]
#[group(required = true, multiple = false)]
struct How {
    /// Ask the holder to finish early.
    #[arg(long)]
    ask: bool,

    /// Release the lock immediately, without waiting for its holder.
    #[arg(long)]
    force: bool,
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let is_one = text.len() == 8;
    let refused = || {
        "not a fingerprint; use the eight hexadecimal digits that `leasehold status` shows"
            .to_owned()
    };
    text.parse().ok().filter(|_| is_one).ok_or_else(refused)
}

pub(crate) const HELP: Help = Help {
    status: "\
0    a lease was released, or its holder was asked
1    the lock was free, or no holder has the lease that --lease names",
    examples: "\
leasehold release --ask nightly
leasehold release --force nightly
leasehold release --force --lease f86fdc8b import",
    ..Help::CONNECTING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let key = Key::new(&args.key)?;
    let client = args.backend.connect().await?;
    if args.how.ask {
        ask(&client, &key, args.lease).await
    } else {
        force(&client, &key, args.lease).await
    }
}

async fn force(
    client: &LockClient,
    key: &Key,
    lease: Option<Fingerprint>,
) -> Result<ExitCode, Failure> {
    const WHY: &str = "leasehold release --force";
    let (admin, name) = (client.admin(), key.as_lock_key());
    let forced = match lease {
        Some(lease) => admin.force_release_lease(name, lease, WHY).await?,
        None => admin.force_release(name, WHY).await?,
    };
    let (ended, min_token) = (forced.ended(), forced.min_token());
    if out::style().json {
        let mut told = out::json_of(key);
        told["ended"] = holders_to_json(ended);
        told["min_token"] = json!(min_token);
        out::print_json(&told)?;
        return Ok(success_if(!ended.is_empty()));
    }
    let mut report = Report::new(key);
    if ended.is_empty() {
        report.say(nobody(lease));
    }
    for holder in ended {
        report.say(format_args!("released the lock of {}", had(holder)));
    }
    if let Some(token) = min_token.filter(|_| !ended.is_empty()) {
        report.say(format_args!("fencing tokens below {token} are stale from now on"));
    }
    report.print()?;
    Ok(success_if(!ended.is_empty()))
}

/// A former holder, and the remaining time of its lease.
fn had(holder: &Holder) -> String {
    let name = match holder.description() {
        Some(description) => format!("{description} ({})", holder.fingerprint()),
        None => holder.fingerprint().to_string(),
    };
    match holder.remaining() {
        Some(left) => format!("{name}, which would have expired in {:.1}s", left.as_secs_f64()),
        None => name,
    }
}

async fn ask(
    client: &LockClient,
    key: &Key,
    lease: Option<Fingerprint>,
) -> Result<ExitCode, Failure> {
    let asked = match lease {
        Some(lease) => client.admin().request_lease_revocation(key.as_lock_key(), lease).await?,
        None => client.request_revocation(key.as_lock_key()).await?,
    };
    let asked = asked == Revocation::Requested;
    if out::style().json {
        let mut told = out::json_of(key);
        told["asked"] = json!(asked);
        out::print_json(&told)?;
        return Ok(success_if(asked));
    }
    let mut report = Report::new(key);
    if asked {
        report.say("asked the holder to finish early; the holder may ignore the request");
    } else {
        report.say(nobody(lease));
    }
    report.print()?;
    Ok(success_if(asked))
}

/// Why there was nothing to do.
fn nobody(lease: Option<Fingerprint>) -> String {
    lease.map_or_else(
        || "nothing to release".to_owned(),
        |it| format!("no holder has the lease {it}"),
    )
}

fn success_if(done: bool) -> ExitCode {
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
