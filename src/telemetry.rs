//! The metrics that `/metrics` shows: their recorder, their help texts and their buckets.

use std::time::Duration;

use anyhow::Context;
use everytick_domain::run::SkipReason;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

const LAG_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
const DURATION_BUCKETS: [f64; 10] = [0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0];

/// What histograms have taken in is kept one by one until somebody looks or this is done.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Keeps the memory of the metrics bounded where nobody scrapes them.
pub(crate) async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        handle.run_upkeep();
    }
}

pub(crate) fn start() -> anyhow::Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("everytick_dispatch_lag_seconds".to_owned()), &LAG_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("everytick_take_up_duration_seconds".to_owned()), &LAG_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("everytick_attempt_duration_seconds".to_owned()), &DURATION_BUCKETS)?
        .install_recorder()
        .context("could not set up metrics")?;
    describe_histogram!("everytick_dispatch_lag_seconds", Unit::Seconds, "From when a run was due to when it was sent");
    describe_histogram!(
        "everytick_take_up_duration_seconds",
        Unit::Seconds,
        "From taking up partitions to having their jobs in memory"
    );
    describe_histogram!("everytick_attempt_duration_seconds", Unit::Seconds, "How long attempts took, by target");
    describe_counter!("everytick_ticks_recorded_total", "Ticks recorded as runs");
    describe_counter!("everytick_ticks_skipped_total", "Ticks and jobs of flows recorded as skips, by reason");
    describe_counter!("everytick_runs_total", "Settlements, by the state that the run was brought to");
    describe_counter!("everytick_attempts_total", "Attempts, by target and outcome");
    describe_counter!("everytick_settles_refused_total", "Settlements refused because a newer claim had passed them");
    describe_counter!("everytick_runs_lost_total", "Runs whose node or worker vanished while it held the claim");
    describe_counter!("everytick_worker_claims_total", "Runs handed to workers");
    describe_counter!("everytick_lease_lost_total", "How often the node found its lease lost");
    describe_gauge!("everytick_runs_in_progress", "Runs that this node works on now");
    describe_gauge!(
        "everytick_oldest_unsettled_seconds",
        Unit::Seconds,
        "Age of the oldest outcome that could not be stored yet; 0 when there is none"
    );
    describe_gauge!(
        "everytick_unreadable_rows",
        "Rows that nodes could not decode during the last day; each is skipped (see GET /api/v1/cluster)"
    );
    describe_gauge!("everytick_jobs_in_memory", "Jobs that come due soon, or have open runs");
    // A series that exists from the start has no gap before its first event.
    for reason in SkipReason::ALL {
        counter!("everytick_ticks_skipped_total", "reason" => reason.word()).absolute(0);
    }
    for state in ["succeeded", "failed", "cancelled", "waiting"] {
        counter!("everytick_runs_total", "state" => state).absolute(0);
    }
    for name in ["everytick_ticks_recorded_total", "everytick_settles_refused_total", "everytick_runs_lost_total"] {
        counter!(name).absolute(0);
    }
    Ok(handle)
}
