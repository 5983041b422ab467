//! Opens and uses connections.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold_core::backend::Dial;
use leasehold_sql_support::remote::{self, Row, RunError};
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage, SimpleQueryRow, Socket};

use crate::error;
use crate::servers::{Place, Servers};

/// Opens connections to the database.
///
/// The crate's example shows how to connect to a server.
#[derive(Debug)]
pub struct Connector {
    servers: Servers,
    timeout: Duration,
    dial: Dial<Place>,
}

/// A connection, and the stream of its asynchronous messages. The connection makes progress only
/// while the stream is read.
pub(crate) struct Heard {
    pub(crate) client: Client,
    pub(crate) messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
}

/// A connection whose messages are read by a task.
///
/// [`Connector`] opens connections. The crate's example shows how to connect to a server.
#[derive(Debug)]
pub struct Link {
    client: Client,
    /// The server's warning that a replica may lack an acknowledged commit.
    doubt: Arc<OnceLock<DbError>>,
}

impl Connector {
    pub(crate) fn new(servers: Servers, timeout: Duration) -> Self {
        Self { servers, timeout, dial: Dial::new() }
    }

    /// Opens a connection to the first address of any host that accepts the client. The caller must
    /// read the connection's messages.
    ///
    /// On its own, the driver would wait for a host that accepts a connection and then does not
    /// respond, and would not try the remaining hosts.
    pub(crate) async fn listen(&self) -> Result<Heard, RunError> {
        let begun_at = Instant::now();
        let resolved = timeout(self.timeout, self.servers.places()).await;
        let places = resolved.map_err(RunError::not_sent)??;
        let left = self.timeout.saturating_sub(begun_at.elapsed());
        let connected = self.dial.first(places, left, |place| self.connect_to(place)).await;
        connected.map_err(remote::no_connection)
    }

    async fn connect_to(&self, place: Place) -> Result<Heard, RunError> {
        let options = self.servers.driver_options(place);
        let connected = match self.servers.tls() {
            #[cfg(feature = "tls")]
            Some(tls) => connect_over(&options, tls.clone()).await,
            #[cfg(not(feature = "tls"))]
            Some(_) => unreachable!("TLS was refused before"),
            None => connect_over(&options, NoTls).await,
        };
        connected.map_err(error::connect)
    }
}

#[async_trait]
impl remote::Connector for Connector {
    type Link = Link;

    fn address(&self) -> String {
        self.servers.address()
    }

    async fn connect(&self) -> Result<Link, RunError> {
        let Heard { client, mut messages } = self.listen().await?;
        let doubt = Arc::default();
        let link = Link { client, doubt: Arc::clone(&doubt) };
        tokio::spawn(async move {
            // A broken connection returns its error at every poll.
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) if error::is_doubt(&notice) => {
                        drop(doubt.set(notice));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a connection ended");
                        return;
                    }
                }
            }
        });
        Ok(link)
    }
}

#[async_trait]
impl remote::Link for Link {
    /// The server may have closed the connection in the meantime, or the runtime may have shut
    /// down.
    fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    /// The driver notices when the server closes the connection.
    async fn is_alive(&mut self, _: Duration) -> bool {
        self.is_usable()
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        let messages = self.client.simple_query(&text).await.map_err(error::exchange)?;
        // The task handles a warning before it forwards the end of the reply.
        match self.doubt.get() {
            Some(warning) => Err(error::doubt(warning.clone())),
            None => Ok(messages.iter().filter_map(row).collect()),
        }
    }
}

async fn connect_over<T>(
    options: &tokio_postgres::Config,
    tls: T,
) -> Result<Heard, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = options.connect(tls).await?;
    let messages = stream::poll_fn(move |cx| connection.poll_message(cx)).boxed();
    Ok(Heard { client, messages })
}

fn row(message: &SimpleQueryMessage) -> Option<Row> {
    let column = |row: &SimpleQueryRow, i| row.get(i).map(str::to_owned);
    match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| column(row, i)).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testbed::Postgres;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn address_that_says_nothing_leaves_time_for_the_next() {
        let server = Postgres::start().await;
        let mute = TcpListener::bind(("127.0.0.2", server.port())).await.unwrap();
        let options: tokio_postgres::Config = server.url().parse().unwrap();
        let [first, second] = ["127.0.0.2", "127.0.0.1"].map(|it| it.parse().unwrap());
        let servers = Servers::from(options).resolved_to(vec![first, second]);
        let connector = Connector::new(servers, Duration::from_secs(4));

        let heard = connector.listen().await.unwrap();

        assert!(!heard.client.is_closed());
        assert!(mute.accept().await.is_ok(), "the first address was tried");
    }

    #[tokio::test]
    async fn time_limit_is_named_where_no_address_answers() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://locker@{}", mute.local_addr().unwrap());
        let servers = Servers::from(url.parse::<tokio_postgres::Config>().unwrap());
        let connector = Connector::new(servers, Duration::from_millis(100));

        let error = connector.listen().await.err().expect("nobody answers");

        assert!(error.to_string().contains("timeout-ms"), "{error}");
    }
}
