//! The outcomes of a call: done, busy, skipped, lost.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, LockGuard, LockOptions, LossReason, locked};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{AppError, client, store};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Counts how often it has worked.
struct Job {
    locks: LockClient,
    runs: AtomicU32,
}

impl Job {
    /// Two jobs whose clients have nothing in common but their store.
    fn pair() -> [Self; 2] {
        Self::pair_with(LockOptions::new())
    }

    fn pair_with(options: LockOptions) -> [Self; 2] {
        let store = store();
        [(); 2].map(|()| Self { locks: client(&store, options.clone()), runs: AtomicU32::new(0) })
    }

    fn run(&self) -> u32 {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    async fn hold(&self) -> LockGuard {
        self.locks.mutex("job").unwrap().try_lock().await.expect("it is free")
    }

    async fn is_free(&self) -> bool {
        !self.locks.mutex("job").unwrap().is_locked().await.unwrap()
    }

    #[locked(key = "job", client = self.locks)]
    async fn as_the_client_does(&self) -> Result<u32, AppError> {
        Ok(self.run())
    }

    #[locked(key = "job", client = self.locks, wait = "50ms")]
    async fn waits(&self) -> Result<u32, AppError> {
        Ok(self.run())
    }

    #[locked(key = "job", client = self.locks, retry = 2, every = "20ms")]
    async fn tries_three_times(&self) -> Result<u32, AppError> {
        Ok(self.run())
    }

    #[locked(key = "job", client = self.locks, wait = "50ms", every = "20ms")]
    async fn tries_while_it_waits(&self) -> Result<u32, AppError> {
        Ok(self.run())
    }

    #[locked(key = "job", client = self.locks, on_busy = error)]
    async fn errs(&self) -> Result<u32, AppError> {
        Ok(self.run())
    }

    #[locked(key = "job", client = self.locks, on_busy = skip)]
    async fn skips(&self) -> Result<Option<u32>, AppError> {
        Ok(Some(self.run()))
    }

    #[locked(key = "job", client = self.locks, on_busy = skip, wait = "50ms")]
    async fn waits_and_skips(&self) -> Result<Option<u32>, AppError> {
        Ok(Some(self.run()))
    }

    #[locked(key = "job", client = self.locks, on_busy = skip, retry = 2, every = "20ms")]
    async fn tries_and_skips(&self) -> Result<Option<u32>, AppError> {
        Ok(Some(self.run()))
    }
}

#[tokio::test(start_paused = true)]
async fn work_returns_its_output_and_the_lock_is_released() {
    let [job, _] = Job::pair();

    assert_eq!(job.as_the_client_does().await.unwrap(), 1);
    assert_eq!(job.skips().await.unwrap(), Some(2));

    assert!(job.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_an_error_after_the_wait() {
    for is_same_client in [true, false] {
        let [job, other] = Job::pair();
        let holder = if is_same_client { &job } else { &other };
        let _held = holder.hold().await;
        let start = Instant::now();

        let error = job.waits().await.unwrap_err();

        assert_eq!(error.kind(), Some(ErrorKind::Timeout));
        assert_eq!((start.elapsed(), job.runs()), (MS(50), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn retries_are_counted_after_the_first_attempt() {
    let [job, other] = Job::pair();
    let _held = other.hold().await;
    let start = Instant::now();

    let error = job.tries_three_times().await.unwrap_err();

    assert_eq!(error.kind(), Some(ErrorKind::Timeout));
    assert_eq!((start.elapsed(), job.runs()), (MS(40), 0));
}

#[tokio::test(start_paused = true)]
async fn retries_behind_a_caller_of_the_same_client_end_too() {
    let [job, _] = Job::pair();
    let _held = job.hold().await;
    let start = Instant::now();

    let error = job.tries_three_times().await.unwrap_err();

    assert_eq!(error.kind(), Some(ErrorKind::Timeout));
    assert_eq!((start.elapsed(), job.runs()), (MS(40), 0));
}

#[tokio::test(start_paused = true)]
async fn pauses_without_a_count_fill_the_wait() {
    let [job, other] = Job::pair();
    let _held = other.hold().await;
    let start = Instant::now();

    let error = job.tries_while_it_waits().await.unwrap_err();

    assert_eq!(error.kind(), Some(ErrorKind::Timeout));
    assert_eq!(start.elapsed(), MS(50));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_as_its_client_does_unless_told() {
    let [job, other] = Job::pair_with(LockOptions::new().wait(MS(70)));
    let _held = other.hold().await;

    let start = Instant::now();
    assert_eq!(job.as_the_client_does().await.unwrap_err().kind(), Some(ErrorKind::Timeout));
    assert_eq!(start.elapsed(), MS(70));
    assert_eq!(job.errs().await.unwrap_err().kind(), Some(ErrorKind::Timeout));
    assert_eq!(start.elapsed(), MS(140));
}

#[tokio::test(start_paused = true)]
async fn without_any_wait_a_call_waits_for_as_long_as_it_takes() {
    let [job, other] = Job::pair();
    let held = other.hold().await;
    let release = async {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(job.runs(), 0);
        held.release().await.unwrap();
    };

    let (done, ()) = tokio::join!(job.as_the_client_does(), release);

    assert_eq!(done.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_skipped_at_once() {
    for is_same_client in [true, false] {
        let [job, other] = Job::pair();
        let holder = if is_same_client { &job } else { &other };
        let _held = holder.hold().await;
        let start = Instant::now();

        assert_eq!(job.skips().await.unwrap(), None);

        assert_eq!((start.elapsed(), job.runs()), (Duration::ZERO, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_skips_waits_first_if_told() {
    let [job, other] = Job::pair();
    let held = other.hold().await;
    let start = Instant::now();
    assert_eq!(job.waits_and_skips().await.unwrap(), None);
    assert_eq!(start.elapsed(), MS(50));
    assert_eq!(job.tries_and_skips().await.unwrap(), None);
    assert_eq!(start.elapsed(), MS(90));

    let (done, released) = tokio::join!(job.waits_and_skips(), held.release());

    released.unwrap();
    assert_eq!(done.unwrap(), Some(1));
}

#[locked(key = "job", client = locks, on_busy = skip)]
async fn times_out_by_itself(locks: &LockClient) -> Result<Option<u32>, leasehold::Error> {
    Err(leasehold::Error::new(ErrorKind::Timeout, "of something else"))
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_work_is_no_skip() {
    let locks = client(&store(), LockOptions::new());

    assert_eq!(times_out_by_itself(&locks).await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[locked(key = "job", client = locks)]
async fn parses(locks: &LockClient, text: &str) -> Result<u32, AppError> {
    if text.is_empty() {
        return Ok(0);
    }
    Ok(text.parse::<u32>()?)
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_released_however_the_work_ends() {
    let locks = client(&store(), LockOptions::new());
    let mutex = locks.mutex("job").unwrap();

    assert_eq!(parses(&locks, "7").await.unwrap(), 7);
    assert!(!mutex.is_locked().await.unwrap());
    assert_eq!(parses(&locks, "").await.unwrap(), 0);
    assert!(!mutex.is_locked().await.unwrap());
    assert!(matches!(parses(&locks, "seven").await, Err(AppError::Number)));
    assert!(!mutex.is_locked().await.unwrap());
}

#[locked(key = "{name}", client = locks, ttl = "3ms")]
async fn with_a_bad_ttl(locks: &LockClient, name: &str) -> Result<(), AppError> {
    panic!("it ran under {name}")
}

#[tokio::test(start_paused = true)]
async fn bad_keys_and_options_are_errors_before_the_work() {
    let locks = client(&store(), LockOptions::new());

    for name in ["", "job"] {
        let error = with_a_bad_ttl(&locks, name).await.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Invalid), "{name:?}: {error:?}");
    }
}

#[locked(key = "job", client = locks, guard = guard)]
async fn works_until_it_is_dropped(
    locks: &LockClient,
    started: &Notify,
    resource: Arc<()>,
) -> Result<(), AppError> {
    let _resource = resource;
    guard.ensure_held(Duration::from_secs(1))?;
    started.notify_one();
    pending().await
}

#[tokio::test(start_paused = true)]
async fn a_loss_drops_the_work_and_is_an_error() {
    let locks = client(&store(), LockOptions::new());
    let (started, resource) = (Notify::new(), Arc::new(()));
    let operator = async {
        started.notified().await;
        assert_eq!(Arc::strong_count(&resource), 2);
        locks.admin().force_release("job", "test").await.unwrap();
    };

    let work = works_until_it_is_dropped(&locks, &started, Arc::clone(&resource));
    let (lost, ()) = tokio::join!(work, operator);

    let AppError::Lock(error) = lost.unwrap_err() else { panic!("another error") };
    assert_eq!((error.kind(), error.loss()), (ErrorKind::LeaseLost, Some(LossReason::Vanished)));
    assert_eq!(Arc::strong_count(&resource), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_releases_its_lock() {
    let locks = client(&store(), LockOptions::new());
    let started = Notify::new();

    tokio::select! {
        _ = works_until_it_is_dropped(&locks, &started, Arc::new(())) => panic!("it never ends"),
        () = started.notified() => {}
    }

    let freed = locks.mutex("job").unwrap().try_lock_for(Duration::from_secs(1)).await;
    assert!(freed.is_ok());
}

#[locked(key = "job", client = locks, ttl = "5s", guard = lease)]
async fn tells_of_its_lease(locks: &LockClient) -> Result<(Duration, u64, bool), AppError> {
    Ok((lease.remaining(), lease.token().number(), lease.is_held()))
}

#[tokio::test(start_paused = true)]
async fn the_guard_tells_of_the_lease_that_the_attribute_asks_for() {
    let locks = client(&store(), LockOptions::new());

    let (remaining, token, is_held) = tells_of_its_lease(&locks).await.unwrap();
    let (_, later, _) = tells_of_its_lease(&locks).await.unwrap();

    assert!(remaining > Duration::from_secs(4) && remaining <= Duration::from_secs(5));
    assert!(is_held && later > token);
}

#[locked(key = "job", client = locks, max_hold = "5s")]
async fn hangs(locks: &LockClient) -> Result<(), AppError> {
    pending().await
}

#[tokio::test(start_paused = true)]
async fn a_body_that_hangs_is_dropped_after_max_hold() {
    let locks = client(&store(), LockOptions::new());
    let started = tokio::time::Instant::now();

    let AppError::Lock(error) = hangs(&locks).await.unwrap_err() else { panic!("another error") };

    assert_eq!((error.kind(), error.loss()), (ErrorKind::LeaseLost, Some(LossReason::MaxHold)));
    assert!(started.elapsed() <= Duration::from_secs(5));
    let freed = locks.mutex("job").unwrap().try_lock_for(Duration::from_secs(1)).await;
    assert!(freed.is_ok());
}
