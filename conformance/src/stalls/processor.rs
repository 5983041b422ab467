//! Binds threads to processors.

/// The processor that a thread is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Processor {
    /// Any processor, chosen by the scheduler.
    Any,
    /// The processor with this number.
    #[cfg(target_os = "linux")]
    Only(usize),
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::Processor;

    /// The maximum number of processors that are observed individually. On a machine with more
    /// processors, a thread rarely waits for a specific one.
    const MOST: usize = 8;

    /// Returns the processors that this process may use. Returns an empty list if there are many
    /// processors, or if the system does not report them.
    pub(in super::super) fn processors() -> Vec<Processor> {
        let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
        let allowed = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number));
        let allowed: Vec<_> = allowed.map(Processor::Only).collect();
        if allowed.len() > MOST { Vec::new() } else { allowed }
    }

    impl Processor {
        /// Binds the current thread to this processor.
        pub(in super::super) fn keep(self) {
            let Self::Only(number) = self else { return };
            let mut only = CpuSet::new();
            only.set(number);
            // If the process has lost the processor in the meantime, the processor cannot delay the
            // process's threads.
            let _ = sched_setaffinity(None, &only);
        }
    }

    #[cfg(test)]
    mod tests {
        use std::thread;

        use super::*;

        #[test]
        fn a_thread_keeps_to_its_processor() {
            let allowed = sched_getaffinity(None).unwrap();
            let last = (0..CpuSet::MAX_CPU).rfind(|number| allowed.is_set(*number)).unwrap();

            let kept_to = thread::spawn(move || {
                Processor::Only(last).keep();
                sched_getaffinity(None).unwrap()
            });

            let kept_to = kept_to.join().unwrap();
            assert!(kept_to.is_set(last) && kept_to.count() == 1, "{kept_to:?}");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::Processor;

    /// On this system, a thread cannot be bound to a processor.
    pub(in super::super) fn processors() -> Vec<Processor> {
        Vec::new()
    }

    impl Processor {
        pub(in super::super) fn keep(self) {
            let Self::Any = self;
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::processors;
#[cfg(target_os = "linux")]
pub(super) use linux::processors;
