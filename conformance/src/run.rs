//! How a case is run: on a runtime of its own, within a limit, with what it needs.

use std::future::Future;
use std::pin::Pin;

use leasehold_core::LockBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::case::{Need, Outcome, Skipped, Subject};
use crate::harness::{Harness, Time};
use crate::scene::Scene;
use crate::stalls::{Measured, measure};

/// No case takes longer, in TTLs: a store that never answers fails it.
const CASE_TTLS: u32 = 60;

type Running<'a> = Pin<Box<dyn Future<Output = Measured> + 'a>>;

/// Asks for all groups on all harnesses, and for the cases of the layers in real time, too.
pub(crate) const EVERYTHING: bool = option_env!("LEASEHOLD_CONFORMANCE_ALL").is_some();

/// How many rounds a long case has of those that it has where they take no time. Where each takes round trips, a run has a fifth: the next
/// run draws others.
pub(crate) const fn rounds<H: Harness>(all: usize) -> usize {
    if EVERYTHING || matches!(H::TIME, Time::Virtual) { all } else { all / 5 }
}

pub(crate) fn on_scene<H: Harness>(
    needs: &[Need],
    case: for<'a> fn(&'a Scene<H>) -> Running<'a>,
) -> Outcome {
    runtime::<H>().block_on(measure(async || {
        let scene = Scene::start().await;
        if let Err(skipped) = require_features(&scene, needs).await {
            return Ok(Err(skipped));
        }
        let limit = scene.ttl() * CASE_TTLS;
        let whole = scene.within(limit, async {
            case(&scene).await?;
            scene.epilogue().await;
            Ok(Ok(()))
        });
        // A case in driven time may also wait for something that does not come while its clock stands still.
        let ended = timeout(limit, scene.run(whole)).await.ok().flatten();
        ended.unwrap_or_else(|| panic!("the case does not end, after {limit:?}"))
    }))
}

pub(crate) fn runtime<H: Harness>() -> Runtime {
    let mut builder = match H::TIME {
        Time::Real => Builder::new_multi_thread(),
        Time::Driven | Time::Virtual => Builder::new_current_thread(),
    };
    builder.worker_threads(2).enable_all().start_paused(H::TIME == Time::Virtual);
    builder.build().expect("a runtime can be made")
}

/// Names the reason for which the harness skips a case, as far as its constants tell: the case is not even compiled for it.
pub(crate) const fn skips<H: Harness>(
    group: &str,
    subject: Subject,
    needs: &[Need],
) -> Option<Need> {
    if !EVERYTHING && !H::GROUPS.contains(group) {
        return Some(Need::Selection);
    }
    if !EVERYTHING && !subject.is_among(H::SUBJECTS) {
        return Some(match subject {
            Subject::Layers => Need::VirtualTime,
            _ => Need::Selection,
        });
    }
    let mut rest = needs;
    while let [need, others @ ..] = rest {
        let has = match need.feature() {
            Some(_) => !need.is_among(H::LACKS),
            None => offers::<H>(*need),
        };
        if !has {
            return Some(*need);
        }
        rest = others;
    }
    None
}

/// Whether the harness has this hook.
pub(crate) const fn offers<H: Harness>(hook: Need) -> bool {
    hook.is_among(H::HOOKS) || (matches!(hook, Need::Advance) && matches!(H::TIME, Time::Driven))
}

/// Names the first feature that the backend does not declare.
pub(crate) async fn require_features<H: Harness>(scene: &Scene<H>, needs: &[Need]) -> Outcome {
    let features = needs.iter().filter(|need| need.feature().is_some());
    for need in features {
        let capabilities = scene.backend().await.capabilities();
        if !need.feature().is_some_and(|feature| capabilities.supports(feature)) {
            return Err(Skipped(*need));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use leasehold_core::{Holder, LockKey, MemoryBackend};

    use super::*;
    use crate::harness::Groups;
    use crate::list::cases;

    struct NeverStarted;

    #[async_trait]
    impl Harness for NeverStarted {
        type Backend = MemoryBackend;

        const NAME: &str = "never started";
        const GROUPS: Groups = Groups::Named(&["fair", "model"]);
        const LACKS: &[Need] = &[Need::Queue];

        async fn start() -> Self {
            unreachable!("all cases are skipped")
        }

        async fn connect(&self) -> MemoryBackend {
            unreachable!("there is no store")
        }

        async fn witness(&self, _key: &LockKey) -> Option<Holder> {
            unreachable!("there is no store")
        }
    }

    #[test]
    fn a_case_that_constants_rule_out_starts_no_store() {
        let skips = |path: &str| {
            let case = cases::<NeverStarted>().into_iter().find(|case| case.path() == path);
            case.unwrap().run().unwrap_err().0
        };

        assert_eq!(skips("fair::claims_are_served_in_order_of_arrival"), Need::Queue);
        assert_eq!(skips("model::mutexes_agree_with_the_specification"), Need::Advance);
        if !EVERYTHING {
            let layers = "fair::an_outage_is_no_busy_loop_for_a_queue";
            assert_eq!(skips(layers), Need::VirtualTime);
            assert_eq!(
                skips("expiry::a_holder_that_is_gone_frees_the_key_within_a_ttl"),
                Need::Selection
            );
        }
    }
}
