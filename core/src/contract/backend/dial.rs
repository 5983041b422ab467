//! Connections to servers with several addresses.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, timeout_at};

/// Connects to a server with several addresses, some of which may not respond.
///
/// # Example
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
///
/// use leasehold_core::backend::Dial;
///
/// let connect = async |address: &str| match address {
///     "[::1]:80" => Err("refused"),
///     _ => Ok(format!("connected to {address}")),
/// };
/// let time = Duration::from_secs(1);
/// let connected = Dial::new().first(["[::1]:80", "127.0.0.1:80"], time, connect).await;
/// assert_eq!(connected.unwrap(), "connected to 127.0.0.1:80");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Dial<A> {
    /// The address of the last successful connection.
    good: Mutex<Option<A>>,
}

impl<A: Clone + PartialEq> Dial<A> {
    /// Creates a dialer that has not connected yet.
    pub fn new() -> Self {
        Self { good: Mutex::default() }
    }

    /// Returns the first connection to any of `addresses` that succeeds within `time`.
    ///
    /// `connect` must include the complete handshake, because a server that accepts connections but
    /// never responds must not count as connected.
    ///
    /// The address of the last successful connection is tried first. The next address is tried when
    /// an attempt fails, or when the current address has used up its equal share of `time`. Earlier
    /// attempts continue while the next address is tried, because a distant server may need more
    /// time. The first successful attempt cancels all other attempts.
    ///
    /// # Errors
    ///
    /// Returns the errors of the attempts that failed, in the order in which they failed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, all connection attempts are cancelled.
    pub async fn first<T, E, F>(
        &self,
        addresses: impl IntoIterator<Item = A>,
        time: Duration,
        connect: impl Fn(A) -> F,
    ) -> Result<T, Vec<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let ends = Instant::now() + time;
        let mut addresses: Vec<A> = addresses.into_iter().collect();
        let last = self.last();
        addresses.sort_by_key(|address| Some(address) != last.as_ref());
        let part = time / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let (mut untried, mut running) = (addresses.into_iter(), FuturesUnordered::new());
        let mut failures = Vec::new();
        loop {
            running.extend(untried.next().map(|address| {
                let attempt = connect(address.clone());
                async move { attempt.await.map(|connection| (address, connection)) }
            }));
            let is_last = untried.len() == 0;
            let until = if is_last { ends } else { Instant::now() + part };
            match timeout_at(until, running.next()).await {
                Ok(Some(Ok((address, connection)))) => {
                    *self.good() = Some(address);
                    return Ok(connection);
                }
                Ok(Some(Err(failure))) => failures.push(failure),
                Ok(None) | Err(_) if is_last => return Err(failures),
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Returns the address of the last successful connection.
    pub fn last(&self) -> Option<A> {
        self.good().clone()
    }

    fn good(&self) -> MutexGuard<'_, Option<A>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Clone + PartialEq> Default for Dial<A> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    const TIME: Duration = Duration::from_millis(500);

    /// The reply of a simulated server after a delay, or `None` if the server never replies.
    type Answer = Option<Result<Duration, &'static str>>;

    async fn connect(answer: Answer) -> Result<Duration, &'static str> {
        match answer {
            Some(Ok(delay)) => {
                sleep(delay).await;
                Ok(delay)
            }
            Some(Err(refused)) => Err(refused),
            None => pending().await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_says_nothing_leaves_time_for_the_next() {
        let (begun_at, prompt) = (Instant::now(), Duration::from_millis(1));

        let connected =
            Dial::new().first([None, None, Some(Ok(prompt)), None], TIME, connect).await;

        assert_eq!(connected.unwrap(), prompt);
        assert_eq!(begun_at.elapsed(), TIME / 2 + prompt);
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_refuses_costs_no_time() {
        let begun_at = Instant::now();

        let answers = [Some(Err("refused")), Some(Ok(Duration::ZERO))];
        let connected = Dial::new().first(answers, TIME, connect).await;

        assert!(connected.is_ok() && begun_at.elapsed() < TIME / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn distant_server_may_need_more_than_its_part() {
        let distant = TIME - Duration::from_millis(1);

        let connected = Dial::new().first([Some(Ok(distant)), None], TIME, connect).await;

        assert_eq!(connected.unwrap(), distant);
    }

    #[tokio::test(start_paused = true)]
    async fn all_failures_are_told() {
        for (answers, told) in [
            ([Some(Err("one")), Some(Err("two"))], vec!["one", "two"]),
            ([None, Some(Err("two"))], vec!["two"]),
            ([None, None], vec![]),
        ] {
            let begun_at = Instant::now();

            let failures = Dial::new().first(answers, TIME, connect).await.unwrap_err();

            assert_eq!(failures, told);
            assert!(begun_at.elapsed() <= TIME);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_gave_the_last_connection_is_tried_first() {
        let dial = Dial::new();
        let answers = [None, Some(Ok(Duration::ZERO))];
        dial.first(answers, TIME, connect).await.unwrap();
        let begun_at = Instant::now();

        dial.first(answers, TIME, connect).await.unwrap();

        assert!(begun_at.elapsed() < TIME / 2);
    }
}
