//! `leasehold release`

use std::ffi::OsString;
use std::process::ExitCode;

use leasehold::admin::Revocation;
use leasehold::backend::Fingerprint;
use leasehold::{Holder, LockClient};
use serde_json::json;

use crate::args::Backend;
use crate::exit::Failure;
use crate::key::Key;
use crate::obtain::holders_to_json;
use crate::out::{self, Report};

/// Ends the lease of another holder, as an operator, or asks for it.
///
/// With `--ask`, a command under `leasehold run` gets a SIGTERM, unless it runs with `--on-asked ignore`; a program that uses the library
/// may heed the request or not; other programs do not hear of it.
///
/// With `--force`, the holder learns of it soon, and may go on until then: the data that it writes should refuse tokens below the printed
/// one.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    how: How,

    /// Only the lease with this fingerprint, as `leasehold status` shows it; a newer holder and the holders of other permits are left alone.
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    lease: Option<Fingerprint>,

    /// The lock's name. One that begins with `-` follows `--`.
    key: OsString,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct How {
    /// Ask its holder to finish early, and leave it to them.
    #[arg(long)]
    ask: bool,

    /// End it, though it is another's.
    #[arg(long)]
    force: bool,
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let is_one = text.len() == 8;
    let refused =
        || "a fingerprint has eight hexadecimal digits, see `leasehold status`".to_owned();
    text.parse().ok().filter(|_| is_one).ok_or_else(refused)
}

const HELP: &str = "\
Exit status: 0 if a lease was ended or its holder asked, 1 if the lock was free or no holder has
the lease that --lease names, 69 if the store
cannot be reached, 77 if it refuses the user, the password or the rights, 64 if the command line
makes no sense.";

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
        report.say(format_args!("ended the lease of {}", had(holder)));
    }
    if let Some(token) = min_token.filter(|_| !ended.is_empty()) {
        report.say(format_args!("tokens below {token} are stale from now on"));
    }
    report.print()?;
    Ok(success_if(!ended.is_empty()))
}

/// A former holder, and the rest that its lease had.
fn had(holder: &Holder) -> String {
    let name = match holder.description() {
        Some(description) => format!("{description} ({})", holder.fingerprint()),
        None => holder.fingerprint().to_string(),
    };
    match holder.remaining() {
        Some(left) => format!("{name}, which had {:.1}s left", left.as_secs_f64()),
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
        report.say("asked to finish early; holders under `run --on-asked ignore`, and those that are not Leasehold's, go on");
    } else {
        report.say(nobody(lease));
    }
    report.print()?;
    Ok(success_if(asked))
}

/// Why there was nothing to do.
fn nobody(lease: Option<Fingerprint>) -> String {
    lease.map_or_else(|| "was free".to_owned(), |it| format!("no holder has the lease {it}"))
}

fn success_if(done: bool) -> ExitCode {
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
