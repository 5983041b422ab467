//! The addresses of a name: each one is tried.

use std::net::SocketAddr;

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::Error;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::error::unreachable;

/// The IP addresses of a server, without repetitions. A Unix socket has none and is connected to by its path.
///
/// # Errors
///
/// Returns [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if the name has no address.
pub(crate) async fn addresses_of(address: &Address) -> Result<Vec<Option<SocketAddr>>, Error> {
    let Address::Tcp { host, port } = address else { return Ok(vec![None]) };
    let found = lookup_host((host.as_str(), *port)).await;
    let found = found.map_err(|error| unreachable(&format!("{error:?}")))?;
    let mut addresses = Vec::new();
    for at in found {
        if !addresses.contains(&Some(at)) {
            addresses.push(Some(at));
        }
    }
    if addresses.is_empty() { Err(unreachable("No address associated")) } else { Ok(addresses) }
}

/// The first connection that any of `addresses` gives until `deadline`.
///
/// The next address is tried when an attempt has failed, or after an equal part of the time. Attempts that have begun continue in the
/// meantime: a distant server may need more than its part.
///
/// # Errors
///
/// Returns the failure that needs somebody's help if there is one, otherwise the last failure, and `None` if no attempt has ended.
pub(crate) async fn first_of<A, T, F>(
    addresses: Vec<A>,
    deadline: Instant,
    connect: impl Fn(A) -> F,
) -> Result<T, Option<Error>>
where
    F: Future<Output = Result<T, Error>>,
{
    let time = deadline.saturating_duration_since(Instant::now());
    let part = time / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let (mut untried, mut running) = (addresses.into_iter(), FuturesUnordered::new());
    let mut failure: Option<Error> = None;
    loop {
        running.extend(untried.next().map(&connect));
        let is_last = untried.len() == 0;
        let until = if is_last { deadline } else { Instant::now() + part };
        match timeout_at(until, running.next()).await {
            Ok(Some(Ok(connection))) => return Ok(connection),
            Ok(Some(Err(error))) => {
                let is_known = failure.as_ref().is_some_and(|failure| !failure.is_retryable());
                failure = if is_known { failure } else { Some(error) };
            }
            Ok(None) if is_last => return Err(failure),
            Err(_elapsed) if is_last => return Err(failure),
            Ok(None) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use leasehold_core::ErrorKind;
    use tokio::time::sleep;

    use super::*;

    const TIME: Duration = Duration::from_millis(500);

    /// Connects to a server that answers after so long, if at all.
    async fn connect(answer: Result<Duration, ErrorKind>) -> Result<Duration, Error> {
        match answer {
            Ok(Duration::MAX) => pending().await,
            Ok(delay) => sleep(delay).await,
            Err(kind) => return Err(Error::new(kind, "refused")),
        }
        Ok(answer.unwrap_or_default())
    }

    const MUTE: Result<Duration, ErrorKind> = Ok(Duration::MAX);

    #[tokio::test(start_paused = true)]
    async fn an_address_that_says_nothing_leaves_time_for_the_next() {
        let (begun_at, prompt) = (Instant::now(), Duration::from_millis(1));

        let answers = vec![MUTE, MUTE, Ok(prompt), MUTE];
        let connected = first_of(answers, begun_at + TIME, connect).await;

        assert_eq!(connected.unwrap(), prompt);
        assert_eq!(begun_at.elapsed(), TIME / 2 + prompt);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_refuses_costs_no_time() {
        let begun_at = Instant::now();

        let refused = Err(ErrorKind::Unavailable);
        let connected = first_of(vec![refused, Ok(Duration::ZERO)], begun_at + TIME, connect).await;

        assert!(connected.is_ok() && begun_at.elapsed() < TIME / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_distant_server_may_need_more_than_its_part() {
        let distant = TIME - Duration::from_millis(1);

        let connected = first_of(vec![Ok(distant), MUTE], Instant::now() + TIME, connect).await;

        assert_eq!(connected.unwrap(), distant);
    }

    #[tokio::test(start_paused = true)]
    async fn the_failure_that_needs_help_is_reported() {
        let (denied, down) = (Err(ErrorKind::Denied), Err(ErrorKind::Unavailable));
        for (answers, expected) in [
            (vec![denied, down], Some(ErrorKind::Denied)),
            (vec![MUTE, denied], Some(ErrorKind::Denied)),
            (vec![down, MUTE], Some(ErrorKind::Unavailable)),
            (vec![MUTE, MUTE], None),
        ] {
            let begun_at = Instant::now();

            let failure = first_of(answers, begun_at + TIME, connect).await.unwrap_err();

            assert_eq!(failure.map(|failure| failure.kind()), expected);
            assert!(begun_at.elapsed() <= TIME);
        }
    }
}
