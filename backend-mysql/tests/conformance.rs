//! The suite on a real MariaDB: in driven time, by a clock of the tests, with mutexes made of other kinds of lock, too; in real time those
//! cases that take a network or load.

use std::convert::identity;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_conformance::{
    AsMutex, FaultKind, Groups, Harness, Need, Rounds, Subject, Suites, Time, Timing,
};
use leasehold_core::{Holder, LockKey};
use leasehold_mysql::{MysqlBackend as Backend, MysqlConfig as Config};
use leasehold_testbed::MariaDb as Server;

use direct::Direct;

mod direct;

#[macro_use]
#[path = "../../sql-support/tests/family/conformance.rs"]
mod family;

const KEY: &str = "`key`";

const CREATE_USER: &str = "CREATE USER locker IDENTIFIED BY 'secret'";

const REAL_CLOCK: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// Each reading of the clock takes two microseconds. Otherwise, a lease would not have spare
/// tokens to hand off with.
const DRIVEN_CLOCK: &str = "SELECT us + 2 * (UUID_SHORT() & 16777215) FROM test_clock";

fn driven(config: Config) -> Config {
    config.with_clock(DRIVEN_CLOCK)
}

harness!(
    Driven,
    "mariadb",
    Time::Driven,
    Backend,
    identity,
    &[Need::Fault(FaultKind::ServerKilled)],
    {
        const ROUNDS: Rounds = Rounds::Few;
    }
);
harness!(Real, "mariadb, real time", Time::Real, Backend, identity, family::FAULTS, {
    const SUBJECTS: &[Subject] = &[Subject::Load, Subject::Network];
});
harness!(
    WriteLock,
    "mariadb, write lock",
    Time::Driven,
    AsMutex<Backend>,
    AsMutex::write_lock,
    &[Need::Fault(FaultKind::ServerKilled)],
    {
        const GROUPS: Groups = Groups::OF_KIND;
        const ROUNDS: Rounds = Rounds::Few;
    }
);

fn main() -> ExitCode {
    Suites::new()
        .with::<Driven>("")
        .with::<Real>("real_time")
        .with::<WriteLock>("write_lock")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
