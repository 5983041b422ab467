//! A request that measures whether a server replies.

use std::io::{self, Read, Write};
use std::time::Duration;

/// No reply by then, no reply at all: the server is paused or gone.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// Returns a function that sends one request to a server and waits for the reply. A late return shows that the server is stalled.
///
/// The connections that `connect` makes give up after [`TIMEOUT`]. The call after that connects anew.
pub(crate) fn heartbeat<C: Read + Write + Send>(
    connect: impl Fn() -> io::Result<C> + Send,
    request: &'static [u8],
) -> impl FnMut() + Send {
    let mut connection = None;
    move || {
        let open = connection.take().map_or_else(&connect, Ok);
        connection = open.and_then(|open| ask(open, request)).ok();
    }
}

fn ask<C: Read + Write>(mut connection: C, request: &[u8]) -> io::Result<C> {
    connection.write_all(request)?;
    let mut reply = [0; 1_024];
    // Any reply will do: a refusal, too, is one of a server that runs.
    match connection.read(&mut reply)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(connection),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::{Etcd, Redis, ZooKeeper};

    #[tokio::test]
    async fn a_pulse_is_as_late_as_its_server() {
        let (redis, etcd) = (Redis::start().await, Etcd::start().await);
        let zookeeper = ZooKeeper::start().await;

        assert_as_late(redis.heartbeat(), || redis.pause(), || redis.resume());
        assert_as_late(etcd.heartbeat(), || etcd.pause(), || etcd.resume());
        assert_as_late(zookeeper.heartbeat(), || zookeeper.pause(), || zookeeper.resume());
    }

    fn assert_as_late(mut heartbeat: impl FnMut(), pause: impl Fn(), resume: impl Fn() + Sync) {
        heartbeat();
        pause();
        let paused_at = Instant::now();

        thread::scope(|scope| {
            scope.spawn(|| {
                // A stopped process knows no time but the real one.
                thread::sleep(TIMEOUT / 5);
                resume();
            });
            heartbeat();
        });

        assert!(paused_at.elapsed() >= TIMEOUT / 5, "{:?}", paused_at.elapsed());
    }

    #[tokio::test]
    async fn a_pulse_gives_up_a_server_that_is_silent() {
        let redis = Redis::start().await;
        let mut heartbeat = redis.heartbeat();
        heartbeat();
        redis.pause();

        let asked_at = Instant::now();
        heartbeat();

        assert!(asked_at.elapsed() >= TIMEOUT && asked_at.elapsed() < TIMEOUT * 10);
    }

    #[tokio::test]
    async fn a_pulse_goes_on_with_a_server_that_is_started_again() {
        let mut redis = Redis::start().await;
        let mut heartbeat = redis.heartbeat();
        heartbeat();

        redis.kill();
        heartbeat();
        redis.restart().await;
        let before = redis.calls(&["ping"]).await;
        heartbeat();

        assert_eq!(redis.calls(&["ping"]).await, before + 1);
    }
}
