//! Prepares the driver for a PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::Fencing;
use leasehold_sql_support::postgres::{KeyTable, Statements, Survey, migration};
use leasehold_sql_support::remote::{
    Driver, Execute, Hears, Opened, Rows, RunError, Settings, check_old_leases,
};
use leasehold_sql_support::{Call, Failure, Layout, News};

use crate::connector::Connector;
use crate::listener::Listener;
use crate::pooler::forwards_notifications;
use crate::servers::Servers;

/// The driver for a PostgreSQL database, based on the `tokio-postgres` crate.
///
/// [`PostgresBackend`](crate::PostgresBackend) uses this driver. The crate's example shows how to
/// connect to a server.
#[derive(Debug)]
pub struct Postgres {
    listener: Option<Arc<Listener>>,
}

impl Hears for Postgres {}

#[async_trait]
impl Driver for Postgres {
    const NAME: &'static str = "postgres";

    /// A transaction takes milliseconds if the database is in the same region, so this limit is
    /// generous.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    type Servers = Servers;
    type Connector = Connector;

    fn read_url(url: &str, settings: &mut Settings) -> Result<Servers, Error> {
        Servers::from_url(url, settings)
    }

    fn migration(layout: &Layout) -> String {
        migration(layout)
    }

    fn connector(servers: Servers, timeout: Duration) -> Connector {
        Connector::new(servers, timeout)
    }

    async fn open(
        run: &dyn Execute,
        connector: Option<Arc<Connector>>,
        settings: &Settings,
    ) -> Result<Opened<Self>, Error> {
        let survey = ready(run, settings).await?;
        let layout = &settings.layout;
        let statements = Statements::new(layout);
        let clock = settings.clock.as_ref().map(|query| format!("({query})"));
        let table = KeyTable::new(layout, clock.as_deref());
        let table = if survey.has_all_characters { table } else { table.with_escaped_texts() };
        let table = if settings.lazy_releases { table.with_lazy_releases() } else { table };
        let (listener, news) = match connector {
            Some(connector) if settings.push && hears(&connector, settings.timeout).await => {
                let listen = statements.listen();
                let (listener, news) = Listener::start(connector, listen, settings.timeout);
                (Some(listener), news)
            }
            _ => (None, News::local()),
        };
        let fencing = if survey.is_durable { Fencing::Strict } else { Fencing::BestEffort };
        Ok(Opened { driver: Self { listener }, table: Arc::new(table), fencing, news })
    }

    fn close(&self) {
        if let Some(listener) = &self.listener {
            listener.stop();
        }
    }
}

/// Returns whether the client can be notified by other clients.
async fn hears(connector: &Connector, limit: Duration) -> bool {
    if !connector.is_pooled() {
        return true;
    }
    let mut hears = forwards_notifications(connector, limit).await;
    if hears.is_err() {
        // The connection may have been lost.
        hears = forwards_notifications(connector, limit).await;
    }
    let hears = hears.unwrap_or(false);
    if !hears {
        tracing::warn!(
            "the connection pooler does not forward notifications, so waiters will poll; connect to the server \
             directly or to a pooler in session mode, or set push=off in the URL"
        );
    }
    hears
}

/// Creates the tables if they are missing and `settings` allows creating them.
async fn ready(run: &dyn Execute, settings: &Settings) -> Result<Survey, Error> {
    let rows = async |call: Call| {
        let reply = run.execute(&call).await;
        reply.map(|reply| Rows(reply.rows)).map_err(RunError::harmless)
    };
    let statements = Statements::new(&settings.layout);
    let mut survey = Survey::read(&rows(statements.survey()).await?)?;
    if settings.layout.schema().is_none() {
        check_other_schema(&survey)?;
    }
    if !survey.has_tables && settings.create_tables {
        if !survey.may_create {
            return Err(Failure::Denied.error(CANNOT_CREATE));
        }
        rows(statements.install()).await?;
        survey = Survey::read(&rows(statements.survey()).await?)?;
    }
    if !survey.has_tables {
        return Err(Failure::Missing.error(Failure::Missing.message()));
    }
    if !survey.has_rights {
        let message = "the database user lacks a permission; as an administrator, run the statements that \
                       `leasehold acl` prints";
        return Err(Failure::Denied.error(message));
    }
    if survey.has_old_leases {
        check_old_leases(run, &statements.old_leases()).await?;
    }
    Ok(survey)
}

/// Checks that the tables are not in another schema, because clients of two sets of tables could hold
/// the same lock at the same time.
///
/// Another application may have tables in a schema that its URL names, so a second set is only refused
/// if this user's earlier clients could have used the other set.
fn check_other_schema(survey: &Survey) -> Result<(), Error> {
    match &survey.other_schema {
        Some(other) if survey.is_other_of_user || !survey.has_tables => {
            let message = format!(
                "the database has tables of Leasehold in the schema \"{other}\"; to use these tables, add schema={other} \
                 to the URL of every client; to use tables in the schema \"public\", add schema=public"
            );
            Err(Failure::Layout.error(message))
        }
        _ => Ok(()),
    }
}

const CANNOT_CREATE: &str = "the database user lacks the permission to create tables in the schema; add schema=NAME to the URL, with \
     a schema in which the user can create tables, or, as an administrator, run the statements that `leasehold tables` and \
     `leasehold acl` print";
