//! Redrives failed runs: creates a waiting run for each, under an id derived from the failed run's id.

use std::collections::HashMap;

use everytick_domain::{
    ids::{RunId, TenantId},
    invalid::Invalid,
    job::Overlap,
    queue::lead,
    time::DbTime,
};

use super::{Failed, PostgresStore, Write, create, edit, horizon, range, request, rows, sql};
use crate::{Actor, Redrive, Redriven, Result, RunRecord, StoreError};

pub(super) async fn redrive(store: &PostgresStore, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
    let mut write = store.write("redrive failed runs").await?;
    let done = drive(&mut write, store.limits.open_requests_per_job_max, tenant, actor, ask).await;
    write.finish(done).await
}

async fn drive(write: &mut Write, max: u64, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
    let doing = write.doing;
    let statement = request::holds(write, tenant, &ask.job).await?;
    let job = edit::hold(write, statement, tenant, &ask.job).await?.job;
    let closed: i64 = sqlx::query_scalar(sql!("days_closed")).fetch_one(&mut *write.tx).await.failed(doing)?;
    let (from, to) = ask.ids();
    let from = from.max(RunId::floor(DbTime::from_millis(closed)));
    // Without runs that outlived their day: the day's table for a new run no longer exists.
    let found = sqlx::query(sql!("redrive_failed"))
        .bind(job.id.uuid())
        .bind(from.uuid())
        .bind(to.uuid())
        .bind(rows::limit(ask.limit.saturating_add(1)))
        .bind(job.spec.concurrency_key.is_some())
        .fetch_all(&mut *write.tx)
        .await
        .failed(doing)?;
    let failed = write.unreadable.each("runs", &found, rows::run);
    let keys: HashMap<_, _> = failed.iter().map(|run| (run.id, job.spec.key_of(run.payload.as_deref()))).collect();
    let failed: Vec<_> = failed.into_iter().map(|run| RunRecord { payload: None, ..run }).collect();
    let places = failed.iter().map(|run| RunId::redriven(job.id, run.id));
    let found =
        sqlx::query(sql!("run_states")).bind(rows::run_ids(places)).fetch_all(&mut *write.tx).await.failed(doing)?;
    let mut states = HashMap::new();
    for row in &found {
        states.insert(rows::run_id(row, "id").failed(doing)?, rows::state(row).failed(doing)?);
    }
    let waits = request::waiting(write, job.id, max).await?;
    let counted = (job.spec.overlap == Overlap::CancelPrevious).then_some(&job);
    let open = horizon::open_runs(&mut write.tx, counted, write.now, doing).await?.remove(&job.id);
    let (room, full) = Redriven::room(&job.spec, open.map_or(0, |open| open.len()), waits, max);
    let name = job.spec.name.clone();
    let redriven = Redriven::plan((job.id, name), ask, failed, room, |run| states.get(&run).copied());
    if redriven.runs.is_empty() && redriven.next_since.is_some() {
        return Err(StoreError::Invalid(vec![Invalid::new("job", full)]));
    }
    let (failed, made): (Vec<_>, Vec<_>) = redriven.to_make().unzip();
    let made_keys: Vec<Option<String>> = failed.iter().map(|run| keys.get(run).cloned().flatten()).collect();
    let queue = job.spec.target.queue();
    if made.is_empty() {
        return Ok(redriven);
    }
    sqlx::query(sql!("redrive_runs"))
        .bind(rows::run_ids(failed))
        .bind(rows::run_ids(made))
        .bind(write.now.millis())
        .bind(rows::partition(job.partition))
        .bind(i16::from(job.spec.priority))
        .bind(queue)
        .bind(queue.map(|_| write.now.millis() - lead(job.spec.priority, true)))
        .bind(made_keys)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(doing)?;
    if matches!(job.spec.overlap, Overlap::Queue { .. }) {
        range::raise_epoch(write, job.id).await?;
    }
    range::notify(write).await?;
    create::note(write, tenant, actor, "redrive", &redriven.audit()).await?;
    Ok(redriven)
}
