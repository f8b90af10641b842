//! Creates jobs. Each is created or refused on its own, all in one transaction, so that concurrent creates cannot
//! exceed quotas or duplicate names (I15).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use everytick_domain::{
    calendar::Calendar,
    flow::When,
    home::{BlockClaim, Homes},
    ids::{JobId, TenantId},
    job::{self, Creation, Job, JobSpec},
    time::DbTime,
};
use uuid::Uuid;

use super::{Failed, PostgresStore, Write, calendars, flows, homes, horizon, range, rows, short, short::Form, sql};
use crate::crons::CRONS;
use crate::{
    Actor, Created, IDEMPOTENCY_KEPT, IdempotencyKey, NewJob, Result, StoreError, announced::is_announced, facts,
};

const DOING: &str = "create jobs";

pub(super) async fn create_jobs(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    jobs: Vec<NewJob>,
    idempotency: Option<&IdempotencyKey>,
) -> Result<Vec<Result<Created>>> {
    // A key identifies one job, so it cannot be used for a list.
    let idempotency = idempotency.filter(|_| jobs.len() == 1);
    let mut write = store.write(DOING).await?;
    let done = create(&mut write, store.limits.jobs_per_tenant_max, tenant, actor, jobs, idempotency).await;
    write.finish(done).await
}

async fn create(
    write: &mut Write,
    jobs_max: u64,
    tenant: TenantId,
    actor: &Actor,
    jobs: Vec<NewJob>,
    idempotency: Option<&IdempotencyKey>,
) -> Result<Vec<Result<Created>>> {
    let regions: Vec<&str> = jobs.iter().filter_map(|new| new.spec.home_region.as_deref()).collect();
    let mut homes = homes::load(write, &regions).await?;
    let excluded: Vec<String> = jobs.iter().flat_map(|new| new.spec.exclude()).cloned().collect();
    let known: Vec<_> = calendars::hold(write, tenant, &excluded).await?.into_values().collect();
    // The lock serializes creates of one tenant: names stay unique, the quota is kept, and a key is used once.
    let live = hold_tenant(write, tenant).await?;
    write.read_clock().await?;
    match replayed(write, tenant, idempotency, Kind::Job).await {
        Ok(Some(id)) => {
            if let Some(created) = load(write, JobId::from_uuid(id)).await? {
                return Ok(vec![Ok(created)]);
            }
        }
        Ok(None) => {}
        Err(StoreError::KeyReused) => return Ok(vec![Err(StoreError::KeyReused)]),
        Err(error) => return Err(error),
    }
    let (answers, claims, parents) = decide(write, &mut homes, &known, (live, jobs_max), tenant, actor, jobs).await?;
    for claim in &claims {
        homes::claim(write, claim).await?;
    }
    let created: Vec<&Created> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    if !created.is_empty() {
        let form = short::form(write).await?;
        insert(write, form, tenant, actor, &created).await?;
    }
    for created in created.iter().filter(|created| !created.job.spec.depends_on.is_empty()) {
        let parents = parents.get(&created.job.id).map_or(&[][..], Vec::as_slice);
        flows::parents_now(write, &created.job, parents).await?;
    }
    if let [created] = created[..] {
        remember(write, tenant, idempotency, Kind::Job, created.job.id.uuid()).await?;
    }
    Ok(answers)
}

async fn decide(
    write: &mut Write,
    homes: &mut Homes,
    known: &[Arc<Calendar>],
    (mut live, jobs_max): (u64, u64),
    tenant: TenantId,
    actor: &Actor,
    jobs: Vec<NewJob>,
) -> Result<(Vec<Result<Created>>, Vec<BlockClaim>, HashMap<JobId, Vec<(JobId, When)>>)> {
    let names: Vec<String> = jobs.iter().map(|new| new.spec.name.clone()).collect();
    let taken: Vec<String> = sqlx::query_scalar(sql!("names_taken"))
        .bind(tenant.raw())
        .bind(names)
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let mut taken: HashSet<String> = taken.into_iter().collect();
    let now = write.now;
    let mut claims = Vec::new();
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
        let place = homes.place(new.id, new.spec.home_region.as_deref());
        let place = place.map_err(|invalid| StoreError::Invalid(vec![invalid]))?;
        let creation = Creation { id: new.id, tenant, partition: place.partition, by: actor.0.clone(), at: now };
        let (job, cursor) = job::create(creation, new.spec, known, &CRONS).map_err(StoreError::Invalid)?;
        let created = Created { job, cursor, replayed: false };
        if let Some(claim) = place.claim {
            homes.claim(&claim);
            claims.push(claim);
        }
        taken.insert(created.job.spec.name.clone());
        live += 1;
        family.made(&created);
        if !named.is_empty() {
            parents.insert(created.job.id, named);
        }
        Ok(created)
    };
    let answers = crate::flows::each_in_order(jobs, decide);
    Ok((answers, claims, parents))
}

/// The number of live jobs of the tenant. Locks the tenant until this transaction ends.
async fn hold_tenant(write: &mut Write, tenant: TenantId) -> Result<u64> {
    let held = || sqlx::query_scalar(sql!("tenant_held")).bind(tenant.raw());
    let live: Option<i64> = held().fetch_optional(&mut *write.tx).await.failed(DOING)?;
    let live = match live {
        Some(live) => live,
        // Only before the tenant's first job does the row not exist.
        None => {
            sqlx::query(sql!("add_tenant")).bind(tenant.raw()).execute(&mut *write.tx).await.failed(DOING)?;
            held().fetch_one(&mut *write.tx).await.failed(DOING)?
        }
    };
    Ok(live.unsigned_abs())
}

async fn insert(write: &mut Write, form: Form, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
    let jobs: Vec<&Job> = created.iter().map(|created| &created.job).collect();
    let jobs = || jobs.iter().copied();
    let listed: Vec<Listed> = jobs().map(|job| Listed::of(&job.spec, form)).collect();
    let specs: Vec<String> = jobs().map(|job| short::text(&job.spec, form)).collect::<Result<_>>()?;
    let ids = rows::job_ids(jobs().map(|job| job.id));
    let partitions: Vec<i16> = jobs().map(|job| rows::partition(job.partition)).collect();
    let told: Vec<bool> = created.iter().map(|created| is_announced(created.cursor, write.now)).collect();
    sqlx::query(sql!("create_jobs"))
        .bind(&ids)
        .bind(jobs().map(|job| job.spec.name.as_str()).collect::<Vec<_>>())
        .bind(specs)
        .bind(listed.iter().map(|listed| listed.enabled).collect::<Vec<_>>())
        .bind(listed.iter().map(|listed| listed.target).collect::<Vec<_>>())
        .bind(listed.iter().map(|listed| listed.labels.as_str()).collect::<Vec<_>>())
        .bind(listed.iter().map(|listed| listed.search.as_str()).collect::<Vec<_>>())
        .bind(tenant.raw())
        .bind(&*rows::text(&actor.0))
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    sqlx::query(sql!("create_epochs"))
        .bind(&ids)
        .bind(&partitions)
        .bind(tenant.raw())
        .bind(write.now.millis())
        .bind(jobs().map(|job| job.spec.target.queue()).collect::<Vec<_>>())
        .bind(jobs().map(|job| job.spec.is_guarded()).collect::<Vec<_>>())
        .bind(&told)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    sqlx::query(sql!("create_cursors"))
        .bind(&ids)
        .bind(&partitions)
        .bind(created.iter().map(|created| created.cursor.map(DbTime::millis)).collect::<Vec<_>>())
        .bind(tenant.raw())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    calendars::used(write, tenant, jobs().map(|job| (job.id, &*job.spec))).await?;
    sqlx::query(sql!("add_jobs_count"))
        .bind(tenant.raw())
        .bind(rows::limit(created.len()))
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    if told.contains(&true) {
        range::notify(write).await?;
    }
    note(write, tenant, actor, "create", &facts::created(&jobs().collect::<Vec<_>>())).await
}

/// The values by which lists filter jobs, in columns of their own, so that no list reads a definition.
pub(super) struct Listed {
    pub enabled: bool,
    pub target: &'static str,
    pub labels: String,
    pub search: String,
}

impl Listed {
    pub(super) fn of(spec: &JobSpec, form: Form) -> Self {
        let labels: serde_json::Map<_, _> = spec
            .labels
            .iter()
            .map(|(key, value)| (rows::text(key).into_owned(), rows::text(value).into_owned().into()))
            .collect();
        let search = match form {
            Form::Whole => format!("{}\n{}", spec.name, spec.description).to_lowercase(),
            // The name is searched in its own column.
            Form::Short => spec.description.to_lowercase(),
        };
        Self {
            enabled: spec.enabled,
            target: spec.target.kind(),
            labels: serde_json::Value::Object(labels).to_string(),
            search: rows::text(&search).into_owned(),
        }
    }
}

async fn load(write: &mut Write, id: JobId) -> Result<Option<Created>> {
    let found = horizon::job_rows(&mut write.tx, &write.unreadable, &[id], DOING).await?;
    Ok(found.into_iter().next().map(|row| Created { job: row.job, cursor: row.cursor, replayed: true }))
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
        .bind(&*rows::text(&actor.0))
        .bind(action)
        .bind(audit.iter().map(|(subject, _)| subject.clone()).collect::<Vec<_>>())
        .bind(audit.iter().map(|(_, detail)| detail.clone()).collect::<Vec<_>>())
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

/// Serializes requests under one key until the transaction ends.
pub(super) async fn hold_key(write: &mut Write, tenant: TenantId, idempotency: Option<&IdempotencyKey>) -> Result<()> {
    let Some(asked) = idempotency else { return Ok(()) };
    sqlx::query(sql!("request_lock"))
        .bind(i64::from(tenant.raw()))
        .bind(&asked.key)
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
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
