//! `leasehold elect`

use std::ffi::OsString;
use std::process::ExitCode;

use leasehold::election::Election;
use leasehold::{Description, LockClient, TryLockError};

use crate::exit::{self, Failure};
use crate::held::Held;
use crate::help::Help;
use crate::job;
use crate::key::Key;
use crate::lease::{self, LeaseArgs};
use crate::obtain::{Seeker, Wait, WaitArgs};
use crate::out;
use crate::signals::Signals;
use crate::store::Backend;
use crate::work::{self, StopArgs, Work};

/// Runs a command while this process is the elected leader.
///
/// One candidate at a time is the leader. The leader publishes a value, such as its address, which `leasehold status` and `leasehold watch`
/// show. The command is started and stopped in the same way as with `leasehold run`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the election. Put `--` before a name that starts with `-`.
    key: OsString,

    /// Command to run, with its arguments.
    #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,

    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    wait: WaitArgs,

    #[command(flatten)]
    lease: LeaseArgs,

    /// Value that the leader publishes.
    ///
    /// [default: host name and process ID]
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_VALUE", help_heading = "Election")]
    value: Option<String>,

    /// If leadership is lost, take part in the election again, and rerun the command once elected.
    ///
    /// If the command itself exits, this process exits with the command's exit status.
    #[arg(long, help_heading = "Election")]
    again: bool,

    #[command(flatten)]
    stop: StopArgs,
}

pub(crate) const HELP: Help = Help {
    sections: crate::cmd::run::HELP.sections,
    status: crate::cmd::run::HELP.status,
    examples: "\
leasehold elect --again --value 10.0.0.1:7000 scheduler ./scheduler
leasehold watch scheduler                  # the leader and its value",
    ..Help::RUNNING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let keys = [Key::new(&args.key)?];
    let value = match &args.value {
        Some(text) => lease::description(text, "--value")?,
        None => Description::of_this_process(),
    };
    let command = work::without_dashes(&args.command);
    job::prepare()?;
    let mut signals = Signals::catch()?;
    loop {
        let led = lead(&args, &keys, &value, command, &mut signals).await;
        match led {
            Err(failure) if args.again && failure.code() == exit::LOST => {
                out::note(format!("{}; campaigning again", failure.message()));
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
    let seeker = Seeker::new(&args.wait, keys);
    let client = seeker.connect(&args.backend, signals).await?;
    let election = election(&client, &keys[0], args)?;
    let campaign = campaign(&election, value, seeker.wait());
    let held = seeker.obtain(&client, signals, campaign).await?;
    Work::new(&client, keys, held, &args.lease, &args.stop).run(command, signals).await
}

fn election(client: &LockClient, key: &Key, args: &Args) -> Result<Election, Failure> {
    let options = args.lease.options(client, &args.wait)?;
    Ok(client.election(key.as_lock_key())?.with_options(options)?)
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
