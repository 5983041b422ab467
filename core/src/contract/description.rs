//! The description of a holder, as text.

mod text;

use std::fmt;
use std::sync::{Arc, LazyLock};

/// The description of a holder: by default the host and the process id; in an [election](crate::election::Election),
/// the text that its leader proclaims.
///
/// The store keeps it beside the lease id, and shows it to waiters and operators.
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
    /// The longest description, in bytes.
    pub const MAX_LEN: usize = 256;

    /// This process: `host/pid`, or `pid` where the host has no usable name.
    pub fn of_this_process() -> Self {
        static THIS_PROCESS: LazyLock<Description> = LazyLock::new(|| {
            let pid = std::process::id();
            host_name()
                .and_then(|host| Description::new(format!("{host}/{pid}")).ok())
                .unwrap_or_else(|| Description(format!("pid {pid}").into()))
        });

        THIS_PROCESS.clone()
    }

    /// The text.
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
