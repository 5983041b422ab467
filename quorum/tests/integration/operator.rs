//! An operator's view of a quorum.

use leasehold_core::ErrorKind;
use leasehold_core::backend::StoreAdmin;

use crate::servers::{Servers, State, client_of, key};

#[tokio::test(start_paused = true)]
async fn inspection_has_the_view_of_each_member() {
    let servers = Servers::found(5).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[1].set(State::Down);
    servers.0[3].set(State::Silent);
    servers.0[4].store.wipe();

    let inspection = servers.quorum().inspect(&key()).await.unwrap();

    let holder = guard.lease().id().fingerprint();
    assert_eq!(inspection.holders()[0].fingerprint(), holder);
    let seen = inspection.members().iter().map(|view| {
        let holders = view.inspection().map(|it| it.holders().len()).map_err(str::to_owned);
        (view.name(), view.has_vote(), holders.is_ok(), holders.unwrap_or_default())
    });
    let expected = [
        ("a", true, true, 1),
        ("b", false, false, 0),
        ("c", true, true, 1),
        ("d", false, false, 0),
        ("e", false, true, 0),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert!(inspection.members()[3].inspection().unwrap_err().contains("no reply in time"));
}

#[tokio::test(start_paused = true)]
async fn inspection_without_a_majority_names_the_silent_members() {
    let servers = Servers::found(3).await;
    servers.0[..2].iter().for_each(|server| server.set(State::Silent));

    let error = servers.quorum().inspect(&key()).await.unwrap_err();

    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("; a: ") && error.to_string().contains("; b: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn list_has_the_keys_of_a_majority_that_answers() {
    let servers = Servers::found(5).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[0].store.wipe();
    servers.0[1].set(State::Down);

    let mut keys = client.admin().list("").unwrap();
    let mut found = Vec::new();
    while let Some(page) = keys.next_page().await.unwrap() {
        found.extend(page);
    }
    servers.0[3..].iter().for_each(|server| server.set(State::Silent));
    let mut keys = client.admin().list("").unwrap();
    let error = loop {
        match keys.next_page().await {
            Ok(page) => assert!(page.is_some(), "three of five tell nothing"),
            Err(error) => break error,
        }
    };

    assert!(!found.is_empty() && found.iter().all(|found| *found == key()), "{found:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn new_quorum_is_established_with_all_members() {
    let servers = Servers::start(3);
    servers.0[2].set(State::Down);
    let quorum = servers.quorum();

    let error = quorum.establish().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    servers.0[2].set(State::Up);
    quorum.establish().await.unwrap();
    servers.0[0].set(State::Down);
    servers.quorum().establish().await.unwrap();
    drop(client_of(quorum).mutex(key()).unwrap().lock().await.unwrap());
}
