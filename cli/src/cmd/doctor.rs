//! `leasehold doctor`

use std::process::ExitCode;
use std::time::Duration;

use leasehold::backend::{Feature, Fencing, Finding, Verdict};
use leasehold::{Error, ErrorKind, LockClient, LockKey, LockOptions};
use serde_json::json;
use tokio::time::Instant;

use crate::args::Backend;
use crate::exit::{self, Failure};
use crate::{out, time};

/// Locks that are taken to measure one.
const ROUNDS: usize = 5;

/// Looks whether a store serves locks, and whether its settings are right for them.
///
/// Takes and releases a lock of its own. Some settings can be seen only by users with more rights than locks need.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    /// The store, instead of that of --backend or LEASEHOLD_BACKEND.
    #[arg(value_name = "URL")]
    store: Option<String>,
}

const HELP: &str = "\
Exit status: 0 if locks work there, also with warnings; 1 if something fails; 69 if the store cannot
be reached, 77 if it refuses the user or the password, 64 if the command line makes no sense.";

/// The findings, told as they come.
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
    let url = args.backend.url_or(args.store.as_deref())?;
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
    locks(&client, &mut findings).await?;
    operators(&client, &mut findings).await?;
    drop(client.shutdown(crate::obtain::GOODBYE).await);
    Ok(if findings.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tells what the servers say about themselves, through the client's own connections.
async fn servers(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    let found = match client.backend().diagnose().await {
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

/// Tells which TTLs the store takes. Some servers are configured for less than the usual one.
fn ttls(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    let store = client.backend().capabilities();
    let (min, max) = (time::show(store.min_ttl()), time::show(store.max_ttl()));
    if store.max_ttl() < LockOptions::DEFAULT_TTL {
        let usual = time::show(LockOptions::DEFAULT_TTL);
        let said = format!("{min} to {max}; a lock without --ttl has {max} instead of {usual}");
        return findings.tell(Verdict::Warning, "ttl", said);
    }
    findings.tell(Verdict::Ok, "ttl", format_args!("{min} to {max}"))
}

/// Tells how far the store's tokens can be relied on.
fn tokens(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    match client.backend().capabilities().fencing() {
        Fencing::Strict => findings.tell(Verdict::Ok, "fencing tokens", "strictly increasing"),
        Fencing::BestEffort => findings.tell(
            Verdict::Ok,
            "fencing tokens",
            "increasing while the store keeps its data and its clock does not go back",
        ),
        _ => findings.tell(Verdict::Warning, "fencing tokens", "they mean nothing on this store"),
    }
}

/// A key that no user names.
fn scratch() -> LockKey {
    let name = format!("leasehold-doctor/{}", std::process::id());
    LockKey::new(name).expect("it is short and plain")
}

/// Takes and releases a lock a few times.
async fn locks(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
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
                return findings.tell(Verdict::Failed, "locks", "a free one is busy");
            }
            Err(error) => return findings.tell_error("locks", &error),
        }
    }
    times.sort();
    let median = times[ROUNDS / 2];
    findings.tell(Verdict::Ok, "locks", format_args!("taken and released in {median:.1?}"))
}

/// Tries the verbs of operators on a lock that is free.
async fn operators(client: &LockClient, findings: &mut Findings) -> Result<(), Failure> {
    let store = client.backend().capabilities();
    for (check, feature) in [
        ("status", Feature::Inspect),
        ("release --ask", Feature::Revocation),
        ("release --force", Feature::ForceRelease),
    ] {
        let done = match feature {
            Feature::Inspect => client.admin().inspect(scratch()).await.map(drop),
            Feature::Revocation => client.request_revocation(scratch()).await.map(drop),
            _ => client.admin().force_release(scratch(), "leasehold doctor").await.map(drop),
        };
        match done {
            Ok(()) => findings.tell(Verdict::Ok, check, "works")?,
            Err(error) if error.kind() == ErrorKind::Unsupported && !store.supports(feature) => {
                findings.tell(Verdict::Warning, check, "this store cannot do it")?;
            }
            Err(error) => findings.tell_error(check, &error)?,
        }
    }
    Ok(())
}
