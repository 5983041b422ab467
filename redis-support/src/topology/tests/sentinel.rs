//! Tests for sentinels and the primary that they report.

use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::*;
use crate::driver::Push;
use crate::topology::failover::{ASKED_AFTER, BELIEVED_FOR};

const SENTINELS: [u16; 3] = [11, 12, 13];

fn store() -> Store {
    store_with(&SENTINELS)
}

/// Returns three sentinels. `named` are the sentinels in the client's configuration.
fn store_with(named: &[u16]) -> Store {
    let sentinels = named.iter().copied().map(Fake::address).collect();
    let store = Store::new(Endpoints::Sentinel { sentinels, master: "m".to_owned() });
    for port in [1, 2] {
        store.serve(port, |_| None, |_| done());
    }
    say_all(&store, 1, 1);
    store
}

/// Makes a sentinel report this primary, with `epoch` failovers so far.
fn say(store: &Store, sentinel: u16, master: u16, epoch: u64) {
    say_so(store, sentinel, sentinel, of_master("h", master, epoch));
}

/// Makes all sentinels report this primary.
fn say_all(store: &Store, master: u16, epoch: u64) {
    SENTINELS.into_iter().for_each(|sentinel| say(store, sentinel, master, epoch));
}

/// Makes the sentinel with this ID, at this port, report this primary.
fn say_so(store: &Store, port: u16, id: u16, of_master: Reply) {
    let others = SENTINELS.into_iter().filter(|other| *other != id);
    let others = others.map(|port| fields([("ip", bytes("h")), ("port", bytes(port))]));
    let others = Reply::Array(others.collect());
    let answer = move |words: &[String]| match words[1].as_str() {
        "MYID" => Some(Ok(bytes(id))),
        "MASTER" => Some(Ok(of_master.clone())),
        "SENTINELS" => Some(Ok(others.clone())),
        _ => None,
    };
    store.serve(port, answer, |_| None);
}

/// Returns the report of a primary that is watched by a single sentinel.
pub(super) fn of_master_alone(host: &str, port: u16) -> Reply {
    of_master_among(host, port, 1, "master", 0)
}

fn of_master(host: &str, port: u16, epoch: u64) -> Reply {
    of_master_with(host, port, epoch, "master")
}

fn of_master_with(host: &str, port: u16, epoch: u64, flags: &str) -> Reply {
    of_master_among(host, port, epoch, flags, 2)
}

/// Returns the reply to `SENTINEL MASTER` from a sentinel that knows this number of further
/// sentinels.
fn of_master_among(host: &str, port: u16, epoch: u64, flags: &str, others: usize) -> Reply {
    fields([
        ("name", bytes("m")),
        ("ip", bytes(host)),
        ("port", bytes(port)),
        ("flags", bytes(flags)),
        ("config-epoch", bytes(epoch)),
        ("num-slaves", bytes(2)),
        ("num-other-sentinels", bytes(others)),
    ])
}

fn fields<const N: usize>(fields: [(&str, Reply); N]) -> Reply {
    Reply::Array(fields.into_iter().flat_map(|(name, value)| [bytes(name), value]).collect())
}

fn delay_all(store: &Store, delay: Duration) {
    SENTINELS.into_iter().for_each(|port| store.fake.delay(&format!("h:{port}"), delay));
}

/// Returns a runtime with paused time. The paused time does not advance while a task is ready or
/// the runtime is not running.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn remove(store: &Store, sentinels: &[u16]) {
    for port in sentinels {
        store.fake.remove(&format!("h:{port}"));
        store.fake.listeners(&format!("h:{port}")).iter().for_each(|tell| tell(Push::Closed));
    }
}

async fn call(store: &Store) -> Result<i64, ErrorKind> {
    outcome(store.servers.call(&super::call()).await)
}

/// Makes the second server the primary, and makes the sentinels report the change.
fn switch(store: &Store) {
    say_all(store, 2, 2);
    for listener in SENTINELS.map(|port| store.fake.listeners(&format!("h:{port}"))).concat() {
        listener(Push::Published(Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn name_the_server_that_is_asked() {
    let store = store();

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1]);
}

#[tokio::test(start_paused = true)]
async fn are_not_queried_because_a_queue_is_full() {
    let store = store();
    call(&store).await.unwrap();
    store.fake.delay("h:1", TIMEOUT / 10);
    let (call, before) = (super::call(), store.context.failure_reports());

    let (refused, _calls) = fill_queue(&store, &call);

    assert_eq!(refused, ErrorKind::Unavailable);
    assert_eq!(store.context.failure_reports(), before);
}

#[tokio::test(start_paused = true)]
async fn without_ids_count_by_their_addresses() {
    for refusal in ["unknown command 'SENTINEL'", "Unknown sentinel subcommand 'myid'"] {
        let store = store();
        let refuse_id = |port: u16| {
            let answer = move |words: &[String]| match words[1].as_str() {
                "MYID" => refused("ERR", refusal),
                _ => Some(Ok(of_master("h", 1, 1))),
            };
            store.serve(port, answer, |_| None);
        };
        SENTINELS.into_iter().for_each(refuse_id);

        assert_eq!(call(&store).await, Ok(1), "{refusal}");

        remove(&store, &SENTINELS[1..]);
        sleep(2 * BELIEVED_FOR).await;
        assert_eq!(call(&store).await, Err(ErrorKind::Unavailable), "one of three is no majority");
    }
}

#[tokio::test(start_paused = true)]
async fn are_believed_by_how_new_their_knowledge_is() {
    let store = store();
    say(&store, 13, 2, 7);
    store.fake.delay("h:11", TIMEOUT / 2);

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [2]);
}

#[tokio::test(start_paused = true)]
async fn that_switch_tell_idle_clients_so() {
    let store = store();
    call(&store).await.unwrap();
    let mut watch = store.watch();

    switch(&store);

    assert!(is_told(&mut watch).await);
    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn may_be_down_but_for_a_majority() {
    let store = store();
    remove(&store, &[11]);
    assert_eq!(call(&store).await, Ok(1));

    remove(&store, &[12]);
    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
    assert_eq!(store.called(), [1]);
}

#[tokio::test(start_paused = true)]
async fn name_each_other() {
    let store = store_with(&[12]);

    assert_eq!(call(&store).await, Ok(1));
    remove(&store, &[12]);
    assert_eq!(call(&store).await, Ok(1));
    remove(&store, &[13]);
    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn have_one_voice_each_by_any_number_of_addresses() {
    let store = store_with(&[11, 14, 15]);
    for port in [14, 15] {
        say_so(&store, port, 11, of_master("h", 1, 1));
    }
    remove(&store, &[12, 13]);

    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn that_are_replacing_the_master_confirm_nothing() {
    let store = store();
    let switching = of_master_with("h", 1, 2, "master,o_down,failover_in_progress");
    say_so(&store, 11, 11, switching);
    say(&store, 12, 2, 2);

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [2]);
    remove(&store, &[13]);
    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn with_one_that_hangs_cost_no_time() {
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
async fn that_fall_silent_are_missed_in_time() {
    let store = store();
    call(&store).await.unwrap();
    // Only one sentinel remains, which is not a majority. No connection ends.
    for port in [12, 13] {
        store.serve(port, |_| None, |_| None);
    }

    tokio::time::sleep(BELIEVED_FOR - Duration::from_millis(1)).await;
    assert_eq!(call(&store).await, Ok(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
    let results = store.servers.run_all(&[super::call(), super::call()]).await;
    let outcomes: Vec<_> = results.into_iter().map(outcome).collect();
    assert_eq!(outcomes, [Err(ErrorKind::Unavailable), Err(ErrorKind::Unavailable)]);
    assert_eq!(store.called(), [1, 1]);
}

/// The timers of a suspended machine do not advance.
#[tokio::test(start_paused = true)]
async fn are_asked_again_after_a_suspension() {
    let store = store();
    call(&store).await.unwrap();
    say_all(&store, 2, 2);

    store.clock.suspend(BELIEVED_FOR);

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn that_answered_before_a_suspension_are_asked_again() {
    let store = store();
    for sentinel in SENTINELS {
        let (clock, has_answered) = (store.clock.clone(), AtomicBool::new(false));
        let answer = move |words: &[String]| match words[1].as_str() {
            "MYID" => Some(Ok(bytes(sentinel))),
            _ if has_answered.swap(true, Ordering::Relaxed) => Some(Ok(of_master("h", 2, 2))),
            _ => {
                clock.suspend(BELIEVED_FOR);
                Some(Ok(of_master("h", 1, 1)))
            }
        };
        store.serve(sentinel, answer, |_| None);
    }

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [2]);
}

/// A reply may wait in a socket until the machine resumes.
#[tokio::test(start_paused = true)]
async fn are_asked_about_a_reply_from_before_a_suspension() {
    let store = store();
    call(&store).await.unwrap();
    let clock = store.clock.clone();
    let suspended = move |words: &[String]| {
        clock.suspend(if words[0] == "EVALSHA" { SLOW } else { Duration::ZERO });
        done()
    };
    store.serve(1, |_| None, suspended);
    say_all(&store, 2, 2);

    assert_eq!(call(&store).await, Err(ErrorKind::Indeterminate));
}

#[tokio::test(start_paused = true)]
async fn are_asked_ahead_of_calls_in_close_order() {
    let store = store();
    call(&store).await.unwrap();
    delay_all(&store, TIMEOUT / 2);
    let before = store.fake.round_trips().len();

    for _ in 0..50 {
        let asked_at = Instant::now();
        assert_eq!(call(&store).await, Ok(1));
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
        tokio::time::sleep(ASKED_AFTER / 5).await;
    }
    // Each sentinel receives one request per second, which takes two round trips.
    let questions = store.fake.round_trips().len() - before - 50;
    assert!((20..=40).contains(&questions), "{questions}");
}

#[tokio::test(start_paused = true)]
async fn are_asked_for_all_callers_and_for_none_that_stopped_polling() {
    let store = store();
    call(&store).await.unwrap();
    tokio::time::sleep(BELIEVED_FOR).await;
    delay_all(&store, TIMEOUT / 10);
    let mut stuck = Box::pin(call(&store));
    assert!((&mut stuck).now_or_never().is_none());

    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(stuck.await, Ok(1));
}

#[test]
fn that_a_runtime_asked_which_stands_still_are_asked_by_another() {
    let (store, [still, other]) = (store(), [runtime(), runtime()]);
    still.block_on(async {
        call(&store).await.unwrap();
        delay_all(&store, TIMEOUT / 10);
        tokio::time::sleep(ASKED_AFTER).await;
        // The request that this call starts is in progress when the runtime stops.
        call(&store).await.unwrap();
    });

    other.block_on(async {
        tokio::time::sleep(ASKED_AFTER + BELIEVED_FOR).await;
        assert_eq!(call(&store).await, Ok(1));
    });
}

#[tokio::test(start_paused = true)]
async fn that_are_back_are_believed_again() {
    let store = store();
    call(&store).await.unwrap();
    remove(&store, &[12, 13]);
    assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));

    say_all(&store, 1, 1);

    assert_eq!(call(&store).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn that_do_not_know_the_name_say_so() {
    let store = store();
    for sentinel in SENTINELS {
        let answer = |words: &[String]| match words[1].as_str() {
            "MYID" => Some(Ok(bytes("id"))),
            _ => refused("ERR", "No such master with that name"),
        };
        store.serve(sentinel, answer, |_| None);
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

    assert_eq!(call(&store).await, Err(ErrorKind::NotWritable));
    say_all(&store, 2, 2);
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
            say_all(&store, 2, 2);
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
            say_all(&store, 2, 2);
        }

        let results = store.servers.run_all(&super::two_calls()).await;

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

#[tokio::test(start_paused = true)]
async fn of_which_one_knows_the_old_protocol_only_leave_the_store_its_news() {
    let store = store();
    store.fake.speak_resp2("h:11");

    assert_eq!(call(&store).await, Ok(1));
    assert!(store.context.has_push());

    store.fake.speak_resp2("h:2");
    switch(&store);
    assert_eq!(call(&store).await, Ok(1));
    assert_eq!(store.called(), [1, 2]);
    assert!(!store.context.has_push(), "the store itself tells none");
}
