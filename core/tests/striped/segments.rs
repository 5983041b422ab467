//! Segments and their keys.

use super::*;

#[tokio::test(start_paused = true)]
async fn are_as_many_as_make_sense() {
    let client = LockClient::new(MemoryBackend::new());

    for count in [0, Striped::MAX_SEGMENTS + 1, u32::MAX] {
        assert_eq!(client.striped("k", count).unwrap_err().kind(), ErrorKind::Invalid);
    }
    for count in [1, Striped::MAX_SEGMENTS] {
        let striped = client.striped("k", count).unwrap();
        assert_eq!(striped.segments().len(), count as usize);
        let guard = striped.try_lock().await.unwrap();
        assert!(guard.segment() < count);
    }
}

#[test]
fn are_named_after_the_key() {
    let client = LockClient::new(MemoryBackend::new());
    let striped = client.striped("50%", 2).unwrap();

    assert_eq!(striped.segments(), [key("50%/0"), key("50%/1")]);
    assert_eq!(format!("{striped:?}"), r#"Striped { key: "50%25", segments: 2 }"#);
}

#[test]
fn need_room_for_their_names() {
    let client = LockClient::new(MemoryBackend::new());
    let longest = [b' '; LockKey::MAX_LEN - 2];

    assert!(client.striped(&longest[..], 10).is_ok());
    let refused = client.striped(&longest[..], 11).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(client.striped("", 1).unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn are_mutexes_of_their_own() {
    let fixture = Fixture::new();
    let guard = segments(&fixture, 4).lock().await.unwrap();

    let name = format!("stock/{}", guard.segment());
    assert_eq!(guard.key(), &key(&name));
    assert_eq!(guard.token().key(), &key(&name));
    assert!(matches!(
        fixture.other.mutex(name).unwrap().try_lock().await,
        Err(TryLockError::Busy(_))
    ));
    assert!(fixture.other.mutex("stock").unwrap().try_lock().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn have_the_options_of_the_whole() {
    let fixture = Fixture::new();
    let short = options().ttl(ms(10_000));
    let striped = segments(&fixture, 4).with_options(short).unwrap();

    assert_eq!(striped.lock().await.unwrap().remaining(), ms(10_000 - 102));
    let impossible = striped.with_options(options().ttl(Duration::ZERO));
    assert_eq!(impossible.unwrap_err().kind(), ErrorKind::Invalid);
}
