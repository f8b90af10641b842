//! Writes settlements, each only if run, state and fence still match the claim (I7). Those that end their runs take one
//! update per day's table. For the others, the runs are locked first, because the stored attempt is taken from the
//! run's previous values.

use std::collections::{HashMap, HashSet};

use everytick_domain::{
    ids::{Fence, RunId},
    queue::lead,
    run::Verdict,
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, days, flow_runs, is_locked, lost, mutants, rows};
use crate::tx::Tx as _;
use crate::{Result, Settle, SettleAnswer, StoreError, failures::error_hash};

const DOING: &str = "settle runs";

pub(super) async fn settle(store: &PostgresStore, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
    if settles.is_empty() {
        return Ok(Vec::new());
    }
    let settles = &*mutants::any_fence(store, settles).await?;
    let Done { settled, locked } = with_known_days(store, || settle_free(store, settles)).await?;
    // If a run occurs twice, the first entry settles it; after that the claim no longer exists.
    let mut seen = HashSet::new();
    let answer = |settle: &Settle| {
        let (run, fence) = (settle.settlement.run, settle.settlement.fence);
        if locked.contains(&(run, fence)) {
            SettleAnswer::Locked
        } else if settled.get(&run) == Some(&fence) && seen.insert(run) {
            SettleAnswer::Settled
        } else {
            SettleAnswer::Stale
        }
    };
    Ok(settles.iter().map(answer).collect())
}

/// The result of a batch of settlements.
#[derive(Default)]
struct Done {
    /// The settled runs, each with the fence of its claim.
    settled: HashMap<RunId, Fence>,
    /// Runs that another session has locked.
    locked: HashSet<(RunId, Fence)>,
}

/// Settles the batch. If a row of it is locked, settles the others. The first statement takes no locks beforehand,
/// because every batch would pay for what one in a million needs.
async fn settle_free(store: &PostgresStore, settles: &[Settle]) -> Result<Done> {
    match settle_all(store, settles, false).await {
        Err(error) if is_locked(&error) => settle_all(store, settles, true).await,
        done => done,
    }
}

/// Runs the call, and repeats it once if a known day was dropped by another node.
pub(super) async fn with_known_days<T, F: Future<Output = Result<T>>>(
    store: &PostgresStore,
    run: impl Fn() -> F,
) -> Result<T> {
    match run().await {
        Err(StoreError::Failed { source, .. }) if is_without_table(&source) => {
            days::look(store).await?;
            run().await
        }
        done => done,
    }
}

fn is_without_table(source: &crate::Source) -> bool {
    source.downcast_ref::<sqlx::Error>().and_then(super::code).as_deref() == Some("42P01")
}

/// Settles the batch in one transaction. A failed one is rolled back before this returns: a repeat on another
/// connection must not find the rows locked by the transaction that it repeats.
async fn settle_all(store: &PostgresStore, settles: &[Settle], skip_locked: bool) -> Result<Done> {
    let mut write = store.write_brief(DOING).await?;
    let done = settle_in(store, &mut write, settles, skip_locked).await;
    write.finish(done).await
}

async fn settle_in(store: &PostgresStore, write: &mut DbTx, settles: &[Settle], skip_locked: bool) -> Result<Done> {
    let mut done = Done::default();
    // Two settlements may name one run under different fences; at most one of them matches.
    let mut seen = HashSet::new();
    let each = settles.iter().filter(|settle| seen.insert((settle.settlement.run, settle.settlement.fence)));
    for (table, mut of_table) in store.by_table(each.collect(), |settle| settle.settlement.run) {
        if skip_locked {
            done.locked.extend(locked_elsewhere(write, &table, &of_table).await?);
            of_table.retain(|settle| !done.locked.contains(&(settle.settlement.run, settle.settlement.fence)));
        }
        let (ended, back): (Vec<&Settle>, Vec<&Settle>) =
            of_table.into_iter().partition(|settle| settle.settlement.verdict.is_terminal());
        if !ended.is_empty() {
            end(write, &table, &ended, &mut done.settled).await?;
        }
        if !back.is_empty() {
            put_back(write, &table, &back, &mut done.settled).await?;
        }
    }
    let ended = settles.iter().filter(|settle| done.settled.contains_key(&settle.settlement.run));
    lost::unlist(write, Settle::listed(ended)).await?;
    Ok(done)
}

/// Locks those of the runs that no other session has locked, and returns the others.
async fn locked_elsewhere(write: &mut DbTx, table: &str, settles: &[&Settle]) -> Result<Vec<(RunId, Fence)>> {
    let found: Vec<(Uuid, i64)> = sqlx::query_as(day_sql!("settle/settle_locked", table))
        .bind(rows::run_ids(settles.iter().map(|settle| settle.settlement.run)))
        .bind(settles.iter().map(|settle| settle.settlement.fence.raw()).collect::<Vec<_>>())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    Ok(found.into_iter().map(|(run, fence)| (RunId::from_uuid(run), Fence::from_raw(fence))).collect())
}

async fn end(write: &mut DbTx, table: &str, settles: &[&Settle], settled: &mut HashMap<RunId, Fence>) -> Result<()> {
    let settlements = || settles.iter().map(|settle| &settle.settlement);
    let row = sqlx::query(day_sql!("settle/settle_terminal", table))
        .bind(rows::run_ids(settlements().map(|settlement| settlement.run)))
        .bind(settlements().map(|settlement| settlement.fence.raw()).collect::<Vec<_>>())
        .bind(settlements().map(|settlement| settlement.verdict.state().code()).collect::<Vec<_>>())
        .bind(rows::unless_all(settles.iter().map(|settle| rows::or_none(settle.started_at)), &rows::or_none(None)))
        .bind(settles.iter().map(|settle| settle.ended_at.millis()).collect::<Vec<_>>())
        .bind(rows::unless_all(settlements().map(|settlement| rows::text_of(settlement.error.as_ref())), &None))
        .bind(rows::unless_all(settlements().map(|settlement| rows::text_of(settlement.output.as_ref())), &None))
        .fetch_one(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    let some = |column| row.try_get::<Option<Vec<Uuid>>, _>(column).failed(DOING);
    end_claims(write, some("worked")?.unwrap_or_default()).await?;
    flow_runs::leave_steps(write, &some("steps")?.unwrap_or_default()).await?;
    let ended: Option<HashSet<Uuid>> = some("ids")?.map(|ended| ended.into_iter().collect());
    let failed = settles.iter().filter(|settle| {
        settle.settlement.verdict == Verdict::Failed
            && ended.as_ref().is_none_or(|ended| ended.contains(&settle.settlement.run.uuid()))
    });
    list_failures(write, failed.copied().collect()).await?;
    // Of two fences of one run, the higher one is current: a lower one was given up before.
    for settlement in
        settlements().filter(|settlement| ended.as_ref().is_none_or(|ended| ended.contains(&settlement.run.uuid())))
    {
        let fence = settled.entry(settlement.run).or_insert(settlement.fence);
        *fence = (*fence).max(settlement.fence);
    }
    Ok(())
}

/// Lists runs that have failed for good in `failures`, so that they are found without reading others.
async fn list_failures(write: &mut DbTx, failed: Vec<&Settle>) -> Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let hash = |settle: &&Settle| settle.settlement.error.as_deref().map(error_hash);
    write
        .execute(query!(
            "settle/failures_insert",
            rows::run_ids(failed.iter().map(|settle| settle.settlement.run)),
            failed.iter().map(|settle| settle.tenant.raw()).collect::<Vec<_>>(),
            rows::job_ids(failed.iter().map(|settle| settle.job)),
            failed.iter().map(hash).collect::<Vec<_>>()
        ))
        .await?;
    Ok(())
}

/// Makes runs wait again: retries, lost runs, and claims never sent.
async fn put_back(
    write: &mut DbTx,
    table: &str,
    settles: &[&Settle],
    settled: &mut HashMap<RunId, Fence>,
) -> Result<()> {
    let locked = sqlx::query(day_sql!("settle/lock_settled", table))
        .bind(rows::run_ids(settles.iter().map(|settle| settle.settlement.run)))
        .bind(settles.iter().map(|settle| settle.settlement.fence.raw()).collect::<Vec<_>>())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    if locked.is_empty() {
        return Ok(());
    }
    let now = write.read_clock().await?;
    let by_run: HashMap<(RunId, Fence), &Settle> =
        settles.iter().map(|settle| ((settle.settlement.run, settle.settlement.fence), *settle)).collect();
    let (mut attempts, mut back, mut worked) = (Attempts::default(), Back::default(), Vec::new());
    for row in &locked {
        let run = rows::run_id(row, "id").failed(DOING)?;
        let fence = Fence::from_raw(row.try_get("fence").failed(DOING)?);
        let Some(settle) = by_run.get(&(run, fence)) else { continue };
        let settlement = &settle.settlement;
        let Some(requeue) = settlement.verdict.requeue(now) else { continue };
        if let Some(outcome) = requeue.attempt {
            attempts.run.push(run.uuid());
            attempts.tenant.push(row.try_get("tenant").failed(DOING)?);
            attempts.attempt.push(row.try_get("attempt").failed(DOING)?);
            attempts.fence.push(fence.raw());
            attempts.node.push(row.try_get("node").failed(DOING)?);
            attempts.worker.push(row.try_get("worker").failed(DOING)?);
            let began = rows::time(row, "started_at").failed(DOING)?;
            attempts.started_at.push(settle.started_at.or(began).map(DbTime::millis));
            attempts.finished_at.push(settle.ended_at.millis());
            attempts.outcome.push(outcome.to_owned());
            attempts.error.push(rows::texts(settlement.error.as_ref()));
            attempts.output.push(rows::texts(settlement.output.as_ref()));
        }
        back.run.push(run.uuid());
        back.due_at.push(requeue.due_at.map(DbTime::millis));
        back.unspent.push(i32::from(requeue.attempt.is_none()));
        back.lost.push(i32::from(requeue.is_lost));
        back.error.push(rows::texts(settlement.error.as_ref()));
        back.priority.push(i16::from(settle.priority));
        back.lead.push(lead(settle.priority, false));
        back.late_lead.push(lead(settle.priority, true));
        if row.try_get::<Option<String>, _>("worker").failed(DOING)?.is_some() {
            worked.push(run.uuid());
        }
        settled.insert(run, fence);
    }
    attempts.insert(write).await?;
    sqlx::query(day_sql!("settle/settle_back", table))
        .bind(back.run)
        .bind(back.due_at)
        .bind(back.unspent)
        .bind(back.lost)
        .bind(back.error)
        .bind(back.priority)
        .bind(back.lead)
        .bind(back.late_lead)
        .bind(now.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    end_claims(write, worked).await
}

/// Ends the claims of workers and nodes on these cancelled runs. Keeps the workers' logs as output.
pub(super) async fn end_cancelled(write: &mut DbTx, runs: Vec<Uuid>) -> Result<()> {
    if !runs.is_empty() {
        write.execute(query!("worker_claims/worker_logs_kept", &runs)).await?;
        write.execute(query!("open_claims/claims_unlist", &runs)).await?;
    }
    end_claims(write, runs).await
}

/// Removes the workers' claims on these runs.
pub(super) async fn end_claims(write: &mut DbTx, runs: Vec<Uuid>) -> Result<()> {
    if !runs.is_empty() {
        write.execute(query!("worker_claims/worker_claims_end", runs)).await?;
    }
    Ok(())
}

/// Columns of `settle_back.sql`.
#[derive(Default)]
struct Back {
    run: Vec<Uuid>,
    due_at: Vec<Option<i64>>,
    unspent: Vec<i32>,
    lost: Vec<i32>,
    error: Vec<Option<String>>,
    priority: Vec<i16>,
    lead: Vec<i64>,
    late_lead: Vec<i64>,
}

/// Columns of `settle_attempts.sql`.
#[derive(Default)]
struct Attempts {
    run: Vec<Uuid>,
    attempt: Vec<i32>,
    fence: Vec<i64>,
    node: Vec<Option<String>>,
    started_at: Vec<Option<i64>>,
    finished_at: Vec<i64>,
    outcome: Vec<String>,
    error: Vec<Option<String>>,
    output: Vec<Option<String>>,
    worker: Vec<Option<String>>,
    tenant: Vec<i32>,
}

impl Attempts {
    async fn insert(self, write: &mut DbTx) -> Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        write
            .execute_or_refuse(query!(
                "settle/settle_attempts",
                self.run,
                self.attempt,
                self.fence,
                self.node,
                self.started_at,
                self.finished_at,
                self.outcome,
                self.error,
                self.output,
                self.worker,
                self.tenant
            ))
            .await?;
        Ok(())
    }
}
