//! Checks whether a store compares versions.

use leasehold_core::{Error, ErrorKind, LockKey};

use crate::pause::pause;
use crate::store::{CasStore, Loaded, Version, Written};
use crate::stored::Stored;

/// The key of the document that the check writes. It cannot be locked.
pub(crate) const PROBED: &str = "leasehold:probe";

/// How often the check is repeated if another client writes the document, or if a reply is lost.
const MOST_ATTEMPTS: u32 = 32;

/// Checks that the store compares the version before it writes.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if the store ignores the expected version.
pub(crate) async fn probe(store: &impl CasStore) -> Result<(), Error> {
    let key = LockKey::new(PROBED).expect("the name is valid");
    for attempt in 0..MOST_ATTEMPTS {
        let Loaded { version: stale, .. } = store.load(&key).await?;
        if writes(store, &key, &stale).await? == Some(true) {
            // The version is stale now, and the document exists.
            let stale_is_written = writes(store, &key, &stale).await?;
            let absent_is_written = writes(store, &key, &Version::Absent).await?;
            match (stale_is_written, absent_is_written) {
                (Some(false), Some(false)) => return Ok(()),
                (Some(true), _) | (_, Some(true)) => return Err(ignores_conditions()),
                (None, _) | (_, None) => {}
            }
        }
        pause(attempt).await;
    }
    let message = "other clients check the store all the time; retry later";
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Returns whether the store writes a document if the version is `expected`, or `None` if the reply
/// was lost.
async fn writes(
    store: &impl CasStore,
    key: &LockKey,
    expected: &Version,
) -> Result<Option<bool>, Error> {
    let document = Stored::default().to_text(Stored::unique_number());
    match store.write(key, expected, &document).await {
        Ok(written) => Ok(Some(matches!(written, Written::Written { .. }))),
        Err(error) if error.kind() == ErrorKind::Indeterminate => Ok(None),
        Err(error) => Err(error),
    }
}

fn ignores_conditions() -> Error {
    let message = "the store ignores the condition of a write, so it cannot exclude clients; use a store with conditional writes";
    Error::new(ErrorKind::Unsupported, message)
}
