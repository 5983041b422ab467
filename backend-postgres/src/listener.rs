//! Receives notifications about changes made by other clients.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_sql_support::remote::RunError;
use leasehold_sql_support::{Concerns, News};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use crate::connector::{Connector, Heard};
use leasehold_core::backend::unpoisoned;

/// How long the connection stays open after the last watch has ended.
const IDLE: Duration = Duration::from_secs(60);

/// The pause between two connection attempts. The pause limits the load of retries, and is much
/// shorter than the polling interval of waiters.
const PAUSE: Duration = Duration::from_millis(250);

/// Listens for notifications while any key is watched, on the runtime of a watcher, until this
/// value is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    connector: Arc<Connector>,
    listen: String,
    limit: Duration,
    news: OnceLock<News>,
    task: Task,
}

/// The task that listens, or `None` if the task has ended.
type Task = Arc<Mutex<Option<AbortHandle>>>;

impl Listener {
    /// Creates a listener that starts to listen with the first watch of `news`.
    pub(crate) fn start(
        connector: Arc<Connector>,
        listen: String,
        limit: Duration,
    ) -> (Arc<Self>, News) {
        let (news, task) = (OnceLock::new(), Task::default());
        let listener = Arc::new(Self { connector, listen, limit, news, task });
        let begins = Arc::downgrade(&listener);
        let news = News::when_watched(move |_| {
            if let Some(listener) = begins.upgrade() {
                listener.begin();
            }
        });
        drop(listener.news.set(news.clone()));
        (listener, news)
    }

    fn begin(&self) {
        let (Some(news), Ok(runtime)) = (self.news.get(), Handle::try_current()) else { return };
        let mut task = lock(&self.task);
        // The task may have ended together with its runtime.
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let (connector, listen) = (Arc::clone(&self.connector), self.listen.clone());
            let (limit, news, itself) = (self.limit, news.clone(), Arc::clone(&self.task));
            let listening = listen_while_watched(connector, listen, limit, news, itself);
            *task = Some(runtime.spawn(listening).abort_handle());
        }
    }

    /// Closes the connection.
    pub(crate) fn stop(&self) {
        let task = lock(&self.task).take();
        task.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn listen_while_watched(
    connector: Arc<Connector>,
    listen: String,
    limit: Duration,
    news: News,
    itself: Task,
) {
    while !ends(&itself, &news) {
        let ended = match timeout(limit, connector.listen()).await {
            Ok(Ok(heard)) => hear(heard, &listen, limit, &news).await,
            Ok(Err(error)) => Err(error),
            Err(elapsed) => Err(RunError::not_sent(elapsed)),
        };
        tracing::debug!(?ended, "no notifications from other clients");
        // Notifications may have been missed in the meantime.
        news.interrupted();
        sleep(PAUSE).await;
    }
}

/// Returns whether no key is watched any longer, so that the task ends. A watch that starts at this
/// moment waits for the mutex and starts a new task.
fn ends(task: &Task, news: &News) -> bool {
    let mut task = lock(task);
    let ends = !is_watched(news);
    if ends {
        *task = None;
    }
    ends
}

fn lock(task: &Task) -> MutexGuard<'_, Option<AbortHandle>> {
    // The value is consistent after every statement, so a panic cannot corrupt it.
    unpoisoned(task)
}

/// Forwards all notifications until the connection ends, or until nothing has been watched for some
/// time.
///
/// The server must confirm `LISTEN` within `limit`.
async fn hear(heard: Heard, listen: &str, limit: Duration, news: &News) -> Result<(), RunError> {
    let Heard { client, mut messages } = heard;
    let mut listening = Box::pin(timeout(limit, client.batch_execute(listen)));
    let mut is_listening = false;
    loop {
        tokio::select! {
            began = &mut listening, if !is_listening => {
                began.map_err(RunError::no_reply)?.map_err(RunError::no_reply)?;
                is_listening = true;
                // No notification is missed after this point.
                news.interrupted();
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => news.heard(notification.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(RunError::no_reply(error)),
                None => return Ok(()),
            },
            () = sleep(IDLE), if is_listening => if !is_watched(news) {
                return Ok(());
            }
        }
    }
}

fn is_watched(news: &News) -> bool {
    [Concerns::Waiters, Concerns::Holders].into_iter().any(|concerns| news.has_watches(concerns))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::servers::Servers;

    const LIMIT: Duration = Duration::from_millis(50);

    fn connector(host: &str) -> Arc<Connector> {
        let options: tokio_postgres::Config = format!("postgres://locker@{host}").parse().unwrap();
        Arc::new(Connector::new(Servers::from(options), Duration::from_secs(10)))
    }

    /// Accepts a client and then never replies.
    async fn let_in(server: TcpListener) {
        const OK_AND_READY: [u8; 15] = *b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

        let (mut client, _) = server.accept().await.unwrap();
        let _startup = client.read(&mut [0; 1024]).await.unwrap();
        client.write_all(&OK_AND_READY).await.unwrap();
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn server_that_does_not_begin_to_tell_is_given_up() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connector = connector(&server.local_addr().unwrap().to_string());
        let serving = tokio::spawn(let_in(server));
        let heard = connector.listen().await.unwrap();

        let news = News::new();
        let ended = timeout(Duration::from_secs(10), hear(heard, "LISTEN n", LIMIT, &news));

        assert!(ended.await.expect("it is limited").is_err());
        serving.abort();
    }

    #[tokio::test]
    async fn watch_that_begins_while_a_task_ends_begins_another() {
        let limit = Duration::from_secs(10);
        let (listener, news) = Listener::start(connector("nowhere"), "LISTEN n".to_owned(), limit);
        listener.begin();
        let first = lock(&listener.task).clone().unwrap();

        // The task has decided to end and is about to return.
        assert!(ends(&listener.task, &news));
        listener.begin();

        assert!(!first.is_finished());
        assert_ne!(lock(&listener.task).as_ref().unwrap().id(), first.id());
    }
}
