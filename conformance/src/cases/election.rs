//! An election has one leader at a time, which publishes a value that other clients can read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_core::backend::Operation;
use leasehold_core::election::{Election, Observer};
use leasehold_core::fault::{Fault, Notifications};
use leasehold_core::retry::Retry;
use leasehold_core::{ErrorKind, LockOptions, LossReason};
use tokio::task::JoinSet;

use super::cancellation::{MANY, polled};
use super::{granularity, longest, start_to_wait};
use crate::scene::Scene;
use crate::stalls::Measured;

/// The longest time between two polls of an observer, even without notifications.
const POLL: Duration = Duration::from_secs(1);

fn long(scene: &Scene) -> LockOptions {
    scene.options().ttl(scene.long_ttl())
}

/// Returns the leader's value as the store reports it, or `None` if there is no leader.
async fn shown(election: &Election) -> Option<String> {
    election.leader().await.unwrap().map(|leader| leader.value().to_string())
}

/// Returns the observer's next report. The report must arrive within the time `within` plus the
/// slack.
async fn told(scene: &Scene, observer: &mut Observer, within: Duration) -> Option<String> {
    let told = scene.within(within + scene.slack(), observer.next()).await;
    let told = told
        .unwrap_or_else(|| panic!("the observer: found no report, expected one within {within:?}"));
    told.unwrap().map(|leader| leader.value().to_string())
}

/// Checks that an observer reports every change in time: a leader is elected, changes its value and
/// resigns, and another leader is elected.
async fn tells_of_every_change(
    scene: &Scene,
    election: &Election,
    mut observer: Observer,
) -> Vec<Duration> {
    found!(
        told(scene, &mut observer, Duration::ZERO).await,
        "the observer's first report named a leader, although there was no leader"
    )
    .is(None);

    let mut after = Vec::new();
    let mut tells = async |value: Option<&str>| {
        let changed_at = scene.now();
        found!(told(scene, &mut observer, POLL).await.as_deref()).is(value);
        after.push(scene.now().since(changed_at));
    };
    let term = election.campaign("one").await.unwrap();
    tells(Some("one")).await;
    for value in ["another", "and a third"] {
        term.proclaim(value).await.unwrap();
        tells(Some(value)).await;
    }
    term.resign().await.unwrap();
    tells(None).await;
    let next = election.campaign("the next").await.unwrap();
    tells(Some("the next")).await;
    next.resign().await.unwrap();
    after
}

pub(crate) async fn at_most_one_leads_at_a_time(scene: &Scene) {
    const ROUNDS: usize = 8;

    let key = scene.key();
    let (leading, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let mut candidates = JoinSet::new();
    for fair in [false, false, true] {
        let client = scene.client_with(long(scene).fair(fair)).await;
        for name in ["one", "other"] {
            let election = client.election(&key).unwrap();
            let (leading, last) = (Arc::clone(&leading), Arc::clone(&last));
            candidates.spawn(async move {
                for round in 0..ROUNDS {
                    let term = election.campaign(name).await.unwrap();
                    found!(
                        leading.fetch_add(1, Ordering::SeqCst),
                        "two candidates were the leader at the same time"
                    )
                    .is(0);
                    let token = term.token().number();
                    found!(last.swap(token, Ordering::SeqCst), "the previous leader's token")
                        .less_than(token);
                    tokio::task::yield_now().await;
                    leading.fetch_sub(1, Ordering::SeqCst);
                    if round % 2 == 0 {
                        term.resign().await.unwrap();
                    }
                }
            });
        }
    }
    while let Some(done) = candidates.join_next().await {
        done.unwrap();
    }

    let (one, other) = (scene.client().await, scene.client().await);
    let (one, other) = (one.election(&key).unwrap(), other.election(&key).unwrap());
    scene.until_free(&key, Duration::ZERO).await;
    let term = one.try_campaign("one").await.expect("the only candidate did not become the leader");
    found!(other.try_campaign("other").await).is_busy();
    found!(one.try_campaign("one").await, "the second candidate of the same process").is_busy();
    term.resign().await.unwrap();
}

pub(crate) async fn a_resignation_hands_over_at_once(scene: &Scene) {
    let key = scene.key();
    let often = Retry::unlimited().every(scene.ttl() / 10);
    let options = long(scene).retry(often);
    let (one, _faults) = scene.faulty_with(options.clone()).await;
    let (other, _faults) = scene.faulty_with(options).await;
    let mut term = one.election(&key).unwrap().campaign("first").await.unwrap();
    let within = scene.ttl() / 10 + scene.slack();

    // The observer also reports the end of a leadership that is only dropped.
    for (client, resigns) in [(&other, true), (&one, false), (&other, true)] {
        let election = client.election(&key).unwrap();
        let campaign = async move { election.campaign("next").await.unwrap() };
        let next = start_to_wait(scene, client, campaign).await;
        found!(next.is_finished()).is(false);

        if resigns {
            term.resign().await.unwrap();
        } else {
            drop(term);
        }

        term = scene
            .within(within, next)
            .await
            .expect("the next candidate had to wait for the TTL of the former leader")
            .unwrap();
    }
    term.resign().await.unwrap();
}

pub(crate) async fn a_dead_leader_is_succeeded_within_a_ttl_and_knew_before(
    scene: &Scene,
) -> Measured {
    let key = scene.key();
    let (dying, faults) = scene.faulty().await;
    let (client, _faults) = scene.faulty().await;
    let term = dying.election(&key).unwrap().campaign("the dead").await.unwrap();
    let election = client.election(&key).unwrap();
    let campaign = async move { election.campaign("the next").await.unwrap() };
    let next = start_to_wait(scene, &client, campaign).await;

    for operation in [Operation::Renew, Operation::Release] {
        faults.inject(operation, Fault::Fail(ErrorKind::Unavailable), 10_000);
    }
    let died_at = scene.now();
    let next = next.await.unwrap();

    let after = scene.now().since(died_at);
    let latest = longest(scene, client.backend(), scene.ttl());
    scene.in_time("the next candidate becomes the leader", after, latest)?;
    found!(term.deadline(), "the dead leader still considers itself the leader")
        .less_than(scene.now());
    found!(term.is_held(), "the dead leader still considers itself the leader").is(false);
    found!(term.lost().await).is(Some(LossReason::Expired));
    found!(next.token().number()).more_than(term.token().number());
    next.resign().await.unwrap();
    Ok(())
}

pub(crate) async fn a_proclamation_is_seen_by_all(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let other = scene.client().await.election(&key).unwrap();
    found!(shown(&other).await).is(None);

    let term = client.election(&key).unwrap().campaign("one").await.unwrap();
    found!(shown(&other).await.as_deref()).is(Some("one"));
    let fingerprint = other.leader().await.unwrap().unwrap().fingerprint();

    // Renewals preserve the value.
    term.proclaim("another").await.unwrap();
    for _ in 0..3 {
        found!(shown(&other).await.as_deref()).is(Some("another"));
        scene.pass(scene.ttl() / 2).await;
    }

    // The observer reports the value even if the store did not receive it immediately.
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1);
    let error = term.proclaim("a third").await.unwrap_err();
    found!(error.kind(), "{error}").is(ErrorKind::Unavailable);
    let is_shown = async || shown(&other).await.as_deref() == Some("a third");
    scene.until("the store shows the new value", scene.ttl() / 3, is_shown).await;

    found!(other.leader().await.unwrap().unwrap().fingerprint()).is(fingerprint);
    term.resign().await.unwrap();
    found!(shown(&other).await).is(None);
}

pub(crate) async fn an_observer_is_told_of_every_change(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client_with(long(scene)).await, scene.client().await);
    let observer = other.election(&key).unwrap().observe();

    tells_of_every_change(scene, &client.election(&key).unwrap(), observer).await;
}

pub(crate) async fn an_observer_is_told_at_once_where_the_store_tells(scene: &Scene) {
    let key = scene.key();
    let (client, other) = (scene.client_with(long(scene)).await, scene.client().await);
    let (election, observed) = (client.election(&key).unwrap(), other.election(&key).unwrap());

    // A busy machine delays a report only sometimes. Without notifications, the observer finds each
    // change by polling, so every report is late.
    let mut soonest = vec![Duration::MAX; 5];
    for _ in 0..3 {
        let after = tells_of_every_change(scene, &election, observed.observe()).await;
        soonest = soonest.into_iter().zip(after).map(|(one, other)| one.min(other)).collect();
    }
    found!(
        soonest.iter().all(|after| *after < POLL / 2),
        "{soonest:?} are the shortest times to a report, and all are short"
    )
    .is(true);
}

pub(crate) async fn an_observer_without_news_looks_all_the_same(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(long(scene)).await;
    let (deaf, faults) = scene.faulty().await;
    faults.set_notifications(Notifications::Muted);
    let observer = deaf.election(&key).unwrap().observe();

    tells_of_every_change(scene, &client.election(&key).unwrap(), observer).await;
}

pub(crate) async fn an_observer_sees_a_leader_die(scene: &Scene) {
    let key = scene.key();
    let (dying, faults) = scene.faulty().await;
    let other = scene.client().await;
    let mut observer = other.election(&key).unwrap().observe();
    let term = dying.election(&key).unwrap().campaign("the dead").await.unwrap();
    found!(told(scene, &mut observer, Duration::ZERO).await.as_deref()).is(Some("the dead"));

    // The observer must not report renewals.
    let quiet = scene.within(scene.ttl() * 3 / 2, observer.next()).await;
    found!(quiet.is_none(), "the observer reports nothing, and reported {quiet:?}").is(true);
    for operation in [Operation::Renew, Operation::Release] {
        faults.inject(operation, Fault::Fail(ErrorKind::Unavailable), 10_000);
    }

    let within = scene.ttl() + granularity(dying.backend());
    found!(told(scene, &mut observer, within).await).is(None);
    found!(term.is_held(), "the dead leader still considers itself the leader").is(false);
    faults.heal();
    // Two clients may see the expiry at different times.
    scene.until_free(&key, granularity(dying.backend())).await;
}

pub(crate) async fn a_campaign_may_be_dropped_at_any_point(scene: &Scene) {
    let key = scene.key();
    let often = Retry::unlimited().every(Duration::from_millis(5));
    let holder = scene.client_with(long(scene)).await.election(&key).unwrap();
    let client = scene.client_with(long(scene).retry(often)).await;
    let election = client.election(&key).unwrap();
    let term = holder.campaign("first").await.unwrap();

    for polls in 0..20 {
        let (one, other) = (election.campaign("one"), election.campaign("other"));
        let (one, other) = tokio::join!(polled(scene, polls, one), polled(scene, polls, other));
        found!(one.is_none()).is(true);
        found!(other.is_none()).is(true);
    }
    term.resign().await.unwrap();
    let next = holder.try_campaign_for("next", scene.slack()).await.unwrap();
    next.resign().await.unwrap();

    for polls in 0..MANY {
        let completed = polled(scene, polls, election.campaign("one")).await;

        let done = completed.is_some();
        drop(completed);
        scene.until_free(&key, Duration::ZERO).await;
        if done {
            return;
        }
    }
    panic!("the campaign did not finish: found no result after {MANY} polls, expected one");
}
