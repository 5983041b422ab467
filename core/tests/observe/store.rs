//! Whether the store answers.

use super::*;

const UNAVAILABLE: Fault = Fault::Fail(ErrorKind::Unavailable);

impl Observed {
    /// How the store stood, of all that was told.
    fn changes(&self) -> Vec<String> {
        let is_change = |line: &String| line.starts_with("up") || line.starts_with("down");
        self.told().into_iter().filter(is_change).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn is_told_once_per_outage() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();
    observed.faults.set_lasting(Some(UNAVAILABLE));
    let call = tokio::spawn(async move { mutex.lock().await.map(drop) });

    pass(ms(5_000)).await;
    assert_eq!(observed.changes(), ["down at acquire"]);
    observed.faults.set_lasting(None);
    call.await.unwrap().unwrap();

    let changes = observed.changes();
    assert!(changes[0].starts_with("up after 5"), "{changes:?}");
    assert_eq!(changes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn is_down_if_it_fails_a_part_of_a_request() {
    let observed = Observed::new();
    let mutexes = ["k", "l"].map(|name| observed.client.mutex(name).unwrap());
    let _guards = [mutexes[0].lock().await.unwrap(), mutexes[1].lock().await.unwrap()];
    observed.faults.inject(Operation::Renew, UNAVAILABLE, 1);
    observed.told();

    pass(RENEWAL + ms(50)).await;

    let told = observed.told();
    assert!(told.iter().any(|line| line.starts_with("renewed #")), "{told:?}");
    assert!(told.contains(&"down at renew".to_owned()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn wakes_no_waiter_while_it_is_down() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();
    observed.faults.inject(Operation::Acquire, UNAVAILABLE, 5);

    drop(mutex.lock().await.unwrap());

    let told = observed.told();
    assert!(!told.iter().any(|line| line.starts_with("woken")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn that_flaps_is_told_once_a_second() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();

    for _ in 0..100 {
        observed.faults.inject(Operation::Acquire, UNAVAILABLE, 1);
        mutex.lock().await.unwrap().release().await.unwrap();
        pass(ms(50)).await;
    }

    let changes = observed.changes();
    assert!((8..=30).contains(&changes.len()), "{} changes", changes.len());
    assert!(changes.last().unwrap().starts_with("up after"), "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn is_not_down_because_a_caller_does_not_wait_for_the_answer() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();
    observed.faults.inject(Operation::Acquire, Fault::DelayReply(ms(100)), 1);

    assert!(mutex.try_lock_for(ms(10)).await.is_err());

    assert_eq!(observed.changes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn that_is_silent_for_a_second_is_down() {
    let observed = Observed::new();
    let mutex = observed.client.mutex("k").unwrap();
    observed.faults.inject(Operation::Acquire, Fault::SwallowRequest, 1);

    assert!(mutex.try_lock_for(ms(1_000)).await.is_err());

    assert_eq!(observed.changes(), ["down at acquire"]);
}
