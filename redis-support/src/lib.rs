//! The Redis backend of Leasehold. [`Backend`] implements the contract on Redis and Valkey, over any [`Driver`]: `leasehold-redis` and
//! `leasehold-fred` are drivers for two client crates.
//!
//! One call from top to bottom: `backend.rs` turns an operation into a [`Call`] of a script. `topology.rs` finds the node to ask: the only
//! one, the one that sentinels name, or the one that has the key's hash slot; `topology/failover.rs` tells how long that is believed.
//! `node.rs` runs the script there, `connection.rs` has the connection or makes one (`dial.rs` tries all addresses of the name), the driver sends. `reply.rs` reads the reply.
//! Requests of callers at the same time share a round trip (`pipeline.rs`); mutexes share a script, too, and so do renewals (`renewals.rs`).
//! The locks that such a script leaves alone take scripts of their own. `watch.rs` passes on the servers' push messages, and `offers.rs` keeps
//! the grants among them. `process.rs` asks a member of a quorum whether it keeps its answers. The scripts are in `scripts/`, the functions that
//! they include in `scripts/parts/`.
//!
//! # Layout
//!
//! A mutex is the plain string key `<prefix><name>`, set as by `SET key value NX PX ttl`. The value
//! is the lease id, optionally followed by a space and the holder's description, and is compared
//! whole. So any client that does `SET NX PX` and compare-and-delete on that key excludes us and is
//! excluded by us. Everything else lies under `<prefix>~`, which no name can begin with. All locks share two keys:
//!
//! | key | type | holds |
//! | --- | --- | --- |
//! | `<prefix>~fence` | string | the last fencing token |
//! | `<prefix>~crowd` | sorted set | the locks that have any of the keys below, by when the last of those ends, in ms of the server's clock |
//!
//! On a cluster there is one of each for each of the 16384 hash slots, `<prefix>~fence:{tag}` and `<prefix>~crowd:{tag}`, with a tag that puts
//! it into the slot of its locks. A lock of units or a queue is made of these:
//!
//! | key | type | holds |
//! | --- | --- | --- |
//! | `<prefix>~held:{tag}<name>` | sorted set | ids of leases by when they end, in ms of the server's clock |
//! | `<prefix>~units:{tag}<name>` | hash | per id the record of its lease (`lease.lua`), and the sum of units under `used` |
//! | `<prefix>~queue:{tag}<name>` | sorted set | ids of waiting claims, in the order of their arrival |
//! | `<prefix>~places:{tag}<name>` | hash | per id the record of its place (`place.lua`) |
//! | `<prefix>~revoke:{tag}<name>` | string | its holders are asked to finish: a mutex's value, or anything |
//! | `<prefix>~news:{tag}<name>` | string | is deleted when something becomes free, for observers |
//! | `<prefix>~news:{tag}<name>#<id>` | string | is deleted when the claim with this id is to look again |
//!
//! A record is several values in MessagePack, one after the other. A single server that is a member of a quorum has two keys more:
//!
//! | key | type | holds |
//! | --- | --- | --- |
//! | `<prefix>~member` | hash | `id`, the identity of its data; `since` when, in µs of the server's clock; `run`, the process that has kept all of it; `durable`, 1 if that has it on disk; `charter`, if it is enlisted |
//! | `<prefix>~floor` | string | the number that no token under its charter exceeds |

mod config;

mod backend;

mod connection;
mod context;
mod dial;
mod node;
mod offers;
mod pipeline;
mod renewals;
mod shared_task;
mod topology;
mod watch;

mod address;
mod driver;

mod diagnosis;
mod layout;
mod listing;
mod slot;

mod call;
mod process;
mod script;
mod words;

mod error;
mod reply;

#[cfg(test)]
mod fake;

pub use address::{Address, Endpoints};
pub use backend::Backend;
pub use call::Call;
pub use config::{Config, Replicas};
pub use driver::{
    Access, ConnectError, Connection, Destination, Driver, KeepAlive, Protocol, Push, PushHandler,
    Request, Run, Tls,
};
pub use error::{ServerError, unreachable};
pub use layout::Layout;
pub use reply::{Received, Reply};
pub use script::Script;
