//! The suite on a real PostgreSQL: in driven time, by a clock of the tests, with mutexes made of other kinds of lock, too; in real time
//! those cases that take a network, load or news. The cases that depend on connections run behind a pooler, too.

use std::convert::identity;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_conformance::{
    AsMutex, FaultKind, Groups, Harness, Need, Rounds, Subject, Suites, Time, Timing,
};
use leasehold_core::{Holder, LockKey};
use leasehold_postgres::{PostgresBackend as Backend, PostgresConfig as Config};
use leasehold_testbed::{PgBouncer, PoolMode, Postgres as Server};

use direct::Direct;

mod direct;

#[macro_use]
#[path = "../../sql-support/tests/family/conformance.rs"]
mod family;

const KEY: &str = "key";

const CREATE_USER: &str = "CREATE ROLE locker LOGIN";

const REAL_CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

const DRIVEN_CLOCK: &str = "SELECT us FROM public.test_clock";

/// News arrives when the server likes, and the clock must not move meanwhile.
fn driven(config: Config) -> Config {
    config.with_clock(DRIVEN_CLOCK).without_push()
}

/// Cases that hear of others.
const OF_NEWS: Groups = Groups::Named(&[
    "election",
    "fair",
    "hand_over",
    "lost",
    "revocation",
    "rw_lock",
    "semaphore",
    "waiting",
]);

/// All but the hand-over: a lease has spare numbers for the time that has passed, and this clock stands still.
const OF_STILL_CLOCK: Groups = Groups::Named(&[
    "bad_input",
    "cancellation",
    "election",
    "expiry",
    "fair",
    "fencing",
    "lock_delay",
    "lost",
    "membership",
    "multi_lock",
    "mutual_exclusion",
    "reentrancy",
    "release",
    "renewal",
    "retry",
    "revocation",
    "rw_lock",
    "semaphore",
    "striped",
    "together",
    "waiting",
    "model",
]);

/// Cases in which a notification arrives at a waiter or at a holder.
const OF_NOTIFICATIONS: Groups = Groups::Named(&["lost", "waiting"]);

/// Cases whose calls use several connections, are dropped, or depend on the session of a connection.
const OF_CONNECTIONS: Groups = Groups::Named(&[
    "cancellation",
    "expiry",
    "fencing",
    "lost",
    "mutual_exclusion",
    "release",
    "renewal",
    "together",
    "waiting",
]);

harness!(Driven, "postgres, driven", Time::Driven, Backend, identity, family::FAULTS, {
    const GROUPS: Groups = OF_STILL_CLOCK;
    const ROUNDS: Rounds = Rounds::Few;
});
harness!(
    WriteLock,
    "postgres, driven write lock",
    Time::Driven,
    AsMutex<Backend>,
    AsMutex::write_lock,
    family::FAULTS,
    {
        const GROUPS: Groups = Groups::OF_KIND;
        const ROUNDS: Rounds = Rounds::Few;
    }
);
harness!(OnePostgres, "postgres", Time::Real, Backend, identity, family::FAULTS, {
    const SUBJECTS: &[Subject] = &[Subject::Load, Subject::Network];
});
harness!(WithNews, "postgres, news", Time::Real, Backend, identity, family::FAULTS, {
    const GROUPS: Groups = OF_NEWS;
    const SUBJECTS: &[Subject] = &[Subject::Store];
});

harness!(
    InSessions,
    "postgres, pooler in session mode",
    Time::Driven,
    Backend,
    identity,
    family::FAULTS,
    behind PoolMode::Session,
    {
        const GROUPS: Groups = OF_CONNECTIONS;
        const ROUNDS: Rounds = Rounds::Few;
    }
);
harness!(
    InSessionsWithNews,
    "postgres, pooler in session mode, news",
    Time::Real,
    Backend,
    identity,
    family::FAULTS,
    behind PoolMode::Session,
    {
        const GROUPS: Groups = OF_NOTIFICATIONS;
        const SUBJECTS: &[Subject] = &[Subject::Store];
    }
);
harness!(
    InTransactions,
    "postgres, pooler in transaction mode",
    Time::Driven,
    Backend,
    identity,
    family::FAULTS,
    behind PoolMode::Transaction,
    {
        const GROUPS: Groups = OF_CONNECTIONS;
        const ROUNDS: Rounds = Rounds::Few;
    }
);

impl family::Served {
    /// Has the proxy lead to a pooler.
    async fn behind(mut self, mode: PoolMode) -> Self {
        let connections = match mode {
            // The server accepts a few more.
            PoolMode::Session => 180,
            // Fewer than there are clients, so that the transactions of a client change connections.
            PoolMode::Transaction => 8,
        };
        let pooler = PgBouncer::start(&self.running.read().await.server, mode, connections).await;
        self.proxy.lead_to(pooler.address());
        self._pooler = Some(Box::new(pooler));
        self
    }
}

fn main() -> ExitCode {
    Suites::new()
        .with::<OnePostgres>("")
        .with::<Driven>("driven")
        .with::<WriteLock>("write_lock")
        .with::<WithNews>("news")
        .with::<InSessions>("pooler_session")
        .with::<InSessionsWithNews>("pooler_session_news")
        .with::<InTransactions>("pooler_transaction")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
