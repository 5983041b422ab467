// The page contains examples that use the `leasehold` crate, which this crate cannot depend on. The
// examples are tested as doctests of `leasehold`.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]

// To process a call, `backend.rs` first converts the operation to a `Call` of a script.
// `topology.rs` finds the server, which is the only server, the primary that sentinels report, or
// the owner of the key's hash slot. `topology/failover.rs` decides how long to trust that server.
// `node.rs` runs the script there. `connection.rs` provides the connection (`dial.rs` tries all
// addresses of the name), and the driver sends the request. `reply.rs` reads the reply. Concurrent
// requests share a round trip (`pipeline.rs`). Mutexes can also share a script, and so can renewals
// (`renewals.rs`). Each lock that a shared script skips is handled by a separate script. `watch.rs`
// forwards the servers' push messages. `process.rs` checks whether a member of a quorum keeps its
// acknowledged data. The scripts are in `scripts/`, and the functions that they include are in
// `scripts/parts/`.
//
// The README lists the keys. A mutex is the plain string key `<prefix><name>`, whose value is the
// lease ID, optionally followed by a space and the holder's description. Scripts compare the whole
// value. All other keys start with `<prefix>~`, which a lock's name cannot start with. All locks
// share two keys. On a cluster, each of the 16,384 hash slots has both keys, with a tag that places
// them in that slot:
//
// | key | type | content |
// | --- | --- | --- |
// | `<prefix>~fence` | string | the last fencing token |
// | `<prefix>~crowd` | sorted set | the locks that have any of the keys below, scored by the time when the last of these keys expires, in ms of the server's clock |
//
// A lock with permits or a queue has these keys:
//
// | key | type | content |
// | --- | --- | --- |
// | `<prefix>~held:{tag}<name>` | sorted set | lease IDs, scored by the time when the lease expires, in ms of the server's clock |
// | `<prefix>~units:{tag}<name>` | hash | for each ID, the record of its lease (`lease.lua`); in the field `used`, the total number of permits in use |
// | `<prefix>~queue:{tag}<name>` | sorted set | IDs of the queue entries, in the order of their arrival |
// | `<prefix>~places:{tag}<name>` | hash | for each ID, the record of its queue entry (`place.lua`) |
// | `<prefix>~revoke:{tag}<name>` | string | a revocation request: the mutex's value, or an arbitrary value |
// | `<prefix>~news:{tag}<name>` | string | deleted when permits become free, which notifies observers |
// | `<prefix>~news:{tag}<name>#<id>` | string | deleted when the claim with this ID should be sent again |
//
// A record is a sequence of MessagePack values. A single server that is a member of a quorum has
// two additional keys:
//
// | key | type | content |
// | --- | --- | --- |
// | `<prefix>~member` | hash | `id`, the identity of its data; `since`, the start of that identity in µs of the server's clock; `run`, the process that has kept all of the data; `durable`, 1 if that process has the data on disk; `charter`, the quorum configuration that it has joined |
// | `<prefix>~floor` | string | the number that no token under the member's quorum configuration exceeds |

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
    Request, Run,
};
pub use error::{ServerError, unreachable};
pub use layout::Layout;
pub use leasehold_settings::{Server, Tls};
pub use reply::{Received, Reply};
pub use script::Script;
