//! The stored form of the state of a key. Backends that keep this state in one value, such as a
//! row or a document, read it, apply a step of [`Entry`](leasehold_core::backend::entry::Entry)
//! and write it back.
//!
//! A [`Document`] is JSON. Operators can read it, and other programs may add fields, which
//! Leasehold keeps. All times are in microseconds, on the store's clock.
//!
//! | field | contents |
//! | --- | --- |
//! | `v` | the version of the format, [`Document::VERSION`] |
//! | `holders` | the leases in force |
//! | `queue` | the queued claims, in order |
//! | `asked` | the time until which all holders are asked to finish early |
//!
//! A holder and a queue entry have these fields. A field without a value is left out.
//!
//! | field | of | contents |
//! | --- | --- | --- |
//! | `tag` | both | identifies the lease, see [`Tag`] |
//! | `print` | both | the fingerprint of the lease, for logs |
//! | `ends` | both | when the lease or the queue entry expires |
//! | `units`, `limit` | both | the number of permits and the total number; left out for the whole key |
//! | `text` | both | the description |
//! | `token` | holder | the fencing token of the grant |
//! | `since` | holder | when the lease was granted |
//! | `asked` | holder | `true` if only this holder is asked to finish early |
//! | `keep` | queue entry | how long the entry is kept after its claim could be granted |
//! | `socket` | queue entry | the number of the socket that wakes the waiting process, for stores on one machine |
//!
//! A later version may add a field without a change of `v` if a version that does not know the field
//! can ignore it, because such a version keeps the field. If the meaning of a field changes, or if
//! the new field must not be ignored, `v` must be raised, so that earlier versions refuse the
//! document.
//!
//! The document does not contain the last token of the key, because a row has a column for the
//! last token.
//!
//! ```
//! use std::time::Duration;
//!
//! use leasehold_core::LockKey;
//! use leasehold_core::backend::entry::Tokens;
//! use leasehold_core::backend::{Claim, Lease};
//! use leasehold_entry::{Document, Tag};
//!
//! let lease = Lease::new(&LockKey::new("job")?, Duration::from_secs(10));
//! let claim = Claim::new(lease.clone());
//! let (mut document, name) = (Document::default(), Tag::of(&lease.id()));
//! let claim = document.limited(&name, &claim, Tokens::default());
//! document.entry.acquire(name, &claim, Tokens::default(), 0)?;
//!
//! let text = document.to_text();
//! assert!(text.starts_with(r#"{"v":1,"holders":[{"tag":""#));
//! assert_eq!(Document::parse(&text, 1)?, document);
//! # Ok::<(), leasehold_core::Error>(())
//! ```

mod document;
mod stored;
mod tag;

pub use document::Document;
pub use tag::{Tag, tag};
