//! Leases of which the store tells nothing before they are renewed, or all the time.

use std::time::Duration;

use leasehold_core::backend::Operation;
use leasehold_core::fault::{Fault, Faults, Notifications};
use leasehold_core::{LockGuard, LockOptions, RenewalMode};

use crate::fixture::{Client, Fixture, TTL, key, ms, without_news};

/// A client whose store announces the events that the test sets, either for each lease from its grant or only after its first renewal.
fn client(has_news: bool, options: LockOptions) -> (Client, Faults) {
    let Fixture { client, faults, .. } = Fixture::with(options.ttl(TTL));
    faults.set_notifications(Notifications::Scripted);
    if !has_news {
        faults.on_reply(|_request, reply| Ok(without_news(reply)));
    }
    (client, faults)
}

/// How often a lease was renewed by then, after so long each.
async fn renewals<const N: usize>(
    has_news: bool,
    options: LockOptions,
    after: [Duration; N],
) -> [usize; N] {
    let (client, faults) = client(has_news, options);
    let _guard = client.mutex("k").unwrap().lock().await.unwrap();
    let mut seen = [0; N];
    for (seen, time) in seen.iter_mut().zip(after) {
        tokio::time::sleep(time).await;
        *seen = faults.calls(Operation::Renew);
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn are_renewed_soon_and_then_as_any_other() {
    let after = [ms(45), ms(10), ms(9_000), ms(1_100)];
    let options = LockOptions::new();

    assert_eq!(renewals(false, options.clone(), after).await, [0, 1, 1, 2]);
    assert_eq!(renewals(true, options, after).await, [0, 0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn are_not_renewed_where_nothing_is() {
    let options = LockOptions::new().renewal(RenewalMode::Off);

    assert_eq!(renewals(false, options, [ms(20_000)]).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn cost_nothing_more_if_they_are_released_before() {
    let (client, faults) = client(false, LockOptions::new());
    for _ in 0..100 {
        client.mutex("k").unwrap().lock().await.unwrap().release().await.unwrap();
        tokio::time::sleep(ms(1)).await;
    }
    tokio::time::sleep(ms(1_000)).await;

    assert_eq!(faults.calls(Operation::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn that_are_capped_are_renewed_no_more_often_for_news_than_others() {
    let mut renewals = Vec::new();
    for options in [LockOptions::new(), LockOptions::new().max_hold(TTL)] {
        let (client, faults) = client(true, options);
        let _guard = client.mutex("k").unwrap().lock().await.unwrap();
        for _ in 0..1_000 {
            tokio::time::sleep(ms(1)).await;
            faults.notify_falsely(&key("k"));
        }
        renewals.push(faults.calls(Operation::Renew));
    }

    let [uncapped, capped] = renewals[..] else { panic!("two were measured") };
    assert!((50..=110).contains(&uncapped), "{uncapped}");
    assert!((50..=110).contains(&capped), "{capped}");
}

/// As when the connection breaks again and again: it takes longer to renew all than until the next time.
#[tokio::test(start_paused = true)]
async fn that_news_keeps_coming_of_are_all_renewed_in_turn() {
    const MANY: usize = 5_000;
    let (client, faults) = client(true, LockOptions::new());
    faults.inject(Operation::Renew, Fault::DelayRequest(ms(1_000)), usize::MAX);
    let mut guards = Vec::new();
    for n in 0..MANY {
        guards.push(client.mutex(format!("k{n}")).unwrap().lock().await.unwrap());
    }

    for _ in 0..60 {
        tokio::time::sleep(ms(1_000)).await;
        guards.iter().for_each(|guard| faults.notify_falsely(guard.key()));
    }

    assert_eq!(guards.iter().filter(|guard| LockGuard::is_held(guard)).count(), MANY);
}
