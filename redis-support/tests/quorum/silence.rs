//! No majority answers.

use std::time::Duration;

use leasehold_conformance::stalls::{Stalls, measure};
use leasehold_core::backend::{LockBackend, Release};
use leasehold_testbed::{RedisOptions, until};
use tokio::time::Instant;

use super::servers::{Servers, grant, lease};

const TTL: Duration = Duration::from_secs(3);

/// A twelfth of the TTL, for the standing of members, for their votes, and for the way back.
const LIMIT: Duration = Duration::from_millis(750);

/// How late things may happen on a machine that does not stall.
const PROMPT: Duration = Duration::from_millis(250);

#[tokio::test]
async fn without_a_majority_an_acquisition_fails_in_time_and_leaves_nothing() {
    for is_killed in [true, false] {
        measure(async || {
            let mut servers = Servers::start(5, &RedisOptions::new()).await;
            let quorum = servers.quorum(TTL);
            quorum.establish().await.unwrap();
            let first = lease("job", TTL);
            assert!(grant(&quorum, &first).await.unwrap().is_some());
            assert_eq!(quorum.release(&first).await.unwrap(), Release::Released);
            for redis in &mut servers.0[..3] {
                if is_killed {
                    redis.kill();
                } else {
                    redis.pause();
                }
            }

            let stalls = Stalls::watch();
            for number in 0..10 {
                let start = Instant::now();
                let error = grant(&quorum, &lease("job", TTL)).await.unwrap_err();
                assert!(error.is_retryable(), "{number}: {error}");
                stalls.in_time("an error", start.elapsed(), LIMIT + PROMPT)?;
            }

            for redis in &servers.0[..3] {
                if !is_killed {
                    redis.resume();
                }
            }
            let alive = if is_killed { 3..5 } else { 0..5 };
            for number in alive {
                let is_free = async || servers.value(number, "job").await == "$-1";
                until(format!("nothing is left on server {number}"), is_free).await;
            }
            Ok(())
        })
        .await;
    }
}
