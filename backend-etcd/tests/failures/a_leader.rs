//! A leader that changes.

use super::*;

#[tokio::test]
async fn that_is_killed_costs_no_lock_no_update_and_no_waiter() {
    measure(async || {
        let (stalls, taken_at) = (Stalls::watch(), Instant::now());
        const CLIENTS: usize = 4;
        const ROUNDS_AFTERWARDS: usize = 5;
        let mut etcd = three_members().await;
        let ttl = Duration::from_secs(10);
        let holder = client(&url_from(&etcd, etcd.leader().await), ttl).await;
        let held = lock(&holder, "held").await;
        let protected = Arc::new(Protected::default());
        let killed = Arc::new(AtomicBool::new(false));
        let mut clients = tokio::task::JoinSet::new();
        for n in 0..CLIENTS {
            let client = client(&url_from(&etcd, n % 3), ttl).await;
            let (protected, killed) = (Arc::clone(&protected), Arc::clone(&killed));
            clients.spawn(async move {
                let mutex = client.mutex("counter").unwrap();
                let (mut rounds, mut afterwards) = (0, 0);
                while afterwards < ROUNDS_AFTERWARDS {
                    let was_killed = killed.load(Ordering::SeqCst);
                    let guard = mutex.lock().await.unwrap();
                    protected.increment(&guard).await;
                    let_go(guard).await;
                    rounds += 1;
                    afterwards += usize::from(was_killed);
                }
                rounds
            });
        }
        until("all take turns", async || protected.count() > 20).await;

        etcd.kill_member(etcd.leader().await);
        killed.store(true, Ordering::SeqCst);

        let rounds = timeout(Duration::from_secs(20), clients.join_all()).await;
        let rounds: usize = rounds.expect("all are served").into_iter().sum();
        assert_eq!(protected.count(), rounds);
        protected.assert_tokens_in_order();
        Kept { guard: &held, stalls: &stalls, taken_at }.renewed().await?;
        held.release().await.unwrap();
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn that_is_frozen_for_less_than_the_ttl_costs_no_lock() {
    measure(async || {
        let (stalls, taken_at) = (Stalls::watch(), Instant::now());
        let etcd = three_members().await;
        let ttl = Duration::from_secs(10);
        let leader = etcd.leader().await;
        let at_the_leader = client(&url_from(&etcd, leader), ttl).await;
        let at_a_follower = client(&url_from(&etcd, (leader + 1) % 3), ttl).await;
        let guards = [lock(&at_the_leader, "one").await, lock(&at_a_follower, "other").await];

        etcd.pause_member(leader);
        // Each is due for a renewal meanwhile.
        sleep(Duration::from_secs(5)).await;
        etcd.resume_member(leader);

        for guard in guards {
            Kept { guard: &guard, stalls: &stalls, taken_at }.renewed().await?;
            guard.release().await.unwrap();
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn that_hands_over_costs_no_lock_and_tokens_go_on() {
    measure(async || {
        let (stalls, taken_at) = (Stalls::watch(), Instant::now());
        let etcd = three_members().await;
        let client = client(&etcd.url(), Duration::from_secs(10)).await;
        let held = lock(&client, "held").await;
        let mut last = held.token().number();

        for member in [0, 1, 2] {
            etcd.move_leader(member).await;
            let guard = lock(&client, "other").await;
            assert!(guard.token().number() > last);
            last = guard.token().number();
            guard.release().await.unwrap();
        }

        Kept { guard: &held, stalls: &stalls, taken_at }.renewed().await?;
        held.release().await.unwrap();
        Ok(())
    })
    .await;
}

/// The time in which a former leader goes on to end leases: 5 s and two election timeouts for each of its batches.
const AFTERMATH: Duration = Duration::from_secs(7);

#[tokio::test]
async fn that_was_frozen_for_longer_than_the_ttl_ends_no_lease_that_is_renewed() {
    const HOLDERS: usize = 12;
    let (heartbeat, election) = (Duration::from_millis(100), Duration::from_secs(1));
    let etcd = EtcdOptions::new().members(3).timing(heartbeat, election).start().await;
    let ttl = Duration::from_secs(12);
    let leader = etcd.leader().await;
    let mut guards = Vec::new();
    for n in 0..HOLDERS {
        let client = client(&url_from(&etcd, leader + 1 + n % 2), ttl).await;
        guards.push(lock(&client, &format!("job-{n}")).await);
    }

    etcd.pause_member(leader);
    sleep(ttl + Duration::from_secs(3)).await;
    etcd.resume_member(leader);
    sleep(AFTERMATH).await;

    let states: Vec<_> = guards.iter().map(LockGuard::state).collect();
    assert!(guards.iter().all(LockGuard::is_held), "{states:?}");
}

#[tokio::test]
async fn that_takes_over_has_locks_and_places_moved_to_new_leases() {
    measure(async || {
        let (stalls, taken_at) = (Stalls::watch(), Instant::now());
        let etcd = three_members().await;
        let client = client(&etcd.url(), Duration::from_secs(10)).await;
        let waiter = self::client(&etcd.url(), Duration::from_secs(10)).await;
        let held = lock(&client, "job").await;
        let waiting = waiting(&waiter, "job");
        let store = store(&etcd).await;
        until_there_are(&store, "job", 2).await;
        let before = entries(&store, "job").await;

        etcd.move_leader((etcd.leader().await + 1) % 3).await;

        until("both have moved", async || {
            let now = entries(&store, "job").await;
            let each = || before.iter().zip(&now);
            assert!(each().all(|(before, now)| before.create_revision() == now.create_revision()));
            each().all(|(before, now)| before.lease() != now.lease())
        })
        .await;
        Kept { guard: &held, stalls: &stalls, taken_at }.renewed().await?;
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        Ok(())
    })
    .await;
}
