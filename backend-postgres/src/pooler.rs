//! Checks whether notifications arrive through a pooler.
//!
//! A pooler in session mode forwards notifications. A pooler in transaction mode returns the session
//! that listens to other clients.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use leasehold_sql_support::remote::RunError;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};
use uuid::Uuid;

use crate::connector::{Connector, Heard};

/// Returns whether a notification from another connection arrives within `limit`.
///
/// Nothing listens until both connections have kept their sessions for a while, because a session that
/// a pooler shares would go on listening.
pub(crate) async fn forwards_notifications(
    connector: &Connector,
    limit: Duration,
) -> Result<bool, RunError> {
    let (listener, mut notifications) = open(connector).await?;
    let (notifier, _) = open(connector).await?;
    let sessions = [session_of(&listener, "").await?, session_of(&notifier, "").await?];
    if sessions[0] == sessions[1] {
        return Ok(false);
    }
    for _ in 0..ROUNDS {
        for (client, session) in [&listener, &notifier].into_iter().zip(&sessions) {
            // The second of two statements goes to the next session, if a pooler uses its sessions in turn.
            for _ in 0..2 {
                if session_of(client, "").await? != *session {
                    return Ok(false);
                }
            }
        }
    }
    let channel = format!("leasehold_check_{}", Uuid::new_v4().simple());
    session_of(&listener, &format!("LISTEN {channel}")).await?;
    session_of(&notifier, &format!("NOTIFY {channel}")).await?;
    Ok(timeout(limit, notifications.recv()).await.is_ok_and(|heard| heard.is_some()))
}

/// How often each connection is checked for its session. One round is enough unless other clients use the
/// pooler at the same time.
const ROUNDS: usize = 4;

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
