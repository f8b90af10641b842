//! Claims whose receivers have accepted the work and report later. They no longer belong to the node that sent them,
//! and outlive it.

use std::collections::HashSet;

use everytick_domain::ids::RunId;
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, claim, is_locked, lease, lost, rows, settle};
use crate::{AcceptedRun, Lease, OldClaim, Result, SettleAnswer};

const DOING: &str = "transfer claims to receivers";

pub(super) async fn accept(store: &PostgresStore, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
    let Done { mut taken, locked } = settle::with_known_days(store, || take_free(store, lease, runs)).await?;
    // If a run occurs twice, the first entry transfers it.
    let answer = |run: &AcceptedRun| match locked.contains(&run.run) {
        true => SettleAnswer::Locked,
        false => SettleAnswer::of(taken.remove(&run.run)),
    };
    Ok(runs.iter().map(answer).collect())
}

/// The result of a batch.
#[derive(Default)]
struct Done {
    taken: HashSet<RunId>,
    /// Runs that another session has locked.
    locked: HashSet<RunId>,
}

/// Transfers the batch. If a row of it is locked, transfers the others.
async fn take_free(store: &PostgresStore, lease: &Lease, runs: &[AcceptedRun]) -> Result<Done> {
    match take(store, lease, runs, false).await {
        Err(error) if is_locked(&error) => take(store, lease, runs, true).await,
        done => done,
    }
}

/// Transfers in one transaction. A failed one is rolled back before this returns, so that the repeat does not wait for
/// its locks.
async fn take(store: &PostgresStore, lease: &Lease, runs: &[AcceptedRun], skip_locked: bool) -> Result<Done> {
    let mut write = store.write_brief(DOING).await?;
    let done = take_in(store, &mut write, lease, runs, skip_locked).await;
    write.finish(done).await
}

async fn take_in(
    store: &PostgresStore,
    write: &mut DbTx,
    lease: &Lease,
    runs: &[AcceptedRun],
    skip_locked: bool,
) -> Result<Done> {
    lease::lock_lease(write, lease).await?;
    let mut done = Done::default();
    for (table, mut runs) in store.by_table(runs.iter().collect(), |run| run.run) {
        if skip_locked {
            let free = claim::free(write, &table, runs.iter().map(|run| run.run).collect()).await?;
            let free: HashSet<RunId> = free.into_iter().collect();
            done.locked.extend(runs.iter().map(|run| run.run).filter(|run| !free.contains(run)));
            runs.retain(|run| free.contains(&run.run));
        }
        let found: Vec<Uuid> = sqlx::query_scalar(day_sql!("settle/accept", &table))
            .bind(lease.incarnation.uuid())
            .bind(rows::run_ids(runs.iter().map(|run| run.run)))
            .bind(runs.iter().map(|run| run.fence.raw()).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.worker.clone()).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.timeout_at.millis()).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.previous).collect::<Vec<_>>())
            .fetch_all(&mut *write.tx)
            .await
            .failed_or_refused(DOING)?;
        done.taken.extend(found.into_iter().map(RunId::from_uuid));
    }
    let now = write.now;
    let listed = done.taken.iter().copied().filter(|run| OldClaim::may_be_listed(*run, now)).collect();
    lost::unlist(write, listed).await?;
    Ok(done)
}
