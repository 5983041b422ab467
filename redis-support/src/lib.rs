//! What the Redis backends of Leasehold share: where things lie in the server, the scripts that
//! change them, and what the server's replies mean. No I/O, and no client crate.
//!
//! A backend turns an operation into a [`Call`], sends it with its client, turns what comes back
//! into a [`Reply`] or a [`ServerError`], and has the operation's `decode` function read it.
//!
//! # Layout
//!
//! A mutex is the plain string key `<prefix><name>`, set as by `SET key value NX PX ttl`. The value
//! is the lease id, optionally followed by a space and the holder's description, and is compared
//! whole. So any client that does `SET NX PX` and compare-and-delete on that key excludes us and is
//! excluded by us. Everything else lies under `<prefix>~`, which no name can begin with: the fence
//! counters `<prefix>~fence:{tag}`, one for each of the 16384 hash slots, with a tag that puts the
//! counter into the slot of its locks, and what a lock of units or a queue is made of:
//!
//! | key | type | holds |
//! | --- | --- | --- |
//! | `<prefix>~held:{tag}<name>` | sorted set | ids of leases by when they end, in ms of the server's clock |
//! | `<prefix>~units:{tag}<name>` | hash | per id `<units> <description>`, and their sum under `used` |
//! | `<prefix>~queue:{tag}<name>` | sorted set | ids of those who wait, in the order of their coming |
//! | `<prefix>~places:{tag}<name>` | hash | per id `<until when its place is kept> <units>` |
//! | `<prefix>~revoke:{tag}<name>` | string | its holders are asked to finish: a mutex's value, or anything |
//! | `<prefix>~news:{tag}<name>` | string | is deleted when something becomes free |

mod layout;
mod slot;

mod call;
mod script;

mod error;
mod reply;

pub use call::Call;
pub use error::ServerError;
pub use layout::{Layout, News};
pub use reply::{
    Reply, decode_attempt, decode_attempt_all, decode_forced_release, decode_inspection,
    decode_release, decode_renewal, decode_revocation,
};
pub use script::Script;
