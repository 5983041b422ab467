//! `leasehold watch`

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use leasehold::admin::Inspection;
use leasehold::backend::KeyWatch;
use leasehold::backend::Subject;
use leasehold::{Error, Holder, LockClient};
use tokio::time::{sleep, timeout};

use crate::exit::Failure;
use crate::help::Help;
use crate::key::Key;
use crate::obtain::holders_to_json;
use crate::store::Backend;
use crate::{out, time};

/// How often to inspect the lock if the store does not send change events, or if events are lost.
const LOOK: Duration = Duration::from_secs(1);

/// The shortest pause between two inspections, so that a busy lock does not load the store.
const PAUSE: Duration = Duration::from_millis(50);

/// Shows the holders of a lock and every change, until interrupted.
///
/// Each line starts with the time in UTC. The first line shows the current state. If two changes occur within milliseconds of each other, the
/// first may be missed. If the store is unreachable, the command prints a message to stderr and continues.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the lock. Put `--` before a name that starts with `-`.
    key: OsString,

    #[command(flatten)]
    backend: Backend,

    /// Exit as soon as the lock is free.
    #[arg(long, help_heading = "Waiting")]
    until_free: bool,

    /// Exit after this time. With --until-free, exit with status 75 if the lock is still held.
    #[arg(long, short, value_name = "TIME", value_parser = time::parse, help_heading = "Waiting")]
    wait: Option<time::Time>,
}

pub(crate) const HELP: Help = Help {
    sections: &[("Times", crate::cmd::run::TIMES)],
    status: "\
0    the --wait time has passed, the reader of the output has exited, or
     the lock is free (--until-free)
75   the lock is still held after --wait (--until-free)",
    examples: "\
leasehold watch nightly
leasehold watch --until-free --wait 1h nightly && ./after-the-report.sh",
    ..Help::CONNECTING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let key = Key::new(&args.key)?;
    let client = args.backend.connect().await?;
    let watched = Watched { client: &client, key: &key, until_free: args.until_free };
    let Some(limit) = args.wait.map(|wait| wait.span) else { return watched.follow().await };
    match timeout(limit, watched.follow()).await {
        Ok(ended) => ended,
        Err(_elapsed) if args.until_free => {
            let message = format!("{} is still locked after {}", key.quoted(), time::show(limit));
            Err(Failure::new(crate::exit::BUSY, message).with_details(out::json_of(&key)))
        }
        Err(_elapsed) => Ok(ExitCode::SUCCESS),
    }
}

struct Watched<'a> {
    client: &'a LockClient,
    key: &'a Key,
    until_free: bool,
}

impl Watched<'_> {
    async fn follow(&self) -> Result<ExitCode, Failure> {
        let (mut told, mut is_silent) = (None, false);
        // Subscribes before the first inspection, so that no change is missed in between.
        let mut news = self.client.backend().watch(Subject::Key(self.key.as_lock_key()));
        loop {
            let seen = match self.look().await {
                Ok(seen) => {
                    is_silent = false;
                    seen
                }
                Err(error) if error.is_retryable() => {
                    if !is_silent {
                        out::note(crate::exit::with_causes(&error));
                    }
                    is_silent = true;
                    sleep(LOOK).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let line = self.line(&seen);
            // An equal line means that nothing has changed.
            if told.as_ref() != Some(&line) {
                if !out::print_on(&with_time(&line))? {
                    return Ok(ExitCode::SUCCESS);
                }
                told = Some(line);
            }
            if self.until_free && !seen.is_held() {
                return Ok(ExitCode::SUCCESS);
            }
            self.changed(&mut news, &seen).await;
        }
    }

    async fn look(&self) -> Result<Inspection, Error> {
        self.client.admin().inspect(self.key.as_lock_key()).await
    }

    /// Waits for a change event, for the first lease to expire, or for the next inspection.
    async fn changed(&self, news: &mut KeyWatch, seen: &Inspection) {
        let next_end = seen.holders().iter().filter_map(Holder::remaining).min();
        let look = next_end.map_or(LOOK, |left| left.min(LOOK)).max(PAUSE);
        drop(timeout(look, news.changed()).await);
        sleep(PAUSE).await;
    }

    /// The line to print, without parts that change all the time, such as the remaining time.
    fn line(&self, seen: &Inspection) -> Vec<u8> {
        if out::style().json {
            let mut told = out::json_of(self.key);
            told["held"] = seen.is_held().into();
            told["holders"] = holders_to_json(seen.holders());
            for holder in told["holders"].as_array_mut().into_iter().flatten() {
                if let Some(holder) = holder.as_object_mut() {
                    holder.remove("remaining_ms");
                    holder.remove("held_for_ms");
                }
            }
            return format!("{told}\n").into_bytes();
        }
        let mut report = out::Report::new(self.key);
        if !seen.is_held() {
            report.say("free");
        }
        for holder in seen.holders() {
            report.say(format_args!("held by {}", holder.label()));
        }
        report.into_bytes()
    }
}

/// Adds the current time to the lines of a change.
fn with_time(lines: &[u8]) -> Vec<u8> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now());
    let mut timed = Vec::new();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_prefix(b"{") {
            Some(rest) if out::style().json => {
                timed.extend_from_slice(format!("{{\"time\":\"{now}\",").as_bytes());
                timed.extend_from_slice(rest);
            }
            _ => {
                timed.extend_from_slice(format!("{now} ").as_bytes());
                timed.extend_from_slice(line);
            }
        }
    }
    timed
}
