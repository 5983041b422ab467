//! Explanations of why a server cannot be reached.

use std::error::Error as StdError;
use std::io;
use std::iter;

use tokio::time::error::Elapsed;

/// Only the user can distinguish a distant server from a server that does not respond.
const LATE: &str = "no reply in time; if the server is far away, increase timeout-ms in the URL";

/// Returns why a server cannot be reached, if `error` was caused by an I/O error or a timeout.
/// Returns `None` for other errors.
///
/// A backend reports only the address of the server and the returned text. It omits the messages of
/// `error` and its sources, because these messages often repeat each other.
///
/// ```
/// use std::io;
/// use leasehold_core::backend::why_unreachable;
///
/// let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
/// assert_eq!(why_unreachable(&refused), Some("connection refused"));
/// ```
pub fn why_unreachable(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    let causes = || iter::successors(Some(error), |&cause| cause.source());
    let io = causes().find_map(|cause| cause.downcast_ref::<io::Error>());
    let is_lookup = || causes().any(|cause| cause.to_string().contains("failed to lookup"));
    Some(match io.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused",
        Some(io::ErrorKind::HostUnreachable) => "host unreachable",
        Some(io::ErrorKind::NetworkUnreachable) => "network unreachable",
        Some(io::ErrorKind::NotFound) => "no such socket",
        Some(io::ErrorKind::PermissionDenied) => "permission denied",
        Some(
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof,
        ) => "the server closed the connection immediately",
        _ if is_lookup() => "no such host",
        Some(io::ErrorKind::TimedOut) => LATE,
        _ if causes().any(|cause| cause.is::<Elapsed>()) => LATE,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::error::{Error, ErrorKind};

    #[test]
    fn the_cause_is_found_below_other_errors() {
        let because = |cause: io::Error| {
            let outer = Error::new(ErrorKind::Unavailable, "of a driver").with_source(cause);
            why_unreachable(&outer)
        };

        assert_eq!(because(io::ErrorKind::ConnectionRefused.into()), Some("connection refused"));
        assert_eq!(because(io::ErrorKind::NotFound.into()), Some("no such socket"));
        assert_eq!(because(io::ErrorKind::TimedOut.into()), Some(LATE));
        assert_eq!(because(io::Error::other("failed to lookup address: …")), Some("no such host"));
        assert_eq!(because(io::Error::other("something new")), None);
    }
}
