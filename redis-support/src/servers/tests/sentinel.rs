//! Sentinels, and the server that they name.

use super::*;
use crate::client::Said;

const SENTINELS: [u16; 3] = [11, 12, 13];

fn store() -> Store {
    let sentinels = SENTINELS.map(Fake::address).to_vec();
    let store = Store::new(Topology::Sentinel { sentinels, master: "m".to_owned() });
    for port in [1, 2] {
        store.serve(port, |_| None, |_| done());
    }
    SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 1, 1));
    store
}

/// A sentinel says that this is the master since that many failovers.
fn say(store: &Store, sentinel: u16, master: u16, epoch: u64) {
    let reply = of_master("h", master, epoch);
    store.serve(sentinel, move |_| Some(Ok(reply.clone())), |_| None);
}

/// The reply to `SENTINEL MASTER`.
pub(super) fn of_master(host: &str, port: u16, epoch: u64) -> Reply {
    let fields = [
        ("name", bytes("m")),
        ("ip", bytes(host)),
        ("port", bytes(port)),
        ("config-epoch", bytes(epoch)),
        ("num-slaves", bytes(2)),
    ];
    Reply::Array(fields.into_iter().flat_map(|(name, value)| [bytes(name), value]).collect())
}

async fn call(store: &Store) -> Result<i64, ErrorKind> {
    outcome(store.servers.call(&super::call()).await)
}

/// The sentinels have made the second server the master, and say so.
fn switch(store: &Store) {
    SENTINELS.into_iter().for_each(|sentinel| say(store, sentinel, 2, 2));
    for listener in SENTINELS.map(|port| store.fake.listeners(&format!("h:{port}"))).concat() {
        listener(Said::Published(Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn name_the_server_that_is_asked() {
    let store = store();

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1]);
}

#[tokio::test(start_paused = true)]
async fn are_believed_by_how_new_their_knowledge_is() {
    let store = store();
    say(&store, 12, 2, 7);
    say(&store, 13, 2, 7);

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [2]);
}

#[tokio::test(start_paused = true)]
async fn that_switch_say_so_to_those_who_ask_nothing() {
    let store = store();
    call(&store).await.unwrap();
    let mut watch = store.watch();

    switch(&store);

    assert!(is_told(&mut watch).await);
    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn may_be_down_but_for_one() {
    let store = store();
    for down in ["h:11", "h:12"] {
        store.fake.remove(down);
    }

    assert_eq!(call(&store).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn of_whom_one_hangs_cost_no_time() {
    let store = store();
    store.serve(11, |_| None, |_| None);
    let asked_at = Instant::now();

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(asked_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn that_are_all_down_are_unavailable() {
    let store = store();
    SENTINELS.into_iter().for_each(|port| store.fake.remove(&format!("h:{port}")));

    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn that_fall_silent_leave_the_last_master_that_they_named() {
    let store = store();
    call(&store).await.unwrap();
    for port in SENTINELS {
        store.fake.remove(&format!("h:{port}"));
        store.fake.listeners(&format!("h:{port}")).iter().for_each(|tell| tell(Said::Closed));
    }

    for _ in 0..2 {
        assert_eq!(call(&store).await, Ok(1));
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    store.fake.delay("h:1", SLOW);
    assert_eq!(call(&store).await, Err(ErrorKind::Indeterminate), "who knows by now");
    store.fake.delay("h:1", Duration::ZERO);
    assert_eq!(call(&store).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn that_do_not_know_the_name_say_so() {
    let store = store();
    for sentinel in SENTINELS {
        store.serve(sentinel, |_| refused("ERR", "No such master with that name"), |_| None);
    }

    assert_eq!(call(&store).await, Err(ErrorKind::Invalid));
}

#[tokio::test(start_paused = true)]
async fn are_asked_again_when_the_master_turns_out_to_be_a_replica() {
    let store = store();
    call(&store).await.unwrap();
    store.serve(
        1,
        |_| None,
        |_| refused("READONLY", "You can't write against a read only replica."),
    );

    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
    SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 2, 2));
    assert_eq!(call(&store).await, Err(ErrorKind::Indeterminate), "it was replaced meanwhile");
    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn decide_whether_a_late_reply_is_believed() {
    for (switches, expected) in [(false, Ok(1)), (true, Err(ErrorKind::Indeterminate))] {
        let store = store();
        call(&store).await.unwrap();
        store.fake.delay("h:1", SLOW);
        if switches {
            SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 2, 2));
        }

        assert_eq!(call(&store).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn decide_whether_a_master_is_believed_that_fails_half_way() {
    for (switches, expected) in [(false, Ok(1)), (true, Err(ErrorKind::Indeterminate))] {
        let store = store();
        call(&store).await.unwrap();
        store.serve(1, |_| None, first_is_done_and_second_hangs);
        if switches {
            SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 2, 2));
        }

        let results = store.servers.call_all(&[super::call(), super::call()]).await;

        let outcomes: Vec<_> = results.into_iter().map(outcome).collect();
        assert_eq!(outcomes, [expected, Err(ErrorKind::Indeterminate)]);
    }
}

#[tokio::test(start_paused = true)]
async fn that_switch_while_the_old_master_answers_end_its_word() {
    let store = store();
    call(&store).await.unwrap();
    let store = Arc::new(store);
    store.fake.delay("h:1", SLOW / 2);
    let calling = tokio::spawn({
        let store = Arc::clone(&store);
        async move { call(&store).await }
    });
    tokio::time::sleep(SLOW / 4).await;
    switch(&store);

    assert_eq!(calling.await.unwrap(), Err(ErrorKind::Indeterminate));
}
