//! Constructed histories: a correct one has no findings, and each breach is found under its name.

use super::*;
use crate::{
    history::{Delivery, Fault, Job, Offset, Probe, Range, Row, State},
    oracle::{Answered, InForce, Kind, Schedule},
};

fn row(tick: i64) -> Row {
    Row {
        id: format!("run-{tick}"),
        job: "j".to_owned(),
        tick,
        due_at: tick,
        state: State::Succeeded,
        skip_reason: None,
        attempt: 1,
        fence: 7,
        started_at: Some(tick + 5),
        finished_at: Some(tick + 20),
    }
}

fn delivery(tick: i64) -> Delivery {
    Delivery {
        run: format!("run-{tick}"),
        job: "j".to_owned(),
        attempt: 1,
        fence: 7,
        scheduled_at: tick,
        node: "n1".to_owned(),
        arrived_at: tick + 10,
        status: Some(200),
    }
}

/// A job every second, deleted at 4.5 s, with all its rows and deliveries.
fn correct() -> History {
    let ticks = [1_000, 2_000, 3_000, 4_000];
    let in_force = InForce { schedule: Schedule::Every { ms: 1_000 }, after: 0, to: 4_500 };
    History {
        jobs: vec![Job {
            name: "j".to_owned(),
            kind: Kind::Plain,
            in_force: vec![in_force],
            requested: vec!["delete"],
            answered: vec![Answered { action: "delete", effective_at: 4_500, sent_at: 4_490, answered_at: 4_510 }],
            audited: vec![("create".to_owned(), 0), ("delete".to_owned(), 4_500)],
            created: true,
            created_at: Some(0),
        }],
        rows: ticks.map(row).to_vec(),
        ranges: Vec::new(),
        deliveries: ticks.map(delivery).to_vec(),
        probes: vec![Probe { run: "run-1000".to_owned(), fence: 6, status: Some(409) }],
        faults: Vec::new(),
        offset: Offset { low: -1, high: 1 },
    }
}

/// The breaches of the correct history after `change`, with their counts.
fn found(change: impl FnOnce(&mut History)) -> Vec<(&'static str, u64)> {
    let mut history = correct();
    change(&mut history);
    let findings = check(&history);
    let broken = findings.breaches().map(|(name, breach)| (name, breach.count));
    broken.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_correct_history_has_no_breach() {
    assert_eq!(found(|_| {}), []);
    let findings = check(&correct());
    assert_eq!((findings.expected, findings.runs, findings.deliveries, findings.redelivered), (4, 4, 4, 0));
    assert_eq!((findings.stale_refused, findings.lag_all.max_ms), (1, 10));
}

#[test]
fn a_tick_without_a_row_is_lost() {
    let lost = found(|history| {
        history.rows.remove(1);
        history.deliveries.remove(1);
    });
    assert_eq!(lost, [("lost", 1)]);
}

#[test]
fn an_answered_job_that_is_not_recorded_is_lost() {
    let lost = found(|history| {
        history.jobs[0].created_at = None;
        history.jobs[0].in_force.clear();
        history.rows.clear();
        history.deliveries.clear();
    });
    assert_eq!(lost, [("lost", 1)]);
}

#[test]
fn an_answered_change_that_the_audit_does_not_have_is_lost() {
    assert_eq!(found(|history| drop(history.jobs[0].audited.pop())), [("lost", 1)]);
    assert_eq!(found(|history| history.jobs[0].audited[1].1 = 4_501), [("lost", 1)]);
}

#[test]
fn a_change_that_was_not_requested_is_unexpected() {
    assert_eq!(found(|history| history.jobs[0].audited.push(("pause".to_owned(), 4_600))), [("unexpected", 1)]);
}

#[test]
fn a_change_that_takes_effect_long_after_its_request_is_unexpected() {
    let moved = found(|history| history.jobs[0].answered[0].sent_at = 40_000);
    assert_eq!(moved, [("unexpected", 1)]);
}

#[test]
fn a_tick_recorded_twice_is_doubled() {
    assert_eq!(found(|history| history.rows.push(row(2_000))), [("doubled", 1)]);
}

#[test]
fn an_attempt_delivered_twice_is_doubled() {
    assert_eq!(found(|history| history.deliveries.push(delivery(2_000))), [("doubled", 1)]);
}

#[test]
fn a_tick_under_two_ids_is_doubled_and_one_id_is_not_recorded() {
    let two = found(|history| history.deliveries.push(Delivery { run: "other".to_owned(), ..delivery(2_000) }));
    assert_eq!(two, [("doubled", 1), ("unexpected", 1)]);
}

#[test]
fn a_second_attempt_of_a_run_is_counted_but_no_breach() {
    let mut history = correct();
    history.deliveries.push(Delivery { attempt: 2, fence: 8, ..delivery(2_000) });
    history.rows[1] = Row { attempt: 2, fence: 8, ..row(2_000) };
    let findings = check(&history);
    assert!(findings.breaches().iter().all(|(_, breach)| breach.count == 0), "{findings:?}");
    assert_eq!(findings.redelivered, 1);
}

#[test]
fn a_delivery_is_early_only_beyond_the_measured_clock_error() {
    assert_eq!(found(|history| history.deliveries[0].arrived_at = 999), []);
    assert_eq!(found(|history| history.deliveries[0].arrived_at = 998), [("early", 1)]);
}

#[test]
fn a_tick_after_an_answered_delete_is_unexpected_as_row_and_as_delivery() {
    let after = found(|history| {
        history.rows.push(row(5_000));
        history.deliveries.push(delivery(5_000));
    });
    assert_eq!(after, [("unexpected", 2)]);
}

#[test]
fn a_run_of_an_unknown_job_is_unexpected() {
    let strange = found(|history| history.rows.push(Row { job: "x".to_owned(), id: "y".to_owned(), ..row(1_000) }));
    assert_eq!(strange[0], ("unexpected", 1));
}

fn skipped(tick: i64, reason: i16) -> Row {
    Row { state: State::Skipped, skip_reason: Some(reason), started_at: None, finished_at: Some(tick), ..row(tick) }
}

#[test]
fn a_skip_without_an_open_run_needs_a_newer_tick_that_was_due_when_it_was_recorded() {
    let skip = |recorded: i64| {
        found(|history| {
            history.jobs[0].kind = Kind::Slow;
            history.jobs[0].in_force[0] =
                InForce { schedule: Schedule::Every { ms: 10_000 }, after: 10_000, to: 30_000 };
            history.jobs[0].answered.clear();
            let skipped = Row { finished_at: Some(recorded), ..skipped(20_000, 1) };
            history.rows = vec![skipped, row(30_000)];
            history.deliveries = vec![delivery(30_000)];
        })
    };
    assert_eq!(skip(30_100), []);
    assert_eq!(skip(20_100), [("unexpected", 1)]);
}

#[test]
fn a_skip_needs_an_open_run_and_a_job_with_overlap_skip() {
    let skip = |kind: Kind, reason: i16, ended: Option<i64>| {
        found(|history| {
            history.jobs[0].kind = kind;
            history.jobs[0].in_force[0] = InForce { schedule: Schedule::Every { ms: 10_000 }, after: 0, to: 20_000 };
            history.jobs[0].answered.clear();
            let state = if ended.is_some() { State::Succeeded } else { State::Claimed };
            history.rows = vec![Row { finished_at: ended, state, ..row(10_000) }, skipped(20_000, reason)];
            history.deliveries = vec![delivery(10_000)];
        })
    };
    assert_eq!(skip(Kind::Slow, 1, Some(20_500)), []);
    assert_eq!(skip(Kind::Slow, 1, Some(12_000)), [("unexpected", 1)]);
    assert_eq!(skip(Kind::Plain, 1, Some(20_500)), [("unexpected", 1)]);
    assert_eq!(skip(Kind::Slow, 3, Some(20_500)), [("unexpected", 1)]);
    assert_eq!(skip(Kind::Slow, 1, None), [("unsettled", 1)]);
}

#[test]
fn a_delivery_of_a_skip_is_unexpected() {
    let both = found(|history| {
        history.jobs[0].kind = Kind::Slow;
        history.rows[1] = skipped(2_000, 1);
    });
    assert_eq!(both, [("unexpected", 1)]);
}

#[test]
fn ticks_of_a_skipped_range_are_not_lost_but_unexpected() {
    let ranged = found(|history| {
        history.rows.drain(1..3);
        history.deliveries.drain(1..3);
        history.ranges.push(Range { job: "j".to_owned(), from: 2_000, to: 3_000, count: 2, reason: 3 });
    });
    assert_eq!(ranged, [("unexpected", 1)]);
}

#[test]
fn a_tick_both_in_a_range_and_as_a_row_is_doubled() {
    let both = found(|history| {
        history.ranges.push(Range { job: "j".to_owned(), from: 2_000, to: 2_000, count: 1, reason: 3 });
    });
    assert_eq!(both, [("doubled", 1), ("unexpected", 1)]);
}

#[test]
fn two_runs_in_progress_together_under_overlap_skip_are_overlapped() {
    let together = found(|history| {
        history.jobs[0].kind = Kind::Slow;
        history.rows[0].finished_at = Some(2_006);
    });
    assert_eq!(together, [("overlapped", 1)]);
}

#[test]
fn a_success_without_a_2xx_from_the_sink_is_a_stale_settlement() {
    assert_eq!(found(|history| history.rows[0].fence = 8), [("stale settles accepted", 1)]);
    assert_eq!(found(|history| history.rows[0].attempt = 2), [("stale settles accepted", 1)]);
    assert_eq!(found(|history| history.deliveries[0].status = Some(500)), [("stale settles accepted", 1)]);
    assert_eq!(found(|history| history.deliveries[0].status = None), [("stale settles accepted", 1)]);
}

#[test]
fn an_old_fence_that_is_not_refused_is_a_stale_settlement() {
    assert_eq!(found(|history| history.probes[0].status = Some(200)), [("stale settles accepted", 1)]);
    assert_eq!(found(|history| history.probes[0].status = None), []);
}

#[test]
fn an_open_run_and_a_failure_without_delivery_are_unsettled() {
    let open = found(|history| {
        history.rows[0] = Row { state: State::Waiting, finished_at: None, ..row(1_000) };
        history.rows[1].state = State::Failed;
        history.deliveries.remove(1);
    });
    assert_eq!(open, [("unsettled", 2)]);
}

#[test]
fn ticks_touched_by_a_fault_count_only_in_the_lag_of_all() {
    let mut history = correct();
    history.deliveries[2].arrived_at = 9_000;
    let fault = Fault {
        what: "kill n1".to_owned(),
        kinds: vec!["kill"],
        began_at: 2_900,
        counts_from: 2_900,
        caught_up_at: Some(3_200),
        touches: true,
    };
    history.faults.push(fault.clone());
    let findings = check(&history);
    assert_eq!((findings.lag_all.max_ms, findings.late), (6_000, 1));
    // The tick at 2 s lies within a second before the fault, the tick at 4 s after it.
    assert_eq!((findings.lag_untouched.ticks, findings.lag_untouched.max_ms), (2, 10));
    history.faults[0] = Fault { touches: false, ..fault };
    assert_eq!(check(&history).lag_untouched.max_ms, 6_000);
}

#[test]
fn percentiles_are_values_that_occurred() {
    let lag = Lag::of((1..=200).collect());
    assert_eq!((lag.ticks, lag.p50_ms, lag.p99_ms, lag.max_ms), (200, 100, 198, 200));
}
