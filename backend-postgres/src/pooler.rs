//! Checks whether notifications arrive through a pooler.
//!
//! A pooler in session mode forwards notifications. A pooler in transaction mode returns the session
//! that listens to other clients.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use leasehold_sql_support::remote::RunError;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};
use uuid::Uuid;

use crate::connector::{Connector, Heard, close_after_reply};

/// Returns whether a notification from another connection arrives within `limit`.
///
/// The check listens only after both connections have kept their sessions for several statements,
/// because a session that a pooler shares would go on listening.
pub(crate) async fn forwards_notifications(
    connector: &Connector,
    limit: Duration,
) -> Result<bool, RunError> {
    // About thirty round trips are necessary.
    let until = Instant::now() + 8 * limit;
    let mut listener = Checked::open(connector, limit, until).await?;
    let notifier = Checked::open(connector, limit, until).await?;
    let forwards = forwards(&mut listener, &notifier).await;
    if forwards.is_err() {
        for Checked { client, mut notifications, .. } in [listener, notifier] {
            let end = async move { while notifications.recv().await.is_some() {} };
            close_after_reply(client, end, limit);
        }
    }
    forwards
}

async fn forwards(listener: &mut Checked, notifier: &Checked) -> Result<bool, RunError> {
    let sessions = [listener.session_of("").await?, notifier.session_of("").await?];
    if sessions[0] == sessions[1] {
        return Ok(false);
    }
    for _ in 0..ROUNDS {
        for (client, session) in [&*listener, notifier].into_iter().zip(&sessions) {
            // The second of two statements goes to the next session, if a pooler uses its sessions in turn.
            for _ in 0..2 {
                if client.session_of("").await? != *session {
                    return Ok(false);
                }
            }
        }
    }
    let channel = format!("leasehold_check_{}", Uuid::new_v4().simple());
    let session = listener.session_of(&format!("LISTEN {channel}")).await?;
    let notified = async {
        notifier.session_of(&format!("NOTIFY {channel}")).await?;
        let notified = timeout(listener.limit, listener.notifications.recv()).await;
        Ok(notified.is_ok_and(|notified| notified.is_some()))
    };
    let notified = notified.await;
    // Several processes of a pooler may each have used the same session again, although they share it.
    for _ in 0..ROUNDS {
        if listener.session_of(&format!("UNLISTEN {channel}")).await? == session {
            break;
        }
    }
    notified
}

/// How often each connection is checked for its session. One round is enough if no other client uses the
/// pooler at the same time.
const ROUNDS: usize = 4;

/// A connection whose notifications arrive in a channel, which ends with the connection.
struct Checked {
    client: Client,
    notifications: mpsc::UnboundedReceiver<()>,
    /// The time limit for a statement. A pooler without a free session does not reply to statements.
    limit: Duration,
    /// When the check ends.
    until: Instant,
}

impl Checked {
    async fn open(
        connector: &Connector,
        limit: Duration,
        until: Instant,
    ) -> Result<Self, RunError> {
        let Heard { client, messages } = connector.listen().await?;
        let (sender, notifications) = mpsc::unbounded_channel();
        tokio::spawn(forward(messages, sender));
        Ok(Self { client, notifications, limit, until })
    }

    /// Executes a statement, and returns the number of the session in which it was executed.
    async fn session_of(&self, statement: &str) -> Result<String, RunError> {
        let text = format!("{statement}; SELECT pg_backend_pid()");
        let until = self.until.min(Instant::now() + self.limit);
        let messages = timeout_at(until, self.client.simple_query(&text)).await;
        let messages = messages.map_err(RunError::not_sent)?.map_err(RunError::not_sent)?;
        let number = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        // The reply may belong to an earlier client of the pooler.
        number.ok_or_else(|| RunError::not_sent("the reply does not match the statement"))
    }
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
