//! Several suites in one test binary.

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::document::assert_documented;
use crate::harness::Harness;
use crate::list::cases;
use crate::test::run_case;

/// The suites of a test binary that has its own `main` (`harness = false` in `Cargo.toml`).
///
/// A case that the constants of a harness rule out is no test here, where [`suite!`](crate::suite) makes one that only says so. That
/// counts for a backend with many harnesses: most of them run a few groups.
///
/// ```no_run
/// # use async_trait::async_trait;
/// # use leasehold_conformance::Harness;
/// # use leasehold_core::{Holder, LockBackend, LockKey, MemoryBackend};
/// # struct Memory(MemoryBackend);
/// # #[async_trait]
/// # impl Harness for Memory {
/// #     type Backend = MemoryBackend;
/// #     const NAME: &str = "memory";
/// #     async fn start() -> Self { Self(MemoryBackend::new()) }
/// #     async fn connect(&self) -> MemoryBackend { self.0.clone() }
/// #     async fn witness(&self, key: &LockKey) -> Option<Holder> {
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
    tests: Vec<Test>,
    documented: Vec<fn(&str)>,
}

#[derive(Debug)]
struct Test {
    name: String,
    run: Run,
}

#[derive(Clone, Copy, Debug)]
enum Run {
    Case(fn(&str, &str), &'static str, &'static str),
    Documented(&'static str),
    #[cfg(test)]
    Plain(fn()),
}

impl Suites {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the cases that the harness runs. Their names begin with that of the module, unless it is empty.
    #[must_use]
    pub fn with<H: Harness>(mut self, module: &str) -> Self {
        let prefix = if module.is_empty() { String::new() } else { format!("{module}::") };
        let cases = cases::<H>().into_iter().filter(|case| case.skips.is_none());
        self.tests.extend(cases.map(|case| Test {
            name: format!("{prefix}{}", case.path()),
            run: Run::Case(run_case::<H>, case.group, case.name),
        }));
        self.documented.push(assert_documented::<H>);
        self
    }

    /// Adds a test that `page` has the [row](crate::document) of each store.
    #[must_use]
    pub fn documented_in(mut self, page: &'static str) -> Self {
        let name = "the_cases_that_run_here_are_documented".to_owned();
        self.tests.push(Test { name, run: Run::Documented(page) });
        self
    }

    /// Lists or runs the tests that the arguments of the process select, as Rust's own test harness does, which `cargo test` and
    /// `cargo nextest` expect.
    ///
    /// Each test has a thread of its name. The output of tests is not held back.
    pub fn main(self) -> ExitCode {
        let args = Args::parse(env::args().skip(1));
        let args = match args {
            Ok(args) => args,
            Err(unknown) => {
                eprintln!("a test binary of suites does not know the argument {unknown}");
                return ExitCode::from(2);
            }
        };
        let selected = self.selected(&args);
        if args.lists {
            selected.iter().for_each(|test| println!("{}: test", test.name));
            return ExitCode::SUCCESS;
        }
        let failed = self.run(&selected, args.threads);
        let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
        let passed = selected.len() - failed.len();
        println!("\ntest result: {verdict}. {passed} passed; {} failed", failed.len());
        failed.iter().for_each(|name| println!("    {name}"));
        // As Rust's own.
        if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
    }

    fn selected(&self, args: &Args) -> Vec<&Test> {
        self.tests.iter().filter(|test| args.select(&test.name)).collect()
    }

    /// Runs tests, several at once, and names those that failed.
    fn run<'a>(&self, tests: &[&'a Test], threads: usize) -> Vec<&'a str> {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut failed = Vec::new();
            while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let passed = self.passes(test);
                println!("test {} ... {}", test.name, if passed { "ok" } else { "FAILED" });
                failed.extend((!passed).then_some(test.name.as_str()));
            }
            failed
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            let failed = workers.into_iter().map(|worker| worker.join().expect("tests are caught"));
            failed.flatten().collect()
        })
    }

    /// A panic ends the thread of the test, and prints its name.
    fn passes(&self, test: &Test) -> bool {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(test.name.clone());
            let run = || match test.run {
                Run::Case(run, group, name) => run(group, name),
                Run::Documented(page) => self.documented.iter().for_each(|assert| assert(page)),
                #[cfg(test)]
                Run::Plain(run) => run(),
            };
            let thread = thread.spawn_scoped(scope, run).expect("a thread can be started");
            thread.join().is_ok()
        })
    }
}

/// The arguments that matter of those that test binaries take.
#[derive(Debug, Default)]
struct Args {
    lists: bool,
    /// Only tests that are ignored: there are none.
    only_ignored: bool,
    exact: bool,
    filters: Vec<String>,
    skipped: Vec<String>,
    threads: usize,
}

impl Args {
    /// Reads arguments, or returns one that is unknown.
    fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut parsed = Self { threads, ..Self::default() };
        let mut args = args.into_iter().flat_map(|arg| match arg.split_once('=') {
            Some((name, value)) if name.starts_with("--") => {
                vec![name.to_owned(), value.to_owned()]
            }
            _ => vec![arg],
        });
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| arg.clone());
            match arg.as_str() {
                "--list" => parsed.lists = true,
                "--ignored" => parsed.only_ignored = true,
                "--exact" => parsed.exact = true,
                "--skip" => parsed.skipped.push(value()?),
                "--test-threads" => {
                    parsed.threads = value()?.parse().map_err(|_| arg.clone())?;
                }
                "--include-ignored" | "--nocapture" | "--no-capture" | "--show-output"
                | "--quiet" | "-q" => {}
                "--color" | "--format" => drop(value()?),
                option if option.starts_with('-') => return Err(arg),
                _ => parsed.filters.push(arg),
            }
        }
        Ok(parsed)
    }

    fn select(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.exact { name == filter } else { name.contains(filter.as_str()) }
        };
        !self.only_ignored
            && (self.filters.is_empty() || self.filters.iter().any(matches))
            && !self.skipped.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use leasehold_core::{Holder, LockKey, MemoryBackend};

    use super::*;
    use crate::harness::Groups;
    use crate::run::EVERYTHING;

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

        async fn witness(&self, _key: &LockKey) -> Option<Holder> {
            None
        }
    }

    fn names(suites: &Suites, args: &[&str]) -> Vec<String> {
        let args = Args::parse(args.iter().map(ToString::to_string)).unwrap();
        suites.selected(&args).into_iter().map(|test| test.name.clone()).collect()
    }

    #[test]
    fn only_cases_that_run_are_tests() {
        let suites = Suites::new().with::<Memory>("").with::<Memory>("again").documented_in("");

        let all = names(&suites, &[]);

        let running = cases::<Memory>().iter().filter(|case| case.skips.is_none()).count();
        assert_eq!(all.len(), 2 * running + 1);
        assert!(EVERYTHING || all.iter().all(|name| !name.contains("fencing")));
        assert!(all.contains(&"again::together::all_keys_are_granted_or_none".to_owned()));
    }

    #[test]
    fn names_select_tests_as_they_do_elsewhere() {
        let suites = Suites::new().with::<Memory>("").with::<Memory>("again");
        let one = "together::all_keys_are_granted_or_none";

        assert_eq!(names(&suites, &["--exact", one, "--nocapture"]), [one]);
        assert_eq!(names(&suites, &[one]), [one, &format!("again::{one}")]);
        assert_eq!(names(&suites, &[one, "--skip", "again"]), [one]);
        assert_eq!(names(&suites, &["--list", "--format=terse", "--ignored"]), [""; 0]);
    }

    #[test]
    fn an_unknown_argument_is_refused() {
        assert_eq!(Args::parse(["--shuffle".to_owned()]).unwrap_err(), "--shuffle");
        assert_eq!(Args::parse(["--skip".to_owned()]).unwrap_err(), "--skip");
    }

    #[test]
    fn a_failure_is_named_and_ends_no_other_test() {
        let test = |name: &str, run| Test { name: name.to_owned(), run: Run::Plain(run) };
        let tests = vec![
            test("fails", || assert_eq!(thread::current().name(), None)),
            test("passes", || assert_eq!(thread::current().name(), Some("passes"))),
        ];
        let suites = Suites { tests, documented: Vec::new() };

        let failed = suites.run(&suites.selected(&Args::default()), 1);

        assert_eq!(failed, ["fails"]);
    }
}
