//! Options that a store supports, and options that a client refuses.

use std::time::Duration;

use leasehold_core::backend::{Capabilities, Fencing};
use leasehold_core::fault::FaultBackend;
use leasehold_core::memory::MemoryBackend;
use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, LockClient, LockOptions, Mutex};

use crate::fixture::ms;

const STORE: Capabilities = Capabilities::new("store", Fencing::BestEffort);

fn mutex_on(store: Capabilities, options: LockOptions) -> Result<Mutex, Error> {
    let backend = FaultBackend::new(MemoryBackend::new()).with_capabilities(store);
    LockClient::new(backend).mutex("k")?.with_options(options)
}

fn refusal(options: LockOptions) -> Error {
    mutex_on(STORE, options).unwrap_err()
}

#[test]
fn the_defaults_are_possible() {
    mutex_on(STORE, LockOptions::default()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_default_ttl_fits_the_store_and_a_chosen_one_has_to() {
    let short = STORE.with_ttl_range(STORE.min_ttl(), ms(10_000));
    let chosen = LockOptions::new().ttl(LockOptions::DEFAULT_TTL);

    for (store, ttl) in [(STORE, LockOptions::DEFAULT_TTL), (short.clone(), ms(10_000))] {
        let guard = mutex_on(store, LockOptions::new()).unwrap().lock().await.unwrap();
        assert!(guard.remaining() <= ttl && guard.remaining() > ttl * 9 / 10);
    }
    assert_eq!(mutex_on(short, chosen).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn impossible_settings_are_refused() {
    let options = LockOptions::new();
    for impossible in [
        options.clone().ttl(Duration::ZERO),
        options.clone().ttl(ms(5)),
        options.clone().ttl(STORE.max_ttl() + ms(1)),
        options.clone().ttl(Duration::MAX),
        options.clone().max_hold(ms(1)),
        options.clone().min_hold(Duration::MAX),
        options.clone().min_hold(ms(200)).max_hold(ms(100)),
        options.clone().lock_delay(STORE.max_ttl()),
        options.clone().lock_delay(Duration::MAX),
        options.clone().min_validity(LockOptions::DEFAULT_TTL),
        options.clone().loss_grace(LockOptions::DEFAULT_TTL / 2),
        options.clone().reentry_limit(0),
        options.clone().retry(Retry::unlimited().every(Duration::ZERO)),
    ] {
        assert_eq!(refusal(impossible.clone()).kind(), ErrorKind::Invalid, "{impossible:?}");
    }
    assert_eq!(refusal(options.clone().fair(true)).kind(), ErrorKind::Unsupported);
    assert_eq!(refusal(options.require_fencing(Fencing::Strict)).kind(), ErrorKind::Unsupported);
}

#[test]
fn refusals_name_the_setting_and_the_times_that_are_possible() {
    let (options, day) = (LockOptions::new(), Duration::from_secs(86_400));
    for (impossible, said) in [
        (
            options.clone().ttl(Duration::ZERO),
            "ttl is too short: 0s; this store supports 6ms to 1 day",
        ),
        (options.clone().ttl(ms(5)), "ttl is too short: 5ms; this store supports 6ms to 1 day"),
        (options.clone().ttl(day * 2), "ttl is too long: 2 days; this store supports 6ms to 1 day"),
        (
            options.clone().max_hold(ms(1)),
            "max_hold is too short: 1ms; this store supports 6ms to 1 day",
        ),
        (
            options.clone().min_hold(day * 2),
            "min_hold is too long: 2 days; this store keeps a lock for at most 1 day",
        ),
        (
            options.clone().lock_delay(day),
            "lock_delay is too long: together with the TTL, it is 1 day 30s; this store keeps a lock for at most 1 day",
        ),
        (
            options.min_hold(ms(200)).max_hold(ms(100)),
            "min_hold is longer than max_hold: 200ms exceeds 100ms",
        ),
    ] {
        let refusal = refusal(impossible).to_string();
        assert!(refusal.ends_with(said), "{refusal}");
    }
}

#[test]
fn the_limits_themselves_are_possible() {
    for possible in [ms(6), ms(100), STORE.max_ttl()] {
        mutex_on(STORE, LockOptions::new().ttl(possible)).unwrap();
        mutex_on(STORE, LockOptions::new().min_hold(possible).max_hold(possible)).unwrap();
    }
}
