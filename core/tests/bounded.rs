//! The state that a client keeps for keys that it no longer wants.

use std::time::Duration;

use leasehold_core::LockClient;
use leasehold_core::memory::MemoryBackend;

/// Enough for a map that grows with the keys to be told from one that grows with the callers.
const KEYS: usize = 10_000;

#[tokio::test(start_paused = true)]
async fn keys_that_were_used_once_leave_no_entry() {
    let store = MemoryBackend::new();
    let (client, other) = (LockClient::new(store.clone()), LockClient::new(store));
    for number in 0..KEYS {
        let key = format!("order:{number}");
        let held = client.mutex(&key).unwrap().lock().await.unwrap();
        if number % 10 == 0 {
            let refused = other.mutex(&key).unwrap().try_lock_for(Duration::from_millis(1)).await;
            assert!(refused.unwrap_err().into_busy().is_ok());
            drop(client.reentrant_mutex(format!("{key}/again")).unwrap().lock().await.unwrap());
            drop(other.semaphore(format!("{key}/permits"), 2).unwrap().acquire(1).await.unwrap());
        }
        held.release().await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;

    for client in [client, other] {
        for (entries, count) in client.entries() {
            assert_eq!(count, 0, "{entries}");
        }
    }
}
