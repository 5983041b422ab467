//! The operations, each one transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Capabilities, Error, Feature, Fencing};
use leasehold_sql_support::mysql::{Statements, Survey, has_all_stripes};
use leasehold_sql_support::remote::{Rows, Statements as _, Text};
use leasehold_sql_support::reply::{
    Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed,
};
use leasehold_sql_support::request::{Acquire, Key, Named, Renew};
use leasehold_sql_support::{Database, Failure, News};
use tokio::time::{Instant, timeout_at};

use crate::config::{MysqlConfig, Source};
use crate::connector::Connector;
use crate::error::{BACKEND, RunError};
use crate::pool::Pool;
use crate::run::{Run, Urgency};
use crate::under_way::UnderWay;

/// A MySQL or MariaDB database that keeps leases.
pub struct Mysql {
    run: Arc<dyn Run>,
    under_way: UnderWay,
    statements: Statements,
    timeout: Duration,
    capabilities: Capabilities,
    news: News,
}

impl Mysql {
    async fn ask(&self, text: Text) -> Result<Rows, Error> {
        let rows = run(&*self.run, &text, Urgency::Asks, self.timeout).await;
        rows.map_err(RunError::into_error)
    }

    /// Asks for leases in a task, which goes on if the caller does not: a release on another connection must not overtake it.
    async fn acquire_to_the_end(&self, claims: &[Acquire], text: Text) -> Result<Rows, Error> {
        let (runs, limit) = (Arc::clone(&self.run), self.timeout);
        let under_way = self.under_way.begin(claims.iter().map(|claim| claim.lease.tag));
        let asking = tokio::spawn(async move {
            let rows = run(&*runs, &text, Urgency::Asks, limit).await;
            drop(under_way);
            rows
        });
        // An error means that the runtime has ended.
        let rows = asking.await.unwrap_or_else(|error| Err(RunError::no_reply(error)));
        rows.map_err(RunError::into_error)
    }

    /// Renews one lease after the other, within the time that is left.
    async fn renew_each(&self, leases: &[Renew], give_up: Instant) -> Vec<Result<Renewed, Error>> {
        let mut renewed = Vec::with_capacity(leases.len());
        for lease in leases {
            let lease = std::slice::from_ref(lease);
            let left = give_up.saturating_duration_since(Instant::now());
            let rows = self.run.run(&self.statements.renew(lease), Urgency::Renews, left).await;
            let rows = rows.map(Rows).map_err(RunError::into_error);
            let one = rows.and_then(|rows| rows.renewed(lease));
            renewed.push(one.map(|mut one| one.remove(0)));
        }
        renewed
    }
}

#[async_trait]
impl Database for Mysql {
    type Config = MysqlConfig;

    const NAME: &str = BACKEND;

    fn read_url(url: &str) -> Result<MysqlConfig, Error> {
        MysqlConfig::from_url(url)
    }

    async fn open(config: MysqlConfig) -> Result<Self, Error> {
        let run: Arc<dyn Run> = match &config.source {
            Source::Own(options) => {
                let connector = Connector::new((**options).clone());
                Arc::new(Pool::new(connector, config.connections))
            }
            Source::Theirs(run) => Arc::clone(run),
        };
        let statements = Statements::new(&config.layout()?, config.clock.as_deref());
        let survey = ready(&*run, &config, &statements).await.map_err(RunError::into_error)??;
        if survey.is_in_cluster {
            tracing::warn!("a node of a Galera cluster: all clients must write to the same one");
        }
        let capabilities = capabilities(survey);
        let (under_way, timeout) = (UnderWay::default(), config.timeout);
        Ok(Self { run, under_way, statements, timeout, capabilities, news: News::local() })
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn news(&self) -> &News {
        &self.news
    }

    async fn acquire(&self, claim: Acquire) -> Result<Acquired, Error> {
        let text = self.statements.acquire(&claim);
        self.acquire_to_the_end(&[claim], text).await?.acquired()
    }

    async fn acquire_all(&self, claims: Vec<Acquire>) -> Result<AcquiredAll, Error> {
        let text = self.statements.acquire_all(&claims);
        self.acquire_to_the_end(&claims, text).await?.acquired_all(claims.len())
    }

    async fn renew(&self, leases: Vec<Renew>) -> Vec<Result<Renewed, Error>> {
        let give_up = Instant::now() + self.timeout;
        let text = self.statements.renew(&leases);
        let rows = self.run.run(&text, Urgency::Renews, self.timeout).await;
        match rows.map(Rows) {
            Ok(rows) => match rows.renewed(&leases) {
                Ok(renewed) => renewed.into_iter().map(Ok).collect(),
                Err(error) => leases.iter().map(|_| Err(error.repeated())).collect(),
            },
            Err(error) if error.is_conflict() => self.renew_each(&leases, give_up).await,
            Err(error) => {
                let error = error.into_error();
                leases.iter().map(|_| Err(error.repeated())).collect()
            }
        }
    }

    async fn release(&self, lease: Named) -> Result<Released, Error> {
        let give_up = Instant::now() + self.timeout;
        if let Err(elapsed) = timeout_at(give_up, self.under_way.ended(lease.tag)).await {
            return Err(RunError::not_sent(elapsed).into_error());
        }
        let left = give_up.saturating_duration_since(Instant::now());
        let rows = run(&*self.run, &self.statements.release(&lease), Urgency::Releases, left).await;
        rows.map_err(RunError::into_error)?.released()
    }

    async fn request_revocation(&self, key: Key) -> Result<Asked, Error> {
        self.ask(self.statements.request_revocation(&key)).await?.asked()
    }

    async fn force_release(&self, key: Key) -> Result<Forced, Error> {
        self.ask(self.statements.force_release(&key)).await?.forced()
    }

    async fn inspect(&self, key: Key) -> Result<Inspected, Error> {
        self.ask(self.statements.inspect(&key)).await?.inspected()
    }

    async fn close(&self) {
        self.run.close().await;
    }
}

/// How often a text is run at most. InnoDB rolls back a victim as a whole, and in a crowd the same one a few times in a row.
const TRIES: usize = 5;

/// Runs a text, and again if it was rolled back because of another.
async fn run(
    run: &dyn Run,
    text: &Text,
    urgency: Urgency,
    limit: Duration,
) -> Result<Rows, RunError> {
    let give_up = Instant::now() + limit;
    for _ in 1..TRIES {
        let left = give_up.saturating_duration_since(Instant::now());
        match run.run(text, urgency, left).await {
            Err(error) if error.is_conflict() => {}
            rows => return rows.map(Rows),
        }
    }
    let left = give_up.saturating_duration_since(Instant::now());
    run.run(text, urgency, left).await.map(Rows)
}

/// Looks what kind of server it is, and makes the tables if they are missing and may be made.
async fn ready(
    run: &dyn Run,
    config: &MysqlConfig,
    statements: &Statements,
) -> Result<Result<Survey, Error>, RunError> {
    let run = async |text: Text| run.run(&text, Urgency::Asks, config.timeout).await.map(Rows);
    let survey = Survey::read(&run(statements.survey()).await?);
    let attempt = match run(statements.attempt()).await {
        Err(error) if error.is_missing_table() && config.create_tables => {
            run(statements.install()).await?;
            run(statements.attempt()).await?
        }
        attempt => attempt?,
    };
    Ok(match has_all_stripes(&attempt) {
        Ok(true) => Ok(survey),
        Ok(false) => Err(Failure::Layout.error("stripes are missing: run the migration")),
        Err(error) => Err(error),
    })
}

fn capabilities(survey: Survey) -> Capabilities {
    let keeps_all = survey.is_durable && !survey.is_in_cluster;
    let fencing = if keeps_all { Fencing::Strict } else { Fencing::BestEffort };
    Capabilities::new(BACKEND, fencing)
        .with(Feature::ForceRelease)
        .with(Feature::Inspect)
        .with(Feature::Queue)
        .with(Feature::Revocation)
        .with(Feature::SpareTokens)
        .with(Feature::Together)
        .with(Feature::Units)
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mysql")
            .field("run", &self.run)
            .field("statements", &self.statements)
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}
