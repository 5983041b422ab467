//! Tests of the stored form: its bytes, unknown fields, other versions, and all states that
//! operations can produce.

use std::time::Duration;

use leasehold_core::backend::entry::{Entry, Holding, QueueEntry, Tokens};
use leasehold_core::backend::{Claim, Fingerprint, Lease, LeaseId, Mode, Patience};
use leasehold_core::{Description, ErrorKind, LockKey};
use leasehold_entry::{Document, Tag, tag};
use proptest::prelude::*;

fn name(text: &str) -> Tag {
    Tag { id: tag(text), fingerprint: Fingerprint::of(text.as_bytes()) }
}

fn holder(text: &str) -> Holding<Tag, i64> {
    Holding {
        name: name(text),
        mode: Mode::Exclusive,
        description: None,
        token: 7,
        granted_at: None,
        ends: 2_000_000,
        is_asked: false,
    }
}

#[test]
fn the_bytes_of_a_document_do_not_change() {
    let of_permits = Holding {
        mode: Mode::Units { units: 2, limit: 3 },
        description: Some(Description::new("web-1/4711").unwrap()),
        granted_at: Some(1_000_000),
        is_asked: true,
        ..holder("one")
    };
    let waiter = QueueEntry {
        name: name("other"),
        mode: Mode::Units { units: 1, limit: 3 },
        description: None,
        ends: 3_000_000,
        reservation: Some(Duration::from_millis(250)),
    };
    let entry = Entry {
        holders: vec![of_permits],
        queue: vec![waiter],
        asked_until: Some(2_000_000),
        last_token: 9,
    };

    let mut document = Document::from(entry.clone());
    document.set_socket(tag("other"), 3);
    let text = document.to_text();

    let expected = concat!(
        r#"{"v":1,"holders":[{"tag":"6bbb567d151b50fc96fed80874cb5094","print":"3bc2f6b6","ends":2000000,"token":7,"#,
        r#""since":1000000,"units":2,"limit":3,"asked":true,"text":"web-1/4711"}],"#,
        r#""queue":[{"tag":"dd0cf8ca86b05695946efe1466e8d5da","print":"c8728734","ends":3000000,"keep":250000,"socket":3,"units":1,"limit":3}],"asked":2000000}"#,
    );
    assert_eq!(text, expected);
    let read = Document::parse(&text, 9).unwrap();
    assert_eq!((&read.entry, read.socket(&tag("other"))), (&entry, Some(3)));
}

#[test]
fn a_lease_of_the_whole_key_has_no_fields_without_a_value() {
    let entry = Entry { holders: vec![holder("one")], ..Entry::default() };

    let text = Document::from(entry).to_text();

    assert!(text.ends_with(r#","ends":2000000,"token":7}]}"#), "{text}");
}

#[test]
fn unknown_fields_survive_a_change() {
    let entry = Entry { holders: vec![holder("one")], ..Entry::default() };
    let text = Document::from(entry).to_text();
    let extended = text.replacen(r#"{"v":1,"#, r#"{"v":1,"region":"eu","#, 1);
    let extended = extended.replacen(r#""token":7"#, r#""token":7,"bell":{"port":1}"#, 1);
    let extended = extended.replacen(
        "}]}",
        &format!(
            r#"}}],"queue":[{{"tag":"{}","print":"0badcafe","ends":5,"rank":[1]}}]}}"#,
            tag("other").simple()
        ),
        1,
    );
    let mut document = Document::parse(&extended, 7).unwrap();
    assert!(document.has_unknown_fields());

    document.entry.holders[0].ends += 1;
    document.entry.holders.push(holder("second"));
    let written = document.to_text();

    for field in [r#""region":"eu""#, r#""bell":{"port":1}"#, r#""rank":[1]"#] {
        assert_eq!(written.matches(field).count(), 1, "{written}");
    }
    assert_eq!(Document::parse(&written, 7).unwrap(), document);
}

#[test]
fn fields_of_a_lease_that_is_gone_are_omitted() {
    let text = format!(
        r#"{{"v":1,"holders":[{{"tag":"{}","print":"0badcafe","ends":5,"token":7,"bell":1}}]}}"#,
        tag("one").simple()
    );
    let mut document = Document::parse(&text, 7).unwrap();
    assert!(document.has_unknown_fields());

    document.entry.holders.clear();

    assert!(!document.has_unknown_fields());
    assert_eq!(document.to_text(), r#"{"v":1}"#);
}

#[test]
fn a_document_of_another_version_is_not_read() {
    let error = Document::parse(r#"{"v":2,"holders":[]}"#, 0).unwrap_err();

    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn a_text_that_is_not_a_document_is_not_read() {
    let tag = tag("one").simple();
    let texts = [
        String::new(),
        "{}".to_owned(),
        "[]".to_owned(),
        r#"{"v":"1"}"#.to_owned(),
        r#"{"v":1,"holders":[{}]}"#.to_owned(),
        format!(r#"{{"v":1,"holders":[{{"tag":"{tag}","print":"word","ends":5,"token":7}}]}}"#),
        format!(r#"{{"v":1,"queue":[{{"tag":"{tag}","print":"0badcafe","ends":5,"units":1}}]}}"#),
    ];
    for text in texts {
        let error = Document::parse(&text, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{text}");
    }
}

#[test]
fn a_tag_does_not_reveal_the_lease_id() {
    let id = LeaseId::new();

    let tag = Tag::of(&id);

    assert_eq!(tag.fingerprint, id.fingerprint());
    assert!(!format!("{tag:?}").contains(&id.secret()[..8]));
}

/// An operation on an entry. The first number selects a lease.
#[derive(Clone, Debug)]
enum Operation {
    Acquire(usize, Mode, Patience, u32),
    Renew(usize, Mode),
    Release(usize),
    ForceRelease(Option<usize>),
    RequestRevocation(Option<usize>),
    Pass(u32),
}

/// The number of leases that the operations use.
const LEASES: usize = 6;

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let mode = prop_oneof![
        Just(Mode::Exclusive),
        Just(Mode::READER),
        Just(Mode::WRITER),
        (1..=3_u32).prop_map(|units| Mode::Units { units, limit: 3 }),
    ];
    let patience = prop_oneof![
        Just(Patience::Leaves),
        Just(Patience::Waits),
        (1..5_000_000_u64).prop_map(|time| Patience::Queues(Duration::from_micros(time))),
    ];
    let lease = 0..LEASES;
    let operation = prop_oneof![
        4 => (lease.clone(), mode.clone(), patience, 0..10_u32)
            .prop_map(|(lease, mode, patience, spare)| Operation::Acquire(lease, mode, patience, spare)),
        1 => (lease.clone(), mode).prop_map(|(lease, mode)| Operation::Renew(lease, mode)),
        2 => lease.clone().prop_map(Operation::Release),
        1 => prop::option::of(lease.clone()).prop_map(Operation::ForceRelease),
        1 => prop::option::of(lease).prop_map(Operation::RequestRevocation),
        1 => (0..3_000_000_u32).prop_map(Operation::Pass),
    ];
    prop::collection::vec(operation, 0..40)
}

proptest! {
    #[test]
    fn every_reachable_state_survives(operations in operations()) {
        let key = LockKey::new("job").unwrap();
        let described = Description::new("a \"quoted\" name, ü").unwrap();
        let leases: Vec<Lease> = (0..LEASES)
            .map(|n| {
                let lease = Lease::new(&key, Duration::from_secs(2));
                if n % 2 == 0 { lease } else { lease.with_description(Some(described.clone())) }
            })
            .collect();
        let (mut entry, mut now) = (Entry::<Tag, i64>::default(), 1_i64);
        for operation in operations {
            entry.expire(now);
            let tag = |n: usize| Tag::of(&leases[n].id());
            let print = |n: usize| tag(n).fingerprint;
            match operation {
                Operation::Acquire(n, mode, patience, spare) => {
                    let lease = leases[n].clone().with_mode(mode);
                    let claim = Claim::new(lease).with_patience(patience).with_spare_tokens(spare);
                    // A claim of a different lock type changes nothing.
                    drop(entry.acquire(tag(n), &claim, Tokens::default(), now));
                }
                Operation::Renew(n, mode) => {
                    entry.renew(&tag(n), &leases[n].clone().with_mode(mode), now);
                }
                Operation::Release(n) => drop(entry.release(&tag(n), now)),
                Operation::ForceRelease(only) => {
                    entry.force_release(only.map(print), Tokens::default(), now);
                }
                Operation::RequestRevocation(only) => {
                    entry.request_revocation(only.map(print));
                }
                Operation::Pass(micros) => now += i64::from(micros),
            }

            let text = Document::from(entry.clone()).to_text();

            let read = Document::parse(&text, entry.last_token).unwrap();
            prop_assert_eq!(&read.entry, &entry);
            prop_assert!(!read.has_unknown_fields());
        }
    }
}
