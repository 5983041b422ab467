//! The options for the properties of a lease.

use std::time::Duration;

use clap::Args as ClapArgs;
use leasehold::{Description, Error, LockClient, LockOptions};

use crate::exit::Failure;
use crate::obtain::WaitArgs;
use crate::time::{self, Time};

/// The properties of a lease.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Lease")]
pub(crate) struct LeaseArgs {
    /// How long the store keeps the lock after this process dies.
    ///
    /// [default: 30s, or less if the store's maximum is lower]
    #[arg(long, value_name = "TIME", value_parser = time::parse, env = "LEASEHOLD_TTL")]
    ttl: Option<Time>,

    /// Keep the lock for at least this long, even if the command exits sooner.
    ///
    /// With --min-hold and --no-wait, a cron job on many machines runs only once. The time must be longer than the maximum clock skew
    /// between the machines. If this process is killed, the lock expires after its TTL, even if --min-hold is longer.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    min_hold: Option<Time>,

    /// Stop the command if it holds the lock for longer than this time.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    max_hold: Option<Time>,

    /// After a crash or a network failure, keep the lock for this additional time after its TTL, so that late requests from the command
    /// arrive before the next holder's requests.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time::parse)]
    lock_delay: Time,
}

impl LeaseArgs {
    /// The options of the library. They do not include `--max-hold`, because the lease is renewed until the command has ended.
    ///
    /// # Errors
    ///
    /// Fails if the store does not support a time. The message names the option, unlike a message of the library.
    pub(crate) fn options(
        &self,
        client: &LockClient,
        wait: &WaitArgs,
    ) -> Result<LockOptions, Failure> {
        self.check(client)?;
        let mut options = client.options().fair(wait.fair).lock_delay(self.lock_delay.span);
        if let Some(ttl) = &self.ttl {
            options = options.ttl(ttl.span);
        }
        if let Some(time) = &self.min_hold {
            options = options.min_hold(time.span);
        }
        if let Some(wait) = wait.limit() {
            // `--wait` also limits the wait for a store that is down.
            options = options.outage_wait(wait);
        }
        Ok(options)
    }

    fn check(&self, client: &LockClient) -> Result<(), Failure> {
        let store = client.backend().capabilities();
        let (min, max) = (store.min_ttl().max(LockOptions::MIN_TTL), store.max_ttl());
        let (name, min_text, max_text) = (store.name(), time::show(min), time::show(max));
        let range = format!("{name} supports {min_text} to {max_text}");
        let limit = format!("{name} keeps a lock for at most {max_text}");
        let refused = |option: &str, time: &Time, fault: &str, why: &str| {
            Err(Failure::usage(format!("{option} {time} is too {fault}: {why}")))
        };
        match (&self.ttl, &self.min_hold, &self.max_hold) {
            (Some(ttl), ..) if ttl.span < min => refused("--ttl", ttl, "short", &range),
            (Some(ttl), ..) if ttl.span > max => refused("--ttl", ttl, "long", &range),
            (_, Some(least), _) if least.span > max => refused("--min-hold", least, "long", &limit),
            (_, _, Some(most)) if most.span.is_zero() => {
                refused("--max-hold", most, "short", "the command could not run")
            }
            (_, Some(least), Some(most)) if least.span > most.span => {
                refused("--min-hold", least, "long", &format!("--max-hold is {most}"))
            }
            _ if self.ttl(client).saturating_add(self.lock_delay.span) > max => {
                let why = format!("{limit}, including the TTL");
                refused("--lock-delay", &self.lock_delay, "long", &why)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn ttl(&self, client: &LockClient) -> Duration {
        let longest = client.backend().capabilities().max_ttl();
        self.ttl.as_ref().map_or(LockOptions::DEFAULT_TTL.min(longest), |ttl| ttl.span)
    }

    pub(crate) fn max_hold(&self) -> Option<Duration> {
        self.max_hold.as_ref().map(|time| time.span)
    }
}

/// The description in the value of `option`.
pub(crate) fn description(text: &str, option: &str) -> Result<Description, Failure> {
    Description::new(text.to_owned())
        .map_err(|error: Error| Failure::usage(format!("invalid value for {option}: {error}")))
}
