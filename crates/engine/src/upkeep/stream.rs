//! Sends the audit trail to the operator's receiver. The leader sends every row in the order of the ids, at least once.
//!
//! The store has the id up to which the rows were sent (`AuditStore::audit_sent`). Each pass reads it again, sends the rows that
//! follow, and raises it only after the receiver has confirmed them. So a new leader, a restarted node or a promoted database
//! sends some rows again and misses none. Two leaders at once do the same: the id is raised only by a node that has sent all rows
//! from a stored id on.
//!
//! A slow or failing receiver delays only this loop, which has one connection to the database for the time of a read.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use everytick_store::{AuditRecord, StoreError};
use metrics::{counter, gauge};

use crate::{
    audit, pulse,
    settings::{STREAM_BACKOFF_MAX, STREAM_EVERY, STREAM_ROWS_PER_SEND, STREAM_SEND_MAX},
    shared::Shared,
};

/// The receiver of the audit trail.
#[async_trait]
pub trait AuditSink: std::fmt::Debug + Send + Sync {
    /// Returns when the rows are stored for good, or the reason why they may not be. A message names no credential.
    async fn send(&self, rows: Vec<AuditRecord>) -> Result<(), String>;
}

pub(crate) async fn run(shared: Arc<Shared>, sink: Arc<dyn AuditSink>) {
    let (mut wait, mut failures) = (STREAM_EVERY, 0);
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let _pass = pulse::pass();
        if !shared.is_leader() {
            (wait, failures) = (STREAM_EVERY, 0);
            gauge!("everytick_audit_stream_lag_seconds").set(0.0);
            continue;
        }
        wait = match pass(&shared, sink.as_ref()).await {
            Ok(more) => {
                failures = 0;
                if more { Duration::ZERO } else { STREAM_EVERY }
            }
            Err(error) => {
                failures += 1;
                counter!("everytick_audit_stream_failures_total").increment(1);
                let again = backoff(failures);
                tracing::warn!(%error, ?again, "could not send the audit trail; trying again later");
                again
            }
        };
    }
}

/// Doubles with each failure in a row.
fn backoff(failures: u32) -> Duration {
    STREAM_EVERY.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(STREAM_BACKOFF_MAX)
}

/// Sends the next rows. Returns whether more follow.
pub(crate) async fn pass(shared: &Shared, sink: &dyn AuditSink) -> Result<bool, String> {
    let failed = |error: StoreError| error.to_string();
    let store = shared.parts.store.as_ref();
    let sent = shared.read("read the position of the audit stream", store.audit_sent()).await.map_err(failed)?;
    // Not settled yet, so these rows only show how long the oldest one has waited.
    let first = shared.read("read the audit trail", store.export_audit(None, sent, i64::MAX, 1)).await;
    let first = first.map_err(failed)?;
    let lag = first.items.first().map_or(0.0, |row| Duration::from(shared.clock.now().since(row.at)).as_secs_f64());
    gauge!("everytick_audit_stream_lag_seconds").set(lag);
    if first.items.is_empty() && first.next.is_none() {
        return Ok(false);
    }
    let through = pulse::untimed(audit::settled(store)).await.map_err(failed)?;
    let read = store.export_audit(None, sent, through, STREAM_ROWS_PER_SEND);
    let page = shared.read("read the audit trail", read).await.map_err(failed)?;
    let (count, reached) = (page.items.len(), page.next.unwrap_or(through));
    if count > 0 {
        let send = tokio::time::timeout(STREAM_SEND_MAX, sink.send(page.items));
        let late = || Err(format!("the receiver has not answered within {STREAM_SEND_MAX:?}"));
        pulse::untimed(send).await.unwrap_or_else(|_| late())?;
    }
    shared.call("store the position of the audit stream", store.set_audit_sent(reached)).await.map_err(failed)?;
    counter!("everytick_audit_stream_rows_total").increment(count as u64);
    if page.next.is_none() {
        gauge!("everytick_audit_stream_lag_seconds").set(0.0);
    }
    Ok(page.next.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_failures_doubles_up_to_its_limit() {
        let pauses: Vec<u64> = (1..9).map(|failures| backoff(failures).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u32::MAX), STREAM_BACKOFF_MAX);
    }
}
