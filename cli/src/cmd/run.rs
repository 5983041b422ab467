//! `leasehold run`

use std::ffi::OsString;
use std::process::ExitCode;

use crate::exit::Failure;
use crate::help::Help;
use crate::job;
use crate::obtain::Seeker;
use crate::signals::Signals;
use crate::store::Backend;
use crate::wanted::{LockArgs, Wanted};
use crate::work::{self, StopArgs, Work};

/// Runs a command while holding a lock.
///
/// The lock is renewed while the command runs and released when it exits. If the lock is lost, the command is stopped.
///
/// The lock is a mutex unless you choose a different type. All users of the same KEY must use the same type.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the lock. Put `--` before a name that starts with `-`.
    key: OsString,

    /// Command to run, with its arguments.
    #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,

    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    lock: LockArgs,

    #[command(flatten)]
    stop: StopArgs,
}

pub(crate) const HELP: Help = Help {
    sections: &[
        ("Times", TIMES),
        (
            "Environment of the command",
            "\
LEASEHOLD_KEY, LEASEHOLD_TOKEN
       Name of the lock and its fencing token. Make every write
       conditional on the token, so that a late write is rejected
LEASEHOLD_KEY_1, LEASEHOLD_TOKEN_1, ...
       With --also: all locks, starting with KEY",
        ),
        (
            "Signals",
            "\
HUP, INT, QUIT and TERM are passed on once to each process of the
command. USR1 and USR2 are passed on only to the command itself. A
signal that the command has already received is not passed on. If
`leasehold` is killed, or is paused for so long that the lock expires,
a guardian process ends the command and all processes that it started.",
        ),
    ],
    status: "The exit status of the command (128 + N if signal N ended it), or",
    examples: "\
leasehold run nightly ./report.sh
leasehold run --wait 5m --ttl 10s nightly -- ./report.sh --all
leasehold run --no-wait --min-hold 1m --max-hold 6h nightly ./report.sh
leasehold run --permits 3 --fair import ./import.sh    # three at a time
leasehold run --also account:2 account:1 ./transfer.sh # both or neither
leasehold run -- -odd-name ./report.sh",
    ..Help::RUNNING
};

/// The forms of a time.
pub(crate) const TIMES: &str = "Seconds, or numbers with units: 5, 0.5, 500ms, 30s, 5m, 1h 30m, 1d";

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let keys = args.lock.keys(&args.key)?;
    job::prepare()?;
    let command = work::without_dashes(&args.command);
    let mut signals = Signals::catch()?;
    let seeker = Seeker::new(&args.lock.wait, &keys);
    let client = seeker.connect(&args.backend, &mut signals).await?;
    let wanted = Wanted::of(&client, &keys, &args.lock)?;
    let held = seeker.obtain(&client, &mut signals, wanted.obtain(seeker.wait())).await?;
    Work::new(&client, &keys, held, &args.lock.lease, &args.stop).run(command, &mut signals).await
}
