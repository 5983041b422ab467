//! The switch for the deliberate flaws that `lab/flaws.md` lists.

/// Returns whether `scripts/flaws` has selected this flaw.
///
/// Only `scripts/flaws` builds with `--cfg leasehold_flaw="…"`. All other builds replace this macro
/// with `false`.
#[doc(hidden)]
#[macro_export]
macro_rules! flaw {
    ($name:literal) => {
        cfg!(leasehold_flaw = $name)
            && std::env::var_os("LEASEHOLD_FLAW").is_some_and(|selected| selected == $name)
    };
}
