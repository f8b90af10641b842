//! I2 with calendars: a tick is a skip `calendar` if and only if a calendar of its definition excludes it, in the version that
//! the database had when it was recorded.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    calendar::{Calendar, Exclusion},
    ids::JobId,
    job::Job,
    run::{CauseKind, SkipReason},
    time::DbTime,
};
use everytick_sim::{Db, Entry};

pub fn check(db: &Db, found: &mut Vec<String>) {
    let mut calendars: BTreeMap<String, Arc<Calendar>> = BTreeMap::new();
    // An edit records the last ticks of the old definition before the edit itself is in the journal.
    let mut jobs: BTreeMap<JobId, &Job> = BTreeMap::new();
    let rows: BTreeMap<_, _> = db.all_runs().collect();
    for entry in db.journal() {
        match entry {
            Entry::CalendarPut { calendar, .. } => {
                calendars.insert(calendar.name().to_owned(), Arc::clone(calendar));
            }
            Entry::Created { job, .. } | Entry::Edited { job, .. } => {
                jobs.insert(job.id, job);
            }
            Entry::Recorded { run, job, .. } => {
                let Some(row) = rows.get(run).filter(|row| row.cause == CauseKind::Tick) else { continue };
                let skipped = row.skip_reason == Some(SkipReason::Calendar);
                if is_excluded(&jobs, &calendars, *job, row.scheduled_at).is_some_and(|excluded| excluded != skipped) {
                    found.push(format!("I2: {} of {job} is {:?}, {:?}", row.scheduled_at, row.state, row.skip_reason));
                }
            }
            Entry::RangeRecorded { job, from, to, reason, .. } => {
                let Some(schedule) = jobs.get(job).and_then(|job| job.ticking()) else { continue };
                for tick in schedule.ticks(*from, *to) {
                    let excluded = is_excluded(&jobs, &calendars, *job, tick);
                    if excluded.is_some_and(|excluded| excluded != (*reason == SkipReason::Calendar)) {
                        found.push(format!("I2: {tick} of {job} is in a range for {reason:?}"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a calendar excludes the tick. `None` if the definition at that point of the journal does not have this tick:
/// an edit that sets `at` to a recent instant records that tick before the edit itself is in the journal.
fn is_excluded(
    jobs: &BTreeMap<JobId, &Job>,
    calendars: &BTreeMap<String, Arc<Calendar>>,
    job: JobId,
    tick: DbTime,
) -> Option<bool> {
    let job = jobs.get(&job)?;
    let schedule = job.schedule.as_ref()?;
    if schedule.first_from(tick) != Some(tick) {
        return None;
    }
    let known: Vec<_> = calendars.values().cloned().collect();
    Exclusion::named(job.spec.exclude(), &known).ok().map(|exclusion| exclusion.of(tick).is_some())
}
