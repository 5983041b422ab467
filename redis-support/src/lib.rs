// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]

// A call from top to bottom: `backend.rs` turns an operation into a `Call` of a script.
// `topology.rs` finds the server to ask: the only server, the server that sentinels name, or the
// server with the key's hash slot. `topology/failover.rs` decides for how long to trust that
// server. `node.rs` runs the script there. `connection.rs` has the connection or opens one
// (`dial.rs` tries all addresses of the name), and the driver sends the request. `reply.rs` reads
// the reply. Requests of several callers at the same time share a round trip (`pipeline.rs`).
// Mutexes also share a script, and so do renewals (`renewals.rs`). The locks that such a script
// leaves alone get a script each. `watch.rs` forwards the servers' push messages. `process.rs` asks
// a member of a quorum whether it keeps its answers. The scripts are in `scripts/`, and the
// functions that they include are in `scripts/parts/`.
//
// The page lists the keys. A mutex is the plain string key `<prefix><name>`, whose value is the
// lease ID, optionally followed by a space and the holder's description. Scripts compare the whole
// value. All other keys start with `<prefix>~`, which a lock's name cannot start with. Two keys
// serve all locks. On a cluster, each of the 16,384 hash slots has both, with a tag that puts them
// into the slot of its locks:
//
// | key | type | content |
// | --- | --- | --- |
// | `<prefix>~fence` | string | the last fencing token |
// | `<prefix>~crowd` | sorted set | the locks that have any of the keys below, by the time when the last of these keys expires, in ms of the server's clock |
//
// A lock with permits or a queue has these keys:
//
// | key | type | content |
// | --- | --- | --- |
// | `<prefix>~held:{tag}<name>` | sorted set | lease IDs by the time when the lease expires, in ms of the server's clock |
// | `<prefix>~units:{tag}<name>` | hash | for each ID the record of its lease (`lease.lua`), and the sum of the permits under `used` |
// | `<prefix>~queue:{tag}<name>` | sorted set | IDs of the queue entries, in the order of their arrival |
// | `<prefix>~places:{tag}<name>` | hash | for each ID the record of its queue entry (`place.lua`) |
// | `<prefix>~revoke:{tag}<name>` | string | a request to finish early: a mutex's value, or any other value |
// | `<prefix>~news:{tag}<name>` | string | is deleted when permits become free, which notifies observers |
// | `<prefix>~news:{tag}<name>#<id>` | string | is deleted when the request with this ID should ask again |
//
// A record is several MessagePack values, one after another. A single server that is a member of a
// quorum has two more keys:
//
// | key | type | content |
// | --- | --- | --- |
// | `<prefix>~member` | hash | `id`, the identity of its data; `since`, the start of that identity in µs of the server's clock; `run`, the process that has kept all of the data; `durable`, 1 if that process has the data on disk; `charter`, the quorum configuration that it has joined |
// | `<prefix>~floor` | string | the number that no token under its quorum configuration exceeds |

mod config;

mod backend;

mod connection;
mod context;
mod dial;
mod node;
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
