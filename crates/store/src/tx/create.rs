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
    job::{self, Creation, Job},
    secret::SecretRules,
    time::DbTime,
};

use super::{
    Tx,
    edges::{self, Family},
    invalid,
    requests::{self, Kind},
    secret,
    tenant::check_quota,
};
use crate::{Actor, Created, IdempotencyKey, NewJob, Result, StoreError, crons::CRONS, facts};

pub async fn create_jobs<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    jobs: Vec<NewJob>,
    key: Option<&IdempotencyKey>,
) -> Result<Vec<Result<Created>>> {
    // A key identifies one job, so it cannot be used for a list.
    let key = key.filter(|_| jobs.len() == 1);
    let regions: Vec<&str> = jobs.iter().filter_map(|new| new.spec.home_region.as_deref()).collect();
    let homes = tx.lock_homes(&regions).await?;
    let excluded: Vec<String> = jobs.iter().flat_map(|new| new.spec.exclude()).cloned().collect();
    tx.lock_calendars(tenant, &excluded).await?;
    let calendars = tx.calendars_named(tenant, &excluded).await?;
    let secrets = secret::known_to(tx, tenant, jobs.iter().map(|new| &new.spec)).await?;
    // The lock serializes creates of one tenant: names stay unique, the quota is kept, and a key is used once.
    let locked = tx.lock_tenant(tenant).await?;
    locked.check_active()?;
    tx.read_clock().await?;
    match requests::replayed(tx, tenant, key, Kind::Job).await {
        Ok(Some(id)) => {
            if let Some(row) = tx.load_jobs(&[JobId::from_uuid(id)]).await?.pop() {
                return Ok(vec![Ok(Created { job: row.job, cursor: row.cursor, replayed: true })]);
            }
        }
        Ok(None) => {}
        Err(StoreError::KeyReused) => return Ok(vec![Err(StoreError::KeyReused)]),
        Err(error) => return Err(error),
    }
    let names: Vec<String> = jobs.iter().map(|new| new.spec.name.clone()).collect();
    let mut create = Create {
        tenant,
        actor,
        now: tx.now(),
        live: locked.jobs,
        jobs_max: locked.quotas(tx.limits()).jobs,
        taken: tx.names_taken(tenant, &names).await?,
        calendars,
        secrets,
        homes,
        family: edges::of_new(tx, tenant, &jobs).await?,
        claims: Vec::new(),
        parents: HashMap::new(),
    };
    let answers = edges::each_in_order(jobs, |new| create.decide(new));
    let created: Vec<&Created> = answers.iter().flatten().collect();
    write(tx, &create, &created).await?;
    if let [created] = created[..] {
        requests::remember(tx, tenant, key, Kind::Job, created.job.id.uuid()).await?;
    }
    Ok(answers)
}

/// What decides whether a job is created. It changes with each job of the request.
struct Create<'a> {
    tenant: TenantId,
    actor: &'a Actor,
    now: DbTime,
    live: u64,
    jobs_max: Option<u64>,
    taken: HashSet<String>,
    calendars: Vec<Arc<Calendar>>,
    secrets: Vec<SecretRules>,
    homes: Homes,
    family: Family,
    claims: Vec<BlockClaim>,
    parents: HashMap<JobId, Vec<(JobId, When)>>,
}

impl Create<'_> {
    fn decide(&mut self, mut new: NewJob) -> Result<Created> {
        if self.taken.contains(&new.spec.name) {
            return Err(StoreError::NameTaken(new.spec.name));
        }
        check_quota("jobs", self.live, self.jobs_max)?;
        secret::check(&new.spec, &self.secrets)?;
        let parents = self.family.resolve(new.id, &mut new.spec)?;
        let place = self.homes.place(new.id, new.spec.home_region.as_deref()).map_err(invalid)?;
        let (id, tenant, partition) = (new.id, self.tenant, place.partition);
        let creation = Creation { id, tenant, partition, by: self.actor.name.clone(), at: self.now };
        let (job, cursor) = job::create(creation, new.spec, &self.calendars, &CRONS).map_err(StoreError::Invalid)?;
        let created = Created { job, cursor, replayed: false };
        if let Some(claim) = place.claim {
            self.homes.claim(&claim);
            self.claims.push(claim);
        }
        self.taken.insert(created.job.spec.name.clone());
        self.live += 1;
        self.family.made(&created);
        if !parents.is_empty() {
            self.parents.insert(id, parents);
        }
        Ok(created)
    }
}

async fn write<T: Tx + ?Sized>(tx: &mut T, create: &Create<'_>, created: &[&Created]) -> Result<()> {
    for claim in &create.claims {
        tx.claim_block(claim).await?;
    }
    if created.is_empty() {
        return Ok(());
    }
    tx.insert_jobs(create.tenant, create.actor, created).await?;
    let jobs: Vec<&Job> = created.iter().map(|created| &created.job).collect();
    for job in &jobs {
        if let Some(parents) = create.parents.get(&job.id) {
            tx.set_parents(job, parents).await?;
        }
    }
    tx.audit(create.tenant, create.actor, "create", &facts::created(&jobs)).await
}
