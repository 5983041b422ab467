//! Lists the keys in use page by page, by scanning the servers' databases one at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_core::backend::KeyPage;
use leasehold_core::{Error, ErrorKind, LockKey};

use crate::driver::{Driver, Request};
use crate::error::ServerError;
use crate::layout::Layout;
use crate::node::Node;
use crate::reply::{Reply, unexpected};

/// The number of keys that a server scans for one page. The number is small enough that a scan does
/// not delay other callers noticeably.
const COUNT: &str = "512";

/// The servers that together have all keys, sorted by address.
pub(crate) struct Primaries<D: Driver> {
    pub(crate) servers: Vec<Arc<Node<D>>>,
    /// A value that changes when keys move between these servers.
    pub(crate) mark: u64,
}

/// Returns the page that follows `after`. `after` contains the address of a server, the mark of all
/// servers, and the position of the scan. Keys that move to a server that was already scanned would
/// be missing, so the listing fails if the mark changes.
pub(crate) async fn page<D: Driver>(
    primaries: &Primaries<D>,
    layout: &Layout,
    prefix: &str,
    after: Option<&str>,
) -> Result<KeyPage, Error> {
    let (number, cursor) = match after {
        Some(after) => place(primaries, after)?,
        None => (0, "0"),
    };
    let Primaries { servers, mark } = primaries;
    let server = servers.get(number).ok_or_else(changed)?;
    let pattern = layout.pattern(prefix);
    let scan = ["SCAN", cursor, "MATCH", &pattern, "COUNT", COUNT];
    let [reply] = server.ask([Request::Words(&scan)]).await?;
    let Reply::Array(parts) = reply.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let [Reply::Bytes(cursor), Reply::Array(found)] = parts.as_slice() else {
        return Err(unexpected());
    };
    let key = |found: &Reply| match found {
        Reply::Bytes(key) => layout
            .name(key)
            .filter(|name| name.starts_with(prefix))
            .and_then(|name| LockKey::from_encoded(name).ok()),
        _ => None,
    };
    // A lock with a holder and a queue has two keys, and a server may return a key twice.
    let keys: BTreeSet<LockKey> = found.iter().filter_map(key).collect();
    let cursor = str::from_utf8(cursor).map_err(|_| unexpected())?;
    let next = match cursor {
        "0" => servers.get(number + 1).map(|next| format!("{} {mark:x} 0", next.address())),
        cursor => Some(format!("{} {mark:x} {cursor}", server.address())),
    };
    Ok(KeyPage::new(keys.into_iter().collect()).with_next(next))
}

fn place<'a, D: Driver>(
    primaries: &Primaries<D>,
    after: &'a str,
) -> Result<(usize, &'a str), Error> {
    let mut parts = after.rsplitn(3, ' ');
    let (Some(cursor), Some(mark), Some(address)) = (parts.next(), parts.next(), parts.next())
    else {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the position in the list is invalid; use a position that a page of the list returned",
        ));
    };
    if mark != format!("{:x}", primaries.mark) {
        return Err(changed());
    }
    let mut servers = primaries.servers.iter();
    let number = servers.position(|server| server.address().to_string() == address);
    Ok((number.ok_or_else(changed)?, cursor))
}

fn changed() -> Error {
    let message = "the servers have changed since the listing began; start it again";
    Error::new(ErrorKind::Unavailable, message)
}
