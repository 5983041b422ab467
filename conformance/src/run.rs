//! Runs a case on a separate runtime, with a time limit, if the backend and the harness meet the
//! case's needs.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;

use futures_util::FutureExt;
use tokio::time::timeout;

use crate::need::{Need, Outcome, Skipped};
use crate::pool::Sharing;
use crate::profile::Profile;
use crate::scene::Scene;
use crate::stalls::{Measured, measure};
use crate::subject::Subject;

/// The time limit of a case, in TTLs. If the store never replies, the case fails.
const CASE_TTLS: u32 = 60;

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Measured> + 'a>>;

pub(crate) fn on_scene(
    store: Profile,
    subject: Subject,
    needs: &[Need],
    case: for<'a> fn(&'a Scene) -> Running<'a>,
) -> Outcome {
    store.runtime().block_on(measure(async || {
        let scene = Scene::start(store, sharing(subject, needs)).await;
        if let Err(skipped) = require_features(&scene, needs).await {
            scene.give_back();
            return Ok(Err(skipped));
        }
        let limit = scene.ttl() * CASE_TTLS;
        let whole = scene.within(limit, async {
            case(&scene).await?;
            scene.epilogue().await;
            Ok(Ok(()))
        });
        let ends = async {
            // In driven time, a case may also wait for an event that does not occur while its clock
            // does not advance.
            let ended = timeout(limit, scene.run(whole)).await.ok().flatten();
            ended.unwrap_or_else(|| {
                panic!("the case: found no end, expected an end within {limit:?}")
            })
        };
        let measured = match AssertUnwindSafe(ends).catch_unwind().await {
            Ok(measured) => measured,
            Err(panic) => match scene.void() {
                Some(void) => return Err(void),
                None => resume_unwind(panic),
            },
        };
        if measured.is_ok() {
            scene.give_back();
        }
        measured
    }))
}

/// Returns the cases with which a case may share its store.
fn sharing(subject: Subject, needs: &[Need]) -> Sharing {
    // A fault affects all cases on the store.
    let disturbs = |need: &Need| matches!(need, Need::Fault(_));
    if needs.contains(&Need::Member) {
        // A store never forgets the quorum that it joined.
        Sharing::Never
    } else if subject == Subject::Load || needs.iter().any(disturbs) {
        Sharing::Later
    } else {
        Sharing::Now
    }
}

/// Returns an error for the first feature or facet that the backend does not support.
pub(crate) async fn require_features(scene: &Scene, needs: &[Need]) -> Outcome {
    let mut needs = needs.iter().filter(|need| !need.is_hook()).peekable();
    if needs.peek().is_none() {
        return Ok(());
    }
    let backend = scene.backend().await;
    needs.find(|need| !need.is_met_by(&backend)).map_or(Ok(()), |need| Err(Skipped(*need)))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use leasehold_core::memory::MemoryBackend;
    use leasehold_core::{Holder, LockKey};

    use super::*;
    use crate::harness::{Groups, Harness};
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

        async fn probe(&self, _key: &LockKey) -> Option<Holder> {
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
        if std::env::var_os("LEASEHOLD_CONFORMANCE_ALL").is_none() {
            let layers = "fair::an_outage_is_no_busy_loop_for_a_queue";
            assert_eq!(skips(layers), Need::VirtualTime);
            assert_eq!(
                skips("expiry::a_holder_that_is_gone_frees_the_key_within_a_ttl"),
                Need::Selection
            );
        }
    }
}
