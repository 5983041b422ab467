//! A lease lasts as long as its guard, unless the store revokes it.

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::backend::{Claim, LockBackend, Operation, Renewal};
use leasehold_core::fault::{Fault, Notifications};
use leasehold_core::{ErrorKind, LeaseState, LockGuard, LossReason, Mutex, RenewalMode};

use super::{begun, grant, granularity, until_held};
use crate::fault::FaultKind;
use crate::harness::Time;
use crate::scene::Scene;
use crate::stalls::Measured;

pub(crate) async fn a_lock_is_kept_for_many_ttls(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let token = guard.token().clone();

    for _ in 0..3 {
        scene.pass(scene.ttl()).await;
        found!(guard.state()).is(LeaseState::Held);
        found!(scene.probe(&key).await.is_some()).is(true);
    }

    found!(*guard.token()).is(token);
    let renewals = faults.calls(Operation::Renew);
    found!((6..18).contains(&renewals), "{renewals} renewals in three TTLs are between 6 and 17")
        .is(true);
    guard.release().await.unwrap();
}

pub(crate) async fn a_forged_id_renews_nothing(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    let short = scene.ttl() / 2;
    let lease = scene.lease(&key).with_ttl(short);
    grant(&backend, &lease).await;

    let forged = scene.lease(&key).with_ttl(scene.long_ttl());
    found!(backend.renew(&forged).await.unwrap()).is(Renewal::Taken);

    let holder = scene.probe(&key).await.expect("the lease has not expired yet");
    found!(holder.fingerprint()).is(lease.id().fingerprint());
    scene.until_free(&key, short + granularity(&backend)).await;
    found!(backend.renew(&forged).await.unwrap()).is(Renewal::Vanished);
    found!(scene.probe(&key).await).is(None);
}

pub(crate) async fn a_renewal_that_hangs_is_repeated_in_time(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);

    scene.pass(scene.ttl() * 3 / 2).await;

    found!(guard.state()).is(LeaseState::Held);
    guard.release().await.unwrap();
}

pub(crate) async fn failing_renewals_make_a_lease_unconfirmed_and_then_lost(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let deadline = guard.deadline();
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1_000);

    found!(guard.unconfirmed().await).is(LeaseState::Unconfirmed);
    found!(scene.now(), "the time when the lease became unconfirmed").less_than(deadline);
    found!(guard.is_held()).is(true);
    found!(guard.lost().await).is(Some(LossReason::Expired));

    let late = scene.now().since(deadline);
    found!(late, "the time from the deadline to the reported loss").at_most(scene.slack());
    drop(guard);
}

pub(crate) async fn an_unconfirmed_lease_is_held_again_once_a_renewal_succeeds(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 2);

    found!(guard.unconfirmed().await).is(LeaseState::Unconfirmed);

    until_held(scene, &guard, scene.ttl(), "the lease is confirmed again").await;
    guard.release().await.unwrap();
}

pub(crate) async fn renewals_go_on_over_a_new_connection(scene: &Scene) -> Measured {
    let key = scene.key();
    let client = scene.client().await;
    scene.stalls();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    for _ in 0..3 {
        scene.disturb(FaultKind::ConnectionsKilled).await;
        scene.pass(scene.ttl() / 2).await;
    }

    scene.kept([&guard], scene.ttl() * 3 / 2)?;
    guard.release().await.unwrap();
    Ok(())
}

pub(crate) async fn a_short_silence_costs_no_lock(scene: &Scene) -> Measured {
    let key = scene.key();
    let client = scene.client().await;
    scene.stalls();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    scene.disturb(FaultKind::NetworkSilent).await;
    scene.pass(scene.ttl() / 3).await;
    scene.heal().await;
    scene.pass(scene.ttl() * 3 / 2).await;

    scene.kept([&guard], scene.ttl() * 11 / 6)?;
    guard.release().await.unwrap();
    Ok(())
}

pub(crate) async fn a_definite_no_is_a_loss_at_once_and_the_end_of_renewals(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    // Without notifications, the client detects the theft only with its next renewal, after the
    // theft is complete.
    faults.set_notifications(Notifications::Muted);
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    let thief = client.backend().steal(&key, scene.ttl() * 4).await.unwrap();
    found!(guard.lost().await).is(Some(LossReason::Taken));

    let renewals = faults.calls(Operation::Renew);
    scene.pass(scene.ttl()).await;
    found!(faults.calls(Operation::Renew), "the client renewed a lost lease").is(renewals);
    drop(guard);
    scene.pass(scene.ttl() / 2).await;
    let holder = scene.probe(&key).await.expect("the client removed another holder's lease");
    found!(holder.fingerprint()).is(thief.id().fingerprint());
    client.backend().release(&thief).await.unwrap();
}

pub(crate) async fn an_acknowledgement_after_the_deadline_revives_nothing(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let deadline = guard.deadline();
    // The client sends the third attempt one sixth of a TTL before the lease expires, and receives
    // the confirmation after the deadline.
    faults.inject(Operation::Renew, Fault::SwallowRequest, 2);
    faults.inject(Operation::Renew, Fault::DelayReply(scene.ttl() * 16 / 100), 1);

    let reason = guard.lost().await;

    found!(reason).is(Some(LossReason::Expired));
    found!(scene.now()).at_least(deadline);
    scene.pass(scene.ttl()).await;
    found!(guard.state()).is(LeaseState::Lost(LossReason::Expired));
    drop(guard);
}

pub(crate) async fn a_renewal_that_races_a_release_never_brings_the_key_back(scene: &Scene) {
    let key = scene.key();
    let backend = scene.backend().await;
    for _ in 0..scene.rounds(1_000) {
        let lease = scene.lease(&key);
        grant(&backend, &lease).await;

        let leases = [lease.clone()];
        let (released, renewed) = tokio::join!(backend.release(&lease), backend.renew_all(&leases));

        released.unwrap();
        found!(renewed.iter().all(Result::is_ok), "all renewals succeed: {renewed:?}").is(true);
        found!(scene.probe(&key).await, "a concurrent renewal restored a released lease").is(None);
    }
}

pub(crate) async fn nothing_is_renewed_after_its_release(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let mutex = client.mutex(&key).unwrap();
    for _ in 0..20 {
        let guard = mutex.lock().await.unwrap();
        guard.release().await.unwrap();
        drop(mutex.lock().await.unwrap());
    }
    scene.until_free(&key, Duration::ZERO).await;

    let renewals = faults.calls(Operation::Renew);
    scene.pass(scene.ttl()).await;

    found!(faults.calls(Operation::Renew)).is(renewals);
}

pub(crate) async fn a_thousand_locks_are_all_renewed(scene: &Scene) -> Measured {
    const LOCKS: usize = 1_000;

    /// A larger number of leases would only test the speed of the machine.
    const TOGETHER: usize = 50;

    // Enough time to renew all leases on a busy machine.
    let ttl = scene.ttl() * 3 / 2;
    scene.stalls();
    let client = scene.client_with(scene.options().ttl(ttl)).await;
    let name = scene.key();
    let mutexes = (0..LOCKS).map(|n| client.mutex(format!("{name}/{n}")).unwrap());
    let mutexes: Vec<_> = mutexes.collect();
    let mut guards = Vec::new();
    for some in mutexes.chunks(TOGETHER) {
        guards.extend(try_join_all(some.iter().map(Mutex::lock)).await.unwrap());
    }

    scene.pass(ttl * 5 / 4).await;

    scene.kept(&guards, ttl * 5 / 4)?;
    client.shutdown(scene.ttl() * 10).await.unwrap();
    Ok(())
}

pub(crate) async fn an_old_watchdog_leaves_a_new_lease_alone(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let first = client.mutex(&key).unwrap().lock().await.unwrap();
    first.release().await.unwrap();

    let unrenewed = scene.options().renewal(RenewalMode::Off);
    let second = client.mutex(&key).unwrap().with_options(unrenewed).unwrap();
    let second = second.lock().await.unwrap();
    scene.pass(scene.ttl()).await;

    found!(second.state()).is(LeaseState::Lost(LossReason::Expired));
    found!(faults.calls(Operation::Renew)).is(0);
    drop(second);
}

pub(crate) async fn a_renewal_that_always_hangs_costs_no_other_lock(scene: &Scene) {
    let (client, faults) = scene.faulty().await;
    let stuck = client.mutex(scene.key()).unwrap().lock().await.unwrap();
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(client.mutex(scene.key()).unwrap().lock().await.unwrap());
    }

    // The leases are renewed together until one of them delays the remaining leases.
    faults.inject_on(stuck.key(), Operation::Renew, Fault::SwallowRequest, 1_000);
    scene.pass(scene.ttl() * 2).await;

    found!(stuck.is_held()).is(false);
    found!(others.iter().all(LockGuard::is_held)).is(true);
    drop((stuck, others));
}

pub(crate) async fn max_hold_ends_a_lease_that_is_renewed(scene: &Scene) {
    let key = scene.key();
    let limit = scene.ttl() * 2;
    let client = scene.client_with(scene.options().max_hold(limit)).await;
    let locked_at = scene.now();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(guard.lost().await).is(Some(LossReason::MaxHold));

    let held = scene.now().since(locked_at);
    found!(held, "the time for which the lock was held").more_than(limit - scene.ttl() / 2);
    found!(held, "the time for which the lock was held").less_than(limit + scene.slack());
    scene.until_free(&key, limit.saturating_sub(held) + granularity(client.backend())).await;
    drop(guard);
}

pub(crate) async fn max_hold_may_be_shorter_than_the_ttl(scene: &Scene) {
    let key = scene.key();
    let limit = scene.ttl();
    let options = scene.options().ttl(scene.long_ttl()).max_hold(limit);
    let client = scene.client_with(options).await;
    let locked_at = scene.now();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(guard.lost().await).is(Some(LossReason::MaxHold));

    let held = scene.now().since(locked_at);
    found!(held, "the time for which the lock was held").less_than(limit + scene.slack());
    scene.until_free(&key, limit.saturating_sub(held) + granularity(client.backend())).await;
}

pub(crate) async fn max_hold_limits_an_extension(scene: &Scene) {
    let key = scene.key();
    let limit = scene.ttl() * 2;
    let client = scene.client_with(scene.options().max_hold(limit)).await;
    let locked_at = scene.now();
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    guard.extend(scene.long_ttl()).await.unwrap();

    let held_until = guard.deadline().since(locked_at);
    found!(held_until, "the time from the grant to the deadline").at_most(limit + scene.slack());
    found!(guard.lost().await).is(Some(LossReason::MaxHold));
    let held = scene.now().since(locked_at);
    found!(held, "the time for which the lock was held").less_than(limit + scene.slack());
    scene.until_free(&key, limit.saturating_sub(held) + granularity(client.backend())).await;
}

pub(crate) async fn extending_moves_the_lease_in_the_store_and_here(scene: &Scene) {
    let key = scene.key();
    let client = scene.client_with(scene.options().renewal(RenewalMode::Off)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    for ttl in [scene.long_ttl(), scene.ttl() * 2] {
        guard.extend(ttl).await.unwrap();

        let stored = scene.probe(&key).await.unwrap().remaining().unwrap();
        found!(stored, "the time for which the store keeps the lease").at_most(ttl);
        found!(stored + scene.slack(), "the time for which the store keeps the lease")
            .more_than(ttl);
        found!(guard.remaining()).less_than(ttl);
        found!(guard.remaining() + scene.slack()).more_than(ttl * 9 / 10);
    }
    guard.release().await.unwrap();
}

pub(crate) async fn shortening_moves_the_deadline_before_the_store_answers(scene: &Scene) {
    let key = scene.key();
    let options = scene.options().ttl(scene.long_ttl()).renewal(RenewalMode::Off);
    let (client, faults) = scene.faulty_with(options).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::LoseReply, 1);

    let error = guard.extend(scene.ttl()).await.unwrap_err();

    found!(error.kind()).is(ErrorKind::Indeterminate);
    found!(guard.remaining()).less_than(scene.ttl());
    guard.release().await.unwrap();
}

pub(crate) async fn an_extension_that_fails_takes_nothing_away(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().renewal(RenewalMode::Off)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    let deadline = guard.deadline();
    faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1);

    let error = guard.extend(scene.ttl() * 3).await.unwrap_err();

    found!(error.kind()).is(ErrorKind::Unavailable);
    found!(guard.deadline()).is(deadline);
    found!(guard.is_held()).is(true);
    found!(scene.probe(&key).await.is_some()).is(true);
    guard.release().await.unwrap();
}

pub(crate) async fn an_extension_that_hangs_ends_with_the_lease(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().renewal(RenewalMode::Off)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);

    let extended = scene.within(scene.ttl() + scene.slack(), guard.extend(scene.long_ttl())).await;

    let error = extended
        .expect("an extension without a reply did not fail when the lease expired")
        .unwrap_err();
    found!(error.kind(), "{error}").is(ErrorKind::LeaseLost);
    // The store keeps the lease for the additional time that the holder allows for clock drift.
    scene.until_free(&key, granularity(client.backend()) + scene.ttl() / 50).await;
}

pub(crate) async fn an_extension_that_is_dropped_does_not_end_renewals(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty().await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    // The next renewal is either due after the guard is dropped or in progress when the guard is
    // dropped.
    for dropped_after in [scene.ttl() / 10, scene.ttl() * 2 / 5] {
        guard.extend(scene.ttl()).await.unwrap();
        faults.inject(Operation::Renew, Fault::SwallowRequest, 1);
        let extension = begun(guard.extend(scene.ttl()));
        scene.pass(dropped_after).await;
        drop(extension);

        scene.pass(scene.ttl() * 5 / 4).await;
        until_held(scene, &guard, Duration::ZERO, "the lease is renewed").await;
    }
    guard.release().await.unwrap();
}

pub(crate) async fn a_stalled_process_sees_the_loss_first(scene: &Scene) {
    let key = scene.key();
    let client = scene.client().await;
    let mutex = client.mutex(&key).unwrap();
    let stall = scene.ttl() * 2;
    let check = async |guard: LockGuard| {
        found!(guard.is_held(), "the first check after the stall reports the lease as held")
            .is(false);
        let ran = guard.while_held(async { "ran" }).await;
        found!(ran.unwrap_err().kind()).is(ErrorKind::LeaseLost);
    };

    if scene.time() != Time::Real {
        let guard = mutex.lock().await.unwrap();
        scene.skip(stall).await;
        check(guard).await;
        return;
    }
    // The runtime has a single thread, so a blocked task blocks everything, including renewals.
    let stalled = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let guard = mutex.lock().await.unwrap();
            std::thread::sleep(stall);
            check(guard).await;
        });
    });
    let join = async || stalled.is_finished();
    scene.until("the stalled process finishes", stall * 2, join).await;
    stalled.join().unwrap();
}

pub(crate) async fn without_a_watchdog_nothing_is_written(scene: &Scene) {
    let key = scene.key();
    let (client, faults) = scene.faulty_with(scene.options().renewal(RenewalMode::Off)).await;
    let guard = client.mutex(&key).unwrap().lock().await.unwrap();

    found!(guard.lost().await).is(Some(LossReason::Expired));

    found!(faults.calls(Operation::Renew)).is(0);
    found!(faults.calls(Operation::Release)).is(0);
    drop(guard);
}

pub(crate) async fn a_renewal_puts_the_full_ttl_in_force(scene: &Scene) {
    let key = scene.key();
    let (backend, other) = (scene.backend().await, scene.backend().await);
    let lease = scene.lease(&key);
    grant(&backend, &lease).await;

    for _ in 0..3 {
        scene.pass(scene.ttl() * 3 / 5).await;
        found!(backend.renew(&lease).await.unwrap()).is(Renewal::Renewed);
    }
    let claim = Claim::new(scene.lease(&key));
    found!(other.acquire(&claim).await.unwrap()).is_refused();
    backend.release(&lease).await.unwrap();

    found!(backend.renew(&lease).await.unwrap()).is(Renewal::Vanished);
    grant(&other, claim.lease()).await;
    found!(backend.renew(&lease).await.unwrap()).is(Renewal::Taken);
    other.release(claim.lease()).await.unwrap();
}
