//! Renews the lease of this node.

use std::sync::{Arc, atomic::Ordering};

use everytick_domain::time::Span;
use everytick_store::{Beat, Result, StoreError};
use metrics::gauge;

use super::unsure;
use crate::{clock::MonoTime, pulse, settings::FAILURE_PAUSE, shared::Shared};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let wait = match pass(&shared).await {
            Ok(()) => shared.parts.settings.renew_every(),
            Err(error) => {
                unsure::report(&shared, &error);
                FAILURE_PAUSE
            }
        };
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = shared.wake_renew.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn pass(shared: &Arc<Shared>) -> Result<()> {
    let _pass = pulse::pass();
    {
        // With this lock no claim statement is in progress: every claim is known, or noted as unsure.
        let _quiet = pulse::untimed(shared.statements.write()).await;
        if shared.unsure.load(Ordering::Relaxed) {
            unsure::raise_fence(shared).await?;
        }
        let sent = MonoTime::now();
        let beat = beat(shared);
        let lease = shared.lease();
        let call = shared.parts.store.renew(&lease, shared.parts.settings.lease, &beat);
        match shared.call("renew the lease", call).await {
            Ok(now) => {
                shared.clock.observe(sent, now);
                shared.renewed(sent);
            }
            Err(StoreError::LeaseLost) => unsure::rejoin(shared).await?,
            Err(error) => return Err(error),
        }
    }
    // The comparison follows the renewal in its own loop, so it does not delay the next renewal.
    shared.wake_compare.notify_one();
    gauge!("everytick_jobs_in_memory").set(shared.memory().len() as f64);
    Ok(())
}

fn beat(shared: &Shared) -> Beat {
    let (open_from, old_claims) = shared.memory().old_claims();
    Beat {
        open_from,
        old_claims,
        lag: Span::millis(shared.lag_ms.swap(0, Ordering::Relaxed)),
        clock_offset_ms: shared.clock.now().millis() - shared.parts.wall.now().millis(),
    }
}
