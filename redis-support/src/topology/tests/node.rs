//! Tests for a single server and the requests that it receives.

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::*;
use crate::driver::Push;

fn store(to_scripts: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static) -> Store {
    let store = Store::new(Endpoints::Single(Fake::address(1)));
    store.serve(1, |_| None, to_scripts);
    store
}

/// Returns a server that accepts connections and never replies.
fn hung_store() -> Store {
    let store = store(|_| None);
    store.fake.serve("h:1", |words| (words[0] == "CLIENT").then_some(Ok(Reply::Other)));
    store
}

#[tokio::test(start_paused = true)]
async fn is_sent_the_source_of_a_script_when_it_does_not_know_it() {
    let store = store(learns());

    for _ in 0..2 {
        assert_eq!(outcome(store.servers.call(&call()).await), Ok(1));
    }
    assert_eq!(store.commands(), ["EVALSHA", "EVAL", "EVALSHA"]);
}

#[tokio::test(start_paused = true)]
async fn is_sent_the_source_once_for_a_whole_batch() {
    let store = store(learns());
    let call = Call::inspect(&Layout::default(), &key());

    for result in store.servers.run_all(&[call.clone(), call]).await {
        assert_eq!(outcome(result), Ok(1));
    }
    let sent = store.commands();
    assert_eq!(sent.iter().filter(|command| *command == "EVAL").count(), 1, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn that_is_gone_before_calls_are_sent_once_more_leaves_their_outcome_unknown() {
    let store = Store::new(Endpoints::Single(Fake::address(1)));
    let fake = store.fake.clone();
    let refuses_and_goes = move |_words: &[String]| {
        fake.remove("h:1");
        fake.listeners("h:1").iter().for_each(|listener| listener(Push::Closed));
        refused("OOM", "no memory")
    };
    store.serve(1, |_| None, refuses_and_goes);

    for result in store.servers.run_all(&[call(), call()]).await {
        assert_eq!(outcome(result), Err(ErrorKind::Indeterminate));
    }
}

#[tokio::test(start_paused = true)]
async fn that_fails_when_some_are_sent_once_more_has_answered_the_others() {
    let store = store(first_is_done_and_second_hangs);

    let results = store.servers.run_all(&two_calls()).await;

    let outcomes: Vec<_> = results.into_iter().map(outcome).collect();
    assert_eq!(outcomes, [Ok(1), Err(ErrorKind::Indeterminate)]);
}

#[tokio::test(start_paused = true)]
async fn is_sent_the_source_together_with_the_wait_for_replicas() {
    let store = store(learns());

    let wait = store.servers.wait(Replicas::AtLeast(1), TIMEOUT, &call()).await.unwrap();
    let answer = store.servers.run(&call(), wait.as_ref()).await.unwrap();

    assert_eq!(answer.replicas().unwrap(), 1);
    assert_eq!(answer.received, Ok(Reply::Int(1)));
    assert_eq!(store.commands(), ["EVALSHA", "WAIT", "EVAL", "WAIT"]);
}

#[tokio::test(start_paused = true)]
async fn waits_for_no_replicas_if_none_are_wanted() {
    let store = store(|_| done());

    let wait = store.servers.wait(Replicas::None, TIMEOUT, &call()).await.unwrap();

    assert!(wait.is_none());
}

#[tokio::test(start_paused = true)]
async fn gets_the_calls_of_several_callers_in_one_request() {
    let store = store(|_| done());
    store.servers.connect().await.unwrap();
    let (call, before) = (call(), store.fake.round_trips().len());
    store.fake.delay("h:1", TIMEOUT / 10);

    for result in join_all([(); 5].map(|()| store.servers.call(&call))).await {
        assert_eq!(outcome(result), Ok(1));
    }

    // The first three calls run without a batch, because too few calls are in progress.
    assert_eq!(store.fake.round_trips()[before..], [1, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn is_connected_to_once_for_all_callers_and_for_none_that_stopped_polling() {
    let store = store(|_| done());
    store.fake.delay("h:1", TIMEOUT / 10);
    let mut stuck = Box::pin(store.servers.connect());
    assert!((&mut stuck).now_or_never().is_none());

    for connected in join_all((0..10).map(|_| store.servers.connect())).await {
        connected.unwrap();
    }

    assert_eq!(store.fake.listeners("h:1").len(), 1);
    stuck.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn is_connected_to_though_all_callers_give_up_early() {
    let store = store(|_| done());
    store.fake.delay("h:1", TIMEOUT / 2);

    for given_up in 1..=3 {
        let connected = timeout(TIMEOUT / 5, store.servers.connect()).await;
        assert_eq!(connected.is_ok(), given_up == 3);
    }
    assert_eq!(store.fake.listeners("h:1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn is_not_connected_to_for_longer_than_the_limit_by_a_backend_that_is_gone() {
    let store = store(|_| done());
    store.fake.delay("h:1", 2 * TIMEOUT);
    let given_up = timeout(TIMEOUT / 2, store.servers.connect()).await;
    assert!(given_up.is_err());
    let context = Arc::downgrade(&store.context);

    let fake = store.fake.clone();
    drop(store);
    sleep(TIMEOUT / 2 + Duration::from_millis(1)).await;

    assert_eq!(fake.connections(), 0);
    assert!(context.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn is_left_by_a_backend_that_is_gone_before_it_is_connected() {
    let store = store(|_| done());
    store.fake.delay("h:1", TIMEOUT / 2);
    let given_up = timeout(TIMEOUT / 4, store.servers.connect()).await;
    assert!(given_up.is_err());

    let fake = store.fake.clone();
    drop(store);
    sleep(TIMEOUT / 2).await;

    assert_eq!(fake.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn that_swallows_connections_is_an_error_in_time_for_all_callers() {
    let store = store(|_| done());
    store.fake.delay("h:1", 2 * TIMEOUT);
    let begun_at = Instant::now();

    for connected in join_all((0..10).map(|_| store.servers.connect())).await {
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    assert_eq!(begun_at.elapsed(), TIMEOUT);
}

#[test]
fn that_a_runtime_connects_to_which_stands_still_is_connected_to_by_another() {
    let store = store(|_| done());
    store.fake.delay("h:1", TIMEOUT / 10);
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let [still, other] = [runtime(), runtime()];
    let mut stuck = Box::pin(store.servers.connect());
    still.block_on(async { assert!((&mut stuck).now_or_never().is_none()) });

    other.block_on(async { timeout(3 * TIMEOUT, store.servers.connect()).await.unwrap().unwrap() });
}

#[tokio::test(start_paused = true)]
async fn that_hangs_is_connected_to_anew_after_three_timeouts() {
    let store = hung_store();
    let connections = || store.fake.listeners("h:1").len();

    // The third call finds the connection idle, and checks it before opening a new connection.
    for (expected, time) in [(1, TIMEOUT), (1, TIMEOUT), (2, 2 * TIMEOUT)] {
        let asked_at = Instant::now();
        assert_eq!(outcome(store.servers.call(&call()).await), Err(ErrorKind::Indeterminate));
        assert_eq!(asked_at.elapsed(), time);
        assert_eq!(connections(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn that_hangs_is_connected_to_anew_though_all_callers_give_up_early() {
    let store = hung_store();
    store.servers.connect().await.unwrap();
    let begun_at = Instant::now();

    while store.fake.listeners("h:1").len() == 1 {
        let given_up = timeout(TIMEOUT / 2, store.servers.call(&call())).await;
        assert!(given_up.is_err() && begun_at.elapsed() < 5 * TIMEOUT);
    }

    assert!(begun_at.elapsed() >= 3 * TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn that_replies_now_and_then_is_not_left_for_callers_that_give_up() {
    let store = store(|_| done());
    store.servers.connect().await.unwrap();

    for _ in 0..10 {
        store.fake.delay("h:1", TIMEOUT);
        for _ in 0..5 {
            let given_up = timeout(TIMEOUT / 2, store.servers.call(&call())).await;
            assert!(given_up.is_err());
        }
        store.fake.delay("h:1", Duration::ZERO);
        assert_eq!(outcome(store.servers.call(&call()).await), Ok(1));
    }

    assert_eq!(store.fake.listeners("h:1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn that_closes_the_connection_has_everybody_look_again() {
    let store = store(|_| done());
    store.servers.connect().await.unwrap();
    let mut watch = store.watch();

    store.fake.listeners("h:1").iter().for_each(|listener| listener(Push::Closed));

    assert!(is_told(&mut watch).await);
    assert_eq!(outcome(store.servers.call(&call()).await), Ok(1));
    assert_eq!(store.fake.listeners("h:1").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn is_found_though_its_name_has_an_address_first_that_says_nothing() {
    let store = store(|_| done());
    store.fake.add_mute_address();

    for _ in 0..2 {
        let begun_at = Instant::now();
        store.servers.connect().await.unwrap();
        assert_eq!(outcome(store.servers.call(&call()).await), Ok(1));
        assert!(begun_at.elapsed() <= TIMEOUT / 2);
        store.fake.listeners("h:1").iter().for_each(|listener| listener(Push::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn is_not_connected_to_by_a_backend_closed_meanwhile() {
    let store = store(|_| done());
    store.fake.delay("h:1", TIMEOUT / 2);
    let close = async {
        tokio::time::sleep(TIMEOUT / 4).await;
        store.close();
    };

    let (connected, ()) = tokio::join!(store.servers.connect(), close);

    assert_eq!(connected.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(store.fake.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn that_waited_for_replicas_is_left_if_all_was_closed_meanwhile() {
    let store = store(|_| done());
    let call = call();
    let wait_for = store.servers.wait(Replicas::AtLeast(1), TIMEOUT, &call).await.unwrap();
    let wait = || store.servers.run(&call, wait_for.as_ref());
    wait().await.unwrap();
    assert_eq!(store.fake.connections(), 2, "one for renewals, too");
    store.fake.delay("h:1", TIMEOUT / 2);
    let close = async {
        tokio::time::sleep(TIMEOUT / 4).await;
        store.close();
    };

    let (answer, ()) = tokio::join!(wait(), close);

    assert_eq!(answer.unwrap().received, Ok(Reply::Int(1)));
    assert_eq!(store.fake.connections(), 0);
}
