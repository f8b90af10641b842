//! Makes a job and its first cursor from a checked definition.

use std::sync::Arc;

use super::{Job, JobSpec};
use crate::{
    calendar::{Calendar, Exclusion},
    ids::{JobId, TenantId, Version},
    invalid::Invalid,
    schedule::{CronCache, Schedule, Timing},
    time::DbTime,
};

/// The facts of a new job that are not in its definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Creation {
    pub id: JobId,
    pub tenant: TenantId,
    pub partition: u16,
    pub by: String,
    /// Time on the database clock.
    pub at: DbTime,
}

/// Makes a new job and its first cursor. Refuses a schedule without a future tick, because the job would never fire, and a
/// schedule that names an unknown calendar.
pub fn create(
    creation: Creation,
    spec: JobSpec,
    known: &[Arc<Calendar>],
    crons: &CronCache,
) -> Result<(Job, Option<DbTime>), Vec<Invalid>> {
    let now = creation.at;
    let schedule = compile(&spec, known, crons)?;
    check_at(&spec, now).map_err(|invalid| vec![invalid])?;
    let job = Job {
        id: creation.id,
        tenant: creation.tenant,
        partition: creation.partition,
        version: Version::from_raw(1),
        spec: Arc::new(spec),
        schedule,
        created_at: now,
        created_by: creation.by,
        updated_at: now,
        paused: None,
        deleted_at: None,
    };
    let cursor = job.ticking().and_then(|schedule| first_cursor(&job.spec, schedule, now, now));
    if job.ticking().is_some() && cursor.is_none() {
        let message = format!("has no tick after {now}, the database's time: the job would never fire");
        return Err(vec![Invalid::new("schedule", message)]);
    }
    Ok((job, cursor))
}

/// Compiles the schedule of a definition together with the calendars that it names.
pub fn compile(spec: &JobSpec, known: &[Arc<Calendar>], crons: &CronCache) -> Result<Option<Schedule>, Vec<Invalid>> {
    let Some(spec) = &spec.schedule else { return Ok(None) };
    let excluding = |schedule: Schedule| Ok(schedule.excluding(Exclusion::named(&spec.exclude, known)?));
    let under = |found: Vec<Invalid>| found.into_iter().map(|invalid| invalid.under("schedule")).collect::<Vec<_>>();
    Schedule::compile_with(spec, crons).and_then(excluding).map(Some).map_err(under)
}

/// The first cursor of a definition: its first tick after `effective_at`. An `at` up to `late_after` in the past still counts,
/// so a caller with a slow clock or network can schedule "now".
#[must_use]
pub fn first_cursor(spec: &JobSpec, schedule: &Schedule, effective_at: DbTime, now: DbTime) -> Option<DbTime> {
    match spec.schedule.as_ref().map(|schedule| &schedule.timing) {
        Some(Timing::At { at }) if *at >= now.minus(spec.misfire.late_after) => schedule.first_from(*at),
        _ => schedule.next_after(effective_at),
    }
}

/// Refuses an `at` that is more than `late_after` in the past. The message shows the database time.
pub fn check_at(spec: &JobSpec, now: DbTime) -> Result<(), Invalid> {
    match spec.schedule.as_ref().map(|schedule| &schedule.timing) {
        Some(Timing::At { at }) if *at < now.minus(spec.misfire.late_after) => Err(Invalid::new(
            "schedule.at",
            format!(
                "{at} has passed: it is {now} on the database's clock, and late_after is {}",
                spec.misfire.late_after
            ),
        )),
        _ => Ok(()),
    }
}
