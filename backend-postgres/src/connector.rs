//! How connections are made.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, NoTls, Socket};

use crate::config::PostgresConfig;
use crate::error::{self, RunError};
use crate::tls::Tls;

/// Makes connections.
pub(crate) struct Connector {
    options: tokio_postgres::Config,
    tls: Option<Tls>,
}

/// A connection, and what comes over it unasked. It goes on only while that is read.
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
}

impl Connector {
    pub(crate) fn new(
        options: &tokio_postgres::Config,
        tls: Option<Tls>,
        timeout: Duration,
    ) -> Self {
        let options = PostgresConfig::driver_options(options, tls.is_some(), timeout);
        Self { options, tls }
    }

    /// Makes a connection whose messages nobody reads, on the caller's runtime.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Client, RunError> {
        let Link { client, mut messages } = self.link(limit).await?;
        tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                if let Err(error) = message {
                    tracing::debug!(%error, "a connection ended");
                }
            }
        });
        Ok(client)
    }

    /// Makes a connection for one who reads its messages.
    pub(crate) async fn link(&self, limit: Duration) -> Result<Link, RunError> {
        let connected = timeout(limit, async {
            match &self.tls {
                #[cfg(feature = "tls")]
                Some(tls) => self.connect_over(tls.clone()).await,
                #[cfg(not(feature = "tls"))]
                Some(_) => unreachable!("TLS was refused before"),
                None => self.connect_over(NoTls).await,
            }
        });
        match connected.await {
            Ok(connected) => connected.map_err(error::connect),
            Err(elapsed) => Err(RunError::not_sent(elapsed)),
        }
    }

    async fn connect_over<T>(&self, tls: T) -> Result<Link, tokio_postgres::Error>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let (client, mut connection) = self.options.connect(tls).await?;
        let messages = stream::poll_fn(move |cx| connection.poll_message(cx)).boxed();
        Ok(Link { client, messages })
    }
}
