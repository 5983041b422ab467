//! Queries the servers of a Redis cluster for the owners of hash slots, until enough servers have
//! replied.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::{Error, ErrorKind};
use tokio::time::timeout;

use super::view::{Slots, View, merge};
use crate::address::Address;
use crate::driver::{Driver, Request};
use crate::error::{ServerError, only_asked};
use crate::node::Node;

/// The number of servers that are queried at the same time.
const ASKED_TOGETHER: usize = 3;

/// The length of a silence after which additional servers are queried. In a local network, servers
/// reply within a few milliseconds.
const STAGGER: Duration = Duration::from_millis(50);

/// The maximum number of owners that must confirm a map. Querying all owners would be expensive in
/// a large cluster, in which a minority with this number of owners stops on its own after the node
/// timeout.
const MOST_NEEDED: usize = 5;

/// A map that enough servers agree on.
pub(in crate::topology) struct Map {
    pub(super) slots: Vec<Slots>,
    /// The IDs of all servers of the cluster.
    pub(super) members: HashSet<String>,
    /// The addresses of the servers without slots.
    pub(super) replicas: Vec<Address>,
}

/// The replies that have arrived so far.
pub(super) struct Survey<'a> {
    /// The IDs of the cluster's servers. Replies from servers that are not in this set do not
    /// count. The set is empty before the first map.
    members: &'a HashSet<String>,
    views: Vec<View>,
    /// Replies from servers that are not members. The addresses of such servers may have belonged
    /// to members before.
    strangers: Vec<View>,
    failure: Option<Error>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(members: &'a HashSet<String>) -> Self {
        Self { members, views: Vec::new(), strangers: Vec::new(), failure: None }
    }

    /// Queries the servers at `candidates`, and the servers that these report.
    pub(super) async fn run<D: Driver>(
        mut self,
        candidates: Vec<Address>,
        server_at: impl Fn(&Address) -> Arc<Node<D>>,
    ) -> Result<Map, Error> {
        let mut unasked = VecDeque::from(candidates);
        let (mut known, mut asked) = (HashSet::<Address>::new(), FuturesUnordered::new());
        known.extend(unasked.iter().cloned());
        loop {
            let next = unasked.drain(..unasked.len().min(ASKED_TOGETHER));
            asked.extend(next.map(|address| ask_one(server_at(&address))));
            if asked.is_empty() {
                return self.settle();
            }
            while let Ok(Some(answer)) = timeout(STAGGER, asked.next()).await {
                let named = self.take(answer);
                if let Some(map) = self.map() {
                    // The remaining replies are also awaited, because a connection without replies
                    // would count as hung.
                    tokio::spawn(async move { while asked.next().await.is_some() {} });
                    return Ok(map);
                }
                for address in named {
                    if known.insert(address.clone()) {
                        // This server has slots, so its reply is more useful than most replies.
                        unasked.push_front(address);
                    }
                }
            }
        }
    }

    /// Adds a reply, and returns the addresses of the owners that the reply contains.
    fn take(&mut self, answer: Result<View, Error>) -> Vec<Address> {
        let view = match answer {
            Ok(view) => view,
            Err(error) => {
                self.failure = Some(error);
                return Vec::new();
            }
        };
        if self.is_stranger(&view) {
            self.strangers.push(view);
            return Vec::new();
        }
        let owners = view.owners().into_iter().map(|owner| owner.address.clone()).collect();
        // A server may be known by several addresses but counts only once.
        self.views.retain(|other| other.by != view.by);
        self.views.push(view);
        owners
    }

    fn is_stranger(&self, view: &View) -> bool {
        let by_others = self.views.iter().flat_map(View::members).any(|id| id == view.by);
        // A server that was reset or has lost its configuration does not know any owners, so it
        // cannot define the cluster.
        let is_first =
            self.members.is_empty() && self.views.is_empty() && !view.owners().is_empty();
        !(is_first || by_others || self.members.contains(&view.by))
    }

    /// Returns the map, if enough of its owners have replied.
    fn map(&self) -> Option<Map> {
        let slots = merge(&self.views);
        let owners: BTreeSet<&str> = slots.iter().map(|slots| slots.owner.id.as_str()).collect();
        let answered = self.views.iter().filter(|view| owners.contains(view.by.as_str())).count();
        let needed = (owners.len() / 2 + 1).min(MOST_NEEDED);
        if owners.is_empty() || answered < needed {
            return None;
        }
        let replicas: BTreeSet<_> = self.views.iter().flat_map(|view| &view.replicas).collect();
        let replicas = replicas.into_iter().filter(|replica| !owners.contains(&*replica.id));
        let replicas = replicas.map(|replica| replica.address.clone()).collect();
        let members = self.views.iter().flat_map(View::members).map(str::to_owned).collect();
        Some(Map { slots, members, replicas })
    }

    /// Decides after all servers have been queried. If no member has replied but servers of a
    /// different cluster have, the different cluster has replaced the expected cluster.
    fn settle(self) -> Result<Map, Error> {
        if self.views.is_empty() && !self.strangers.is_empty() {
            let none = HashSet::new();
            let mut survey = Survey::new(&none);
            for view in self.strangers {
                survey.take(Ok(view));
            }
            let map = survey.map().ok_or_else(|| survey.too_few())?;
            tracing::warn!("the cluster's servers do not reply, but servers of another cluster do");
            return Ok(map);
        }
        Err(match self.failure {
            Some(failure) if self.views.is_empty() => failure,
            _ => self.too_few(),
        })
    }

    fn too_few(&self) -> Error {
        let message = if merge(&self.views).is_empty() {
            "the servers do not belong to a cluster yet"
        } else {
            "too few servers of the cluster replied to determine the current primaries"
        };
        Error::new(ErrorKind::Unavailable, message)
    }
}

pub(super) fn senseless() -> Error {
    Error::new(ErrorKind::Unexpected, "a server sent malformed information about its cluster")
}

async fn ask_one<D: Driver>(server: Arc<Node<D>>) -> Result<View, Error> {
    let questions = [Request::Words(&["CLUSTER", "SLOTS"]), Request::Words(&["CLUSTER", "NODES"])];
    let replies = server.ask(questions).await;
    let mut replies = replies
        .map_err(|error| only_asked(error, "no server of the cluster replies"))?
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(ServerError::into_error)?;
    let (nodes, slots) = (replies.pop(), replies.pop());
    let view =
        slots.zip(nodes).and_then(|(slots, nodes)| View::read(&slots, &nodes, server.address()));
    view.ok_or_else(senseless)
}
