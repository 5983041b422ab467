//! The failures of cases.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::{fmt, panic};

use crate::need::Outcome;

thread_local! {
    /// The place of the last panic of this thread. The payload of a panic does not contain it.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The reason why a case failed, with the place in the source code.
///
/// [`Case::check`](crate::Case::check) returns this error.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    place: Option<String>,
    message: String,
}

/// Runs a case, and returns its failure instead of a panic.
pub(crate) fn catch(case: impl FnOnce() -> Outcome) -> Result<Outcome, Failure> {
    record_places();
    LAST.take();
    catch_unwind(AssertUnwindSafe(case))
        .map_err(|panic| Failure { place: LAST.take(), message: message(&*panic) })
}

/// Extends the panic hook of the process once, so that it records the places of panics.
fn record_places() {
    static RECORDS: Once = Once::new();
    RECORDS.call_once(|| {
        let earlier = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            LAST.replace(panic.location().map(ToString::to_string));
            earlier(panic);
        }));
    });
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked".to_owned())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_contains_its_place() {
        let place = format!("{}:{}:", file!(), line!() + 1);
        let failure = catch(|| panic!("found 1, expected 2")).unwrap_err().to_string();

        assert!(failure.starts_with(&place), "{failure}");
        assert!(failure.ends_with(": found 1, expected 2"), "{failure}");
    }

    #[test]
    fn a_case_that_ends_has_no_failure() {
        assert_eq!(catch(|| Ok(())), Ok(Ok(())));
    }
}
