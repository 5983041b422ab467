//! The verb `release` in the hands of an operator, on any store.

use crate::support::{Running, code, leasehold_on, run_on, text};

/// Asks a holder that heeds it, and one that does not.
pub(crate) fn asks_for_the_lock(url: &str) {
    let ask_for_it = || leasehold_on(url).args(["release", "--ask", "job"]).output().unwrap();
    assert_eq!(code(&ask_for_it()), 1, "it is free");
    let deaf = "trap \"exit 3\" TERM; echo in; while true; do sleep 0.01; done";

    let mut holder = Running::start(&mut run_on(url, &[], deaf));
    assert_eq!(holder.line(), "in");
    assert_eq!(code(&ask_for_it()), 0);
    assert_eq!(holder.end().0, Some(3));

    let mut holder = Running::start(&mut run_on(url, &["--on-asked", "ignore"], deaf));
    assert_eq!(holder.line(), "in");
    assert_eq!(code(&ask_for_it()), 0);
    holder.signal("TERM");
    assert_eq!(holder.end().0, Some(3), "it went on until then");
}

/// Ends the lease of a holder, and of none.
pub(crate) fn forces_a_release(url: &str) {
    let mut holder = Running::start(&mut run_on(url, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
    let token: u64 = holder.line().parse().unwrap();

    let forced = leasehold_on(url).args(["release", "--force", "job"]).output().unwrap();

    assert_eq!(code(&forced), 0, "{}", text(&forced.stderr));
    let said = text(&forced.stdout);
    let (_, stale) = said.split_once("tokens below ").unwrap();
    let stale: u64 = stale.split(' ').next().unwrap().parse().unwrap();
    assert!(stale > token);
    let (exit, complaint) = holder.end();
    assert_eq!(exit, Some(76), "{complaint}");
    let next = run_on(url, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
    assert!(text(&next.stdout).trim().parse::<u64>().unwrap() >= stale);

    let again = leasehold_on(url).args(["release", "--force", "job"]).output().unwrap();
    assert_eq!((code(&again), text(&again.stdout).trim()), (1, "job: nothing to release"));
    let careless = leasehold_on(url).args(["release", "job"]).output().unwrap();
    assert_eq!(code(&careless), 64);
    assert!(text(&careless.stderr).contains("--ask"), "force is not the only way");
}
