//! Clocks that jump, and that run slow.

use super::*;
use leasehold_core::backend::StoreAdmin as _;

#[tokio::test(start_paused = true)]
async fn that_jump_over_the_deadline_end_belief_before_anything_runs() {
    let clock = TestClock::new();
    let Fixture { client, .. } = Fixture::on(clock.clone(), options());
    let guard = lock(&client).await;
    assert!(guard.is_held());

    // As after a suspended machine wakes: its clock has gone on, its timers have not.
    clock.jump(ms(60_000));

    assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    assert_eq!(guard.while_held(async {}).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(guard.lost().await, Some(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn that_jump_while_work_is_done_end_it_before_it_is_polled_again() {
    let clock = TestClock::new();
    let Fixture { client, .. } = Fixture::on(clock.clone(), options());
    let guard = lock(&client).await;

    let mut polls = 0;
    let work = guard.while_held(poll_fn(|_cx| {
        polls += 1;
        clock.jump(ms(60_000));
        if polls == 1 { Poll::Pending } else { Poll::Ready("done") }
    }));
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());

    // Another event polls the work again before any timer has fired.
    assert!(work.as_mut().poll(&mut cx).is_pending());
    let Poll::Ready(ran) = work.as_mut().poll(&mut cx) else { panic!("it waits for timers") };
    assert_eq!(ran.unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[tokio::test(start_paused = true)]
async fn that_jump_while_the_store_answers_make_the_grant_worthless() {
    let clock = TestClock::new();
    let Fixture { client, faults, store, .. } = Fixture::on(clock.clone(), options());
    // The process is paused for a minute between the store's reply and the next step of the client.
    faults.on_reply(move |_request, reply| {
        clock.jump(ms(60_000));
        Ok(reply)
    });

    let error = Error::from(client.mutex("k").unwrap().try_lock().await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    pass(ms(10)).await;
    assert_eq!(store.keys(), 0, "it was not given back");
}

#[tokio::test(start_paused = true)]
async fn that_run_one_percent_slow_believe_no_longer_than_the_store() {
    let unrenewed = options().renewal(RenewalMode::Off);
    let Fixture { client, store, .. } = Fixture::on(TestClock::slow(99), unrenewed);
    let guard = lock(&client).await;

    while guard.is_held() {
        let held = store.inspect(guard.key()).await.unwrap().is_held();
        assert!(held, "the store has freed a lease that the client believes to hold");
        pass(ms(1)).await;
    }
}

/// A suspended machine stops timers, and its clock goes on.
#[tokio::test(start_paused = true)]
async fn of_the_system_are_read_every_second_of_a_sleep() {
    let mut sleep = SystemClock.sleep_until(SystemClock.now() + ms(3_600_000));
    let mut reads = 0;
    let sleep = poll_fn(|cx| {
        reads += 1;
        sleep.as_mut().poll(cx)
    });

    let ended = tokio::time::timeout(ms(10_500), sleep).await;

    assert!(ended.is_err(), "an hour has not passed");
    assert!((11..=12).contains(&reads), "{reads} in 10.5 s");
}

#[cfg(target_os = "linux")]
mod of_linux {
    use std::process::Command;

    use super::*;

    const INSIDE: &str = "LEASEHOLD_TEST_WAS_SUSPENDED";

    /// The time since boot, with suspensions, as the kernel tells it in hundredths of a second.
    fn uptime() -> Instant {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds = uptime.split(' ').next().unwrap().parse().unwrap();
        Instant::from_zero(Duration::from_secs_f64(seconds))
    }

    /// Runs a program as if the machine had been suspended for a day, where the kernel allows that: its output, if it succeeds.
    fn suspended(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Option<String> {
        let day = ["--user", "--map-root-user", "--time", "--boottime", "86400", "--"];
        let mut unshare = Command::new("unshare");
        let unshare = unshare.args(day).arg(program).args(args).env(INSIDE, "");
        let output = unshare.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn count_the_time_of_a_suspension() {
        let (earliest, now, latest) = (uptime(), SystemClock.now(), uptime() + ms(10));
        assert!(earliest <= now && now <= latest, "{now:?} is not in {earliest:?}..={latest:?}");

        // A machine that was never suspended shows no difference between its clocks.
        if std::env::var_os(INSIDE).is_none() && suspended("true", &[]).is_some() {
            let (_, here) = module_path!().split_once("::").unwrap();
            let (program, test) = (
                std::env::current_exe().unwrap(),
                format!("{here}::count_the_time_of_a_suspension"),
            );
            let said = suspended(program, &["--exact", &test]).unwrap_or_default();
            assert!(said.contains("1 passed"), "it stood still for a day: {said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn that_fall_a_second_behind_the_time_of_day_have_leases_renewed_within_a_second() {
    for (ahead, renewals) in [(999, 0), (1_000, 1)] {
        let clock = TestClock::with_time_of_day();
        let Fixture { client, faults, .. } = Fixture::on(clock.clone(), options());
        let guard = lock(&client).await;
        pass(ms(100)).await;

        clock.jump_time_of_day(ms(ahead));
        pass(ms(1_001)).await;

        assert_eq!(faults.calls(Operation::Renew), renewals, "{ahead} ms ahead");
        assert_eq!(guard.state(), LeaseState::Held);
        pass(ms(5_000)).await;
        assert_eq!(faults.calls(Operation::Renew), renewals, "once is enough");
    }
}

#[tokio::test(start_paused = true)]
async fn that_fall_behind_the_time_of_day_leave_a_lease_unconfirmed_until_the_store_has_confirmed_it()
 {
    let clock = TestClock::with_time_of_day();
    let Fixture { client, faults, .. } = Fixture::on(clock.clone(), options());
    let guard = lock(&client).await;
    pass(ms(100)).await;
    faults.inject(Operation::Renew, Fault::SwallowRequest, 1);

    clock.jump_time_of_day(ms(3_600_000));
    pass(ms(1_001)).await;

    assert_eq!((guard.state(), faults.calls(Operation::Renew)), (LeaseState::Unconfirmed, 1));
    pass(TTL / 2).await;
    assert_eq!((guard.state(), faults.calls(Operation::Renew)), (LeaseState::Held, 2));
}

/// The reply was on its way while the machine was paused.
#[tokio::test(start_paused = true)]
async fn that_fall_behind_the_time_of_day_make_the_reply_to_an_earlier_renewal_worthless() {
    let clock = TestClock::with_time_of_day();
    let Fixture { client, faults, .. } = Fixture::on(clock.clone(), options());
    let guard = lock(&client).await;
    faults.inject(Operation::Renew, Fault::DelayReply(ms(2_000)), 1);
    faults.inject(Operation::Renew, Fault::SwallowRequest, 100);
    pass(TTL / 3 + ms(100)).await;
    assert_eq!(faults.calls(Operation::Renew), 1, "a renewal is under way");
    let deadline = guard.deadline();

    clock.jump_time_of_day(ms(3_600_000));
    pass(ms(3_000)).await;

    assert_eq!((guard.state(), guard.deadline()), (LeaseState::Unconfirmed, deadline));
}

/// The store's refusal was on its way while the machine was paused.
#[tokio::test(start_paused = true)]
async fn that_fall_behind_the_time_of_day_do_not_hide_a_loss_in_the_reply_to_an_earlier_renewal() {
    for (is_stolen, reason) in [(false, LossReason::Vanished), (true, LossReason::Taken)] {
        let clock = TestClock::with_time_of_day();
        let Fixture { client, faults, .. } = Fixture::on(clock.clone(), options());
        faults.set_notifications(Notifications::Muted);
        let guard = lock(&client).await;
        if is_stolen {
            client.backend().steal(guard.key(), TTL * 2).await.unwrap();
        } else {
            client.backend().expire(guard.key()).await.unwrap();
        }
        faults.inject(Operation::Renew, Fault::DelayReply(ms(3_000)), 1);
        faults.inject(Operation::Renew, Fault::SwallowRequest, 100);
        pass(TTL / 3 + ms(100)).await;
        assert_eq!(faults.calls(Operation::Renew), 1, "a renewal is under way");

        clock.jump_time_of_day(ms(3_600_000));
        pass(ms(1_500)).await;
        assert_eq!((guard.state(), faults.calls(Operation::Renew)), (LeaseState::Unconfirmed, 2));
        pass(ms(1_500)).await;

        assert_eq!(guard.state(), LeaseState::Lost(reason));
    }
}
