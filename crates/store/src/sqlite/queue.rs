//! Workers: what they claim from queues, how they keep it, and how they lose it. There is one writer at a time, so what a claim
//! reads does not change before its commit.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    queue::{CLAIM_RUNS_MAX, Candidate, JobLoad, LOG_BYTES_MAX, QueueLimits, Rate, choose, lead},
    run::State,
    time::Span,
};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};
use uuid::Uuid;

use super::{Failed, SqliteStore, Write, create, read, rows, rows::Hex, sql};
use crate::{
    Actor, CLAIM_PAGE_MIN, CLAIM_PAGES_MAX, ClaimBeat, ClaimQueue, ClaimedRun, DEPTH_COUNTED_MAX, HeldClaim,
    OverdueClaim, Page, QueueClaims, QueueLook, QueueRecord, QueueStore, Result, WorkerClaim, queues::limits_detail,
};

const CLAIMING: &str = "claim from a queue";

#[async_trait]
impl QueueStore for SqliteStore {
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims> {
        let mut write = self.write(CLAIMING).await?;
        let claims = claim(&mut write, ask).await?;
        if !claims.claims.is_empty() {
            write.commit().await?;
        }
        Ok(claims)
    }
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
        beat_claim(self, tenant, run, fence, lease).await
    }
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, text: &str) -> Result<bool> {
        log_claim(self, tenant, run, fence, text).await
    }
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        const DOING: &str = "read a worker's log";
        let mut read = self.read(DOING).await?;
        let query = sqlx::query_scalar(sql!("worker_log_get")).bind(tenant.raw()).bind(run.uuid());
        let log: Option<Option<String>> = query.fetch_optional(&mut *read).await.failed(DOING)?;
        Ok(log.flatten())
    }
    async fn held_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<HeldClaim>> {
        held_claims(self, tenant, runs).await
    }
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
        load_overdue_claims(self, grace, limit).await
    }
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook> {
        look_at_queues(self, queues).await
    }
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        list_queues(self, tenant, from, limit).await
    }
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()> {
        set_queue(self, tenant, actor, name, limits).await
    }
}

async fn claim(write: &mut Write, ask: &ClaimQueue) -> Result<QueueClaims> {
    let now = write.now;
    let mut room = ask.limit.min(CLAIM_RUNS_MAX);
    let queue = |statement| sqlx::query(statement).bind(ask.tenant.raw()).bind(&ask.queue);
    let found = queue(sql!("queue_limits")).fetch_optional(&mut *write.tx).await.failed(CLAIMING)?;
    let limits = match found {
        None => None,
        Some(row) => Some((limits(&row).failed(CLAIMING)?, row.try_get::<i64, _>("spent_until").failed(CLAIMING)?)),
    };
    if let Some((limits, spent_until)) = &limits {
        let counted = queue(sql!("queue_claimed")).fetch_one(&mut *write.tx).await.failed(CLAIMING)?;
        let claimed: i64 = counted.try_get(0).failed(CLAIMING)?;
        room = limits.room(room, usize::try_from(claimed).unwrap_or(usize::MAX), *spent_until, now);
    }
    let mut known = KnownJobs::default();
    let chosen = choose_runs(write, ask, room, &mut known).await?;
    let claims = take(write, ask, &chosen, &known).await?;
    if let Some((QueueLimits { rate: Some(rate), .. }, spent_until)) = &limits {
        queue(sql!("queue_spend"))
            .bind(rate.spend(*spent_until, now, claims.len()))
            .execute(&mut *write.tx)
            .await
            .failed(CLAIMING)?;
    }
    Ok(QueueClaims { now, claims })
}

fn limits(row: &SqliteRow) -> std::result::Result<QueueLimits, sqlx::Error> {
    let per = row.try_get::<Option<i64>, _>("rate_ms")?.map(|ms| Span::millis(ms.unsigned_abs()));
    let rate = row.try_get::<Option<u32>, _>("rate_count")?.zip(per).map(|(count, per)| Rate { count, per });
    Ok(QueueLimits { concurrency: row.try_get("concurrency")?, rate })
}

/// The jobs of which runs are looked at.
#[derive(Default)]
struct KnownJobs {
    jobs: HashMap<JobId, Arc<Job>>,
    /// Of those whose other runs count.
    loads: BTreeMap<JobId, JobLoad>,
}

async fn choose_runs(write: &mut Write, ask: &ClaimQueue, room: usize, known: &mut KnownJobs) -> Result<Vec<RunId>> {
    let mut chosen = Vec::new();
    let mut place = (i64::MIN, Uuid::nil());
    for _ in 0..CLAIM_PAGES_MAX {
        if chosen.len() >= room {
            break;
        }
        let size = ((room - chosen.len()) * 2).max(CLAIM_PAGE_MIN);
        let mut candidates = peek(write, ask, known, &mut place, size).await?;
        let last = candidates.len() < size;
        load_jobs(write, &candidates, known).await?;
        candidates.retain(|candidate| known.jobs.contains_key(&candidate.job));
        chosen.extend(choose(&candidates, &mut known.loads, room - chosen.len()));
        if last {
            break;
        }
    }
    Ok(chosen)
}

/// The next page of what waits, behind `place`, which moves on.
async fn peek(
    write: &mut Write,
    ask: &ClaimQueue,
    known: &KnownJobs,
    place: &mut (i64, Uuid),
    size: usize,
) -> Result<Vec<Candidate>> {
    let full = known.loads.iter().filter(|(_, load)| load.is_full()).map(|(job, _)| *job);
    let of_job = |(job, load): (&JobId, &JobLoad)| {
        load.full_keys().into_iter().map(|key| (Hex(job.uuid()), key.to_owned())).collect::<Vec<_>>()
    };
    let keys: Vec<_> = known.loads.iter().flat_map(of_job).collect();
    let found = sqlx::query(sql!("queue_peek"))
        .bind(ask.tenant.raw())
        .bind(&ask.queue)
        .bind(write.now.millis())
        .bind(place.0)
        .bind(place.1)
        .bind(rows::job_ids(full).failed(CLAIMING)?)
        .bind(rows::limit(size))
        .bind(rows::json(&keys).failed(CLAIMING)?)
        .fetch_all(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    if let Some(last) = found.last() {
        *place = (last.try_get("rank").failed(CLAIMING)?, last.try_get("run").failed(CLAIMING)?);
    }
    found.iter().map(candidate).collect::<std::result::Result<_, _>>().failed(CLAIMING)
}

fn candidate(row: &SqliteRow) -> std::result::Result<Candidate, sqlx::Error> {
    Ok(Candidate {
        run: rows::run_id(row, "run")?,
        job: rows::job_id(row, "job")?,
        force: row.try_get("force")?,
        attempts: row.try_get("attempts")?,
        key: row.try_get("key")?,
    })
}

async fn load_jobs(write: &mut Write, candidates: &[Candidate], known: &mut KnownJobs) -> Result<()> {
    let new: BTreeSet<JobId> =
        candidates.iter().map(|candidate| candidate.job).filter(|job| !known.jobs.contains_key(job)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let asked = rows::job_ids(new.iter().copied()).failed(CLAIMING)?;
    let found = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(&mut *write.tx).await.failed(CLAIMING)?;
    let mut guarded = Vec::new();
    for row in rows::readable_jobs(&found) {
        if row.job.spec.is_guarded() {
            guarded.push(row.job.id);
            known.loads.insert(row.job.id, JobLoad::of(&row.job.spec));
        }
        known.jobs.insert(row.job.id, Arc::new(row.job));
    }
    if guarded.is_empty() {
        return Ok(());
    }
    let asked = rows::job_ids(guarded).failed(CLAIMING)?;
    let found = sqlx::query(sql!("jobs_in_progress")).bind(&asked).fetch_all(&mut *write.tx).await.failed(CLAIMING)?;
    for row in &found {
        let (job, run) = (rows::job_id(row, "job").failed(CLAIMING)?, rows::run_id(row, "run").failed(CLAIMING)?);
        let Some(load) = known.loads.get_mut(&job) else { continue };
        if row.try_get("claimed").failed(CLAIMING)? {
            load.claimed.insert(run, row.try_get("key").failed(CLAIMING)?);
        } else {
            load.between.insert(run);
        }
    }
    // The node may still work on runs of a job that had another target.
    let found = sqlx::query(sql!("open_claimed")).bind(&asked).fetch_all(&mut *write.tx).await.failed(CLAIMING)?;
    for row in &found {
        let (job, run) = rows::open_run(row).failed(CLAIMING)?;
        if let Some(load) = known.loads.get_mut(&job) {
            load.claimed.entry(run.id).or_insert(None);
        }
    }
    Ok(())
}

async fn take(write: &mut Write, ask: &ClaimQueue, chosen: &[RunId], known: &KnownJobs) -> Result<Vec<WorkerClaim>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let now = write.now;
    let ids = rows::run_ids(chosen.iter().copied()).failed(CLAIMING)?;
    let found = sqlx::query(sql!("queue_claim"))
        .bind(&ids)
        .bind(now.millis())
        .bind(&ask.worker)
        .fetch_all(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    let mut claimed: Vec<ClaimedRun> =
        found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(CLAIMING)?;
    let places: HashMap<_, _> = chosen.iter().enumerate().map(|(place, run)| (*run, place)).collect();
    claimed.sort_by_key(|run| places.get(&run.id).copied());
    let until = now.plus(ask.lease);
    let claims: Vec<WorkerClaim> = claimed
        .into_iter()
        .filter_map(|run| {
            let job = known.jobs.get(&run.job)?.clone();
            let timeout_at = now.plus(job.spec.timeout);
            Some(WorkerClaim { run, job, until, timeout_at })
        })
        .collect();
    let noted = |claim: &WorkerClaim| {
        let run = &claim.run;
        (Hex(run.id.uuid()), Hex(run.job.uuid()), run.fence.raw(), claim.timeout_at.millis())
    };
    sqlx::query(sql!("worker_claims_insert"))
        .bind(rows::json(&claims.iter().map(noted).collect::<Vec<_>>()).failed(CLAIMING)?)
        .bind(ask.tenant.raw())
        .bind(&ask.queue)
        .bind(&ask.worker)
        .bind(until.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(CLAIMING)?;
    sqlx::query(sql!("dequeue")).bind(ids).execute(&mut *write.tx).await.failed(CLAIMING)?;
    Ok(claims)
}

async fn beat_claim(store: &SqliteStore, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
    const DOING: &str = "keep a worker's claim";
    let mut write = store.write(DOING).await?;
    let until = write.now.plus(lease);
    let held = sqlx::query(sql!("worker_beat"))
        .bind(tenant.raw())
        .bind(run.uuid())
        .bind(fence.raw())
        .bind(until.millis())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    if held.rows_affected() > 0 {
        write.commit().await?;
        return Ok(ClaimBeat::Held { until });
    }
    let record = read::run_record(&mut write.tx, tenant, run, DOING).await?;
    Ok(if record.state == State::Cancelled { ClaimBeat::Cancelled } else { ClaimBeat::Stale })
}

async fn log_claim(store: &SqliteStore, tenant: TenantId, run: RunId, fence: Fence, text: &str) -> Result<bool> {
    const DOING: &str = "log for a worker";
    let mut write = store.write(DOING).await?;
    let logged = sqlx::query(sql!("worker_log"))
        .bind(tenant.raw())
        .bind(run.uuid())
        .bind(fence.raw())
        .bind(text.replace('\0', "\u{fffd}"))
        .bind(rows::limit(LOG_BYTES_MAX))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    if logged.rows_affected() == 0 {
        read::run_record(&mut write.tx, tenant, run, DOING).await?;
    }
    write.commit().await?;
    Ok(logged.rows_affected() > 0)
}

async fn load_overdue_claims(store: &SqliteStore, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
    const DOING: &str = "look for lost workers";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(sql!("worker_claims_overdue"))
        .bind(store.clock.now().minus(grace).millis())
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let mut overdue = Vec::with_capacity(found.len());
    for (row, held) in held(&mut read, &found, DOING).await? {
        let (worker, timed_out) = (row.try_get("worker").failed(DOING)?, row.try_get("timed_out").failed(DOING)?);
        overdue.push(OverdueClaim { held, worker, timed_out });
    }
    Ok(overdue)
}

async fn held_claims(store: &SqliteStore, tenant: TenantId, runs: &[RunId]) -> Result<Vec<HeldClaim>> {
    const DOING: &str = "read workers' claims";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(sql!("worker_claims_held"))
        .bind(tenant.raw())
        .bind(rows::run_ids(runs.iter().copied()).failed(DOING)?)
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    Ok(held(&mut read, &found, DOING).await?.into_iter().map(|(_, held)| held).collect())
}

/// The claims of these rows, with their jobs. One whose job cannot be read is left out.
async fn held<'r>(
    connection: &mut SqliteConnection,
    found: &'r [SqliteRow],
    doing: &'static str,
) -> Result<Vec<(&'r SqliteRow, HeldClaim)>> {
    let runs: Vec<ClaimedRun> = found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(doing)?;
    let ids: BTreeSet<JobId> = runs.iter().map(|run| run.job).collect();
    let asked = rows::job_ids(ids).failed(doing)?;
    let jobs = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(connection).await.failed(doing)?;
    let jobs: HashMap<JobId, Arc<Job>> =
        rows::readable_jobs(&jobs).into_iter().map(|row| (row.job.id, Arc::new(row.job))).collect();
    let mut claims = Vec::with_capacity(runs.len());
    for (row, run) in found.iter().zip(runs) {
        let Some(job) = jobs.get(&run.job).cloned() else { continue };
        let (started_at, log) = (rows::time(row, "started_at").failed(doing)?, row.try_get("log").failed(doing)?);
        claims.push((row, HeldClaim { run, job, started_at, log }));
    }
    Ok(claims)
}

async fn look_at_queues(store: &SqliteStore, queues: &[(TenantId, String)]) -> Result<QueueLook> {
    const DOING: &str = "look at queues";
    let mut read = store.read(DOING).await?;
    let now = store.clock.now();
    let asked: Vec<_> = queues.iter().map(|(tenant, name)| (tenant.raw(), name)).collect();
    let found = sqlx::query(sql!("queues_look"))
        .bind(rows::json(&asked).failed(DOING)?)
        .bind(now.millis())
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let mut look = QueueLook { now, due: Vec::new(), next_due: None };
    for row in &found {
        if row.try_get("due").failed(DOING)? {
            look.due.push((rows::tenant(row).failed(DOING)?, row.try_get("name").failed(DOING)?));
        }
        look.next_due = look.next_due.into_iter().chain(rows::time(row, "next_due").failed(DOING)?).min();
    }
    Ok(look)
}

async fn list_queues(
    store: &SqliteStore,
    tenant: TenantId,
    from: Option<&str>,
    limit: usize,
) -> Result<Page<QueueRecord, String>> {
    const DOING: &str = "list queues";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(sql!("queues_list"))
        .bind(tenant.raw())
        .bind(from.unwrap_or_default())
        .bind(rows::limit(limit.saturating_add(1)))
        .bind(store.clock.now().millis())
        .bind(rows::limit(DEPTH_COUNTED_MAX))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let record = |row: &SqliteRow| {
        let count = |name| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
        Ok(QueueRecord {
            name: row.try_get("name")?,
            limits: limits(row)?,
            due: count("due")?,
            later: count("later")?,
            oldest: rows::time(row, "oldest")?,
            claimed: count("claimed")?,
        })
    };
    let mut items: Vec<QueueRecord> =
        found.iter().map(record).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)?;
    let next = items.split_off(limit.min(items.len())).into_iter().next().map(|queue| queue.name);
    Ok(Page { items, next })
}

async fn set_queue(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    limits: QueueLimits,
) -> Result<()> {
    const DOING: &str = "limit a queue";
    let mut write = store.write(DOING).await?;
    sqlx::query(sql!("queues_set"))
        .bind(tenant.raw())
        .bind(name)
        .bind(limits.concurrency)
        .bind(limits.rate.map(|rate| rate.count))
        .bind(limits.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    create::note(&mut write, tenant, actor, "limit", &[(format!("queue {name}"), limits_detail(&limits))]).await?;
    write.commit().await
}

/// Has the runs of a job wait where its target is by now.
pub(super) async fn requeue(write: &mut Write, job: &Job) -> Result<()> {
    let (doing, queue) = (write.doing, job.spec.target.queue());
    sqlx::query(sql!("requeue_waiting"))
        .bind(job.id.uuid())
        .bind(queue)
        .bind(lead(job.spec.priority, false))
        .bind(lead(job.spec.priority, true))
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    let epoch = sqlx::query(sql!("requeue_epoch")).bind(job.id.uuid()).bind(queue);
    epoch.execute(&mut *write.tx).await.failed(doing)?;
    Ok(())
}
