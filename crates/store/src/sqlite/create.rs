//! Creates jobs. Each is created or refused on its own, all in one transaction, so that concurrent creates cannot
//! exceed quotas or duplicate names (I15).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use everytick_domain::{
    calendar::Calendar,
    flow::When,
    ids::{JobId, TenantId},
    job::{self, Creation},
    time::DbTime,
};
use uuid::Uuid;

use super::{Failed, SqliteStore, Write, calendars, flows, range, rows, rows::Hex, sql};
use crate::{Actor, Created, IDEMPOTENCY_KEPT, IdempotencyKey, NewJob, Result, StoreError, crons::CRONS, facts};

const DOING: &str = "create jobs";

pub(super) async fn create_jobs(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    jobs: Vec<NewJob>,
    idempotency: Option<&IdempotencyKey>,
) -> Result<Vec<Result<Created>>> {
    // A key identifies one job, so it cannot be used for a list.
    let idempotency = idempotency.filter(|_| jobs.len() == 1);
    let mut write = store.write(DOING).await?;
    match replayed(&mut write, tenant, idempotency, Kind::Job).await {
        Ok(Some(id)) => {
            if let Some(created) = load(&mut write, JobId::from_uuid(id)).await? {
                return Ok(vec![Ok(created)]);
            }
        }
        Ok(None) => {}
        Err(StoreError::KeyReused) => return Ok(vec![Err(StoreError::KeyReused)]),
        Err(error) => return Err(error),
    }
    let (answers, parents) = decide(&mut write, store.limits.jobs_per_tenant_max, tenant, actor, jobs).await?;
    let created: Vec<&Created> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    if !created.is_empty() {
        insert(&mut write, tenant, actor, &created).await?;
    }
    for created in created.iter().filter(|created| !created.job.spec.depends_on.is_empty()) {
        let parents = parents.get(&created.job.id).map_or(&[][..], Vec::as_slice);
        flows::parents_now(&mut write, &created.job, parents).await?;
    }
    if let [created] = created[..] {
        remember(&mut write, tenant, idempotency, Kind::Job, created.job.id.uuid()).await?;
    }
    write.commit().await?;
    Ok(answers)
}

async fn decide(
    write: &mut Write,
    jobs_max: u64,
    tenant: TenantId,
    actor: &Actor,
    jobs: Vec<NewJob>,
) -> Result<(Vec<Result<Created>>, HashMap<JobId, Vec<(JobId, When)>>)> {
    let names: Vec<_> = jobs.iter().map(|new| new.spec.name.as_str()).collect();
    let taken: Vec<String> = sqlx::query_scalar(sql!("names_taken"))
        .bind(tenant.raw())
        .bind(rows::json(&names).failed(DOING)?)
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let live: Option<i64> =
        sqlx::query_scalar(sql!("count_jobs")).bind(tenant.raw()).fetch_optional(&mut *write.tx).await.failed(DOING)?;
    let mut taken: HashSet<String> = taken.into_iter().collect();
    let mut live = u64::try_from(live.unwrap_or(0)).unwrap_or(0);
    let excluded: Vec<String> = jobs.iter().flat_map(|new| new.spec.exclude()).cloned().collect();
    let known: Vec<_> =
        calendars::of_tenant(&mut write.tx, &write.unreadable, tenant, &excluded, DOING).await?.into_values().collect();
    let now = write.now;
    let mut family = flows::born(write, tenant, &jobs).await?;
    let mut parents = HashMap::new();
    let decide = |mut new: NewJob| {
        if taken.contains(&new.spec.name) {
            return Err(StoreError::NameTaken(new.spec.name));
        }
        if live >= jobs_max {
            return Err(StoreError::QuotaReached(jobs_max));
        }
        let named = family.resolve(new.id, &mut new.spec)?;
        let created = new_job(tenant, actor, new, &known, now)?;
        taken.insert(created.job.spec.name.clone());
        live += 1;
        family.made(&created);
        parents.insert(created.job.id, named);
        Ok(created)
    };
    Ok((crate::flows::each_in_order(jobs, decide), parents))
}

fn new_job(tenant: TenantId, actor: &Actor, new: NewJob, known: &[Arc<Calendar>], now: DbTime) -> Result<Created> {
    let creation = Creation { id: new.id, tenant, partition: 0, by: actor.0.clone(), at: now };
    let (job, cursor) = job::create(creation, new.spec, known, &CRONS).map_err(StoreError::Invalid)?;
    Ok(Created { job, cursor, replayed: false })
}

async fn insert(write: &mut Write, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
    let count = rows::limit(created.len());
    let change_before = range::next_change(write, created.len()).await? - count;
    let (mut jobs, mut epochs, mut cursors) = (Vec::new(), Vec::new(), Vec::new());
    for (change, Created { job, cursor, .. }) in (change_before + 1..).zip(created) {
        let id = Hex(job.id.uuid());
        let spec = serde_json::to_string(&*job.spec)
            .map_err(|error| StoreError::Refused { doing: DOING, source: error.into() })?;
        jobs.push((id, job.spec.name.as_str(), spec));
        epochs.push((id, change, job.spec.target.queue()));
        cursors.push((id, cursor.map(DbTime::millis)));
    }
    sqlx::query(sql!("create_jobs"))
        .bind(rows::json(&jobs).failed(DOING)?)
        .bind(tenant.raw())
        .bind(&actor.0)
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    for (statement, batch) in [
        (sql!("create_epochs"), rows::json(&epochs).failed(DOING)?),
        (sql!("create_cursors"), rows::json(&cursors).failed(DOING)?),
    ] {
        sqlx::query(statement).bind(batch).bind(tenant.raw()).execute(&mut *write.tx).await.failed_or_refused(DOING)?;
    }
    calendars::used(write, tenant, created.iter().map(|created| (created.job.id, &*created.job.spec))).await?;
    sqlx::query(sql!("add_tenant")).bind(tenant.raw()).execute(&mut *write.tx).await.failed(DOING)?;
    sqlx::query(sql!("add_jobs_count")).bind(tenant.raw()).bind(count).execute(&mut *write.tx).await.failed(DOING)?;
    let made: Vec<_> = created.iter().map(|created| &created.job).collect();
    note(write, tenant, actor, "create", &facts::created(&made)).await
}

async fn load(write: &mut Write, id: JobId) -> Result<Option<Created>> {
    let found = sqlx::query(sql!("load_jobs"))
        .bind(rows::job_ids([id]).failed(DOING)?)
        .fetch_optional(&mut *write.tx)
        .await
        .failed(DOING)?;
    let Some(row) = found else { return Ok(None) };
    let mut row = rows::job(&row).failed(DOING)?;
    calendars::give(&mut write.tx, &write.unreadable, std::slice::from_mut(&mut row), DOING).await?;
    Ok(Some(Created { job: row.job, cursor: row.cursor, replayed: true }))
}

/// Writes audit rows (subject, detail) in the transaction of the change (I21).
pub(super) async fn note(
    write: &mut Write,
    tenant: TenantId,
    actor: &Actor,
    action: &str,
    audit: &[(String, String)],
) -> Result<()> {
    sqlx::query(sql!("audit"))
        .bind(tenant.raw())
        .bind(write.now.millis())
        .bind(&actor.0)
        .bind(action)
        .bind(rows::json(&audit).failed(write.doing)?)
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

/// The kind of object that a request with an Idempotency-Key created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Job,
    Run,
    Backfill,
    Flow,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Run => "run",
            Self::Backfill => "backfill",
            Self::Flow => "flow",
        }
    }
}

/// The object that the same request created before, if any.
pub(super) async fn replayed(
    write: &mut Write,
    tenant: TenantId,
    idempotency: Option<&IdempotencyKey>,
    kind: Kind,
) -> Result<Option<Uuid>> {
    let Some(asked) = idempotency else { return Ok(None) };
    let found: Option<(Vec<u8>, String, Uuid)> = sqlx::query_as(sql!("find_request"))
        .bind(tenant.raw())
        .bind(&asked.key)
        .bind(write.now.minus(IDEMPOTENCY_KEPT).millis())
        .fetch_optional(&mut *write.tx)
        .await
        .failed(write.doing)?;
    match found {
        None => Ok(None),
        Some((fingerprint, made, subject)) if fingerprint == asked.fingerprint && made == kind.word() => {
            Ok(Some(subject))
        }
        Some(_) => Err(StoreError::KeyReused),
    }
}

pub(super) async fn remember(
    write: &mut Write,
    tenant: TenantId,
    idempotency: Option<&IdempotencyKey>,
    kind: Kind,
    subject: Uuid,
) -> Result<()> {
    let Some(asked) = idempotency else { return Ok(()) };
    sqlx::query(sql!("remember_request"))
        .bind(tenant.raw())
        .bind(&asked.key)
        .bind(asked.fingerprint.as_slice())
        .bind(kind.word())
        .bind(subject)
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}
