//! The operations, each one transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::{Capabilities, Error, Feature, Fencing};
use leasehold_sql_support::postgres::{Statements, Survey};
use leasehold_sql_support::remote::{Rows, Statements as _, Text};
use leasehold_sql_support::reply::{
    Acquired, AcquiredAll, Asked, Forced, Inspected, Released, Renewed,
};
use leasehold_sql_support::request::{Acquire, Key, Named, Renew};
use leasehold_sql_support::{Database, Failure, News};
use tokio::time::{Instant, timeout_at};

use crate::config::{PostgresConfig, Source};
use crate::connector::Connector;
use crate::error::{BACKEND, RunError, invalid};
use crate::listener::Listener;
use crate::pool::Pool;
use crate::run::{Run, Urgency};
use crate::under_way::UnderWay;

/// A PostgreSQL database that keeps leases.
pub struct Postgres {
    run: Arc<dyn Run>,
    under_way: UnderWay,
    statements: Statements,
    timeout: Duration,
    capabilities: Capabilities,
    news: News,
    listener: Option<Arc<Listener>>,
}

impl Postgres {
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
impl Database for Postgres {
    type Config = PostgresConfig;

    const NAME: &str = BACKEND;

    fn read_url(url: &str) -> Result<PostgresConfig, Error> {
        PostgresConfig::from_url(url)
    }

    async fn open(config: PostgresConfig) -> Result<Self, Error> {
        let (run, connector) = connections(&config);
        let named = config.layout(config.schema.as_deref())?;
        let survey = ready(&*run, &config, &Statements::new(&named, None)).await?;
        let schema = survey.schema.ok_or_else(|| {
            Failure::Layout.error("the user's search path has no schema: name one")
        })?;
        let layout = config.layout(Some(&schema)).map_err(|_| {
            invalid("the name of the tables' schema has other characters than a-z 0-9 _")
        })?;
        let statements = Statements::new(&layout, config.clock.as_deref());
        let (listener, news) = match connector {
            Some(connector) if config.push => {
                let listen = statements.listen();
                let (listener, news) = Listener::start(connector, listen, config.timeout);
                (Some(listener), news)
            }
            _ => (None, News::local()),
        };
        let capabilities = capabilities(survey.is_durable, news.hears_others());
        let timeout = config.timeout;
        let under_way = UnderWay::default();
        Ok(Self { run, under_way, statements, timeout, capabilities, news, listener })
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
        if let Some(listener) = &self.listener {
            listener.stop();
        }
        self.run.close().await;
    }
}

/// Runs a text, and once more if it was rolled back because of another.
async fn run(
    runs: &dyn Run,
    text: &Text,
    urgency: Urgency,
    limit: Duration,
) -> Result<Rows, RunError> {
    let give_up = Instant::now() + limit;
    let rows = match runs.run(text, urgency, limit).await {
        Err(error) if error.is_conflict() => {
            let left = give_up.saturating_duration_since(Instant::now());
            runs.run(text, urgency, left).await
        }
        rows => rows,
    };
    rows.map(Rows)
}

fn connections(config: &PostgresConfig) -> (Arc<dyn Run>, Option<Arc<Connector>>) {
    match &config.source {
        Source::Own { options, tls } => {
            let connector = Arc::new(Connector::new(options, tls.clone(), config.timeout));
            let pool = Pool::new(Arc::clone(&connector), config.connections);
            (Arc::new(pool), Some(connector))
        }
        Source::Theirs(run) => (Arc::clone(run), None),
    }
}

/// Looks what there is, and makes the tables if they are missing and may be made.
async fn ready(
    run: &dyn Run,
    config: &PostgresConfig,
    statements: &Statements,
) -> Result<Survey, Error> {
    let look = async || {
        let rows = run.run(&statements.survey(), Urgency::Asks, config.timeout).await;
        Survey::read(&rows.map(Rows).map_err(RunError::into_connecting)?)
    };
    let mut survey = look().await?;
    if !survey.has_tables && config.create_tables {
        let made = run.run(&statements.install(), Urgency::Asks, config.timeout).await;
        made.map_err(RunError::into_connecting)?;
        survey = look().await?;
    }
    if !survey.has_tables {
        return Err(Failure::Layout.error("the tables are missing: run the migration"));
    }
    if !survey.has_rights {
        let message = "the database's user lacks a right: SELECT and UPDATE on the table of stripes, \
                       SELECT, INSERT, UPDATE and DELETE on that of leases";
        return Err(Failure::Denied.error(message));
    }
    Ok(survey)
}

fn capabilities(is_durable: bool, hears_others: bool) -> Capabilities {
    let fencing = if is_durable { Fencing::Strict } else { Fencing::BestEffort };
    let capabilities = Capabilities::new(BACKEND, fencing)
        .with(Feature::ForceRelease)
        .with(Feature::Inspect)
        .with(Feature::Queue)
        .with(Feature::Revocation)
        .with(Feature::SpareTokens)
        .with(Feature::Together)
        .with(Feature::Units);
    if hears_others { capabilities.with(Feature::Push) } else { capabilities }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("run", &self.run)
            .field("statements", &self.statements)
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}
