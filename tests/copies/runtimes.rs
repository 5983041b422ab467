//! Runtimes that lack a part which locks need.

use leasehold::{Error, ErrorKind};
use libtest_mimic::Trial;
use tokio::runtime::Builder;

use crate::stores::{LOCAL, SERVERS, Store, on_each};

pub(crate) fn trials() -> Vec<Trial> {
    let all = LOCAL.into_iter().chain(SERVERS);
    let mut trials = on_each(all, "runtimes::without_a_timer_are_refused", without_a_timer);
    trials.extend(on_each(SERVERS, "runtimes::without_io_are_refused", without_io));
    trials
}

fn without_a_timer(name: &'static str) {
    let error = refused(name, Builder::new_current_thread().enable_io());

    assert!(error.contains("enable_time()") && error.contains("enable_all()"), "{error}");
}

fn without_io(name: &'static str) {
    let error = refused(name, Builder::new_current_thread().enable_time());

    assert!(error.contains("enable_all()"), "{error}");
}

/// The error of a call for a lock in such a runtime.
fn refused(name: &str, builder: &mut Builder) -> String {
    let store = Store::start(name);
    let runtime = builder.build().unwrap();
    let locked = runtime.block_on(async {
        let client = leasehold::connect(&store.url).await?;
        client.mutex("k")?.lock().await?.release().await?;
        Ok::<(), Error>(())
    });
    let error = locked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    error.to_string()
}
