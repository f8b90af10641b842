//! Checks the record against the schedules: each tick once, each row from a definition in force.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Findings;
use crate::{
    history::{History, Job, OVERLAP, Row, State, reason_word},
    oracle::{self, Kind},
};

/// A node records the end of a run by its estimate of the database clock. The estimate is never ahead of that clock, but may be
/// behind by this much.
const ENDED_BEHIND_MS: i64 = 5_000;

pub(super) fn check(history: &History, findings: &mut Findings) {
    let mut of_job: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in &history.rows {
        of_job.entry(&row.job).or_default().push(row);
        *findings.states.entry(format!("{:?}", row.state).to_lowercase()).or_default() += 1;
    }
    for job in &history.jobs {
        let rows = of_job.remove(job.name.as_str()).unwrap_or_default();
        check_changes(job, findings);
        check_ticks(history, job, &rows, findings);
        check_overlaps(job, &rows, findings);
        check_states(job, &rows, findings);
    }
    for (name, rows) in of_job {
        for row in rows {
            findings
                .unexpected
                .note(|| format!("{name} has a run at {}, but the campaign did not create that job", row.tick));
        }
    }
}

/// Every answered change is recorded (I16), with the `effective_at` of the answer, which is close to the time of the request.
fn check_changes(job: &Job, findings: &mut Findings) {
    if job.created && job.created_at.is_none() {
        findings.lost.note(|| format!("{}: its creation was answered, but the job is not recorded", job.name));
    }
    for action in ["edit", "pause", "resume", "delete"] {
        let requested = job.requested.iter().filter(|of| **of == action).count();
        let done = job.audited.iter().filter(|(of, _)| of == action).count();
        if done > requested {
            findings.unexpected.note(|| {
                format!("{}: {action} is recorded {done} times and was requested {requested} times", job.name)
            });
        }
    }
    for answered in &job.answered {
        let (action, effective_at) = (answered.action, answered.effective_at);
        if !job.audited.iter().any(|(of, at)| of == action && *at == effective_at) {
            findings.lost.note(|| {
                format!(
                    "{}: {action} was answered with effective_at {effective_at}, which the audit does not have",
                    job.name
                )
            });
        }
        // `effective_at` may also be the last recorded tick, which is never later than the clock.
        let (earliest, latest) = (answered.sent_at - ENDED_BEHIND_MS, answered.answered_at + ENDED_BEHIND_MS);
        if !(earliest..=latest).contains(&effective_at) {
            findings.unexpected.note(|| {
                format!("{}: {action} sent at {} has effective_at {effective_at}", job.name, answered.sent_at)
            });
        }
    }
}

fn check_ticks(history: &History, job: &Job, rows: &[&Row], findings: &mut Findings) {
    let expected = oracle::expected(&job.in_force);
    findings.expected += expected.len() as u64;
    let mut times: BTreeMap<i64, u32> = BTreeMap::new();
    for row in rows {
        *times.entry(row.tick).or_default() += 1;
        match row.skip_reason {
            Some(reason) => check_skip(job, row, reason, rows, findings),
            None => findings.runs += 1,
        }
    }
    for range in history.ranges.iter().filter(|range| range.job == job.name) {
        let inside: Vec<i64> = expected.range(range.from..=range.to).copied().collect();
        *findings.skips.entry(reason_word(range.reason)).or_default() += range.count.unsigned_abs();
        if inside.len() as i64 != range.count || !expected.contains(&range.from) || !expected.contains(&range.to) {
            let (from, to, count) = (range.from, range.to, range.count);
            findings
                .unexpected
                .note(|| format!("{}: a skipped range from {from} to {to} has the wrong count {count}", job.name));
        }
        findings.unexpected.note(|| {
            format!(
                "{}: a skipped range ({}) from {}; no tick should be that late",
                job.name,
                reason_word(range.reason),
                range.from
            )
        });
        inside.iter().for_each(|tick| *times.entry(*tick).or_default() += 1);
    }
    for (tick, times) in times.iter().filter(|(_, times)| **times > 1) {
        findings.doubled.note(|| format!("{}: the tick {tick} is recorded {times} times", job.name));
    }
    let recorded: BTreeSet<i64> = times.keys().copied().collect();
    for tick in expected.difference(&recorded) {
        findings.lost.note(|| format!("{}: the tick {tick} has neither run nor skip", job.name));
    }
    for tick in recorded.difference(&expected) {
        findings.unexpected.note(|| format!("{}: the tick {tick} is recorded, but no definition has it", job.name));
    }
}

/// The only valid reason here is overlap, and only while another run is open.
fn check_skip(job: &Job, row: &Row, reason: i16, rows: &[&Row], findings: &mut Findings) {
    *findings.skips.entry(reason_word(reason)).or_default() += 1;
    let is_open = |other: &&&Row| {
        other.tick < row.tick
            && other.state != State::Skipped
            && other.finished_at.is_none_or(|ended| ended >= row.tick - ENDED_BEHIND_MS)
    };
    // When several ticks are due together, the newest runs: a skip needs no open run if a newer tick was due when it was recorded.
    let is_newer = |other: &&&Row| other.tick > row.tick && row.finished_at.is_some_and(|at| other.tick <= at);
    let has_cause = rows.iter().any(|other| is_open(&other) || is_newer(&other));
    if reason != OVERLAP || !job.kind.skips() || !has_cause {
        findings
            .unexpected
            .note(|| format!("{}: the tick {} was skipped for {}", job.name, row.tick, reason_word(reason)));
    }
}

/// Under `skip`, the recorded last attempts of two runs never overlap. Recorded ends may be too early, never too late.
fn check_overlaps(job: &Job, rows: &[&Row], findings: &mut Findings) {
    if !job.kind.skips() {
        return;
    }
    let mut worked: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.started_at?, row.finished_at.unwrap_or(i64::MAX), row)))
        .filter(|(_, _, row)| row.state != State::Skipped)
        .collect();
    worked.sort_by_key(|(started, ended, _)| (*started, *ended));
    for pair in worked.windows(2) {
        let ((_, ended, before), (started, _, after)) = (pair[0], pair[1]);
        if started < ended {
            findings.overlapped.note(|| {
                format!("{}: {} started at {started}, before {} ended at {ended}", job.name, after.id, before.id)
            });
        }
    }
}

/// Every run has ended, in a state that its job allows.
fn check_states(job: &Job, rows: &[&Row], findings: &mut Findings) {
    for row in rows.iter().filter(|row| row.state.is_open()) {
        findings.unsettled.note(|| {
            format!("{}: {} of {} is still {:?}, attempt {}", job.name, row.id, row.tick, row.state, row.attempt)
        });
    }
    // No run may be cancelled, because the campaign cancels none. Runs of a failing target may fail; the others have enough
    // retries.
    for row in rows.iter().filter(|row| row.state == State::Cancelled) {
        findings
            .unexpected
            .note(|| format!("{}: {} of {} was cancelled, which the campaign never does", job.name, row.id, row.tick));
    }
    if job.kind == Kind::Failing {
        for row in rows.iter().filter(|row| row.state == State::Succeeded) {
            findings.unexpected.note(|| format!("{}: {} succeeded although its target always fails", job.name, row.id));
        }
    }
}
