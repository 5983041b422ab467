//! TTLs that the server rounds or refuses.

use super::*;

/// With the timing that etcd has by default, no lease is shorter than two seconds.
async fn with_default_timing() -> Etcd {
    let (heartbeat, election) = (Duration::from_millis(100), Duration::from_secs(1));
    EtcdOptions::new().timing(heartbeat, election).start().await
}

#[tokio::test]
async fn below_the_servers_is_believed_in_as_asked_for_and_waited_for_as_granted() {
    measure(async || {
        let etcd = with_default_timing().await;
        let client = client(&etcd.url(), Duration::from_secs(1)).await;
        let fixed = client.options().renewal(RenewalMode::Off);
        let mutex = client.mutex("job").unwrap().with_options(fixed).unwrap();
        let (stalls, start) = (Stalls::watch(), Instant::now());
        let guard = mutex.lock().await.unwrap();
        assert!(guard.remaining() <= Duration::from_secs(1), "{:?}", guard.remaining());

        assert_eq!(guard.lost().await, Some(LossReason::Expired));
        stalls.in_time("the loss", start.elapsed(), Duration::from_secs(1) + PROMPT)?;
        // Dropped, it would be released.
        std::mem::forget(guard);
        let next = lock(&self::client(&etcd.url(), LONG).await, "job").await;

        let waited = start.elapsed();
        assert!(waited >= Duration::from_millis(1_900), "{waited:?}");
        // The server looks for leases that have ended twice a second.
        stalls.in_time("the next is served", waited, Duration::from_millis(2_500) + PROMPT)?;
        next.release().await.unwrap();
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn below_the_servers_is_kept_alive_in_time() {
    measure(async || {
        let (stalls, taken_at) = (Stalls::watch(), Instant::now());
        let etcd = with_default_timing().await;
        let client = client(&etcd.url(), Duration::from_secs(1)).await;
        let guard = lock(&client, "job").await;

        for _ in 0..5 {
            Kept { guard: &guard, stalls: &stalls, taken_at }.renewed().await?;
            assert!(guard.remaining() <= Duration::from_secs(1), "{:?}", guard.remaining());
        }
        guard.release().await.unwrap();
        Ok(())
    })
    .await;
}
