//! Calls that are dropped before the store has replied.

use super::*;

/// A layer that records when each request starts, and when its future is dropped.
#[derive(Debug)]
struct Recording {
    inner: FaultBackend<MemoryBackend>,
    log: Log,
}

type Log = Arc<StdMutex<Vec<String>>>;

/// A request whose future exists.
struct Started {
    operation: Operation,
    log: Log,
}

impl Started {
    fn new(operation: Operation, log: &Log) -> Self {
        log.lock().unwrap().push(format!("{operation:?} started"));
        Self { operation, log: Arc::clone(log) }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.log.lock().unwrap().push(format!("{:?} dropped", self.operation));
    }
}

#[async_trait]
impl Layer for Recording {
    fn inner(&self) -> &dyn LockBackend {
        &self.inner
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        let _started = Started::new(request.operation(), &self.log);
        request.send(&self.inner).await
    }
}

fn recording() -> (LockClient<Recording>, Faults, Log) {
    let inner = FaultBackend::new(MemoryBackend::new());
    let (faults, log) = (inner.faults().clone(), Log::default());
    let backend = Recording { inner, log: Arc::clone(&log) };
    let client = LockClient::builder(backend).clock(TokioClock::new()).build().unwrap();
    (client, faults, log)
}

/// Stores with a single connection rely on this order.
#[tokio::test(start_paused = true)]
async fn drop_their_request_before_its_release_starts() {
    let (client, faults, log) = recording();
    faults.inject(Operation::Acquire, Fault::SwallowReply, 1);
    let mutex = client.mutex("k").unwrap();
    let mut locking = Box::pin(mutex.lock());
    assert!((&mut locking).now_or_never().is_none());
    assert_eq!(*log.lock().unwrap(), ["Acquire started"]);

    drop(locking);
    assert_eq!(*log.lock().unwrap(), ["Acquire started", "Acquire dropped"]);

    tokio::time::sleep(ms(1)).await;
    assert_eq!(log.lock().unwrap()[2..], ["Release started", "Release dropped"]);
}

/// A release has reached the store after all attempts of its lease.
#[tokio::test(start_paused = true)]
async fn after_several_attempts_release_their_lease_once_and_last() {
    let (client, faults, log) = recording();
    faults.inject(Operation::Acquire, Fault::LoseReply, 2);
    faults.inject(Operation::Acquire, Fault::SwallowReply, 1);
    let mutex = client.mutex("k").unwrap();

    let locked = tokio::time::timeout(TTL / 10, mutex.lock()).await;

    assert!(locked.is_err());
    tokio::time::sleep(ms(1)).await;
    let log = log.lock().unwrap();
    let [attempts @ .., release, released] = &log[..] else { panic!("{log:?}") };
    assert_eq!(attempts, ["Acquire started", "Acquire dropped"].repeat(3));
    assert_eq!([release, released], ["Release started", "Release dropped"]);
}
