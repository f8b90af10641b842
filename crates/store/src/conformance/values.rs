//! Values for rules: jobs, ticks, requests, and their defaults.

use std::collections::BTreeMap;

use everytick_domain::{
    edit::Change,
    ids::{Cause, Epoch, Fence, Incarnation, JobId, RunId, TenantId},
    job::{Job, JobSpec, Overlap},
    plan::{Fate, SkipRange, TickRow},
    run::{Settlement, SkipReason, Verdict},
    schedule::{ScheduleSpec, Timing},
    target::{Command, ShellTarget, TargetSpec},
    time::{DbTime, Span},
};
use uuid::Uuid;

use crate::{Actor, ClaimedRun, EditJob, JobRef, JobTicks, Limits, NewRun, RangePlan, RecordRow, Settle};

/// The limits with which a store is opened for the suite: small, so that tests reach them.
pub const LIMITS: Limits = Limits {
    jobs_per_tenant_max: 20,
    open_requests_per_job_max: 3,
    waiting_per_job_max: 30,
    calendars_per_tenant_max: 5,
    tokens_per_tenant_max: 4,
    secrets_per_tenant_max: 3,
    runs_searched_max: 8,
    backlog_batch_max: 10,
};
/// The initial time. Every job of the suite has ticks at whole ten seconds.
pub const START: DbTime = DbTime::from_millis(1_794_787_200_000);
pub const TENANT: TenantId = TenantId::DEFAULT;
pub const OTHER_TENANT: TenantId = TenantId::from_raw(2);
pub const TTL: Span = Span::seconds(15);

/// The instant `seconds` after [`START`].
#[must_use]
pub fn s(seconds: i64) -> DbTime {
    DbTime::from_millis(START.millis() + seconds * 1_000)
}

#[must_use]
pub fn actor() -> Actor {
    Actor::local("tester")
}

#[must_use]
pub fn by_name(name: &str) -> JobRef {
    JobRef::Name(name.into())
}

#[must_use]
pub fn incarnation(n: u128) -> Incarnation {
    Incarnation::from_uuid(Uuid::from_u128(n))
}

/// A job with a tick every ten seconds, overlap `skip` and catch-up `latest`.
#[must_use]
pub fn spec(name: &str) -> JobSpec {
    let command = Command::Argv(vec!["true".into()]);
    let target = TargetSpec::Shell(ShellTarget { command, env: BTreeMap::new(), workdir: None });
    let schedule = Some(schedule(Timing::Every { every: Span::seconds(10) }));
    JobSpec { schedule, ..JobSpec::new(name, target) }
}

#[must_use]
pub fn schedule(timing: Timing) -> ScheduleSpec {
    ScheduleSpec { timing, starts_at: None, ends_at: None, jitter: None, exclude: Vec::new() }
}

/// The same with overlap `allow`.
#[must_use]
pub fn overlapping(name: &str) -> JobSpec {
    JobSpec { overlap: Overlap::Allow, ..spec(name) }
}

/// An id derived from the name, so that a failure is reproducible.
#[must_use]
pub fn job_id(tenant: TenantId, name: &str) -> JobId {
    let mut bytes = [0; 16];
    for (place, byte) in name.bytes().enumerate() {
        bytes[place % 12] ^= byte.rotate_left(u32::try_from(place / 12).unwrap());
    }
    bytes[12..].copy_from_slice(&tenant.raw().to_be_bytes());
    JobId::from_uuid(Uuid::from_bytes(bytes))
}

/// The epoch of a new job after it was raised once at this instant.
#[must_use]
pub fn raised(at: DbTime) -> i64 {
    Epoch::from_raw(1).raised(at).raw()
}

/// The row of a job's tick at `seconds` after [`START`].
#[must_use]
pub fn tick(job: &Job, seconds: i64, fate: Fate) -> RecordRow {
    let at = s(seconds);
    let tick = TickRow { id: RunId::of(job.id, Cause::Tick(at)), at, due_at: at, fate };
    RecordRow { tick, born_claimed: false }
}

#[must_use]
pub fn born(job: &Job, seconds: i64) -> RecordRow {
    RecordRow { born_claimed: true, ..tick(job, seconds, Fate::Run) }
}

#[must_use]
pub fn ticks(job: &Job, epoch: i64, rows: Vec<RecordRow>) -> JobTicks {
    let (epoch, priority) = (Epoch::from_raw(epoch), job.spec.priority);
    let (job_id, tenant, partition, key) = (job.id, job.tenant, job.partition, job.spec.key_of(None));
    JobTicks { job: job_id, tenant, partition, epoch, priority, key, rows }
}

#[must_use]
pub fn range(job: &Job, epoch: i64, from: i64, to: i64) -> RangePlan {
    let count = u64::try_from((to - from) / 10 + 1).unwrap();
    RangePlan {
        job: job.id,
        tenant: job.tenant,
        epoch: Epoch::from_raw(epoch),
        cursor_was: s(from),
        range: SkipRange { from: s(from), to: s(to), count, reason: SkipReason::Misfire },
        cursor: Some(s(to + 10)),
    }
}

#[must_use]
pub fn settle(run: &ClaimedRun, verdict: Verdict) -> Settle {
    settle_with(run.id, run.fence, run.job, run.tenant, verdict)
}

#[must_use]
pub fn settle_with(run: RunId, fence: Fence, job: JobId, tenant: TenantId, verdict: Verdict) -> Settle {
    let error = (verdict != Verdict::Succeeded).then(|| "it said no".to_owned());
    let settlement = Settlement { run, fence, verdict, error, output: Some("printed".into()), pause: None };
    Settle { settlement, job, tenant, partition: 0, priority: 5, started_at: Some(s(11)), ended_at: s(12) }
}

#[must_use]
pub fn new_run(job: &str, key: &str) -> NewRun {
    NewRun { job: by_name(job), key: key.as_bytes().to_vec(), payload: None, force: false, idempotency: None }
}

#[must_use]
pub fn change(job: &str, change: Change) -> EditJob {
    EditJob { job: by_name(job), change, if_match: None, cancel: false }
}

#[must_use]
pub fn pause() -> Change {
    Change::Pause { note: None }
}
