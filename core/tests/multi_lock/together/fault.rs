//! Faults of one request for all keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn of_the_one_attempt_is_the_error_and_nothing_is_kept() {
    for (fault, kind) in [
        (Fault::Fail(ErrorKind::Denied), ErrorKind::Denied),
        (Fault::Fail(ErrorKind::Unavailable), ErrorKind::Unavailable),
        (Fault::Fail(ErrorKind::Refused), ErrorKind::Refused),
        (Fault::Late(ms(10_000)), ErrorKind::Indeterminate),
        (Fault::LoseReply, ErrorKind::Indeterminate),
        (Fault::DelayReply(TTL), ErrorKind::Indeterminate),
        (Fault::DelayRequest(TTL), ErrorKind::Indeterminate),
        (Fault::SwallowReply, ErrorKind::Indeterminate),
        (Fault::SwallowRequest, ErrorKind::Indeterminate),
    ] {
        let fixture = fixture();
        fixture.faults.inject(Operation::Acquire, fault, 1);

        let error = Error::from(three(&fixture).try_lock().await.unwrap_err());

        assert_eq!((error.kind(), error.key()), (kind, Some(&key("a"))), "{fault:?}");
        assert_eq!(error.operation(), Some(Operation::Acquire));
        assert_eq!(fixture.faults.calls(Operation::Acquire), 1);
        assert_eq!(fixture.left().await, 0, "{fault:?}");
        assert!(three(&fixture).try_lock().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn that_passes_is_waited_out_with_the_same_leases() {
    for fault in [
        Fault::DelayReply(ms(10)),
        Fault::DelayRequest(ms(10)),
        Fault::Fail(ErrorKind::Unavailable),
        Fault::LoseReply,
    ] {
        let fixture = fixture();
        fixture.faults.inject(Operation::Acquire, fault, 2);

        let asked_at = fixture.clock.now();
        let guard = three(&fixture).lock().await.unwrap();

        assert!(fixture.clock.now().since(asked_at) < ms(1_000), "{fault:?}");
        assert!(fixture.log().iter().all(|grant| grant == ALL), "{fault:?}: in its own way");
        guard.release().await.unwrap();
        assert_eq!(fixture.left().await, 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_lasts_is_waited_out_only_so_long() {
    let fixture = fixture_with(options().outage_wait(ms(3_000)));
    fixture.faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 999);

    let asked_at = fixture.clock.now();
    let error = three(&fixture).lock().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let waited = fixture.clock.now().since(asked_at);
    assert!(waited >= ms(3_000) && waited < ms(6_000), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn by_which_the_wait_passes_is_the_error() {
    for fault in [Fault::Late(ms(500)), Fault::SwallowReply, Fault::SwallowRequest] {
        let fixture = fixture();
        fixture.faults.inject(Operation::Acquire, fault, 1);

        let asked_at = fixture.clock.now();
        let error = Error::from(three(&fixture).try_lock_for(ms(2_000)).await.unwrap_err());

        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{fault:?}");
        assert_eq!(fixture.clock.now(), asked_at + ms(2_000));
        assert_eq!(fixture.left().await, 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn may_be_a_part_that_is_granted_for_too_short_a_time() {
    let store = MemoryBackend::new();
    let client = LockClient::new(Odd(store.clone(), |grants| {
        grants[1] = grants[1].clone().with_ttl(ms(1));
    }));
    let whole = client.multi_lock().mutexes(KEYS).unwrap();

    let error = Error::from(whole.try_lock().await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(error.to_string().contains("too late"), "{error}");
    tokio::time::sleep(ms(100)).await;
    assert_eq!(store.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn may_be_that_grants_are_missing() {
    let store = MemoryBackend::new();
    let client = LockClient::new(Odd(store.clone(), |grants| grants.truncate(2)));
    let whole = client.multi_lock().mutexes(KEYS).unwrap();

    assert_eq!(whole.lock().await.unwrap_err().kind(), ErrorKind::Unexpected);

    tokio::time::sleep(ms(100)).await;
    assert_eq!(store.keys(), 0);
}

/// A store whose grants are changed on their way.
#[derive(Debug)]
struct Odd(MemoryBackend, fn(&mut Vec<Grant>));

#[async_trait]
impl LockBackend for Odd {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.0.try_acquire(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let mut attempt = self.0.try_acquire_all(claims).await?;
        if let AttemptAll::Granted(grants) = &mut attempt {
            (self.1)(grants);
        }
        Ok(attempt)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        self.0.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.0.release(lease).await
    }
}

#[tokio::test(start_paused = true)]
async fn of_another_kind_of_lock_names_its_key() {
    for other in KEYS {
        let fixture = fixture();
        let _held = fixture.other.semaphore(other, 2).unwrap().acquire(1).await.unwrap();

        let error = three(&fixture).lock().await.unwrap_err();

        assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(&key(other))));
        assert_eq!(fixture.left().await, 1);
    }
}
