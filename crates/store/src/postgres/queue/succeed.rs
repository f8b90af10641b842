//! Runs that workers report as succeeded.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    run::{Settlement, State},
};
use sqlx::Row as _;

use super::super::{DbTx, Failed, PostgresStore, flow_runs, is_locked, rows, settle};
use crate::{Result, Success, queues::settle_successes};

const DOING: &str = "settle reported runs as succeeded";

pub(super) async fn succeed(store: &PostgresStore, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
    let mut ended = match settle::with_known_days(store, || end(store, tenant, done)).await {
        Err(error) if is_locked(&error) => HashMap::new(),
        ended => ended?,
    };
    // Locked runs, and runs whose log and output are joined first.
    let left: Vec<&Success> = done.iter().filter(|done| !ended.contains_key(&done.run)).collect();
    if !left.is_empty() {
        match settle_successes(store, tenant, &left).await {
            Ok(settled) => ended.extend(settled),
            // The others are committed, so this is no failure of the call. The caller settles these runs on its own.
            Err(error) if !ended.is_empty() => tracing::debug!(%error, "could not settle the rest of a batch"),
            Err(error) => return Err(error),
        }
    }
    Ok(done.iter().map(|done| ended.get(&done.run).copied()).collect())
}

async fn end(store: &PostgresStore, tenant: TenantId, done: &[Success]) -> Result<HashMap<RunId, JobId>> {
    let mut write = store.of(tenant).write_brief(DOING).await?;
    let done = end_in(store, &mut write, tenant, done).await;
    // Rolled back before the slower statements begin on another connection, which skips locked rows.
    write.finish(done).await
}

async fn end_in(
    store: &PostgresStore,
    write: &mut DbTx,
    tenant: TenantId,
    done: &[Success],
) -> Result<HashMap<RunId, JobId>> {
    let mut ended = HashMap::with_capacity(done.len());
    let settlements: Vec<Settlement> =
        done.iter().map(|done| Settlement::success(done.run, done.fence, done.output.clone())).collect();
    for (table, of_day) in store.by_table(settlements.iter().collect(), |settlement| settlement.run) {
        let found = sqlx::query(day_sql!("settle/succeed", &table))
            .bind(tenant.raw())
            .bind(rows::run_ids(of_day.iter().map(|settlement| settlement.run)))
            .bind(of_day.iter().map(|settlement| settlement.fence.raw()).collect::<Vec<_>>())
            .bind(rows::unless_all(of_day.iter().map(|settlement| rows::text_of(settlement.output.as_ref())), &None))
            .fetch_all(&mut *write.tx)
            .await
            .failed_or_refused(DOING)?;
        let mut steps = Vec::new();
        for row in &found {
            let run = rows::run_id(row, "id").failed(DOING)?;
            ended.insert(run, rows::job_id(row, "job").failed(DOING)?);
            if row.try_get("steps").failed(DOING)? {
                steps.push(run.uuid());
            }
        }
        flow_runs::leave_steps(write, &steps).await?;
    }
    Ok(ended)
}

// The state that `succeed.sql` writes.
const _: () = assert!(State::Succeeded.code() == 2);
