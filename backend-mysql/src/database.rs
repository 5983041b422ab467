//! Prepares the driver for a MySQL or MariaDB database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::Fencing;
use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::mysql::{KeyTable, Statements, Survey, migration};
use leasehold_sql_support::remote::{
    Driver, Execute, Opened, Rows, RunError, Settings, check_old_leases,
};
use leasehold_sql_support::{Call, Failure, Layout, News};

use crate::connector::Connector;
use crate::servers::Servers;

/// The driver for a MySQL or MariaDB database, based on the `mysql_async` crate.
///
/// [`MysqlBackend`](crate::MysqlBackend) uses this driver. The crate's example shows how to connect
/// to a server.
#[derive(Debug)]
pub struct Mysql;

#[async_trait]
impl Driver for Mysql {
    const NAME: &'static str = "mysql";

    /// Three times the shortest lock wait of InnoDB. If a transaction times out while it waits for
    /// a lock, the client retries once, and the server still gives up before the client.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);

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
        let statements = Statements::new(&settings.layout);
        let survey = Survey::read(&rows(run, statements.survey()).await?);
        survey.check_cluster(connector.is_some())?;
        make_ready(run, settings, &statements).await?;
        let fencing = if survey.is_durable { Fencing::Strict } else { Fencing::BestEffort };
        let clock = settings.clock.as_ref().map(|query| format!("({query})"));
        let table = Arc::new(
            KeyTable::new(&settings.layout, clock.as_deref()).in_cluster(survey.is_in_cluster),
        );
        Ok(Opened { driver: Self, table, fencing, news: News::local() })
    }
}

async fn rows(run: &dyn Execute, call: Call) -> Result<Rows, RunError> {
    let reply = run.execute(&call).await;
    reply.map(|reply| Rows(reply.rows)).map_err(RunError::harmless)
}

/// Creates the tables if they are missing and `settings` allows creating them.
async fn make_ready(
    run: &dyn Execute,
    settings: &Settings,
    statements: &Statements,
) -> Result<(), Error> {
    let attempt = match rows(run, statements.attempt()).await {
        Err(error) if error.failure() == Failure::Missing && settings.create_tables => {
            rows(run, statements.install()).await?;
            rows(run, statements.attempt()).await?
        }
        attempt => attempt?,
    };
    if !statements.has_min_token(&attempt)? {
        return Err(Failure::Layout.error("a row is missing from the table leasehold_min_token; run the statements that `leasehold tables` prints"));
    }
    match check_old_leases(run, &statements.old_leases()).await {
        // MySQL also denies access to a table that does not exist. Users of the earlier version can read it.
        Err(error) if error.kind() == ErrorKind::Denied => {}
        checked => checked?,
    }
    Ok(())
}
