//! Connections: how they are made and used.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold_sql_support::remote::{self, Row, RunError};
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage, SimpleQueryRow, Socket};

use crate::error;
use crate::servers::Servers;

/// Makes connections.
#[derive(Debug)]
pub struct Connector {
    servers: Servers,
    timeout: Duration,
}

/// A connection, and the messages that come over it unasked. It goes on only while they are read.
pub(crate) struct Heard {
    pub(crate) client: Client,
    pub(crate) messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
}

/// A connection whose messages a task reads.
#[derive(Debug)]
pub struct Link {
    client: Client,
    /// The server's warning that it does not know whether a replica has the commit which it acknowledges.
    doubt: Arc<OnceLock<DbError>>,
}

impl Connector {
    pub(crate) fn new(servers: Servers, timeout: Duration) -> Self {
        Self { servers, timeout }
    }

    /// Makes a connection for a caller that reads its messages: to the first host that lets it in within an equal part of the time.
    ///
    /// The driver itself would wait for a host that accepts a connection and then says nothing, and try no other.
    pub(crate) async fn listen(&self) -> Result<Heard, RunError> {
        let hosts = self.servers.hosts();
        let part = self.timeout / u32::try_from(hosts).unwrap_or(u32::MAX);
        let mut host = 0;
        loop {
            let connected = timeout(part, self.connect_to(host)).await;
            let error = match connected.map_err(RunError::not_sent) {
                Ok(Ok(heard)) => return Ok(heard),
                Ok(Err(error)) => error::connect(error),
                Err(late) => late,
            };
            host += 1;
            if host == hosts {
                return Err(error);
            }
        }
    }

    async fn connect_to(&self, host: usize) -> Result<Heard, tokio_postgres::Error> {
        let options = self.servers.driver_options(host);
        match self.servers.tls() {
            #[cfg(feature = "tls")]
            Some(tls) => connect_over(&options, tls.clone()).await,
            #[cfg(not(feature = "tls"))]
            Some(_) => unreachable!("TLS was refused before"),
            None => connect_over(&options, NoTls).await,
        }
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
            // A broken connection returns its error again at each poll.
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
    /// The server, or the runtime that drove it, may have ended it meanwhile.
    fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    /// The driver hears of the server's end by itself.
    async fn is_alive(&mut self, _: Duration) -> bool {
        self.is_usable()
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        let messages = self.client.simple_query(&text).await.map_err(error::exchange)?;
        // The task reads a warning before it hands over the end of the reply.
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
