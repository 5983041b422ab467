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
    let fixture = fixture();
    change_grants(&fixture.faults, |grants| grants[1] = grants[1].clone().with_ttl(ms(1)));

    let error = Error::from(three(&fixture).try_lock().await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(error.to_string().contains("too late"), "{error}");
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn may_be_that_grants_are_missing() {
    let fixture = fixture();
    change_grants(&fixture.faults, |grants| grants.truncate(2));

    assert_eq!(three(&fixture).lock().await.unwrap_err().kind(), ErrorKind::Unexpected);

    assert_eq!(fixture.left().await, 0);
}

/// Changes the grants of each reply of the store.
fn change_grants(faults: &Faults, change: fn(&mut Vec<Grant>)) {
    faults.on_reply(move |_request, mut reply| {
        if let Reply::AttemptAll(AttemptAll::Granted(grants)) = &mut reply {
            change(grants);
        }
        Ok(reply)
    });
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
