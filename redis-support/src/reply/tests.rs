use leasehold_core::backend::Lease;
use leasehold_core::{LockKey, LockKind};

use super::*;

const WHOLE: NotificationMode = NotificationMode { is_mutex: true, has_push: true };
const UNITS: NotificationMode = NotificationMode { is_mutex: false, has_push: true };

fn attempt(parts: &[Reply], mode: NotificationMode) -> Attempt {
    decode_attempt(Ok(Reply::Array(parts.to_vec())), mode).unwrap().outcome
}

/// Returns the reply for a claim that was not granted and has this queue entry, behind `ahead`
/// claims.
fn refusal(after: i64, left: i64, by: [Reply; 2], place: i64, ahead: i64) -> Vec<Reply> {
    let [by, known] = by;
    let [after, left] = [after, left].map(Reply::Int);
    vec![Reply::Int(0), after, left, by, known, Reply::Int(place), Reply::Int(ahead)]
}

fn contention_of(parts: &[Reply], mode: NotificationMode) -> Contention {
    match attempt(parts, mode) {
        Attempt::Held(contention) => contention,
        Attempt::Granted(grant) => panic!("{grant:?}"),
    }
}

fn bytes(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

/// Returns a record that consists of numbers and text.
fn record<const N: usize>(numbers: [i64; N], text: &str) -> Reply {
    Reply::Array(numbers.into_iter().map(Reply::Int).chain([bytes(text)]).collect())
}

#[test]
fn a_grant_carries_its_token_exactly() {
    for token in [bytes("9007199254740991"), Reply::Int((1 << 53) - 1)] {
        let Attempt::Granted(grant) = attempt(&[Reply::Int(1), token, Reply::Int(0)], WHOLE) else {
            panic!()
        };
        assert_eq!(grant.token(), (1 << 53) - 1);
    }
}

#[test]
fn a_grant_has_a_token_and_more() {
    let Attempt::Granted(grant) = attempt(&[1, 7, 3].map(Reply::Int), WHOLE) else { panic!() };
    assert_eq!((grant.token(), grant.spare_tokens(), grant.has_news()), (7, 3, true));
}

#[test]
fn a_refusal_tells_the_holder() {
    let by = [bytes("some-id web-1/42 nightly"), Reply::Nil];

    let contention = contention_of(&refusal(1_500, 1_500, by, -1, -1), WHOLE);

    let holder = contention.holder().unwrap();
    assert_eq!(holder.fingerprint(), Fingerprint::of(b"some-id"));
    assert_eq!(holder.description().unwrap().as_str(), "web-1/42 nightly");
    assert_eq!(contention.retry_after(), Some(Duration::from_millis(1_500)));
    assert_eq!((contention.queue_entry(), contention.woken_by()), (None, None));
}

#[test]
fn a_refusal_reports_the_queue_entry_and_its_notification() {
    for (mode, ahead, woken_by) in [
        (WHOLE, 0, WokenBy::Key),
        (WHOLE, 1, WokenBy::Claim),
        (UNITS, 0, WokenBy::Claim),
        (UNITS, 7, WokenBy::Claim),
    ] {
        let parts = refusal(-1, -1, [Reply::Nil, Reply::Nil], 5_000, ahead);
        let contention = contention_of(&parts, mode);
        assert_eq!(contention.queue_entry(), Some(Duration::from_secs(5)));
        assert_eq!(contention.woken_by(), Some(woken_by));
        assert_eq!(contention.retry_after(), None);
    }
}

#[test]
fn without_push_the_first_in_the_queue_looks_most_often() {
    let silent = NotificationMode { has_push: false, ..WHOLE };
    let looks = |after, ahead| {
        let parts = refusal(after, -1, [Reply::Nil, Reply::Nil], 5_000, ahead);
        contention_of(&parts, silent).retry_after()
    };

    assert_eq!(looks(-1, 0), Some(LOOK));
    assert_eq!(looks(3_000, 7), Some(LOOK * 8));
    assert_eq!(looks(5, 7), Some(Duration::from_millis(5)));
}

#[test]
fn a_reply_names_the_claims_that_were_called_up() {
    let assert_notified = |ids: Vec<String>| assert_eq!(ids, ["a", "b"]);
    let ids = [bytes("a"), bytes("b")];
    let granted = [&[Reply::Int(1), bytes("5"), Reply::Int(0)][..], &ids].concat();
    let refused = [&refusal(-1, -1, [Reply::Nil, Reply::Nil], -1, -1)[..], &ids].concat();
    for parts in [granted, refused] {
        assert_notified(decode_attempt(Ok(Reply::Array(parts)), WHOLE).unwrap().notified);
    }
    let number = || Ok(Reply::Array([&[Reply::Int(1)][..], &ids].concat()));
    assert_notified(decode_release(number()).unwrap().notified);
    assert_notified(decode_renewal(number()).unwrap().notified);
}

#[test]
fn a_foreign_holder_without_a_ttl_is_a_holder() {
    let by = [Reply::Bytes(b"\xff\xfe \x1b[31m".to_vec()), Reply::Nil];

    let contention = contention_of(&refusal(-1, -1, by, -1, -1), WHOLE);

    assert_eq!(contention.retry_after(), None);
    assert_eq!(contention.holder().unwrap().description(), None);
}

#[test]
fn a_refusal_of_units_tells_a_holder_and_when_there_may_be_room() {
    let by = [bytes("some-id"), record([3, 4, 7], "web-1/42 nightly")];

    let contention = contention_of(&refusal(700, 1_500, by, -1, -1), UNITS);

    let holder = contention.holder().unwrap();
    assert_eq!(holder.fingerprint(), Fingerprint::of(b"some-id"));
    assert_eq!(holder.units(), 3);
    assert_eq!(holder.description().unwrap().as_str(), "web-1/42 nightly");
    assert_eq!(contention.retry_after(), Some(Duration::from_millis(700)));
}

#[test]
fn a_refusal_for_the_sake_of_the_queue_names_no_holder() {
    let parts = refusal(300, -1, [Reply::Nil, Reply::Nil], -1, -1);
    let expected = Contention::new().with_retry_after(Duration::from_millis(300));

    assert_eq!(contention_of(&parts, UNITS), expected);
    assert_eq!(contention_of(&parts, WHOLE), expected);
}

#[test]
fn an_attempt_for_several_tells_of_each_or_of_the_one_in_the_way() {
    let claims = ["a", "b"]
        .map(|name| Claim::new(Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(1))));
    let decode = |parts: &[Reply]| decode_attempt_all(Ok(Reply::Array(parts.to_vec())), &claims);

    let granted = decode(&[Reply::Int(1), bytes("5"), bytes("6")]).unwrap();
    let AttemptAll::Granted(grants) = granted else { panic!("{granted:?}") };
    assert_eq!(grants.iter().map(Grant::token).collect::<Vec<_>>(), [5, 6]);

    let refusal = [Reply::Int(0), Reply::Int(2), Reply::Int(9), Reply::Int(9), bytes("id")];
    let AttemptAll::Held { key, contention } = decode(&refusal).unwrap() else { panic!() };
    assert_eq!(&key, claims[1].key());
    assert_eq!(contention.holder().unwrap().fingerprint(), Fingerprint::of(b"id"));

    let error = decode(&[Reply::Int(-1), Reply::Int(2)]).unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(claims[1].key())));

    for form in [
        &[Reply::Int(1), bytes("5")][..],
        &[Reply::Int(1), bytes("5"), bytes("6"), bytes("7")],
        &[Reply::Int(1), bytes("5"), bytes("0")],
        &[Reply::Int(0), Reply::Int(3), Reply::Int(9), Reply::Int(9), bytes("id")],
        &[Reply::Int(0), Reply::Int(0), Reply::Int(9), Reply::Int(9), bytes("id")],
        &[Reply::Int(0), Reply::Int(1), Reply::Int(9)],
        &[Reply::Int(-1), Reply::Int(3)],
        &[Reply::Int(7)],
        &[],
    ] {
        assert_eq!(decode(form).unwrap_err().kind(), ErrorKind::Unexpected, "{form:?}");
    }
}

/// Returns an inspection at 90,000 ms of the server's clock.
fn inspected(held: Vec<Reply>, queue: &[(&str, [i64; 3], &str)]) -> Reply {
    let waiting = i64::try_from(queue.len()).unwrap();
    let head = [Reply::Array(held), bytes("90000000"), Reply::Int(waiting)];
    let queue = queue.iter().flat_map(|(id, entry, value)| [bytes(id), record(*entry, value)]);
    Reply::Array(head.into_iter().chain(queue).collect())
}

#[test]
fn a_record_tells_the_share_of_a_holder_and_since_when() {
    let held = |record| vec![bytes("7"), Reply::Int(2), bytes("id"), Reply::Int(5), record];
    let holder = |record| {
        let inspection = decode_inspection(Ok(inspected(held(record), &[]))).unwrap();
        inspection.holders()[0].clone()
    };

    let (known, lost) = (holder(record([2, 3, 177_000_000], "a/b c")), holder(Reply::Nil));

    assert_eq!((known.kind(), known.units()), (Some(LockKind::Permits), 2));
    assert_eq!(known.description().unwrap().as_str(), "a/b c");
    assert_eq!(known.token(), Some(177_000_000));
    assert_eq!(known.held_for(), Some(Duration::from_millis(1_500)));
    assert_eq!((lost.kind(), lost.units(), lost.token()), (None, 1, None));
}

#[test]
fn expired_entries_and_entries_of_foreign_clients_are_not_listed() {
    let free = vec![Reply::Nil, Reply::Nil, Reply::Int(-2)];
    let queue = [
        ("a", [95_000, 1, 1], "a web 1"),
        ("b", [89_999, 1, 1], ""),
        ("*", [95_000, 1, 1], ""),
        ("c", [95_000, 2, 3], ""),
    ];

    let inspection = decode_inspection(Ok(inspected(free, &queue))).unwrap();

    assert_eq!(inspection.waiting(), Some(2));
    let shown: Vec<_> = inspection.queue().iter().map(|it| (it.kind(), it.units())).collect();
    assert_eq!(shown, [(LockKind::Mutex, 1), (LockKind::Permits, 2)]);
    assert_eq!(inspection.queue()[0].description().unwrap().as_str(), "web 1");
}

#[test]
fn an_inspection_counts_the_units_of_holders_that_it_does_not_list() {
    let reply = vec![
        bytes("42"),
        Reply::Int(9),
        bytes("some-id"),
        Reply::Int(1_500),
        record([3, 9, 40], "web-1/42"),
        bytes("other-id"),
        Reply::Int(2_500),
        record([1, 9, 41], ""),
    ];

    let inspection = decode_inspection(Ok(inspected(reply, &[]))).unwrap();

    assert_eq!((inspection.units(), inspection.last_token()), (9, Some(42)));
    let units: Vec<u32> = inspection.holders().iter().map(Holder::units).collect();
    assert_eq!(units, [3, 1]);
    assert_eq!(inspection.holders()[1].description(), None);
}

#[test]
fn replies_of_another_form_are_errors() {
    let forms = [
        Reply::Nil,
        Reply::Other,
        Reply::Int(7),
        bytes("OK"),
        Reply::Array(vec![]),
        Reply::Array(vec![Reply::Int(0), Reply::Nil, Reply::Nil]),
        Reply::Array(vec![Reply::Int(1), Reply::Nil, Reply::Nil]),
        Reply::Array(vec![Reply::Other, Reply::Int(0), bytes("x")]),
        Reply::Array(vec![Reply::Nil, Reply::Int(1), bytes("x"), Reply::Int(1)]),
    ];
    for token in ["0", "1e15", "-1"] {
        let form = Reply::Array(vec![Reply::Int(1), bytes(token), Reply::Int(0)]);
        let error = decode_attempt(Ok(form), WHOLE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{token}");
    }
    for form in forms {
        let errors = [
            decode_attempt(Ok(form.clone()), WHOLE).unwrap_err(),
            decode_renewal(Ok(form.clone())).unwrap_err(),
            decode_release(Ok(form.clone())).unwrap_err(),
            decode_inspection(Ok(form.clone())).unwrap_err(),
            decode_forced_release(Ok(form.clone())).unwrap_err(),
            decode_revocation(Ok(form.clone())).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unexpected), "{form:?}");
    }
}

#[test]
fn something_else_in_the_place_of_a_lock_means_it_is_not_ours() {
    let wrong_type = || Err(ServerError::new("WRONGTYPE", "Operation against a key"));

    assert_eq!(decode_renewal(wrong_type()).unwrap().outcome, Renewal::Taken);
    assert_eq!(decode_release(wrong_type()).unwrap().outcome, Release::NotHeld);
    let error = decode_attempt(wrong_type(), WHOLE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
}

#[test]
fn membership_status_has_four_parts() {
    let id = StoreId::new();
    let reply = |stored| vec![bytes(&id.to_string()), stored, bytes("7"), Reply::Int(1_500)];
    let status = |parts: Vec<Reply>| decode_status(Ok(Reply::Array(parts)));
    let none = MemberStatus::new(id).with_min_token(7).with_age(Duration::from_micros(1_500));
    let configuration = QuorumConfiguration::from_text("a, b for up to 5 ms");

    assert_eq!(status(reply(Reply::Nil)).unwrap(), none);
    let member = none.with_configuration(Some(configuration.clone()));
    assert_eq!(status(reply(bytes(configuration.as_str()))).unwrap(), member);

    let wrong = [bytes("no id"), Reply::Int(1), bytes("-7"), Reply::Int(-1)];
    for (position, part) in wrong.into_iter().enumerate() {
        let mut parts = reply(Reply::Nil);
        parts[position] = part;
        assert_eq!(status(parts).unwrap_err().kind(), ErrorKind::Unexpected, "{position}");
    }
    assert_eq!(status(Vec::new()).unwrap_err().kind(), ErrorKind::Unexpected);
    let no_vote = Err(ServerError::new("NOMEMBER", "the server was started again meanwhile"));
    assert_eq!(decode_status(no_vote).unwrap_err().kind(), ErrorKind::Unavailable);
}
