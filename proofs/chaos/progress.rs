//! Whether the cluster has caught up: everything due is recorded, and then settled, waiting for a later time, or being
//! delivered (I19).

use std::collections::HashSet;

use crate::{
    history::{Row, State},
    oracle::{Kind, Planned},
};

/// Delay that is normal without any fault.
pub(crate) const SLACK_MS: i64 = 1_200;

/// The longest time that a delivery of this kind of job takes, with a margin.
const fn delivery_ms_max(kind: Kind) -> i64 {
    match kind {
        Kind::Slow => 4_500,
        Kind::Greedy => 5_000,
        Kind::Retried => 3_000,
        Kind::Plain | Kind::Single | Kind::Failing | Kind::Shot | Kind::Edited => 2_000,
    }
}

/// The first tick that should be recorded by `now` and is not, or the first run that should be settled and is not. `rows` has
/// the rows of ticks from `from` on.
pub(crate) fn behind(jobs: &[Planned], rows: &[Row], from: i64, now: i64) -> Option<String> {
    let recorded: HashSet<(&str, i64)> = rows.iter().map(|row| (row.job.as_str(), row.tick)).collect();
    let due = now - SLACK_MS;
    for job in jobs.iter().filter(|job| job.starts_at > 0) {
        let Some((_, schedule)) = job.sent.first() else { continue };
        let ticks = schedule.ticks((job.starts_at - 1).max(from - 1), due.min(job.ends_at));
        if let Some(tick) = ticks.into_iter().find(|tick| !recorded.contains(&(job.name.as_str(), *tick))) {
            return Some(format!("{}: the tick {tick} is not recorded", job.name));
        }
    }
    let kind_of = |name: &str| jobs.iter().find(|job| job.name == name).map_or(Kind::Slow, |job| job.kind);
    let undone = rows.iter().find(|row| match row.state {
        State::Waiting => row.due_at <= due,
        State::Claimed => row.started_at.is_none_or(|started| started <= now - delivery_ms_max(kind_of(&row.job))),
        State::Succeeded | State::Failed | State::Cancelled | State::Skipped => false,
    });
    undone.map(|row| format!("{}: {} of {} is {:?} since {:?}", row.job, row.id, row.tick, row.state, row.started_at))
}

/// The instant, not before `from`, since which all due work has been done. `samples` has, in order, the time and whether all was
/// done.
pub(crate) fn caught_up_at(samples: &[(i64, bool)], from: i64) -> Option<i64> {
    let last = samples.iter().rposition(|(_, done)| !done);
    match last {
        None => Some(from),
        Some(last) => samples.get(last + 1).map(|(at, _)| (*at).max(from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Schedule;

    fn job(kind: Kind) -> Planned {
        Planned {
            starts_at: 1_000,
            ..crate::load::planned("j".to_owned(), kind, Schedule::Every { ms: 1_000 }, i64::MAX)
        }
    }

    fn row(tick: i64, state: State) -> Row {
        Row {
            id: format!("run-{tick}"),
            job: "j".to_owned(),
            tick,
            due_at: tick,
            state,
            skip_reason: None,
            attempt: 1,
            fence: 1,
            started_at: Some(tick),
            finished_at: None,
        }
    }

    #[test]
    fn a_due_tick_without_a_row_is_behind() {
        let rows = [row(1_000, State::Succeeded), row(2_000, State::Skipped)];
        assert_eq!(behind(&[job(Kind::Plain)], &rows, 0, 3_000 + SLACK_MS - 1), None);
        assert!(behind(&[job(Kind::Plain)], &rows, 0, 3_000 + SLACK_MS).unwrap().contains("3000"));
        assert_eq!(behind(&[job(Kind::Plain)], &rows[1..], 2_000, 3_000), None);
    }

    #[test]
    fn a_run_that_waits_past_its_due_time_is_behind_and_one_due_later_is_not() {
        let waiting = |due_at| [Row { due_at, ..row(1_000, State::Waiting) }];
        assert!(behind(&[job(Kind::Plain)], &waiting(1_000), 0, 2_900).is_some());
        let mut rows = waiting(9_000).to_vec();
        assert_eq!(behind(&[job(Kind::Plain)], &rows, 0, 2_900), None);
        rows[0].state = State::Failed;
        assert_eq!(behind(&[job(Kind::Plain)], &rows, 0, 2_900), None);
    }

    #[test]
    fn a_claim_that_lasts_longer_than_its_target_takes_is_behind() {
        let claimed = [row(1_000, State::Claimed), row(2_000, State::Succeeded), row(3_000, State::Succeeded)];
        assert!(behind(&[job(Kind::Plain)], &claimed, 0, 3_100).is_some());
        assert_eq!(behind(&[job(Kind::Slow)], &claimed, 0, 3_100), None);
    }

    #[test]
    fn caught_up_is_the_first_sample_after_the_last_one_behind() {
        assert_eq!(caught_up_at(&[(1, true), (2, false), (3, true), (4, false), (5, true), (6, true)], 2), Some(5));
        assert_eq!(caught_up_at(&[(1, false), (2, true)], 4), Some(4));
        assert_eq!(caught_up_at(&[(1, true)], 4), Some(4));
        assert_eq!(caught_up_at(&[(1, true), (5, false)], 4), None);
    }
}
