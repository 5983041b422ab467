//! How a case is run: on a runtime of its own, within a limit, with what it needs.

use std::env;
use std::future::Future;
use std::pin::Pin;

use leasehold_core::LockBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::case::{Need, Outcome, Skipped, Subject};
use crate::harness::{Harness, Time};
use crate::scene::Scene;

/// No case takes longer, in TTLs: a store that never answers fails it.
const CASE_TTLS: u32 = 60;

type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Asks for all groups on all harnesses, and for the cases of the layers in real time, too.
const EVERYTHING: &str = "LEASEHOLD_CONFORMANCE_ALL";

pub(crate) fn on_scene<H: Harness>(
    group: &str,
    subject: Subject,
    needs: &[Need],
    case: for<'a> fn(&'a Scene<H>) -> Running<'a>,
) -> Outcome {
    require_selected::<H>(group, subject)?;
    require_hooks::<H>(needs)?;
    runtime::<H>().block_on(async {
        let scene = Scene::start().await;
        require_features(&scene, needs).await?;
        let limit = scene.ttl() * CASE_TTLS;
        let whole = scene.within(limit, async {
            case(&scene).await;
            scene.epilogue().await;
        });
        // A case in driven time may also wait for something that does not come while its clock stands still.
        let in_time = timeout(limit, scene.run(whole)).await;
        assert!(matches!(in_time, Ok(Some(()))), "the case does not end, after {limit:?}");
        Ok(())
    })
}

pub(crate) fn runtime<H: Harness>() -> Runtime {
    let mut builder = match H::TIME {
        Time::Real => Builder::new_multi_thread(),
        Time::Driven | Time::Virtual => Builder::new_current_thread(),
    };
    builder.worker_threads(2).enable_all().start_paused(H::TIME == Time::Virtual);
    builder.build().expect("a runtime can be made")
}

/// Names the reason for which the harness leaves a case to others.
pub(crate) fn require_selected<H: Harness>(group: &str, subject: Subject) -> Outcome {
    if env::var_os(EVERYTHING).is_some() {
        return Ok(());
    }
    match subject {
        _ if H::GROUPS.contains(group) && H::SUBJECTS.contains(&subject) => Ok(()),
        Subject::Layers => Err(Skipped(Need::VirtualTime)),
        _ => Err(Skipped(Need::Selection)),
    }
}

/// Names the first hook that the harness lacks, before any store is started.
pub(crate) fn require_hooks<H: Harness>(needs: &[Need]) -> Outcome {
    let missing = |need: &&Need| need.feature().is_none() && !offers::<H>(**need);
    needs.iter().find(missing).map_or(Ok(()), |need| Err(Skipped(*need)))
}

/// Whether the harness has this hook.
pub(crate) fn offers<H: Harness>(hook: Need) -> bool {
    H::HOOKS.contains(&hook) || (hook == Need::Advance && H::TIME == Time::Driven)
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
