//! Redrives failed runs: creates a waiting run for each, under an id derived from the failed run's id.

use std::collections::HashMap;

use everytick_domain::{
    ids::{RunId, TenantId},
    invalid::Invalid,
    job::Overlap,
};

use super::{Failed, SqliteStore, create, edit, horizon, range, record, record::Queued, request, rows, rows::Hex, sql};
use crate::{Actor, Redrive, Redriven, Result, RunRecord, StoreError};

const DOING: &str = "redrive failed runs";

pub(super) async fn redrive(store: &SqliteStore, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
    let mut write = store.write(DOING).await?;
    let job = edit::find(&mut write.tx, &write.unreadable, tenant, &ask.job, DOING).await?.job;
    let (from, to) = ask.ids();
    let found = sqlx::query(sql!("redrive_failed"))
        .bind(job.id.uuid())
        .bind(from.uuid())
        .bind(to.uuid())
        .bind(rows::limit(ask.limit.saturating_add(1)))
        .bind(job.spec.concurrency_key.is_some())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let failed = write.unreadable.each("runs", &found, rows::run);
    let keys: HashMap<_, _> = failed.iter().map(|run| (run.id, job.spec.key_of(run.payload.as_deref()))).collect();
    let failed: Vec<_> = failed.into_iter().map(|run| RunRecord { payload: None, ..run }).collect();
    let places = failed.iter().map(|run| RunId::redriven(job.id, run.id));
    let found = sqlx::query(sql!("run_states"))
        .bind(rows::run_ids(places).failed(DOING)?)
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let mut states = HashMap::new();
    for row in &found {
        states.insert(rows::run_id(row, "id").failed(DOING)?, rows::state(row).failed(DOING)?);
    }
    let max = store.limits.open_requests_per_job_max;
    let waits = request::waiting(&mut write, job.id, max).await?;
    let counted = (job.spec.overlap == Overlap::CancelPrevious).then_some(&job);
    let open = horizon::open_runs(&mut write.tx, counted, DOING).await?.remove(&job.id);
    let (room, full) = Redriven::room(&job.spec, open.map_or(0, |open| open.len()), waits, max);
    let name = job.spec.name.clone();
    let redriven = Redriven::plan((job.id, name), ask, failed, room, |run| states.get(&run).copied());
    if redriven.runs.is_empty() && redriven.next_since.is_some() {
        return Err(StoreError::Invalid(vec![Invalid::new("job", full)]));
    }
    let made: Vec<_> = redriven.to_make().collect();
    if made.is_empty() {
        return Ok(redriven);
    }
    let pairs: Vec<_> = made.iter().map(|(failed, run)| (Hex(failed.uuid()), Hex(run.uuid()))).collect();
    sqlx::query(sql!("redrive_runs"))
        .bind(rows::json(&pairs).failed(DOING)?)
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    let queued = |(failed, run): &(RunId, RunId)| Queued {
        run: *run,
        priority: job.spec.priority,
        late: true,
        key: keys.get(failed).and_then(Option::as_deref),
    };
    let queued: Vec<_> = made.iter().map(queued).collect();
    record::wait(&mut write, &queued, DOING).await?;
    if matches!(job.spec.overlap, Overlap::Queue { .. }) {
        range::raise_epoch(&mut write, job.id).await?;
    }
    create::note(&mut write, tenant, actor, "redrive", &redriven.audit()).await?;
    write.commit().await?;
    Ok(redriven)
}
