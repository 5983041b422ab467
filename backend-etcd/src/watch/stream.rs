//! The task that keeps one stream of watches to the member that is spoken to, and begins another when that breaks.

use std::collections::{HashMap, VecDeque};
use std::future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{EventType, WatchFilterType, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Asking, Events, Order, Told, Watch, locked};
use crate::connection::Connection;

/// The pause between two tries to begin a stream, at first and at most: meanwhile, waiters poll.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How many watches the server is asked for before it has answered: no more than the client crate buffers, and enough to ask for
/// tens of thousands within a second.
const BEGUN_TOGETHER: usize = 64;

/// Keeps watch until the last sender of orders has gone.
pub(super) async fn run(
    connection: Arc<Connection>,
    orders: UnboundedReceiver<Order>,
    told: Told,
    asking: Arc<Mutex<Asking>>,
) {
    let moves = connection.moves();
    // Entries that an earlier task, whose runtime has ended, was to watch later.
    let wakes_at = locked(&asking).later.front().map(|(at, _, _)| *at);
    let tower = Lookout {
        connection,
        orders,
        told,
        watches: HashMap::new(),
        wakes_at,
        asking,
        moves,
        turn: 0,
        to_begin: VecDeque::new(),
        unanswered: 0,
    };
    tower.run().await;
}

struct Lookout {
    connection: Arc<Connection>,
    orders: UnboundedReceiver<Order>,
    told: Told,
    /// The present watches.
    watches: HashMap<i64, Watch>,
    /// The watches to come.
    asking: Arc<Mutex<Asking>>,
    wakes_at: Option<Instant>,
    moves: tokio::sync::watch::Receiver<usize>,
    /// Whose turn it was to answer when the stream was begun.
    turn: usize,
    /// Watches that the server does not yet have on this stream.
    to_begin: VecDeque<i64>,
    /// How many the server was asked for without having answered yet.
    unanswered: usize,
}

/// The meaning of a message from the server.
enum Heard {
    /// Events, of interest to a watch or not.
    News,
    /// The events of a watch are compacted. The server has given the watch up, but not its id on this stream: so it begins anew
    /// on another.
    Compacted,
    /// A watch was not begun. Most likely the token with which the stream was opened has expired.
    Refused,
}

/// Why a stream is left.
enum Left {
    /// It broke, or its member is spoken to no more.
    Broken,
    /// Nothing is asked for.
    Idle,
    /// The last sender of orders has gone.
    Over,
}

impl Lookout {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            while self.watches.is_empty() {
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
            // News may have been missed, and nothing is watched for a while.
            self.lose_sight();
            if self.connection.is_closed() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// No watch is in force any more: the waiters look for themselves.
    fn lose_sight(&self) {
        locked(&self.asking).in_force.clear();
        self.watches.values().for_each(|watch| self.told.tell(&watch.tell));
    }

    /// Waits for something to watch; `None` if nothing can come any more.
    async fn idle(&mut self) -> Option<()> {
        tokio::select! {
            order = self.orders.recv() => self.take(order?).map_or(Some(()), |_| Some(())),
            () = due(self.wakes_at) => {
                self.take_due();
                Some(())
            }
        }
    }

    /// Begins a stream with the first watch. The rest follows while the stream is read: the server stops listening to a client that
    /// does not read.
    async fn open(&mut self) -> Option<WatchStream> {
        self.moves.mark_unchanged();
        let turn = self.connection.turn();
        self.turn = turn;
        self.to_begin = self.watches.keys().copied().collect();
        self.unanswered = 1;
        let first = self.to_begin.pop_front()?;
        let watch = &self.watches[&first];
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
                            // A new connection has a new token.
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
            if self.watches.is_empty() {
                return Left::Idle;
            }
        }
    }

    /// Sends watches that the server does not have yet, as fast as it keeps up.
    async fn begin_some(&mut self, stream: &mut WatchStream) -> Result<(), etcd_client::Error> {
        while self.unanswered < BEGUN_TOGETHER
            && let Some(id) = self.to_begin.pop_front()
        {
            // Unless its receiver has gone.
            if let Some(watch) = self.watches.get(&id) {
                stream.watch(watch.target.key.clone(), Some(options(id, watch))).await?;
                self.unanswered += 1;
            }
        }
        Ok(())
    }

    /// Passes on a message from the server.
    fn hear(&mut self, message: &WatchResponse) -> Heard {
        let id = message.watch_id();
        let compacted = message.compact_revision();
        if message.created() {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        if message.canceled() && compacted > 0 {
            for watch in self.watches.values_mut().filter(|watch| watch.start <= compacted) {
                watch.start = 0;
            }
            return Heard::Compacted;
        }
        // Not always with the watch's id.
        if message.canceled() && message.created() {
            return Heard::Refused;
        }
        if message.canceled() {
            if let Some(watch) = self.watches.remove(&id) {
                locked(&self.asking).in_force.remove(&id);
                self.told.tell(&watch.tell);
                tracing::debug!(
                    reason = message.cancel_reason(),
                    "the server does not watch: waiters poll"
                );
            }
            return Heard::News;
        }
        let Some(watch) = self.watches.get(&id) else { return Heard::News };
        let is_news = message.events().iter().any(|event| is_news(watch.target.events, event));
        if message.created() {
            locked(&self.asking).in_force.insert(id, true);
        }
        if is_news {
            locked(&self.asking).in_force.insert(id, false);
        }
        let in_force_from_now = message.created() && watch.start == 0;
        if in_force_from_now || is_news {
            self.told.tell(&watch.tell);
        }
        Heard::News
    }

    fn take(&mut self, order: Order) -> Option<Change> {
        match order {
            Order::Begin(id, watch) => {
                self.watches.insert(id, watch);
                Some(Change::Begin(id))
            }
            Order::End(id) => {
                locked(&self.asking).in_force.remove(&id);
                self.watches.remove(&id).map(|_| Change::End(id))
            }
            Order::WakeAt(at) => {
                self.wakes_at = Some(at);
                None
            }
        }
    }

    fn take_due(&mut self) -> Vec<Change> {
        let (begun, next) = locked(&self.asking).begin_due(Instant::now());
        self.wakes_at = next;
        let begin = |(id, watch)| {
            self.watches.insert(id, watch);
            Change::Begin(id)
        };
        begun.into_iter().map(begin).collect()
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.lose_sight();
    }
}

/// A change of the watches, to be sent to the server.
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
