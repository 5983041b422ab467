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
/// Signals are passed on, and those that end the command go to all that it has started. So does the end of the lease. If this process is
/// killed, the system kills the command, but not the processes that the command has started.
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
Exit status: that of the command (128 and the signal's number if one ended it, 126 or 127 if it
cannot be started); 75 if the lock was not obtained in time; 69 if the store cannot be reached; 77 if
it refuses the user, the password or the rights; 76 if the lease was lost; 64 if the command line
makes no sense.

Examples:
  leasehold run nightly ./report.sh
  leasehold run --wait 5m --ttl 10s nightly -- ./report.sh --all
  leasehold run --no-wait --min-hold 1m nightly ./report.sh      # once, from many crontabs
  leasehold run --permits 3 --fair import ./import.sh            # three at a time, in order
  leasehold run --also account:2 account:1 ./transfer.sh         # both or none
  leasehold run -- -odd-name ./report.sh";

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let keys = args.lock.keys(&args.key)?;
    job::check()?;
    let command = work::without_dashes(&args.command);
    let mut signals = Signals::catch()?;
    let seeker = Seeker::new(args.lock.wait, &keys);
    let client = seeker.connect(&args.backend, &mut signals).await?;
    let wanted = Wanted::of(&client, &keys, &args.lock)?;
    let held = seeker.obtain(&client, &mut signals, wanted.obtain(seeker.wait())).await?;
    Work::new(&client, &keys, held, &args.lock.lease, &args.stop).run(command, &mut signals).await
}
