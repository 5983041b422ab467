//! The task that keeps a watch stream to the current member open, and replaces the stream when it
//! breaks.

use std::collections::{HashMap, VecDeque};
use std::future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{EventType, WatchFilterType, WatchOptions, WatchResponse, WatchStream};
use leasehold_core::backend::{KeyWatches, unpoisoned};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::watches::{Events, Listener, Watch, Watches};
use crate::connection::Connection;

/// The first and the longest pause between two attempts to open a stream. Waiters poll in the
/// meantime.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The maximum number of requested but unconfirmed watches. The client crate buffers this number of
/// requests, which is sufficient for tens of thousands of watches per second.
const BEGUN_TOGETHER: usize = 64;

/// An order for the stream's task.
#[derive(Debug)]
pub(super) enum Order {
    Begin(i64, Watch),
    End(i64),
    /// Wake at this time to start watches that are due.
    WakeAt(Instant),
}

/// The receivers of notifications, in the form that the stream's task uses.
pub(super) struct Receivers {
    pub(super) observers: KeyWatches,
    pub(super) waiters: KeyWatches,
    pub(super) holders: KeyWatches,
}

impl Receivers {
    fn notify(&self, listener: &Listener) {
        match listener {
            Listener::Holder(tag) => self.holders.notify(tag.as_str()),
            Listener::Observer(key) => self.observers.notify(key.as_str()),
            Listener::Waiter(tag) => self.waiters.notify(tag.as_str()),
        }
    }
}

/// Keeps watches alive until the last sender of orders is dropped.
pub(super) async fn run(
    connection: Arc<Connection>,
    orders: UnboundedReceiver<Order>,
    receivers: Receivers,
    watches: Arc<Mutex<Watches>>,
) {
    let moves = connection.moves();
    // An earlier task, whose runtime ended, planned to watch these entries.
    let wakes_at = unpoisoned(&watches).later.front().map(|(at, _, _)| *at);
    let state = StreamState {
        connection,
        orders,
        receivers,
        begun: HashMap::new(),
        wakes_at,
        watches,
        moves,
        turn: 0,
        to_begin: VecDeque::new(),
        unanswered: 0,
    };
    state.run().await;
}

struct StreamState {
    connection: Arc<Connection>,
    orders: UnboundedReceiver<Order>,
    receivers: Receivers,
    /// The current watches.
    begun: HashMap<i64, Watch>,
    /// The watches of waiters and holders, including watches that start later.
    watches: Arc<Mutex<Watches>>,
    wakes_at: Option<Instant>,
    moves: tokio::sync::watch::Receiver<usize>,
    /// The turn for which the stream was opened.
    turn: usize,
    /// Watches that have not been requested on this stream yet.
    to_begin: VecDeque<i64>,
    /// The number of watches that were requested but not yet confirmed.
    unanswered: usize,
}

/// The meaning of a message from the server.
enum Heard {
    /// Events, which may or may not concern a watch.
    News,
    /// The events of a watch were compacted. The server has ended the watch but still reserves its
    /// ID on this stream, so the watch is restarted on a new stream.
    Compacted,
    /// The server rejected a watch. Usually the authentication token of the stream has expired.
    Refused,
}

/// Why a stream ends.
enum Left {
    /// The stream broke, or the client now uses a different member.
    Broken,
    /// No watches are left on the stream.
    Idle,
    /// The last sender of orders was dropped.
    Over,
}

impl StreamState {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            while self.begun.is_empty() {
                let Some(()) = self.idle().await else { return };
            }
            if let Some(stream) = self.open().await {
                let opened = Instant::now();
                match self.keep(stream).await {
                    Left::Over => return,
                    Left::Idle => {
                        pause = FIRST_PAUSE;
                        continue;
                    }
                    Left::Broken => {}
                }
                if opened.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
            }
            // Events may have been missed, and nothing is watched for some time.
            self.lose_sight();
            if self.connection.is_closed() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Records that no watch is in force. All waiters are notified, so that they read the queue
    /// again.
    fn lose_sight(&self) {
        unpoisoned(&self.watches).in_force.clear();
        self.begun.values().for_each(|watch| self.receivers.notify(&watch.tell));
    }

    /// Waits until a watch is needed. Returns `None` if no further orders can arrive.
    async fn idle(&mut self) -> Option<()> {
        tokio::select! {
            order = self.orders.recv() => self.take(order?).map_or(Some(()), |_| Some(())),
            () = due(self.wakes_at) => {
                self.take_due();
                Some(())
            }
        }
    }

    /// Opens a stream with the first watch. The remaining watches are requested while the stream is
    /// read, because the server stops reading from a client that does not read.
    async fn open(&mut self) -> Option<WatchStream> {
        self.moves.mark_unchanged();
        let turn = self.connection.turn();
        self.turn = turn;
        self.to_begin = self.begun.keys().copied().collect();
        self.unanswered = 1;
        let first = self.to_begin.pop_front()?;
        let watch = &self.begun[&first];
        let opening = async {
            let client = self.connection.client(turn).await.ok()?;
            let mut watches = client.watch_client();
            watches.watch(watch.target.key.clone(), Some(options(first, watch))).await.ok()
        };
        let opened = timeout(self.connection.timeout(), opening).await.ok().flatten();
        if opened.is_none() {
            self.connection.leave(turn);
        }
        opened
    }

    async fn keep(&mut self, mut stream: WatchStream) -> Left {
        loop {
            if self.begin_some(&mut stream).await.is_err() {
                return Left::Broken;
            }
            let order = tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(message)) => match self.hear(&message) {
                        Heard::News => continue,
                        Heard::Compacted => return Left::Broken,
                        Heard::Refused => {
                            // A new connection gets a new authentication token.
                            self.connection.leave(self.turn);
                            return Left::Broken;
                        }
                    },
                    Ok(None) | Err(_) => return Left::Broken,
                },
                order = self.orders.recv() => match order {
                    Some(order) => Some(order),
                    None => return Left::Over,
                },
                () = due(self.wakes_at) => None,
                _ = self.moves.changed() => return Left::Broken,
            };
            let changed = match order {
                Some(order) => self.take(order).into_iter().collect(),
                None => self.take_due(),
            };
            for change in changed {
                match change {
                    Change::Begin(id) => self.to_begin.push_back(id),
                    Change::End(id) if stream.cancel(id).await.is_err() => return Left::Broken,
                    Change::End(_) => {}
                }
            }
            if self.begun.is_empty() {
                return Left::Idle;
            }
        }
    }

    /// Requests watches that have not been requested yet, as fast as the server confirms them.
    async fn begin_some(&mut self, stream: &mut WatchStream) -> Result<(), etcd_client::Error> {
        while self.unanswered < BEGUN_TOGETHER
            && let Some(id) = self.to_begin.pop_front()
        {
            // The receiver of this watch may have been dropped.
            if let Some(watch) = self.begun.get(&id) {
                stream.watch(watch.target.key.clone(), Some(options(id, watch))).await?;
                self.unanswered += 1;
            }
        }
        Ok(())
    }

    /// Handles a message from the server.
    fn hear(&mut self, message: &WatchResponse) -> Heard {
        let id = message.watch_id();
        let compacted = message.compact_revision();
        if message.created() {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        if message.canceled() && compacted > 0 {
            for watch in self.begun.values_mut().filter(|watch| watch.start <= compacted) {
                watch.start = 0;
            }
            return Heard::Compacted;
        }
        // This message does not always contain the watch's ID.
        if message.canceled() && message.created() {
            return Heard::Refused;
        }
        if message.canceled() {
            if let Some(watch) = self.begun.remove(&id) {
                unpoisoned(&self.watches).in_force.remove(&id);
                self.receivers.notify(&watch.tell);
                tracing::debug!(
                    reason = message.cancel_reason(),
                    "the server cancelled a watch; waiters will poll"
                );
            }
            return Heard::News;
        }
        let Some(watch) = self.begun.get(&id) else { return Heard::News };
        let is_news = message.events().iter().any(|event| is_news(watch.target.events, event));
        if message.created() {
            unpoisoned(&self.watches).in_force.insert(id, true);
        }
        if is_news {
            unpoisoned(&self.watches).in_force.insert(id, false);
        }
        let in_force_from_now = message.created() && watch.start == 0;
        if in_force_from_now || is_news {
            self.receivers.notify(&watch.tell);
        }
        Heard::News
    }

    fn take(&mut self, order: Order) -> Option<Change> {
        match order {
            Order::Begin(id, watch) => {
                self.begun.insert(id, watch);
                Some(Change::Begin(id))
            }
            Order::End(id) => {
                unpoisoned(&self.watches).in_force.remove(&id);
                self.begun.remove(&id).map(|_| Change::End(id))
            }
            Order::WakeAt(at) => {
                self.wakes_at = Some(at);
                None
            }
        }
    }

    fn take_due(&mut self) -> Vec<Change> {
        let (begun, next) = unpoisoned(&self.watches).begin_due(Instant::now());
        self.wakes_at = next;
        let begin = |(id, watch)| {
            self.begun.insert(id, watch);
            Change::Begin(id)
        };
        begun.into_iter().map(begin).collect()
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        self.lose_sight();
    }
}

/// A change of the watches that must be sent to the server.
enum Change {
    Begin(i64),
    End(i64),
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
    }
}

fn options(id: i64, watch: &Watch) -> WatchOptions {
    let options = WatchOptions::new().with_watch_id(id).with_start_revision(watch.start);
    let options = match &watch.target.end {
        Some(end) => options.with_range(end.clone()),
        None => options,
    };
    match watch.target.events {
        Events::Ends => options.with_filters([WatchFilterType::NoPut]),
        Events::Changes | Events::All => options,
    }
}

fn is_news(events: Events, event: &etcd_client::Event) -> bool {
    let comes =
        event.event_type() == EventType::Put && event.kv().is_some_and(|kv| kv.version() == 1);
    match events {
        Events::Ends => event.event_type() == EventType::Delete,
        Events::Changes => !comes,
        Events::All => true,
    }
}
