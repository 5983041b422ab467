//! `leasehold hold`

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::LossReason;
use rustix::process::{Pid, Signal, getppid};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::exit::{self, Failure};
use crate::held::Held;
use crate::help::Help;
use crate::key::Key;
use crate::obtain::{GOODBYE, Seeker};
use crate::out::{self, Report};
use crate::signals::Signals;
use crate::store::Backend;
use crate::wanted::{LockArgs, Wanted};
use crate::work::AT_ITS_LIMIT;

/// How often to check whether the parent process still runs.
const PARENT_CHECK: Duration = Duration::from_millis(500);

/// Holds a lock until Ctrl-C, SIGTERM, or a request from `leasehold release --ask`.
///
/// Once the lock is held, prints a line that contains the fencing token. A script can wait for this line. The lock is also released when the process
/// that started this command exits, for example because a script was killed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the lock. Put `--` before a name that starts with `-`.
    key: OsString,

    #[command(flatten)]
    backend: Backend,

    #[command(flatten)]
    lock: LockArgs,

    /// Keep the lock after the process that started this command has exited.
    #[arg(long, help_heading = "Lease")]
    detach: bool,
}

pub(crate) const HELP: Help = Help {
    sections: &[("Times", crate::cmd::run::TIMES)],
    status: "0    the lock was held until a signal or a request, and then released",
    examples: "\
leasehold hold deploy     # in one terminal, while you work in another

# In a script, `leasehold run deploy ./deploy.sh` is better, because it
# stops ./deploy.sh if the lock is lost. If the script itself must hold
# the lock, wait for the first line, which is missing if `hold` fails:
exec 3< <(leasehold hold --wait 1m deploy); holder=$!
read -r held <&3 || exit 75
./deploy.sh
kill $holder",
    ..Help::LOCKING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let keys = args.lock.keys(&args.key)?;
    let parent = Parent::of_this_process();
    let mut signals = Signals::catch()?;
    let seeker = Seeker::new(&args.lock.wait, &keys);
    let client = seeker.connect(&args.backend, &mut signals).await?;
    let wanted = Wanted::of(&client, &keys, &args.lock)?;
    let held = seeker.obtain(&client, &mut signals, wanted.obtain(seeker.wait())).await?;

    let told = tell(&keys, &held);
    let limit = args.lock.lease.max_hold();
    let mut is_at_its_limit = false;
    if told.is_ok() {
        let ended = async {
            // USR1 and USR2 have no effect, because there is no command to which they could be passed on.
            while matches!(signals.next().await, Signal::USR1 | Signal::USR2) {}
        };
        tokio::select! {
            () = ended => {}
            () = held.asked() => out::note(format!("release of {} was requested", keys[0].quoted())),
            () = parent.exits(), if !args.detach => out::note("the process that started leasehold has exited"),
            () = held.lost() => {}
            () = sleep(limit.unwrap_or_default()), if limit.is_some() => is_at_its_limit = true,
        }
    }
    let lost = held.lost_for();
    let goodbye = async {
        let released = held.release().await;
        drop(client.shutdown(GOODBYE).await);
        released
    };
    let released = match lost {
        Some(LossReason::Expired) => Ok(()),
        Some(_) => timeout(GOODBYE, goodbye).await.unwrap_or(Ok(())).or(Ok(())),
        None => goodbye.await,
    };
    told?;
    let key = &keys[0];
    let message = match lost {
        Some(reason) => Some(format!("lock {} was lost: {reason}", key.quoted())),
        None => {
            is_at_its_limit.then(|| format!("lock {} was released: {AT_ITS_LIMIT}", key.quoted()))
        }
    };
    if let Some(message) = message {
        return Err(Failure::new(exit::LOST, message).with_details(out::json_of(key)));
    }
    released?;
    Ok(ExitCode::SUCCESS)
}

/// The process that started this one.
struct Parent(Option<Pid>);

impl Parent {
    fn of_this_process() -> Self {
        Self(getppid())
    }

    /// Waits until the parent process exits. A signal from the kernel is not used, because the kernel sends it when the thread that started
    /// this process exits.
    async fn exits(&self) {
        while getppid() == self.0 {
            sleep(PARENT_CHECK).await;
        }
    }
}

/// Prints each key with its token.
fn tell(keys: &[Key], held: &Held) -> Result<(), Failure> {
    for key in keys {
        let token = held.guard_of(key).token();
        if out::style().json {
            let mut told = out::json_of(key);
            told["token"] = json!(token.number());
            out::print_json(&told)?;
        } else {
            let mut report = Report::new(key);
            report.say(format_args!("held, token {token}"));
            report.print()?;
        }
    }
    Ok(())
}
