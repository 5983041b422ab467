use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Receiver, Sender};

use futures_util::FutureExt as _;

use super::*;

/// Longer than any test takes.
const LATER: Duration = Duration::from_secs(60);

/// Numbers in memory.
#[derive(Default)]
struct Numbers {
    committed: Vec<u32>,
    transactions: usize,
    /// Transactions fail that must end earlier.
    busy_until: Option<Instant>,
    /// Whether the outcome of the next transaction is unknown.
    is_next_unknown: bool,
    due: Option<Instant>,
    acted: Option<Sender<()>>,
}

impl Transactional for Numbers {
    type Transaction<'a> = Vec<u32>;
    type Stop = Error;

    fn transact(
        &mut self,
        until: Instant,
        steps: &mut dyn FnMut(&mut Vec<u32>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.transactions += 1;
        if self.busy_until.is_some_and(|busy_until| until < busy_until) {
            return Err(unavailable("the store is busy"));
        }
        let mut numbers = self.committed.clone();
        steps(&mut numbers)?;
        if mem::take(&mut self.is_next_unknown) {
            return Err(Error::new(ErrorKind::Indeterminate, "no reply"));
        }
        self.committed = numbers;
        Ok(())
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }

    fn act(&mut self) {
        self.due = None;
        self.acted.take().unwrap().send(()).unwrap();
    }
}

/// A worker whose thread runs a request until [`go`](Self::go).
struct Busy {
    worker: Worker<Numbers>,
    go: Sender<()>,
}

impl Busy {
    fn start(store: Numbers) -> Self {
        let worker = Worker::start("numbers", LATER, |_| store).unwrap();
        let (started, has_started) = mpsc::channel();
        let (go, wait): (_, Receiver<()>) = mpsc::channel();
        let work = move |_: &mut Numbers, _| {
            started.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        };
        let reply = worker.queue(false, Work::Other(Box::new(work))).unwrap();
        has_started.recv().unwrap();
        drop(reply);
        Self { worker, go }
    }

    fn go(&self) {
        self.go.send(()).unwrap();
    }

    async fn committed(&self) -> (Vec<u32>, usize) {
        let read = |store: &mut Numbers, _| Ok((store.committed.clone(), store.transactions));
        self.worker.read(read).await.unwrap()
    }
}

fn push(number: u32) -> impl FnMut(&mut Vec<u32>) -> Result<usize, Error> + Send + 'static {
    move |numbers| {
        numbers.push(number);
        Ok(numbers.len())
    }
}

fn job(
    limit: Duration,
    steps: impl FnMut(&mut Vec<u32>) -> Result<(), Error> + Send + 'static,
) -> (Job<Numbers>, oneshot::Receiver<Result<(), Error>>) {
    let (done, reply) = oneshot::channel();
    let (work, until) = (Work::<Numbers>::Write(Box::new(steps)), Instant::now() + limit);
    (Job { work, until, is_begun: Arc::default(), done }, reply)
}

#[tokio::test]
async fn requests_that_wait_share_a_transaction_and_urgent_requests_are_first() {
    let busy = Busy::start(Numbers::default());

    let (first, urgent, last, ()) = tokio::join!(
        busy.worker.write(push(1)),
        busy.worker.write_urgent(push(2)),
        busy.worker.write(push(3)),
        async { busy.go() }
    );

    assert_eq!([first.unwrap(), urgent.unwrap(), last.unwrap()], [2, 1, 3]);
    assert_eq!(busy.committed().await, (vec![2, 1, 3], 1));
}

#[tokio::test]
async fn a_request_that_fails_does_not_affect_the_others() {
    let busy = Busy::start(Numbers::default());
    let fail = |numbers: &mut Vec<u32>| {
        numbers.push(2);
        Err::<(), _>(Error::new(ErrorKind::WrongType, "not a number"))
    };

    let (first, failed, last, ()) = tokio::join!(
        busy.worker.write(push(1)),
        busy.worker.write(fail),
        busy.worker.write(push(3)),
        async { busy.go() }
    );

    assert_eq!((first.unwrap(), last.unwrap()), (1, 2));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(busy.committed().await, (vec![1, 3], 4));
}

#[tokio::test]
async fn requests_with_an_unknown_outcome_do_not_run_again() {
    let busy = Busy::start(Numbers { is_next_unknown: true, ..Numbers::default() });

    let (first, last, ()) =
        tokio::join!(busy.worker.write(push(1)), busy.worker.write(push(2)), async {
            busy.go();
        });

    for error in [first.unwrap_err(), last.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    }
    assert_eq!(busy.committed().await, (Vec::new(), 1));
}

#[tokio::test]
async fn a_request_whose_caller_has_left_is_not_applied() {
    let busy = Busy::start(Numbers::default());
    let mut left = Box::pin(busy.worker.write(push(1)));
    assert!((&mut left).now_or_never().is_none());
    let mut stays = Box::pin(busy.worker.write(push(2)));
    assert!((&mut stays).now_or_never().is_none());

    drop(left);
    busy.go();

    assert_eq!(stays.await.unwrap(), 1);
    assert_eq!(busy.committed().await.0, [2]);
}

#[test]
fn a_request_whose_time_has_passed_leaves_the_others_together() {
    let busy_until = Some(Instant::now() + LATER / 2);
    let mut store = Numbers { busy_until, ..Numbers::default() };
    let nothing = |_: &mut Vec<u32>| Ok(());
    let [patient, impatient, last] =
        [LATER, Duration::ZERO, LATER].map(|limit| job(limit, nothing));

    run_together(&mut store, vec![patient.0, impatient.0, last.0]);

    let error = impatient.1.blocking_recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    patient.1.blocking_recv().unwrap().unwrap();
    last.1.blocking_recv().unwrap().unwrap();
    // The first transaction contains all requests, the second one the impatient request, and the
    // third one the remaining requests.
    assert_eq!(store.transactions, 3);
}

#[test]
fn a_thread_that_is_woken_does_what_is_due() {
    let worker = Worker::start("numbers", LATER, |_| Numbers::default()).unwrap();
    let (acted, has_acted) = mpsc::channel();
    while unpoisoned(&worker.waker().0.jobs).sleeps_until.is_none() {
        thread::yield_now();
    }

    let mut store = unpoisoned(&worker.store);
    (store.due, store.acted) = (Some(Instant::now()), Some(acted));
    drop(store);
    worker.waker().wake_by(Instant::now());

    has_acted.recv_timeout(LATER).unwrap();
}

#[test]
fn a_thread_that_is_woken_before_it_sleeps_looks_again() {
    let waker = Waker::<Numbers>(Arc::default());

    waker.wake_by(Instant::now());

    assert!(matches!(waker.0.next(None), Next::Look));
    assert!(!unpoisoned(&waker.0.jobs).is_woken);
}

#[tokio::test]
async fn the_store_is_lent_only_while_no_request_runs() {
    let busy = Busy::start(Numbers::default());
    assert!(busy.worker.if_idle().is_none());
    busy.go();

    let idle = async || loop {
        if let Some(store) = busy.worker.if_idle() {
            return store;
        }
        tokio::task::yield_now().await;
    };
    idle().await.committed.push(7);

    assert_eq!(busy.committed().await, (vec![7], 0));
}

#[tokio::test]
async fn requests_after_a_panic_fail_without_waiting() {
    let busy = Busy::start(Numbers::default());
    let panics = |_: &mut Vec<u32>| -> Result<(), Error> { panic!("a step fails") };
    let begun_at = Instant::now();

    let (panicked, together, ()) =
        tokio::join!(busy.worker.write(panics), busy.worker.write(push(1)), async { busy.go() });
    let later = busy.worker.write(push(2)).await;
    busy.worker.close().await;

    assert_eq!(panicked.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(together.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(later.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(begun_at.elapsed() < LATER);
}

#[tokio::test]
async fn a_closed_worker_refuses_requests() {
    let worker = Worker::start("numbers", LATER, |_| Numbers::default()).unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);

    worker.close().await;
    let refused = worker.write(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });

    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}
