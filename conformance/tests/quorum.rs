//! The suite on quorums of memory backends, in virtual time: of three, of five, and of five of which two are dead.

use std::collections::HashMap;
use std::future::pending;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{Harness, Need, Time, suite};
use leasehold_core::clock::TokioClock;
use leasehold_core::{
    Attempt, Capabilities, Claim, Enlistment, Error, ErrorKind, ForcedRelease, Holder, Inspection,
    KeyWatch, Lease, LockBackend, LockClient, LockKey, MemoryBackend, Quorum, Release, Renewal,
    Revocation, Standing, StoreId,
};

/// A member, as a client of it sees it.
#[derive(Clone, Debug)]
struct Member {
    store: MemoryBackend,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Up,
    /// It refuses connections.
    Down,
    /// It answers nothing.
    Silent,
}

impl Member {
    async fn reach(&self) -> Result<&MemoryBackend, Error> {
        match self.state {
            State::Up => Ok(&self.store),
            State::Down => Err(Error::new(ErrorKind::Unavailable, "connection refused")),
            State::Silent => pending().await,
        }
    }
}

#[async_trait]
impl LockBackend for Member {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.reach().await?.try_acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.reach().await?.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.reach().await?.release(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        match self.state {
            State::Up => self.store.watch(key),
            State::Down | State::Silent => KeyWatch::silent(),
        }
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        match self.state {
            State::Up => self.store.watch_lease(lease),
            State::Down | State::Silent => KeyWatch::silent(),
        }
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.reach().await?.inspect(key).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        self.reach().await?.force_release(key).await
    }

    async fn request_revocation(&self, key: &LockKey) -> Result<Revocation, Error> {
        self.reach().await?.request_revocation(key).await
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.reach().await?.standing(fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        self.reach().await?.enlist(enlistment).await
    }
}

fn quorum(members: Vec<Member>) -> Quorum<Member> {
    let longest = Capabilities::DEFAULT_MAX_TTL;
    let named = members.into_iter().enumerate().map(|(number, it)| (number.to_string(), it));
    Quorum::builder(named).max_ttl(longest).clock(TokioClock::new()).build().unwrap()
}

/// The one whose lease a majority has.
async fn witness(members: &[Member], key: &LockKey) -> Option<Holder> {
    let mut seen = HashMap::new();
    for member in members {
        for holder in member.store.inspect(key).await.unwrap().holders() {
            *seen.entry(holder.fingerprint()).or_insert(0) += 1;
            if seen[&holder.fingerprint()] > members.len() / 2 {
                return Some(holder.clone());
            }
        }
    }
    None
}

/// A harness of so many members, which are in these states once the quorum is founded.
macro_rules! harness {
    ($module:ident, $harness:ident, $name:literal, $states:expr) => {
        struct $harness(Vec<Member>);

        #[async_trait]
        impl Harness for $harness {
            type Backend = Quorum<Member>;

            const NAME: &str = $name;
            const TIME: Time = Time::Virtual;
            const LACKS: &[Need] = &[Need::Membership, Need::Queue, Need::Together, Need::Units];

            async fn start() -> Self {
                let up = |_| Member {
                    store: MemoryBackend::with_clock(TokioClock::new()),
                    state: State::Up,
                };
                let mut members: Vec<Member> = $states.iter().map(up).collect();
                let founder = LockClient::new(quorum(members.clone()));
                drop(founder.mutex("first").unwrap().lock().await.unwrap().release().await);
                for (member, state) in members.iter_mut().zip($states) {
                    member.state = state;
                }
                Self(members)
            }

            async fn connect(&self) -> Quorum<Member> {
                quorum(self.0.clone())
            }

            async fn witness(&self, key: &LockKey) -> Option<Holder> {
                witness(&self.0, key).await
            }

            async fn advance(&self, _keys: &[LockKey], time: std::time::Duration) {
                tokio::time::advance(time).await;
            }
        }

        mod $module {
            use super::*;

            suite!($harness);
        }
    };
}

harness!(of_three, Three, "quorum of 3", [State::Up; 3]);
harness!(of_five, Five, "quorum of 5", [State::Up; 5]);
harness!(
    two_are_dead,
    TwoAreDead,
    "quorum of 5, two dead",
    [State::Silent, State::Up, State::Up, State::Down, State::Up]
);

#[test]
fn the_cases_that_run_here_are_documented() {
    const PAGE: &str = include_str!("../../docs/conformance.md");

    assert_documented::<Three>(PAGE);
    assert_documented::<Five>(PAGE);
    assert_documented::<TwoAreDead>(PAGE);
}
