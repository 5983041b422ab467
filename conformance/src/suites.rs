//! Runs several suites in one test binary.

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::document::assert_documented;
use crate::failure;
use crate::harness::Harness;
use crate::list::cases;
use crate::need::Skipped;
use crate::pool;
use crate::subject::Subject;
use crate::test::run_case;

/// Load cases run one at a time and without other cases, because two simultaneous loads would
/// measure the machine.
static LOAD: RwLock<()> = RwLock::new(());

/// The suites of a test binary that defines `main` (`harness = false` in `Cargo.toml`).
///
/// Each case becomes a test. If the constants of a harness exclude a case, the case becomes an
/// ignored test, which starts neither a process nor a store. If the backend turns out not to have a
/// feature, the case is reported as ignored, with the missing feature as the reason. nextest does
/// not support such a report, and counts the case as passed.
///
/// ```no_run
/// # use async_trait::async_trait;
/// # use leasehold_conformance::Harness;
/// # use leasehold_core::backend::StoreAdmin;
/// # use leasehold_core::memory::MemoryBackend;
/// # use leasehold_core::{Holder, LockKey};
/// # struct Memory(MemoryBackend);
/// # #[async_trait]
/// # impl Harness for Memory {
/// #     type Backend = MemoryBackend;
/// #     const NAME: &str = "memory";
/// #     async fn start() -> Self { Self(MemoryBackend::new()) }
/// #     async fn connect(&self) -> MemoryBackend { self.0.clone() }
/// #     async fn probe(&self, key: &LockKey) -> Option<Holder> {
/// #         self.0.inspect(key).await.unwrap().holders().first().cloned()
/// #     }
/// # }
/// use std::process::ExitCode;
///
/// use leasehold_conformance::Suites;
///
/// fn main() -> ExitCode {
///     Suites::new().with::<Memory>("memory").main()
/// }
/// ```
#[derive(Debug, Default)]
pub struct Suites {
    tests: Vec<Trial>,
    /// The load cases, which run after all other cases.
    loads: Vec<Trial>,
    documented: Vec<fn(&str)>,
}

impl Suites {
    /// Creates an empty set of suites.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the cases of a harness. The names of the tests start with `module`, unless it is empty.
    #[must_use]
    pub fn with<H: Harness>(mut self, module: &str) -> Self {
        let prefix = if module.is_empty() { String::new() } else { format!("{module}::") };
        for case in cases::<H>() {
            let is_load = case.subject == Subject::Load;
            let run = move || {
                let _alone = is_load.then(|| LOAD.write().unwrap_or_else(PoisonError::into_inner));
                let _beside_others =
                    (!is_load).then(|| LOAD.read().unwrap_or_else(PoisonError::into_inner));
                match failure::catch(|| run_case::<H>(case.group, case.name)) {
                    Ok(Ok(())) => Ok(Completion::Completed),
                    Ok(Err(Skipped(need))) => {
                        Ok(Completion::ignored_with(format!("the store has no {need}")))
                    }
                    Err(failure) => Err(Failed::from(failure)),
                }
            };
            let test = Trial::ignorable_test(format!("{prefix}{}", case.path()), run)
                .with_ignored_flag(case.skips.is_some());
            if is_load { &mut self.loads } else { &mut self.tests }.push(test);
        }
        self.documented.push(assert_documented::<H>);
        self
    }

    /// Adds a test that checks whether `page` contains the [row](crate::document) of each store.
    #[must_use]
    pub fn documented_in(mut self, page: &'static str) -> Self {
        let documented = self.documented.clone();
        let run = move || {
            documented.iter().for_each(|assert| assert(page));
            Ok(())
        };
        self.tests.push(Trial::test("the_cases_that_run_here_are_documented", run));
        self
    }

    /// Lists or runs the tests that the command-line arguments select. The arguments are compatible
    /// with Rust's standard test harness, so `cargo test` and `cargo nextest` work.
    pub fn main(self) -> ExitCode {
        let tests = self.tests.into_iter().chain(self.loads).collect();
        pool::used_by(|| libtest_mimic::run(&Arguments::from_args(), tests)).exit_code()
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use leasehold_core::backend::{Capabilities, Fencing, StoreAdmin};
    use leasehold_core::fault::FaultBackend;
    use leasehold_core::memory::MemoryBackend;
    use leasehold_core::{Holder, LockKey};

    use super::*;
    use crate::harness::Groups;

    struct Memory;

    #[async_trait]
    impl Harness for Memory {
        type Backend = MemoryBackend;

        const NAME: &str = "memory";
        const GROUPS: Groups = Groups::Named(&["together"]);

        async fn start() -> Self {
            Self
        }

        async fn connect(&self) -> MemoryBackend {
            MemoryBackend::new()
        }

        async fn probe(&self, _key: &LockKey) -> Option<Holder> {
            None
        }
    }

    #[test]
    fn cases_that_a_harness_rules_out_are_ignored() {
        let suites = Suites::new().with::<Memory>("").with::<Memory>("again").documented_in("");

        let tests: Vec<_> = suites.tests.iter().chain(&suites.loads).collect();
        let ignored = tests.iter().filter(|test| test.has_ignored_flag()).count();

        let skipped = cases::<Memory>().iter().filter(|case| case.skips.is_some()).count();
        assert_eq!(ignored, 2 * skipped);
        assert_eq!(tests.len(), 2 * cases::<Memory>().len() + 1);
        let names: Vec<_> = tests.iter().map(|test| test.name()).collect();
        assert!(names.contains(&"again::together::all_keys_are_granted_or_none"));
    }

    /// A store whose backend has no features and no facets.
    struct WithoutFeatures(MemoryBackend);

    #[async_trait]
    impl Harness for WithoutFeatures {
        type Backend = FaultBackend<MemoryBackend>;

        const NAME: &str = "without features";

        async fn start() -> Self {
            Self(MemoryBackend::new())
        }

        async fn connect(&self) -> Self::Backend {
            let capabilities = Capabilities::new("without features", Fencing::Strict);
            FaultBackend::new(self.0.clone()).with_capabilities(capabilities).without_facets()
        }

        async fn probe(&self, key: &LockKey) -> Option<Holder> {
            self.0.inspect(key).await.unwrap().holders().first().cloned()
        }
    }

    #[test]
    fn a_case_that_the_backend_does_not_support_is_reported_as_ignored() {
        let suites = Suites::new().with::<WithoutFeatures>("");
        let arguments = Arguments::from_iter(["suite", "inspection::", "--quiet"]);

        let done = libtest_mimic::run(&arguments, suites.tests);

        assert_eq!((done.num_passed, done.num_failed), (0, 0));
        assert!(done.num_ignored > 0);
    }
}
