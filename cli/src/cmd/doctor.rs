//! `leasehold doctor`

use std::process::ExitCode;
use std::time::Duration;

use leasehold::backend::{Fencing, Finding, Verdict};
use leasehold::{Error, ErrorKind, LockClient, LockKey, LockOptions};
use serde_json::json;
use tokio::time::Instant;

use crate::exit::{self, Failure};
use crate::help::Help;
use crate::store::Backend;
use crate::{out, time};

/// How many locks are acquired to measure the time.
const ROUNDS: usize = 5;

/// Checks whether locks work in a store, and whether the store's settings are safe.
///
/// Acquires and releases a lock with a name that no one else uses. Some settings are visible only to users with more permissions than locks
/// require.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,
}

pub(crate) const HELP: Help = Help {
    status: "0    locks work, possibly with warnings\n1    a check failed",
    examples: "leasehold doctor --backend redis://127.0.0.1",
    ..Help::CONNECTING
};

/// Prints findings, and notices whether a check failed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    has_failed: bool,
}

impl Findings {
    pub(crate) fn tell(
        &mut self,
        verdict: Verdict,
        check: &str,
        said: impl std::fmt::Display,
    ) -> Result<(), Failure> {
        self.has_failed |= !matches!(verdict, Verdict::Ok | Verdict::Warning);
        let (word, mark) = match verdict {
            Verdict::Ok => ("ok", "ok     "),
            Verdict::Warning => ("warning", "WARNING"),
            _ => ("failed", "FAILED "),
        };
        if out::style().json {
            return out::print_json(
                &json!({ "check": check, "verdict": word, "said": said.to_string() }),
            );
        }
        out::print(format!("{mark}  {check}: {said}\n").as_bytes())
    }

    fn tell_error(&mut self, check: &str, error: &Error) -> Result<(), Failure> {
        self.tell(Verdict::Failed, check, exit::with_causes(error))
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let url = args.backend.url()?;
    let backend = Backend::named(&url);
    let began = Instant::now();
    let client = backend.connect().await?;
    let took = began.elapsed();

    let mut findings = Findings::default();
    let name = client.backend().capabilities().name();
    findings.tell(Verdict::Ok, "reachable", format_args!("{name}, connected in {took:.1?}"))?;
    servers(&client, &mut findings).await?;
    ttls(&client, &mut findings)?;
    tokens(&client, &mut findings)?;
    let are_granted = locks(&client, &mut findings).await?;
    operators(&client, are_granted, &mut findings).await?;
    drop(client.shutdown(crate::obtain::GOODBYE).await);
    Ok(if findings.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reports the settings of the servers, which are read through the connections of the client.
async fn servers(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    let Some(admin) = client.backend().admin() else { return Ok(()) };
    let found = match admin.diagnose().await {
        Ok(found) => found,
        Err(error) => {
            let said = exit::with_causes(&error);
            return findings.tell(Verdict::Warning, "settings", said);
        }
    };
    if found.is_empty() {
        return findings.tell(Verdict::Ok, "settings", "not checked on this store");
    }
    found.iter().try_for_each(|finding| {
        findings.tell(finding.verdict(), &check_of(finding), finding.message())
    })
}

/// The name of a check, with the server if there are several.
fn check_of(finding: &Finding) -> String {
    match finding.server() {
        Some(server) => format!("{} of {server}", finding.check()),
        None => finding.check().to_owned(),
    }
}

/// Reports the supported TTLs. Some servers are configured for less than the default.
fn ttls(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    let store = client.backend().capabilities();
    let min = time::show(store.min_ttl().max(LockOptions::MIN_TTL));
    let max = time::show(store.max_ttl());
    if store.max_ttl() < LockOptions::DEFAULT_TTL {
        let usual = time::show(LockOptions::DEFAULT_TTL);
        let said = format!("{min} to {max}; the default is {max} instead of {usual}");
        return findings.tell(Verdict::Warning, "ttl", said);
    }
    findings.tell(Verdict::Ok, "ttl", format_args!("{min} to {max}"))
}

/// Reports when the fencing tokens of the store can be relied on.
fn tokens(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    match client.backend().capabilities().fencing() {
        Fencing::Strict => findings.tell(Verdict::Ok, "fencing tokens", "strictly increasing"),
        Fencing::BestEffort => findings.tell(
            Verdict::Ok,
            "fencing tokens",
            "increasing, unless the store loses data and its clock is set back",
        ),
        _ => findings.tell(Verdict::Warning, "fencing tokens", "not supported by this store"),
    }
}

/// A key that no user chooses.
fn scratch() -> LockKey {
    let name = format!("leasehold-doctor/{}", std::process::id());
    LockKey::new(name).expect("the name is valid")
}

/// Acquires and releases a lock several times. Returns whether the store granted each lock.
async fn locks(client: &LockClient, findings: &mut Findings) -> Result<bool, Failure> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let locked = async {
            let guard = client.mutex(scratch())?.try_lock_for(Duration::from_secs(5)).await;
            match guard {
                Ok(guard) => guard.release().await.map(|()| true),
                Err(error) => error.into_busy().map(|_busy| false),
            }
        };
        match locked.await {
            Ok(true) => times.push(began.elapsed()),
            Ok(false) => {
                findings.tell(Verdict::Failed, "locks", "a free lock is reported as busy")?;
                return Ok(false);
            }
            Err(error) => {
                findings.tell_error("locks", &error)?;
                return Ok(false);
            }
        }
    }
    times.sort();
    let median = times[ROUNDS / 2];
    findings.tell(Verdict::Ok, "locks", format_args!("acquired and released in {median:.1?}"))?;
    Ok(true)
}

/// A request for operators.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Check {
    Inspect,
    RequestRevocation,
    ForceRelease,
}

/// Tries the subcommands for operators on a free lock, which requires no write. If the store grants no locks, this does not show whether a
/// release would work.
async fn operators(
    client: &LockClient,
    are_granted: bool,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let checks = [
        ("status", Check::Inspect),
        ("release --ask", Check::RequestRevocation),
        ("release --force", Check::ForceRelease),
    ];
    for (name, check) in checks {
        if !are_granted && check != Check::Inspect {
            findings.tell(
                Verdict::Warning,
                name,
                "not checked, because the check of locks failed",
            )?;
            continue;
        }
        let done = match check {
            Check::Inspect => client.admin().inspect(scratch()).await.map(drop),
            Check::RequestRevocation => client.request_revocation(scratch()).await.map(drop),
            Check::ForceRelease => {
                client.admin().force_release(scratch(), "leasehold doctor").await.map(drop)
            }
        };
        match done {
            Ok(()) => findings.tell(Verdict::Ok, name, "works")?,
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                findings.tell(Verdict::Warning, name, "not supported by this store")?;
            }
            Err(error) => findings.tell_error(name, &error)?,
        }
    }
    Ok(())
}
