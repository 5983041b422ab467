//! `leasehold elect`

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::{Backend, LeaseArgs, WaitArgs};
use crate::exit::{self, Failure};
use crate::held::Held;
use crate::job;
use crate::key::Key;
use crate::obtain::{Seeker, Wait};
use crate::out;
use crate::signals::Signals;
use crate::work::{self, StopArgs, Work};
use leasehold::election::Election;
use leasehold::{Description, Error, LockClient, TryLockError};

/// Runs a command while leading an election.
///
/// One candidate leads at a time, and proclaims a text such as its address, which `leasehold status` and `leasehold watch` show. The
/// command finds the key in `LEASEHOLD_KEY` and the fencing token of its term in `LEASEHOLD_TOKEN`. All else is as with `leasehold run`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// The text that the leader proclaims. Without it: host and process id.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_VALUE")]
    value: Option<String>,

    /// If the leadership is lost, campaign again, and run the command again once elected.
    ///
    /// If the command itself exits, this process exits with the exit status of the command.
    #[arg(long)]
    again: bool,

    #[command(flatten)]
    stop: StopArgs,

    /// The name of the election. One that begins with `-` follows `--`.
    key: OsString,

    /// The command and its arguments. A `--` before it is allowed.
    #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

const HELP: &str = "\
Exit status: as `leasehold run`.

Examples:
  leasehold elect --again --value 10.0.0.1:7000 scheduler ./scheduler
  leasehold watch scheduler                                  # the leader, and its text";

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let keys = [Key::new(&args.key)?];
    let value = match &args.value {
        Some(text) => Description::new(text.clone())?,
        None => Description::of_this_process(),
    };
    let command = work::without_dashes(&args.command);
    job::prepare()?;
    let mut signals = Signals::catch()?;
    loop {
        let led = lead(&args, &keys, &value, command, &mut signals).await;
        match led {
            Err(failure) if args.again && failure.code() == exit::LOST => {
                out::note(format!("{}; standing again", failure.message()));
            }
            led => return led,
        }
    }
}

/// Leads once.
async fn lead(
    args: &Args,
    keys: &[Key],
    value: &Description,
    command: &[OsString],
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let seeker = Seeker::new(args.wait, keys);
    let client = seeker.connect(&args.backend, signals).await?;
    let election = election(&client, &keys[0], args)?;
    let campaign = campaign(&election, value, seeker.wait());
    let held = seeker.obtain(&client, signals, campaign).await?;
    Work::new(&client, keys, held, &args.lease, &args.stop).run(command, signals).await
}

fn election(client: &LockClient, key: &Key, args: &Args) -> Result<Election, Error> {
    let options = args.lease.options(client, &args.wait);
    client.election(key.as_lock_key())?.with_options(options)
}

async fn campaign(
    election: &Election,
    value: &Description,
    wait: Wait,
) -> Result<Held, TryLockError> {
    let value = value.clone();
    let leadership = match wait {
        Wait::None => election.try_campaign(value).await?,
        Wait::For(wait) => election.try_campaign_for(value, wait).await?,
        Wait::Forever => election.campaign(value).await?,
    };
    Ok(Held::Leader(leadership))
}
