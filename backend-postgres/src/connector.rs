//! Opens and uses connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use leasehold_core::backend::Dial;
use leasehold_sql_support::postgres::{Message, Parameter, Session};
use leasehold_sql_support::remote::{self, Reply, Row, RunError};
use leasehold_sql_support::{Call, Failure};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::DbError;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{
    AsyncMessage, Client, NoTls, SimpleQueryMessage, SimpleQueryRow, Socket, Statement,
};
use uuid::Uuid;

use crate::error;
use crate::servers::{Place, Servers};
use crate::texts::{AsText, texts_of, type_of};

/// Opens connections to the database.
///
/// The crate's example shows how to connect to a server.
#[derive(Debug)]
pub struct Connector {
    servers: Servers,
    timeout: Duration,
    dial: Dial<Place>,
    /// Whether the server accepts the mark of a session. Most poolers do not.
    accepts_mark: AtomicBool,
    /// Whether a session was not marked, because a pooler provides the sessions.
    is_pooled: AtomicBool,
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
    /// The session, or `None` if a pooler shares its sessions between clients.
    session: Option<Session>,
    /// The prepared statements, by their text.
    statements: HashMap<String, Statement>,
    /// Whether the next statement needs another connection.
    is_spent: bool,
    /// The server's warning that a replica may lack an acknowledged commit.
    doubt: Arc<OnceLock<DbError>>,
}

impl Connector {
    pub(crate) fn new(servers: Servers, timeout: Duration) -> Self {
        let (accepts_mark, is_pooled) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { servers, timeout, dial: Dial::new(), accepts_mark, is_pooled }
    }

    /// Returns whether a pooler provides the sessions. A connection must have been opened before.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
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
        if self.accepts_mark.load(Ordering::Relaxed) {
            match self.connect_with(&with_mark(options.clone())).await {
                Err(error) if error::may_be_option(&error) => {}
                connected => return connected.map_err(error::before),
            }
        }
        let heard = self.connect_with(&options).await.map_err(error::before)?;
        self.accepts_mark.store(false, Ordering::Relaxed);
        Ok(heard)
    }

    async fn connect_with(
        &self,
        options: &tokio_postgres::Config,
    ) -> Result<Heard, tokio_postgres::Error> {
        match self.servers.tls() {
            #[cfg(feature = "tls")]
            Some(tls) => connect_over(options, tls.clone()).await,
            #[cfg(not(feature = "tls"))]
            Some(_) => unreachable!("TLS was refused before"),
            None => connect_over(options, NoTls).await,
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
        for _ in 0..ATTEMPTS {
            let (mut link, reading) = self.open().await?;
            let begun = link.begin_session(self.timeout).await;
            if let Ok(true) = begun {
                if link.session.is_none() {
                    self.is_pooled.store(true, Ordering::Relaxed);
                }
                return Ok(link);
            }
            if !self.accepts_mark.load(Ordering::Relaxed) {
                close_after_reply(link, reading, self.timeout);
            }
            begun?;
        }
        Err(RunError::not_sent("the first reply on each new connection belongs to another client"))
    }
}

/// Closes a connection on which a pooler may have returned the reply to an earlier client. The driver
/// ends the connection when the outstanding reply arrives. If the connection were closed earlier, the
/// next client would get that reply.
pub(crate) fn close_after_reply(
    client: impl Send + 'static,
    end: impl Future<Output: Send> + Send + 'static,
    limit: Duration,
) {
    tokio::spawn(async move {
        let _ = timeout(limit, end).await;
        drop(client);
    });
}

/// The maximum number of connections that are opened until the first reply belongs to this client.
const ATTEMPTS: usize = 4;

impl Connector {
    /// Opens a connection, and starts a task that reads its messages until the connection ends.
    async fn open(&self) -> Result<(Link, JoinHandle<()>), RunError> {
        let Heard { client, mut messages } = self.listen().await?;
        let doubt = Arc::default();
        let link = Link {
            client,
            session: None,
            statements: HashMap::new(),
            is_spent: false,
            doubt: Arc::clone(&doubt),
        };
        let reading = tokio::spawn(async move {
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
        Ok((link, reading))
    }
}

impl Link {
    /// Applies the settings of a session, unless a pooler shares its sessions between clients.
    ///
    /// Returns `false` if the reply does not belong to this client. All further replies would belong to
    /// earlier messages, too. PgBouncer 1.18 sometimes connects a client to a session in which the reply to
    /// `DISCARD ALL` is outstanding.
    async fn begin_session(&mut self, limit: Duration) -> Result<bool, RunError> {
        let session = Session::new(limit);
        let greeting = Uuid::new_v4().simple().to_string();
        let text = format!("SELECT '{greeting}'; {}", session.settings());
        let reply = self.client.simple_query(&text).await.map_err(error::before)?;
        let mut rows = reply.iter().filter_map(row);
        if rows.next() != Some(vec![Some(greeting)]) {
            return Ok(false);
        }
        self.session = rows.next().map(|_| session);
        Ok(true)
    }
}

#[async_trait]
impl remote::Link for Link {
    /// The server may have closed the connection in the meantime, or the runtime may have shut
    /// down.
    fn is_usable(&self) -> bool {
        !self.is_spent && !self.client.is_closed()
    }

    /// The driver notices when the server closes the connection.
    async fn is_alive(&mut self, _: Duration) -> bool {
        self.is_usable()
    }

    async fn execute(&mut self, call: &Call, left: Duration) -> Result<Reply, RunError> {
        let Some(session) = self.session else {
            let message = Failure::Unprepared.message();
            return Err(RunError::new(Failure::Unprepared, message, "the session is shared"));
        };
        let begun_at = Instant::now();
        let mut message = session.message(call, left);
        if let Message::Prepared(text, parameters) = &message
            && !self.statements.contains_key(*text)
        {
            self.prepare(text, parameters).await?;
            // The preparation may have waited for a lock of the table.
            message = session.message(call, left.saturating_sub(begun_at.elapsed()));
        }
        let rows = match message {
            Message::Prepared(text, parameters) => {
                let values = parameters.iter().map(|parameter| AsText(parameter.text.as_deref()));
                let reply = self.client.query_raw(&self.statements[text], values).await;
                let rows = async { reply?.map(|row| texts_of(&row?)).try_collect().await }.await;
                self.check(rows)?
            }
            Message::Text(text) => self.exchange(text).await?,
        };
        call.reply(rows)
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        let messages = self.client.simple_query(&text).await;
        self.check(messages.map(|messages| messages.iter().filter_map(row).collect()))
    }
}

impl Link {
    async fn prepare(&mut self, text: &str, parameters: &[Parameter]) -> Result<(), RunError> {
        let types: Vec<_> =
            parameters.iter().map(|parameter| type_of(parameter.type_name)).collect();
        let prepared = self.client.prepare_typed(text, &types).await;
        self.is_spent = prepared.as_ref().is_err_and(|error| !error::is_passing(error));
        self.statements.insert(text.to_owned(), prepared.map_err(error::before)?);
        Ok(())
    }

    /// Returns the rows of a reply, and notes whether the connection can be used again.
    fn check(
        &mut self,
        rows: Result<Vec<Row>, tokio_postgres::Error>,
    ) -> Result<Vec<Row>, RunError> {
        self.is_spent = rows.as_ref().is_err_and(|error| !error::is_passing(error));
        let rows = rows.map_err(error::exchange)?;
        // The task handles a warning before it forwards the end of the reply.
        match self.doubt.get() {
            Some(warning) => {
                self.is_spent = true;
                Err(error::doubt(warning.clone()))
            }
            None => Ok(rows),
        }
    }
}

/// Adds the mark of a session to the options of the user.
fn with_mark(mut options: tokio_postgres::Config) -> tokio_postgres::Config {
    let given = options.get_options().map(|given| format!("{given} ")).unwrap_or_default();
    options.options(given + Session::MARK);
    options
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
