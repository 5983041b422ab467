//! How a case is run: on a runtime of its own, within a limit, with what it needs.

use std::future::Future;
use std::pin::Pin;

use leasehold_core::LockBackend;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::case::{Need, Outcome, Skipped};
use crate::harness::{Harness, Time};
use crate::scene::Scene;

/// No case takes longer, in TTLs: a store that never answers fails it.
const CASE_TTLS: u32 = 60;

type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

pub(crate) fn on_scene<H: Harness>(
    needs: &[Need],
    case: for<'a> fn(&'a Scene<H>) -> Running<'a>,
) -> Outcome {
    runtime::<H>().block_on(async {
        let scene = Scene::start().await;
        require(&scene, needs).await?;
        let limit = scene.ttl() * CASE_TTLS;
        let whole = async {
            case(&scene).await;
            scene.epilogue().await;
        };
        let in_time = timeout(limit, whole).await;
        assert!(in_time.is_ok(), "the case does not end, after {limit:?}");
        Ok(())
    })
}

pub(crate) fn runtime<H: Harness>() -> Runtime {
    let mut builder = match H::TIME {
        Time::Real => Builder::new_multi_thread(),
        Time::Virtual => Builder::new_current_thread(),
    };
    builder.worker_threads(2).enable_all().start_paused(H::TIME == Time::Virtual);
    builder.build().expect("a runtime can be made")
}

/// Tells what is missing.
pub(crate) async fn require<H: Harness>(scene: &Scene<H>, needs: &[Need]) -> Outcome {
    for need in needs {
        let met = match need.feature() {
            Some(feature) => scene.backend().await.capabilities().supports(feature),
            None => H::HOOKS.contains(need),
        };
        if !met {
            return Err(Skipped(*need));
        }
    }
    Ok(())
}
