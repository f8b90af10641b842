//! Workers: what they claim from queues, how they keep it, and how they lose it. A claim holds the queue's limits first, then
//! its jobs in order, then what waits, then the runs; settlements hold the run and then the claim.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    queue::{CLAIM_RUNS_MAX, Candidate, JobLoad, LOG_BYTES_MAX, QueueLimits, Rate, choose},
    run::State,
    time::{DbTime, Span},
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{Failed, PostgresStore, Write, create, day_sql, days, horizon, range, read, rows, sql};
use crate::{
    Actor, CLAIM_PAGE_MIN, CLAIM_PAGES_MAX, ClaimBeat, ClaimQueue, ClaimedRun, DEPTH_COUNTED_MAX, HeldClaim,
    OverdueClaim, Page, QueueClaims, QueueLook, QueueRecord, QueueStore, Result, WorkerClaim, queues::limits_detail,
};

const CLAIMING: &str = "claim from a queue";

#[async_trait]
impl QueueStore for PostgresStore {
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims> {
        self.writes(claim_queue(self, ask)).await
    }
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
        self.writes(beat_claim(self, tenant, run, fence, lease)).await
    }
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, text: &str) -> Result<bool> {
        self.writes(log_claim(self, tenant, run, fence, text)).await
    }
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        self.reads(claim_log(self, tenant, run)).await
    }
    async fn held_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<HeldClaim>> {
        self.reads(held_claims(self, tenant, runs)).await
    }
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
        self.writes(load_overdue_claims(self, grace, limit)).await
    }
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook> {
        self.reads(look_at_queues(self, queues)).await
    }
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        self.reads(list_queues(self, tenant, from, limit)).await
    }
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()> {
        self.writes(set_queue(self, tenant, actor, name, limits)).await
    }
}

async fn claim_queue(store: &PostgresStore, ask: &ClaimQueue) -> Result<QueueClaims> {
    let mut write = store.write(CLAIMING).await?;
    let done = claim(store, &mut write, ask).await;
    write.finish(done).await
}

async fn claim(store: &PostgresStore, write: &mut Write, ask: &ClaimQueue) -> Result<QueueClaims> {
    let limits = hold_limits(write, ask).await?;
    let now = write.read_clock().await?;
    let mut room = ask.limit.min(CLAIM_RUNS_MAX);
    if let Some((limits, spent_until)) = &limits {
        let claimed: i64 = sqlx::query_scalar(sql!("queue_claimed"))
            .bind(ask.tenant.raw())
            .bind(&ask.queue)
            .fetch_one(&mut *write.tx)
            .await
            .failed(CLAIMING)?;
        room = limits.room(room, usize::try_from(claimed).unwrap_or(usize::MAX), *spent_until, now);
    }
    let mut held = HeldJobs::default();
    let chosen = choose_runs(write, ask, room, &mut held).await?;
    let claims = take(store, write, ask, &chosen, &held).await?;
    if let Some((QueueLimits { rate: Some(rate), .. }, spent_until)) = &limits
        && !claims.is_empty()
    {
        sqlx::query(sql!("queue_spend"))
            .bind(ask.tenant.raw())
            .bind(&ask.queue)
            .bind(rate.spend(*spent_until, now, claims.len()))
            .execute(&mut *write.tx)
            .await
            .failed(CLAIMING)?;
    }
    Ok(QueueClaims { now, claims })
}

async fn hold_limits(write: &mut Write, ask: &ClaimQueue) -> Result<Option<(QueueLimits, i64)>> {
    let found = sqlx::query(sql!("queue_limits_held"))
        .bind(ask.tenant.raw())
        .bind(&ask.queue)
        .fetch_optional(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    let Some(row) = found else { return Ok(None) };
    Ok(Some((limits(&row).failed(CLAIMING)?, row.try_get("spent_until").failed(CLAIMING)?)))
}

fn limits(row: &PgRow) -> std::result::Result<QueueLimits, sqlx::Error> {
    let number = |name| row.try_get::<Option<i32>, _>(name).map(|number| number.map(i32::unsigned_abs));
    let per = row.try_get::<Option<i64>, _>("rate_ms")?.map(|ms| Span::millis(ms.unsigned_abs()));
    let rate = number("rate_count")?.zip(per).map(|(count, per)| Rate { count, per });
    Ok(QueueLimits { concurrency: number("concurrency")?, rate })
}

/// The jobs of which runs are looked at. They are held: no edit changes them meanwhile.
#[derive(Default)]
struct HeldJobs {
    jobs: HashMap<JobId, Arc<Job>>,
    /// Of those whose other runs count.
    loads: BTreeMap<JobId, JobLoad>,
}

async fn choose_runs(write: &mut Write, ask: &ClaimQueue, room: usize, held: &mut HeldJobs) -> Result<Vec<RunId>> {
    let mut chosen = Vec::new();
    let mut place = (i64::MIN, Uuid::nil());
    for page in 0..CLAIM_PAGES_MAX {
        if chosen.len() >= room {
            break;
        }
        let size = ((room - chosen.len()) * 2).max(CLAIM_PAGE_MIN);
        let candidates = peek(write, ask, held, &mut place, size).await?;
        let last = candidates.len() < size;
        hold_jobs(write, &candidates, held, page == 0).await?;
        let known: Vec<_> = candidates.into_iter().filter(|candidate| held.jobs.contains_key(&candidate.job)).collect();
        chosen.extend(choose(&known, &mut held.loads, room - chosen.len()));
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
    held: &HeldJobs,
    place: &mut (i64, Uuid),
    size: usize,
) -> Result<Vec<Candidate>> {
    let full = held.loads.iter().filter(|(_, load)| load.is_full()).map(|(job, _)| *job);
    let of_job = |(job, load): (&JobId, &JobLoad)| {
        load.full_keys().into_iter().map(|key| (job.uuid(), key.to_owned())).collect::<Vec<_>>()
    };
    let (key_jobs, keys): (Vec<Uuid>, Vec<String>) = held.loads.iter().flat_map(of_job).unzip();
    let found = sqlx::query(sql!("queue_peek"))
        .bind(ask.tenant.raw())
        .bind(&ask.queue)
        .bind(write.now.millis())
        .bind(place.0)
        .bind(place.1)
        .bind(rows::job_ids(full))
        .bind(rows::limit(size))
        .bind(key_jobs)
        .bind(keys)
        .fetch_all(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    if let Some(last) = found.last() {
        *place = (last.try_get("rank").failed(CLAIMING)?, last.try_get("run").failed(CLAIMING)?);
    }
    found.iter().map(candidate).collect::<std::result::Result<_, _>>().failed(CLAIMING)
}

fn candidate(row: &PgRow) -> std::result::Result<Candidate, sqlx::Error> {
    Ok(Candidate {
        run: rows::run_id(row, "run")?,
        job: rows::job_id(row, "job")?,
        force: row.try_get("force")?,
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        key: row.try_get("key")?,
    })
}

/// Holds the jobs of these runs against edits; those whose other runs count, against other claims too. Only the first page waits
/// for them: whoever holds some already would wait out of order.
async fn hold_jobs(write: &mut Write, candidates: &[Candidate], held: &mut HeldJobs, wait: bool) -> Result<()> {
    let new: BTreeSet<JobId> =
        candidates.iter().map(|candidate| candidate.job).filter(|job| !held.jobs.contains_key(job)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let shared: Vec<(Uuid, bool)> = sqlx::query_as(sql!("epochs_shared"))
        .bind(rows::job_ids(new.iter().copied()))
        .fetch_all(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    let (guarded, mut free): (Vec<_>, Vec<_>) = shared.into_iter().partition(|(_, guarded)| *guarded);
    let guarded: Vec<Uuid> = guarded.into_iter().map(|(job, _)| job).collect();
    if !guarded.is_empty() {
        let statement = if wait { sql!("epochs_guarded") } else { sql!("epochs_guarded_free") };
        let got: Vec<Uuid> =
            sqlx::query_scalar(statement).bind(guarded).fetch_all(&mut *write.tx).await.failed(CLAIMING)?;
        free.extend(got.into_iter().map(|job| (job, true)));
    }
    let ids: Vec<JobId> = free.iter().map(|(job, _)| JobId::from_uuid(*job)).collect();
    let guarded: BTreeSet<JobId> =
        free.iter().filter(|(_, guarded)| *guarded).map(|(job, _)| JobId::from_uuid(*job)).collect();
    for row in horizon::job_rows(&mut write.tx, &ids, CLAIMING).await? {
        if guarded.contains(&row.job.id) {
            held.loads.insert(row.job.id, JobLoad::of(&row.job.spec));
        }
        held.jobs.insert(row.job.id, Arc::new(row.job));
    }
    load(write, &guarded, held).await
}

/// What is in progress of these jobs, now that they are held.
async fn load(write: &mut Write, jobs: &BTreeSet<JobId>, held: &mut HeldJobs) -> Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let asked = rows::job_ids(jobs.iter().copied());
    let found = sqlx::query(sql!("jobs_in_progress")).bind(&asked).fetch_all(&mut *write.tx).await.failed(CLAIMING)?;
    for row in &found {
        let (job, run) = (rows::job_id(row, "job").failed(CLAIMING)?, rows::run_id(row, "run").failed(CLAIMING)?);
        let Some(load) = held.loads.get_mut(&job) else { continue };
        if row.try_get("claimed").failed(CLAIMING)? {
            load.claimed.insert(run, row.try_get("key").failed(CLAIMING)?);
        } else {
            load.between.insert(run);
        }
    }
    // Nodes may still work on runs of a job that had another target.
    let lowest = horizon::lowest_open_from(&mut write.tx, write.now, CLAIMING).await?;
    let found = sqlx::query(sql!("open_claimed"))
        .bind(&asked)
        .bind(lowest.uuid())
        .bind(days::ahead(write.now).uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    for row in &found {
        let (job, run) = rows::open_run(row).failed(CLAIMING)?;
        if let Some(load) = held.loads.get_mut(&job) {
            load.claimed.entry(run.id).or_insert(None);
        }
    }
    Ok(())
}

/// Takes the chosen runs from among the waiting and claims them. What somebody else is taking is left out.
async fn take(
    store: &PostgresStore,
    write: &mut Write,
    ask: &ClaimQueue,
    chosen: &[RunId],
    held: &HeldJobs,
) -> Result<Vec<WorkerClaim>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let taken: Vec<(Uuid, Option<String>)> = sqlx::query_as(sql!("queue_dequeue"))
        .bind(rows::run_ids(chosen.iter().copied()))
        .bind(ask.tenant.raw())
        .bind(&ask.queue)
        .fetch_all(&mut *write.tx)
        .await
        .failed(CLAIMING)?;
    let keys: HashMap<RunId, Option<String>> =
        taken.into_iter().map(|(run, key)| (RunId::from_uuid(run), key)).collect();
    let now = write.now;
    let mut claimed: Vec<ClaimedRun> = Vec::with_capacity(keys.len());
    for (table, ids) in store.by_table(keys.keys().copied().collect(), |id| *id) {
        let found = sqlx::query(day_sql!("queue_claim", &table))
            .bind(rows::run_ids(ids))
            .bind(now.millis())
            .bind(&*rows::text(&ask.worker))
            .fetch_all(&mut *write.tx)
            .await
            .failed(CLAIMING)?;
        for row in &found {
            claimed.push(rows::claimed(row).failed(CLAIMING)?);
        }
    }
    let places: HashMap<_, _> = chosen.iter().enumerate().map(|(place, run)| (*run, place)).collect();
    claimed.sort_by_key(|run| places.get(&run.id).copied());
    let until = now.plus(ask.lease);
    let claims: Vec<WorkerClaim> = claimed
        .into_iter()
        .filter_map(|run| {
            let job = held.jobs.get(&run.job)?.clone();
            let timeout_at = now.plus(job.spec.timeout);
            Some(WorkerClaim { run, job, until, timeout_at })
        })
        .collect();
    sqlx::query(sql!("worker_claims_insert"))
        .bind(claims.iter().map(|claim| claim.run.id.uuid()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.run.job.uuid()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.run.fence.raw()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.timeout_at.millis()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| keys.get(&claim.run.id).cloned().flatten()).collect::<Vec<_>>())
        .bind(ask.tenant.raw())
        .bind(&ask.queue)
        .bind(&*rows::text(&ask.worker))
        .bind(until.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(CLAIMING)?;
    Ok(claims)
}

async fn beat_claim(
    store: &PostgresStore,
    tenant: TenantId,
    run: RunId,
    fence: Fence,
    lease: Span,
) -> Result<ClaimBeat> {
    const DOING: &str = "keep a worker's claim";
    let mut write = store.write(DOING).await?;
    let until = write.read_clock().await?.plus(lease);
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
    write.rollback().await;
    Ok(if record.state == State::Cancelled { ClaimBeat::Cancelled } else { ClaimBeat::Stale })
}

async fn log_claim(store: &PostgresStore, tenant: TenantId, run: RunId, fence: Fence, text: &str) -> Result<bool> {
    const DOING: &str = "log for a worker";
    let mut write = store.write(DOING).await?;
    let logged = sqlx::query(sql!("worker_log"))
        .bind(tenant.raw())
        .bind(run.uuid())
        .bind(fence.raw())
        .bind(&*rows::text(text))
        .bind(i32::try_from(LOG_BYTES_MAX).unwrap_or(i32::MAX))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    if logged.rows_affected() == 0 {
        read::run_record(&mut write.tx, tenant, run, DOING).await?;
    }
    write.commit().await?;
    Ok(logged.rows_affected() > 0)
}

async fn claim_log(store: &PostgresStore, tenant: TenantId, run: RunId) -> Result<Option<String>> {
    const DOING: &str = "read a worker's log";
    let mut read = store.read(DOING).await?;
    let log: Option<Option<String>> = sqlx::query_scalar(sql!("worker_log_get"))
        .bind(tenant.raw())
        .bind(run.uuid())
        .fetch_optional(&mut *read)
        .await
        .failed(DOING)?;
    Ok(log.flatten())
}

async fn load_overdue_claims(store: &PostgresStore, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
    const DOING: &str = "look for lost workers";
    let mut write = store.write(DOING).await?;
    let before = write.read_clock().await?.minus(grace);
    let found = sqlx::query(sql!("worker_claims_overdue"))
        .bind(before.millis())
        .bind(rows::limit(limit))
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let is_claimed = |row: &PgRow| row.try_get::<Option<Uuid>, _>("id").map(|id| id.is_some());
    let (mut claimed, mut ended) = (Vec::new(), Vec::new());
    for row in found {
        if is_claimed(&row).failed(DOING)? {
            claimed.push(row);
        } else {
            // A node of an earlier release has ended the run, and knows nothing of workers.
            ended.push(row.try_get::<Uuid, _>("run").failed(DOING)?);
        }
    }
    let mut overdue = Vec::with_capacity(claimed.len());
    for (row, held) in held(&mut write.tx, &claimed, DOING).await? {
        let (worker, timed_out) = (row.try_get("worker").failed(DOING)?, row.try_get("timed_out").failed(DOING)?);
        overdue.push(OverdueClaim { held, worker, timed_out });
    }
    if !ended.is_empty() {
        sqlx::query(sql!("worker_claims_end")).bind(ended).execute(&mut *write.tx).await.failed(DOING)?;
    }
    write.commit().await?;
    Ok(overdue)
}

async fn held_claims(store: &PostgresStore, tenant: TenantId, runs: &[RunId]) -> Result<Vec<HeldClaim>> {
    const DOING: &str = "read workers' claims";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(sql!("worker_claims_held"))
        .bind(tenant.raw())
        .bind(rows::run_ids(runs.iter().copied()))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    Ok(held(&mut read, &found, DOING).await?.into_iter().map(|(_, held)| held).collect())
}

/// The claims of these rows, with their jobs. One whose job cannot be read is left out.
async fn held<'r>(
    connection: &mut PgConnection,
    found: &'r [PgRow],
    doing: &'static str,
) -> Result<Vec<(&'r PgRow, HeldClaim)>> {
    let runs: Vec<ClaimedRun> = found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(doing)?;
    let ids: BTreeSet<JobId> = runs.iter().map(|run| run.job).collect();
    let ids: Vec<JobId> = ids.into_iter().collect();
    let jobs = horizon::job_rows(connection, &ids, doing).await?;
    let jobs: HashMap<JobId, Arc<Job>> = jobs.into_iter().map(|row| (row.job.id, Arc::new(row.job))).collect();
    let mut claims = Vec::with_capacity(runs.len());
    for (row, run) in found.iter().zip(runs) {
        let Some(job) = jobs.get(&run.job).cloned() else { continue };
        let (started_at, log) = (rows::time(row, "started_at").failed(doing)?, row.try_get("log").failed(doing)?);
        claims.push((row, HeldClaim { run, job, started_at, log }));
    }
    Ok(claims)
}

async fn look_at_queues(store: &PostgresStore, queues: &[(TenantId, String)]) -> Result<QueueLook> {
    const DOING: &str = "look at queues";
    let mut read = store.read(DOING).await?;
    let now: i64 = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    let found = sqlx::query(sql!("queues_look"))
        .bind(queues.iter().map(|(tenant, _)| tenant.raw()).collect::<Vec<_>>())
        .bind(queues.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>())
        .bind(now)
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let mut look = QueueLook { now: DbTime::from_millis(now), due: Vec::new(), next_due: None };
    for row in &found {
        if row.try_get("due").failed(DOING)? {
            let tenant = TenantId::from_raw(row.try_get("tenant").failed(DOING)?);
            look.due.push((tenant, row.try_get("name").failed(DOING)?));
        }
        look.next_due = look.next_due.into_iter().chain(rows::time(row, "next_due").failed(DOING)?).min();
    }
    Ok(look)
}

async fn list_queues(
    store: &PostgresStore,
    tenant: TenantId,
    from: Option<&str>,
    limit: usize,
) -> Result<Page<QueueRecord, String>> {
    const DOING: &str = "list queues";
    let mut read = store.read(DOING).await?;
    let now: i64 = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    let found = sqlx::query(sql!("queues_list"))
        .bind(tenant.raw())
        .bind(from.unwrap_or_default())
        .bind(rows::limit(limit.saturating_add(1)))
        .bind(now)
        .bind(rows::limit(DEPTH_COUNTED_MAX))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let mut items: Vec<QueueRecord> = found.iter().map(record).collect::<std::result::Result<_, _>>().failed(DOING)?;
    let next = items.split_off(limit.min(items.len())).into_iter().next().map(|queue| queue.name);
    Ok(Page { items, next })
}

fn record(row: &PgRow) -> std::result::Result<QueueRecord, sqlx::Error> {
    let count = |name| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
    Ok(QueueRecord {
        name: row.try_get("name")?,
        limits: limits(row)?,
        due: count("due")?,
        later: count("later")?,
        oldest: rows::time(row, "oldest")?,
        claimed: count("claimed")?,
    })
}

async fn set_queue(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    limits: QueueLimits,
) -> Result<()> {
    const DOING: &str = "limit a queue";
    let mut write = store.write(DOING).await?;
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    sqlx::query(sql!("queues_set"))
        .bind(tenant.raw())
        .bind(name)
        .bind(limits.concurrency.map(number))
        .bind(limits.rate.map(|rate| number(rate.count)))
        .bind(limits.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    write.read_clock().await?;
    create::note(&mut write, tenant, actor, "limit", &[(format!("queue {name}"), limits_detail(&limits))]).await?;
    range::notify(&mut write).await?;
    write.commit().await
}
