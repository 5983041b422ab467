//! Reads the settings of backends: [URLs](StoreUrl) and their [options](Options),
//! [servers](Server), [TLS files](TlsFiles), [durations](duration_in) and [pool sizes](count_in).
//!
//! A password that is not percent-encoded can end up in any part of a URL. Errors therefore contain
//! only texts of this crate, names of options that the backend supports, numbers, and the operating
//! system's errors for files. `Debug`
//! never shows credentials, options or keys.
//!
//! Errors do not name a backend. A backend adds its name with [`Error::with_backend`].

use std::borrow::Cow;

use leasehold_core::{Error, ErrorKind};

mod decode;
mod limits;
mod options;
mod server;
mod tls;
mod url;

pub use decode::{decode, decode_bytes};
pub use limits::{REQUEST_TIMEOUT, count_in, duration_in};
pub use options::Options;
pub use server::Server;
pub use tls::{Tls, TlsFiles};
pub use url::{Authority, Credentials, StoreUrl};

/// Creates the error for an invalid setting.
///
/// ```
/// use leasehold_core::ErrorKind;
///
/// assert_eq!(leasehold_settings::invalid("the URL has no host").kind(), ErrorKind::Invalid);
/// ```
pub fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// Creates the error for a setting that requires a disabled Cargo feature. `feature` is the name of
/// the feature in the crate of `backend`.
///
/// ```
/// let error = leasehold_settings::disabled("TLS", "etcd", "tls");
///
/// assert_eq!(
///     error.to_string(),
///     "TLS is disabled; enable the feature \"tls\" of leasehold-etcd, or \"etcd-tls\" of leasehold",
/// );
/// ```
pub fn disabled(what: &str, backend: &str, feature: &str) -> Error {
    let message = format!(
        "{what} is disabled; enable the feature \"{feature}\" of leasehold-{backend}, or \"{backend}-{feature}\" of leasehold"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Joins names as in "a, b or c".
fn alternatives<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last.to_owned() } else { format!("{} or {last}", names.join(", ")) }
}
