//! The statements that prepare a database.

use super::dialect::DIALECT;
use super::texts::DEFAULT_SCHEMA;
use super::{RowStatements, texts};
use crate::call::{Call, Form, Template, bind};
use crate::layout::Layout;

/// The time in milliseconds after which a connection is closed if the client does not read its
/// notifications and no more data fits into the buffers of the network.
const UNREAD_MS: u32 = 10_000;

/// Creates the query batches that check and create the tables of one layout.
#[derive(Clone, Debug)]
pub struct Statements {
    layout: Layout,
}

impl Statements {
    /// Creates the query batches for tables with this layout.
    pub fn new(layout: &Layout) -> Self {
        Self { layout: layout.or_in_schema(DEFAULT_SCHEMA) }
    }

    /// Returns the statement that listens to the channel on which transactions notify other clients.
    /// [`News::heard`](crate::News::heard) reads the messages.
    ///
    /// If a client does not read its notifications, for example because it is paused, the server keeps
    /// them for all clients, and keeps a snapshot. The operating system of the server therefore ends the
    /// connection after some time.
    pub fn listen(&self) -> String {
        format!("SET tcp_user_timeout = {UNREAD_MS}; LISTEN \"{}news\"", self.layout.prefix())
    }

    /// Returns the query batch that finds the tables. The session's time limits apply to this query
    /// batch.
    pub fn survey(&self) -> Call {
        let name = |table| (table, format!("'{}{table}'", self.layout.prefix()));
        let mut values = ["key", "min_token", "member", "lease", "stripe"].map(name).to_vec();
        values.push(("schema", format!("'{}'", self.layout.schema().unwrap_or(DEFAULT_SCHEMA))));
        setup(bind(texts::SURVEY, &values))
    }

    /// Returns the query batch that creates missing tables. Only one client at a time creates
    /// tables. The session's time limits apply to this query batch.
    pub fn install(&self) -> Call {
        setup([texts::ONE_BY_ONE, &super::migration(&self.layout)].concat())
    }

    /// Returns the query batch that reads for how long the leases of layout 1 are still in force.
    pub fn old_leases(&self) -> Call {
        let text = self.layout.fill(texts::OLD_LEASES, '"');
        setup(text.replace("$CLOCK", RowStatements::CLOCK))
    }
}

/// Returns a query batch that uses the settings of the user.
pub(super) fn setup(text: String) -> Call {
    Call::new(&Template::new(&DIALECT, Form::Setup, text), Vec::new())
}
