//! Prepares the driver for a PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::Fencing;
use leasehold_sql_support::postgres::{Statements, Survey, migration};
use leasehold_sql_support::remote::{
    Driver, Hears, Opened, Rows, Run, RunError, Settings, Text, Urgency, invalid,
};
use leasehold_sql_support::{Failure, Layout, News};

use crate::connector::Connector;
use crate::listener::Listener;
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
        run: &dyn Run,
        connector: Option<Arc<Connector>>,
        settings: &Settings,
    ) -> Result<Opened<Self>, Error> {
        let survey = ready(run, settings).await?;
        let schema = survey.schema.ok_or_else(|| {
            Failure::Layout.error("the user's search path does not contain a schema; add one to it")
        })?;
        let layout = settings
            .layout
            .clone()
            .in_schema(schema)
            .map_err(|_| invalid("the schema of the tables may contain only a-z, 0-9 and _"))?;
        let statements = Statements::new(&layout, settings.clock.as_deref());
        let (listener, news) = match connector {
            Some(connector) if settings.push => {
                let listen = statements.listen();
                let (listener, news) = Listener::start(connector, listen, settings.timeout);
                (Some(listener), news)
            }
            _ => (None, News::local()),
        };
        let fencing = if survey.is_durable { Fencing::Strict } else { Fencing::BestEffort };
        Ok(Opened { driver: Self { listener }, statements: Box::new(statements), fencing, news })
    }

    fn close(&self) {
        if let Some(listener) = &self.listener {
            listener.stop();
        }
    }
}

/// Creates the tables if they are missing and `settings` allows creating them.
async fn ready(run: &dyn Run, settings: &Settings) -> Result<Survey, Error> {
    let run = async |text: Text| {
        let rows = run.run(&text, Urgency::Asks, settings.timeout).await;
        rows.map(Rows).map_err(RunError::harmless)
    };
    let statements = Statements::new(&settings.layout, None);
    let mut survey = Survey::read(&run(statements.survey()).await?)?;
    if !survey.has_tables && settings.create_tables {
        run(statements.install()).await?;
        survey = Survey::read(&run(statements.survey()).await?)?;
    }
    if !survey.has_tables {
        return Err(Failure::Missing.error(Failure::Missing.message()));
    }
    if !survey.has_rights {
        let message = "the database user lacks a permission; as an administrator, run the statements that \
                       `leasehold acl` prints";
        return Err(Failure::Denied.error(message));
    }
    Ok(survey)
}
