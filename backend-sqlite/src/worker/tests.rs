use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

/// Longer than any test takes.
const LATER: Duration = Duration::from_secs(60);

type Reply = oneshot::Receiver<Result<(), Error>>;

/// A file, and the state of the thread that opens the file.
struct Scene {
    folder: TempDir,
    thread: Thread,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let poller = Poller::new(News::new());
        let mut thread = Thread { config, store: Arc::default(), poller };
        thread.with_store(Instant::now() + LATER, |_, _| Ok(())).unwrap();
        Self { folder, thread }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    fn commits(&self) -> u64 {
        unpoisoned(&self.thread.store).as_ref().unwrap().version().unwrap().1
    }
}

fn job(
    limit: Duration,
    steps: impl FnMut(&Tables, Clock) -> Result<(), Stop> + Send + 'static,
) -> (Job, Reply) {
    let (done, reply) = oneshot::channel();
    let (work, until) = (Work::Write(Box::new(steps)), Instant::now() + limit);
    (Job { work, until, is_begun: Arc::default(), done }, reply)
}

#[test]
fn a_group_with_an_unknown_outcome_does_not_run_again() {
    let mut scene = Scene::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let (first, first_reply) = job(LATER, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    // The commit checks the deferred constraint, and fails.
    let broken = "CREATE TABLE parent (id INTEGER PRIMARY KEY); \
                  CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED); \
                  INSERT INTO child VALUES (1)";
    let (last, last_reply) =
        job(LATER, move |tables, _| Ok(tables.connection.execute_batch(broken)?));

    scene.thread.run_together(vec![first, last]);

    for reply in [first_reply, last_reply] {
        let error = reply.blocking_recv().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[test]
fn a_job_whose_time_has_passed_leaves_the_other_jobs_together() {
    let mut scene = Scene::new();
    let other = Connection::open(scene.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = scene.commits();
    let nothing = |_: &Tables, _| Ok(());
    let (patient, patient_reply) = job(LATER, nothing);
    let (impatient, impatient_reply) = job(Duration::ZERO, nothing);
    let (last, last_reply) = job(LATER, nothing);

    thread::scope(|scope| {
        scope.spawn(|| scene.thread.run_together(vec![patient, impatient, last]));
        let error = impatient_reply.blocking_recv().unwrap().unwrap_err();
        other.execute_batch("COMMIT").unwrap();

        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        patient_reply.blocking_recv().unwrap().unwrap();
        last_reply.blocking_recv().unwrap().unwrap();
    });
    assert_eq!(scene.commits() - before, 1);
}

#[test]
fn renewals_precede_other_jobs_and_both_run_in_order() {
    let mut scene = Scene::new();
    let (queue, order) = (Queue::default(), Arc::new(Mutex::new(Vec::new())));
    // A job does not run if its caller no longer waits.
    let mut replies = Vec::new();
    for (urgency, name) in [
        (Urgency::Asks, "acquisition"),
        (Urgency::Renews, "first renewal"),
        (Urgency::Releases, "release"),
        (Urgency::Renews, "second renewal"),
    ] {
        let order = Arc::clone(&order);
        let (job, reply) = job(LATER, move |_, _| {
            unpoisoned(&order).push(name);
            Ok(())
        });
        replies.push(reply);
        queue.push(urgency, job).unwrap();
    }
    queue.close();

    scene.thread.run(&queue);

    let expected = ["first renewal", "second renewal", "acquisition", "release"];
    assert_eq!(unpoisoned(&order)[..], expected);
}
