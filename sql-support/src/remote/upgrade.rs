//! The upgrade from the tables of an earlier version.

use std::time::Duration;

use leasehold_core::{Error, ErrorKind};

use crate::call::Call;
use crate::failure::Failure;
use crate::remote::{Execute, Rows};

/// Checks that no lease of layout 1 is in force, because clients of that layout may still hold these
/// leases. `call` is the query `old_leases` of the dialect.
///
/// # Errors
///
/// Returns [`Unavailable`](ErrorKind::Unavailable) if a lease is in force,
/// [`Denied`](ErrorKind::Denied) if the user may not read the leases, and the other errors of `run`.
pub async fn check_old_leases(run: &dyn Execute, call: &Call) -> Result<(), Error> {
    let rows = match run.execute(call).await {
        Ok(reply) => Rows(reply.rows),
        Err(error) if error.failure() == Failure::Missing => return Ok(()),
        Err(error) if error.failure() == Failure::Denied => {
            let message = "the user cannot read the table with the leases of an earlier version; grant SELECT on it, or drop \
                           the table after all clients of the earlier version have stopped";
            return Err(Failure::Denied.because(message, error));
        }
        Err(error) => return Err(error.harmless().into()),
    };
    let left: u64 = rows.one("old")?.number()?;
    if left == 0 {
        return Ok(());
    }
    let message = format!(
        "clients of an earlier version still hold leases for {:.1} s; stop these clients, and connect again after this time",
        Duration::from_micros(left).as_secs_f64()
    );
    Err(Error::new(ErrorKind::Unavailable, message))
}
