//! Sets up the metrics of `/metrics`: recorder, help texts and histogram buckets.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use everytick_domain::{access::EXPIRES_SOON, run::SkipReason};
use everytick_store::Store;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

const LAG_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
const DURATION_BUCKETS: [f64; 10] = [0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0];

/// Histograms keep every sample in memory until a scrape or an upkeep pass aggregates them.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// How often the tokens that expire soon are counted.
const TOKENS_COUNTED_EVERY: Duration = Duration::from_secs(60);
/// One count takes at most this long.
const COUNT_TIME_MAX: Duration = Duration::from_secs(10);

/// Measures how many tokens expire soon, so that an alert comes before requests are refused. A node that cannot read keeps its last
/// figure.
pub(crate) async fn count_tokens(store: Arc<dyn Store>) {
    loop {
        match tokio::time::timeout(COUNT_TIME_MAX, store.count_expiring(EXPIRES_SOON)).await {
            Ok(Ok(count)) => gauge!("everytick_tokens_expiring").set(count as f64),
            Ok(Err(error)) => tracing::debug!(%error, "could not count the tokens that expire soon"),
            Err(_) => tracing::debug!("could not count the tokens that expire soon in time"),
        }
        tokio::time::sleep(TOKENS_COUNTED_EVERY).await;
    }
}

/// Bounds the memory of the metrics on a node that is not scraped.
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
    describe_histogram!(
        "everytick_dispatch_lag_seconds",
        Unit::Seconds,
        "Time from when a run was due until it was sent"
    );
    describe_histogram!(
        "everytick_take_up_duration_seconds",
        Unit::Seconds,
        "Time from acquiring partitions until their jobs are in memory"
    );
    describe_histogram!("everytick_attempt_duration_seconds", Unit::Seconds, "Duration of attempts, by target");
    describe_counter!("everytick_ticks_recorded_total", "Ticks recorded as runs");
    describe_counter!("everytick_ticks_skipped_total", "Ticks, and jobs of flows, recorded as skips, by reason");
    describe_counter!("everytick_runs_total", "Settlements, by the resulting state of the run");
    describe_counter!("everytick_attempts_total", "Attempts, by target and outcome");
    describe_counter!("everytick_settles_refused_total", "Settlements refused because a newer claim raised the fence");
    describe_counter!("everytick_runs_lost_total", "Runs whose node or worker was lost during the claim");
    describe_counter!("everytick_worker_claims_total", "Runs claimed by workers");
    describe_counter!("everytick_runs_delegated_total", "Runs passed to another node that may deliver them");
    describe_counter!("everytick_flow_runs_total", "Runs started by flows");
    describe_counter!("everytick_dead_schedules_total", "Jobs with lost ticks that were found and repaired");
    describe_counter!("everytick_partitions_acquired_total", "Partitions that this node acquired");
    describe_counter!("everytick_partitions_released_total", "Partitions that this node released to another node");
    describe_counter!("everytick_partitions_lost_total", "Partitions that this node lost with its lease");
    describe_gauge!("everytick_partitions_held", "Partitions that this node owns");
    describe_counter!("everytick_lease_lost_total", "How often this node lost its lease");
    describe_gauge!("everytick_runs_in_progress", "Runs in progress on this node");
    describe_gauge!(
        "everytick_oldest_unsettled_seconds",
        Unit::Seconds,
        "Age of the oldest outcome that is not stored yet; 0 if there is none"
    );
    describe_gauge!(
        "everytick_unreadable_rows",
        "Rows that nodes could not decode during the last day; each is skipped (see GET /api/v1/cluster)"
    );
    describe_gauge!(
        "everytick_tokens_expiring",
        "Valid tokens of the installation that expire within 14 days and have not been rotated"
    );
    describe_gauge!(
        "everytick_audit_stream_lag_seconds",
        Unit::Seconds,
        "Age of the oldest audit row that was not sent yet; 0 if there is none, and on nodes that are not the leader"
    );
    describe_counter!("everytick_audit_stream_rows_total", "Audit rows that the receiver has confirmed");
    describe_counter!("everytick_audit_stream_failures_total", "Failed tries to send audit rows");
    describe_gauge!("everytick_jobs_in_memory", "Jobs in memory: due soon, or with open runs");
    describe_gauge!(
        "everytick_tls_cert_expiry_seconds",
        Unit::Seconds,
        "Time until the TLS certificate expires; negative when it has expired"
    );
    describe_counter!(
        "everytick_untrusted_proxy_headers_total",
        "Requests refused because an untrusted address sent the user header of [proxy_auth]"
    );
    describe_gauge!(
        "everytick_tls_reload_failed",
        "1 while the files of the TLS certificate cannot be used and the previous certificate stays in use"
    );
    // Create each series at 0, so that a rate counts its first event.
    for reason in SkipReason::ALL {
        counter!("everytick_ticks_skipped_total", "reason" => reason.word()).absolute(0);
    }
    for state in ["succeeded", "failed", "cancelled", "waiting"] {
        counter!("everytick_runs_total", "state" => state).absolute(0);
    }
    for name in [
        "everytick_ticks_recorded_total",
        "everytick_settles_refused_total",
        "everytick_runs_lost_total",
        "everytick_audit_stream_failures_total",
        "everytick_untrusted_proxy_headers_total",
    ] {
        counter!(name).absolute(0);
    }
    Ok(handle)
}
