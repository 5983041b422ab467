//! `leasehold run`

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::{Backend, LockArgs};
use crate::exit::Failure;
use crate::held::Wanted;
use crate::job;
use crate::obtain::Seeker;
use crate::signals::Signals;
use crate::work::{self, StopArgs, Work};

/// Runs a command while holding a lock.
///
/// The lock is a mutex unless another kind is named; all that name a key must mean the same kind.
///
/// The lock is renewed for as long as the command runs, and released when it ends. The command finds the key in `LEASEHOLD_KEY` and the
/// fencing token in `LEASEHOLD_TOKEN`: the data that it writes should refuse a token below the largest seen so far. With `--also`,
/// `LEASEHOLD_KEY_1`, `LEASEHOLD_TOKEN_1` and so on have all of them, KEY first.
///
/// A guardian process ends the command and all processes that it has started if this process is killed, or if it is paused for so long
/// that the lock expires.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    lock: LockArgs,

    #[command(flatten)]
    stop: StopArgs,

    /// The lock's name. One that begins with `-` follows `--`.
    key: OsString,

    /// The command and its arguments. A `--` before it is allowed.
    #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

const HELP: &str = "\
Signals:
  HUP, INT, QUIT and TERM are passed on once to each process of the command; USR1 and USR2 only to
  the command. A signal that the sender has sent to the command as well is not passed on.

Exit status: that of the command (128 and the signal's number if one ended it, 126 or 127 if it
cannot be started); 75 if the lock was not obtained in time; 69 if the store cannot be reached; 77 if
it refuses the user, the password or the rights; 76 if the lease was lost and the command has ended;
79 if the lease was lost and a process of the command is still running; 71 if the operating system
refuses what is needed to supervise the command; 64 if the command line makes no sense.

Examples:
  leasehold run nightly ./report.sh
  leasehold run --wait 5m --ttl 10s nightly -- ./report.sh --all
  leasehold run --no-wait --min-hold 1m --max-hold 6h nightly ./report.sh
                                                       # once, from many crontabs
  leasehold run --permits 3 --fair import ./import.sh  # three at a time, in order
  leasehold run --also account:2 account:1 ./transfer.sh  # both or none
  leasehold run -- -odd-name ./report.sh";

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let keys = args.lock.keys(&args.key)?;
    job::prepare()?;
    let command = work::without_dashes(&args.command);
    let mut signals = Signals::catch()?;
    let seeker = Seeker::new(args.lock.wait, &keys);
    let client = seeker.connect(&args.backend, &mut signals).await?;
    let wanted = Wanted::of(&client, &keys, &args.lock)?;
    let held = seeker.obtain(&client, &mut signals, wanted.obtain(seeker.wait())).await?;
    Work::new(&client, &keys, held, &args.lock.lease, &args.stop).run(command, &mut signals).await
}
