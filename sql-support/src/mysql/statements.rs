//! The statements that prepare a database.

use leasehold_core::Error;

use super::dialect::DIALECT;
use super::{RowStatements, texts};
use crate::call::{Call, Form, Template};
use crate::layout::Layout;
use crate::remote::Rows;

/// Creates the query batches that check and create the tables of one layout.
#[derive(Clone, Debug)]
pub struct Statements {
    layout: Layout,
}

impl Statements {
    /// Creates the query batches for tables with this layout.
    pub fn new(layout: &Layout) -> Self {
        Self { layout: layout.clone() }
    }

    /// Returns the query batch that detects the type of the server.
    pub fn survey(&self) -> Call {
        setup(texts::SURVEY.to_owned())
    }

    /// Returns the query batch that checks whether all tables exist and all permissions are
    /// granted.
    pub fn attempt(&self) -> Call {
        setup(self.layout.fill(texts::TRY, '`'))
    }

    /// Returns the query batch that creates missing tables.
    pub fn install(&self) -> Call {
        setup([texts::WRITES, &super::migration(&self.layout)].concat())
    }

    /// Reads the reply to [`attempt`](Self::attempt). Returns whether the row of the minimum token
    /// exists.
    ///
    /// # Errors
    ///
    /// Returns [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if the reply does not match the
    /// request.
    pub fn has_min_token(&self, rows: &Rows) -> Result<bool, Error> {
        Ok(rows.one("min_token")?.number::<u32>()? == 1)
    }

    /// Returns the query batch that reads for how long the leases of layout 1 are still in force. It
    /// fails if there are no such tables.
    pub fn old_leases(&self) -> Call {
        let text = self.layout.fill(texts::OLD_LEASES, '`');
        setup(text.replace("$CLOCK", RowStatements::CLOCK))
    }
}

/// Returns statements without values.
pub(super) fn setup(text: String) -> Call {
    Call::new(&Template::new(&DIALECT, Form::Setup, text), Vec::new())
}
