//! Checks whether notifications arrive through a pooler.
//!
//! A pooler in session mode forwards notifications. A pooler in transaction mode returns the session
//! that listens to other clients.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use leasehold_sql_support::remote::RunError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};
use uuid::Uuid;

use crate::connector::{Connector, Heard};

/// Returns whether a notification from another connection arrives within half of `limit`. If not, no
/// session listens afterwards, unless the pooler does not lead to that session within `limit`.
pub(crate) async fn forwards_notifications(
    connector: &Connector,
    limit: Duration,
) -> Result<bool, RunError> {
    let channel = format!("leasehold_check_{}", Uuid::new_v4().simple());
    let (listener, mut notifications) = open(connector).await?;
    let session = session_of(&listener, &format!("LISTEN {channel}")).await?;
    let is_heard = async {
        let (notifier, _) = open(connector).await?;
        let notified_in = session_of(&notifier, &format!("NOTIFY {channel}")).await?;
        let give_up = Instant::now() + limit / 2;
        let mut is_shared = notified_in == session;
        while !is_shared && Instant::now() < give_up {
            if let Ok(heard) = timeout(PATIENCE, notifications.recv()).await {
                return Ok(heard.is_some());
            }
            // A pooler in transaction mode is recognized without waiting any longer.
            is_shared = session_of(&listener, "").await? != session;
        }
        Ok(false)
    };
    let is_heard = timeout(2 * limit, is_heard).await.unwrap_or(Ok(false));
    if !matches!(is_heard, Ok(true)) {
        // Each statement may run in a different session of the pooler.
        let give_up = Instant::now() + limit;
        while Instant::now() < give_up
            && session_of(&listener, &format!("UNLISTEN {channel}")).await? != session
        {
            sleep(PAUSE).await;
        }
    }
    is_heard
}

/// How long the listener waits before it sends a statement. If the notification were still on its way,
/// a pooler in transaction mode could forward the notification together with the reply.
const PATIENCE: Duration = Duration::from_millis(100);

/// The pause between two attempts to reach the session that listens.
const PAUSE: Duration = Duration::from_millis(10);

/// Opens a connection, and returns the notifications that arrive.
async fn open(connector: &Connector) -> Result<(Client, mpsc::UnboundedReceiver<()>), RunError> {
    let Heard { client, messages } = connector.listen().await?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(forward(messages, sender));
    Ok((client, receiver))
}

/// Reads the messages of a connection until it ends.
async fn forward(
    mut messages: BoxStream<'static, Result<AsyncMessage, tokio_postgres::Error>>,
    notifications: mpsc::UnboundedSender<()>,
) {
    while let Some(Ok(message)) = messages.next().await {
        if matches!(message, AsyncMessage::Notification(_)) {
            // The check may have ended.
            let _ = notifications.send(());
        }
    }
}

/// Executes a statement, and returns the number of the session in which it was executed.
async fn session_of(client: &Client, statement: &str) -> Result<String, RunError> {
    let messages = client.simple_query(&format!("{statement}; SELECT pg_backend_pid()")).await;
    let messages = messages.map_err(RunError::not_sent)?;
    let number = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    // The reply may belong to an earlier client of the pooler.
    number.ok_or_else(|| RunError::not_sent("the reply does not match the statement"))
}
