//! The requests that a call no longer waits for.

use crate::sync::Handle;

/// Drives a request to its end beside the calls, in a task on the runtime of this one. Outside of all runtimes, the TTL ends what the
/// request would have ended.
pub(super) fn drive(request: impl Future<Output = ()> + Send + 'static) {
    drop(Handle::try_current().map(|runtime| runtime.spawn(request)));
}
