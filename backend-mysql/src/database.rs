//! Prepares the driver for a MySQL or MariaDB database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::Fencing;
use leasehold_sql_support::mysql::{Statements, Survey, has_all_stripes, migration};
use leasehold_sql_support::remote::{Driver, Opened, Rows, Run, RunError, Settings, Text, Urgency};
use leasehold_sql_support::{Failure, Layout, News};

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
    /// a lock, it is retried once, and the server still gives up before the client.
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
        run: &dyn Run,
        _: Option<Arc<Connector>>,
        settings: &Settings,
    ) -> Result<Opened<Self>, Error> {
        let statements = Statements::new(&settings.layout, settings.clock.as_deref());
        let survey = ready(run, settings, &statements).await?;
        if survey.is_in_cluster {
            tracing::warn!(
                "the server is a node of a Galera cluster; all clients must write to the same node"
            );
        }
        let keeps_all = survey.is_durable && !survey.is_in_cluster;
        let fencing = if keeps_all { Fencing::Strict } else { Fencing::BestEffort };
        let (statements, news) = (Box::new(statements), News::local());
        Ok(Opened { driver: Self, statements, fencing, news })
    }
}

/// Detects the type of the server. Creates the tables if they are missing and `settings` allows
/// creating them.
async fn ready(
    run: &dyn Run,
    settings: &Settings,
    statements: &Statements,
) -> Result<Survey, Error> {
    let run = async |text: Text| {
        let rows = run.run(&text, Urgency::Asks, settings.timeout).await;
        rows.map(Rows).map_err(RunError::harmless)
    };
    let survey = Survey::read(&run(statements.survey()).await?);
    let attempt = match run(statements.attempt()).await {
        Err(error) if error.failure() == Failure::Missing && settings.create_tables => {
            run(statements.install()).await?;
            run(statements.attempt()).await?
        }
        attempt => attempt?,
    };
    if !has_all_stripes(&attempt)? {
        return Err(Failure::Layout.error("rows are missing from the table leasehold_stripe; run the statements that `leasehold tables` prints"));
    }
    Ok(survey)
}
