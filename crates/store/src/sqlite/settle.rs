//! Writes settlements, each only if run, state and fence still match the claim (I7). A batch that only ends runs is one
//! update. Only if some entries were stale does a second statement read which.

use std::collections::HashSet;

use everytick_domain::{ids::RunId, run::Verdict, time::DbTime};
use serde::Serialize;

use super::{
    DbTx, Failed, SqliteStore, flow_runs, lost,
    record::{self, Queued},
    rows::{self, Hex},
};
use crate::{Result, Settle, SettleAnswer, failures::error_hash};

const DOING: &str = "settle runs";

pub(super) async fn settle(store: &SqliteStore, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
    if settles.is_empty() {
        return Ok(Vec::new());
    }
    let mut write = store.write(DOING).await?;
    let all: Vec<&Settle> = settles.iter().collect();
    if all.iter().all(|settle| settle.settlement.verdict.is_terminal()) {
        sqlx::query("savepoint batch").execute(&mut *write.tx).await.failed(DOING)?;
        if end(&mut write, &all).await? == all.len() as u64 {
            end_claims(&mut write, all.iter().map(|settle| settle.settlement.run)).await?;
            lost::unlist(&mut write, Settle::listed(settles)).await?;
            flow_runs::leave_steps(&mut write, all.iter().map(|settle| settle.settlement.run)).await?;
            list_failures(&mut write, &all).await?;
            write.commit().await?;
            return Ok(vec![SettleAnswer::Settled; all.len()]);
        }
        sqlx::query("rollback to batch").execute(&mut *write.tx).await.failed(DOING)?;
    }
    let answers = answers(&mut write, &all).await?;
    let locked =
        all.iter().zip(&answers).filter(|(_, answer)| **answer == SettleAnswer::Settled).map(|(settle, _)| *settle);
    let (ended, back): (Vec<_>, Vec<_>) = locked.partition(|settle| settle.settlement.verdict.is_terminal());
    if !ended.is_empty() {
        end(&mut write, &ended).await?;
        flow_runs::leave_steps(&mut write, ended.iter().map(|settle| settle.settlement.run)).await?;
        list_failures(&mut write, &ended).await?;
    }
    if !back.is_empty() {
        put_back(&mut write, &back).await?;
    }
    let settled = ended.iter().chain(&back).map(|settle| settle.settlement.run);
    end_claims(&mut write, settled).await?;
    lost::unlist(&mut write, Settle::listed(ended.into_iter().chain(back))).await?;
    write.commit().await?;
    Ok(answers)
}

/// The row that `settle_terminal.sql` reads: id, fence, state, started_at, ended_at, error, output.
#[derive(Serialize)]
struct End<'a>(Hex, i64, i16, Option<i64>, i64, Option<rows::Text<'a>>, Option<rows::Text<'a>>);

async fn end(write: &mut DbTx, settles: &[&Settle]) -> Result<u64> {
    let ends: Vec<_> = settles.iter().filter_map(|settle| ended(settle)).collect();
    let ended = write.execute_or_refuse(query!("settle/settle_terminal", rows::json(&ends))).await?;
    Ok(ended)
}

/// Lists those of the runs that have failed for good in `failures`, so that they are found without reading others.
async fn list_failures(write: &mut DbTx, ended: &[&Settle]) -> Result<()> {
    let failure = |settle: &&&Settle| {
        let settlement = &settle.settlement;
        (
            Hex(settlement.run.uuid()),
            settle.tenant.raw(),
            Hex(settle.job.uuid()),
            settlement.error.as_deref().map(error_hash),
        )
    };
    let failed = ended.iter().filter(|settle| settle.settlement.verdict == Verdict::Failed);
    let failed: Vec<_> = failed.map(|settle| failure(&settle)).collect();
    if failed.is_empty() {
        return Ok(());
    }
    write.execute(query!("settle/failures_insert", rows::json(&failed))).await?;
    Ok(())
}

/// `None` if the verdict does not end the run.
fn ended(settle: &Settle) -> Option<End<'_>> {
    let settlement = &settle.settlement;
    settlement.verdict.is_terminal().then(|| {
        End(
            Hex(settlement.run.uuid()),
            settlement.fence.raw(),
            settlement.verdict.state().code(),
            settle.started_at.map(DbTime::millis),
            settle.ended_at.millis(),
            settlement.error.as_deref().map(rows::text),
            settlement.output.as_deref().map(rows::text),
        )
    })
}

async fn answers(write: &mut DbTx, settles: &[&Settle]) -> Result<Vec<SettleAnswer>> {
    let asked: Vec<_> =
        settles.iter().map(|settle| (Hex(settle.settlement.run.uuid()), settle.settlement.fence.raw())).collect();
    let locked: Vec<i64> = write.scalars(query!("settle/lock_settled", rows::json(&asked))).await?;
    let locked: HashSet<usize> = locked.into_iter().filter_map(|key| usize::try_from(key).ok()).collect();
    // If a run occurs twice, the first entry settles it; after that the claim no longer exists.
    let mut seen = HashSet::new();
    let answer = |(place, settle): (usize, &&Settle)| {
        if locked.contains(&place) && seen.insert(settle.settlement.run) {
            SettleAnswer::Settled
        } else {
            SettleAnswer::Stale
        }
    };
    Ok(settles.iter().enumerate().map(answer).collect())
}

/// Makes runs wait again: retries, lost runs, and claims never sent.
async fn put_back(write: &mut DbTx, settles: &[&Settle]) -> Result<()> {
    let (mut attempts, mut back, mut queued) = (Vec::new(), Vec::new(), Vec::new());
    for settle in settles {
        let settlement = &settle.settlement;
        let id = Hex(settlement.run.uuid());
        let error = || settlement.error.as_deref().map(rows::text);
        let Some(requeue) = settlement.verdict.requeue(write.now) else { continue };
        if let Some(outcome) = requeue.attempt {
            let output = settlement.output.as_deref().map(rows::text);
            let started_at = settle.started_at.map(DbTime::millis);
            attempts.push((id, outcome, started_at, settle.ended_at.millis(), error(), output));
        }
        let (unspent, lost) = (i32::from(requeue.attempt.is_none()), i32::from(requeue.is_lost));
        back.push((id, requeue.due_at.map(DbTime::millis), unspent, lost, error()));
        queued.push(Queued { run: settlement.run, priority: settle.priority, key: None });
    }
    if !attempts.is_empty() {
        write.execute_or_refuse(query!("settle/settle_attempts", rows::json(&attempts))).await?;
    }
    write.execute_or_refuse(query!("settle/settle_back", rows::json(&back))).await?;
    record::wait(write, &queued).await
}

/// Ends the claims of workers and nodes on these cancelled runs. Keeps the workers' logs as output.
pub(super) async fn end_cancelled(write: &mut DbTx, runs: impl Iterator<Item = RunId> + Clone) -> Result<()> {
    write.execute(query!("worker_claims/worker_logs_kept", rows::run_ids(runs.clone()))).await?;
    lost::unlist(write, runs.clone().collect()).await?;
    end_claims(write, runs).await
}

/// Removes the workers' claims on these runs.
pub(super) async fn end_claims(write: &mut DbTx, runs: impl Iterator<Item = RunId>) -> Result<()> {
    let any: bool = write.scalar(query!("worker_claims/worker_claims_any")).await?;
    if any {
        write.execute(query!("worker_claims/worker_claims_end", rows::run_ids(runs))).await?;
    }
    Ok(())
}
