use tempfile::TempDir;

use super::*;

/// Longer than any test takes.
const LATER: Duration = Duration::from_secs(60);

type Reply = oneshot::Receiver<Result<(), Error>>;

/// A file, and the state of the thread that opens the file.
struct Scene {
    _folder: TempDir,
    thread: Thread,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(folder.path().join("locks.db")).unwrap();
        let poller = Poller::new(News::new());
        let mut thread = Thread { config, store: Arc::default(), poller };
        thread.with_store(Instant::now() + LATER, |_, _| Ok(())).unwrap();
        Self { _folder: folder, thread }
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
