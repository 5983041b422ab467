//! The outcomes of the suite, as data.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::case::Case;
use crate::harness::Harness;
use crate::list::cases;
use crate::need::Skipped;

/// The number of cases that run at the same time. Most cases spend most of their time waiting.
const AT_ONCE: usize = 8;

/// The outcomes of all cases on one store.
///
/// The `examples/custom_backend.rs` example in the repository prints a report.
#[derive(Debug)]
pub struct Report {
    store: &'static str,
    verdicts: Vec<(Case, Verdict)>,
}

#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(Skipped),
}

/// Runs all cases on the store of `H`, several at a time. The `examples/custom_backend.rs` example
/// in the repository calls this function.
///
/// Call this function outside of a runtime, because each case creates a runtime. A case that fails
/// also prints the reason immediately.
///
/// # Panics
///
/// Panics if a thread cannot be started.
pub fn report<H: Harness>() -> Report {
    let cases = cases::<H>();
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge(case);
                    verdicts
                        .lock()
                        .expect("nothing panics while it is held")
                        .push((*case, verdict));
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().expect("nothing panics while it is held");
    verdicts.sort_by_key(|(case, _)| cases.iter().position(|other| other.path() == case.path()));
    Report { store: H::NAME, verdicts }
}

fn judge(case: &Case) -> Verdict {
    match case.check() {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(skipped)) => Verdict::Skipped(skipped),
        Err(failure) => Verdict::Failed(failure.to_string()),
    }
}

impl Report {
    /// Returns the number of cases that passed.
    pub fn passed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Passed))
    }

    /// Returns the number of cases that failed.
    pub fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// Returns the number of cases that were skipped.
    pub fn skipped(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// Returns the failed cases, with the places in the source code and the reasons.
    pub fn failures(&self) -> impl Iterator<Item = (Case, &str)> {
        self.verdicts.iter().filter_map(|(case, verdict)| match verdict {
            Verdict::Failed(message) => Some((*case, message.as_str())),
            Verdict::Passed | Verdict::Skipped(_) => None,
        })
    }

    fn count(&self, counts: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts.iter().filter(|(_, verdict)| counts(verdict)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut group = "";
        for (case, verdict) in &self.verdicts {
            if case.group != group {
                group = case.group;
                writeln!(f, "{group}")?;
            }
            match verdict {
                Verdict::Passed => writeln!(f, "  ok       {}", case.name)?,
                Verdict::Failed(message) => writeln!(f, "  FAILED   {}: {message}", case.name)?,
                Verdict::Skipped(Skipped(need)) => {
                    writeln!(f, "  skipped  {}: no {need}", case.name)?;
                }
            }
        }
        let (passed, failed, skipped) = (self.passed(), self.failed(), self.skipped());
        write!(f, "{}: {passed} passed, {failed} failed, {skipped} skipped", self.store)
    }
}
