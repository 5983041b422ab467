//! The description of a holder.

mod text;

use std::fmt;
use std::sync::{Arc, LazyLock};

/// The description of a holder. By default, the description consists of the host name and the
/// process id. In an [election](crate::election::Election), the description is the text that the
/// leader publishes.
///
/// The store keeps the description next to the lease id, so that waiters and operators can read it.
///
/// ```
/// use leasehold_core::{Description, LockOptions};
///
/// let options = LockOptions::new().description(Description::new("web-1, nightly report")?);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Description(Arc<str>);

impl Description {
    /// The maximum length of a description, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Returns the description of this process: the host name and the process id, as in
    /// `web-1/4711`. If the host does not have a usable name, returns only the process id, as in
    /// `pid 4711`.
    pub fn of_this_process() -> Self {
        static THIS_PROCESS: LazyLock<Description> = LazyLock::new(|| {
            let pid = std::process::id();
            host_name()
                .and_then(|host| Description::new(format!("{host}/{pid}")).ok())
                .unwrap_or_else(|| Description(format!("pid {pid}").into()))
        });

        THIS_PROCESS.clone()
    }

    /// Returns the text of the description.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    None
}

impl From<&Self> for Description {
    fn from(description: &Self) -> Self {
        description.clone()
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
