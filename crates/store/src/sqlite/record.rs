//! Records ticks. A batch is one insert. Only if some of its rows were left out does a second statement read which
//! rows and why.

use std::collections::{BTreeSet, HashSet};

use everytick_domain::{
    ids::{Fence, RunId},
    plan::Fate,
    queue::lead,
    run::State,
    time::DbTime,
};
use uuid::Uuid;

use super::{
    DbTx, Failed, SqliteStore, lease, lost,
    rows::{self, Hex, Json},
};
use crate::{JobTicks, Lease, OldClaim, RecordRow, Recorded, Result, RowAnswer};

const DOING: &str = "record ticks";

pub(super) async fn record(store: &SqliteStore, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded> {
    let mut write = store.write(DOING).await?;
    let open_from = lease::lock_lease(&mut write, lease).await?;
    let jobs = insert_ticks(&mut write, Some(lease), batch).await?;
    let now = write.now;
    lost::list(&mut write, lease, &born_below(batch, &jobs, open_from, now)).await?;
    write.commit().await?;
    Ok(Recorded { now, jobs })
}

/// The inserted ticks that are born claimed and have ids below the lease's `open_from`. A tick that was recorded before
/// may be claimed by another incarnation, whose row in `open_claims` must stay.
fn born_below(batch: &[JobTicks], answers: &[Vec<RowAnswer>], open_from: RunId, now: DbTime) -> Vec<OldClaim> {
    let answered = batch.iter().zip(answers);
    let rows = answered
        .flat_map(|(ticks, of_job)| ticks.rows.iter().zip(of_job).map(move |(row, answer)| (ticks, row, answer)));
    let born = rows
        .filter(|(_, row, answer)| **answer == RowAnswer::Inserted && row.born_claimed && row.tick.id < open_from)
        .map(|(ticks, row, _)| (ticks, row));
    let claim = |(ticks, row): (&JobTicks, &RecordRow)| OldClaim {
        run: row.tick.id,
        job: ticks.job,
        tenant: ticks.tenant,
        fence: Fence::default().raised(now),
    };
    born.map(claim).collect()
}

/// Inserts the rows that pass the guards and returns the answer for each. Rows are born claimed only under a lease.
pub(super) async fn insert_ticks(
    write: &mut DbTx,
    lease: Option<&Lease>,
    batch: &[JobTicks],
) -> Result<Vec<Vec<RowAnswer>>> {
    let all: Vec<(&JobTicks, &RecordRow)> =
        batch.iter().flat_map(|ticks| ticks.rows.iter().map(move |row| (ticks, row))).collect();
    sqlx::query("savepoint batch").execute(&mut *write.tx).await.failed(DOING)?;
    let answers = if insert(write, lease, &all).await? == all.len() as u64 {
        enqueue(write, lease, &all).await?;
        vec![RowAnswer::Inserted; all.len()]
    } else {
        sqlx::query("rollback to batch").execute(&mut *write.tx).await.failed(DOING)?;
        let answers = answers(write, lease, &all).await?;
        let sound: Vec<_> = all
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| **answer == RowAnswer::Inserted)
            .map(|(row, _)| *row)
            .collect();
        insert(write, lease, &sound).await?;
        enqueue(write, lease, &sound).await?;
        answers
    };
    sqlx::query("release batch").execute(&mut *write.tx).await.failed(DOING)?;
    let mut answers = answers.into_iter();
    Ok(batch.iter().map(|ticks| answers.by_ref().take(ticks.rows.len()).collect()).collect())
}

fn state(lease: Option<&Lease>, row: &RecordRow) -> State {
    match row.tick.fate {
        Fate::Skip(_) => State::Skipped,
        Fate::Run | Fate::Late if row.born_claimed && lease.is_some() => State::Claimed,
        Fate::Run | Fate::Late => State::Waiting,
    }
}

/// Each tick as a string of fixed-width fields, as `record.sql` parses it: id, job, state, late, reason, tick, due_at,
/// epoch.
fn ticks(lease: Option<&Lease>, all: &[(&JobTicks, &RecordRow)]) -> Json {
    let tick = |(ticks, row): &(&JobTicks, &RecordRow)| {
        let reason = match row.tick.fate {
            Fate::Skip(reason) => reason.code(),
            Fate::Run | Fate::Late => 0,
        };
        format!(
            "{}{}{:1}{:1}{reason:02}{:020}{:020}{}",
            row.tick.id.uuid().as_simple(),
            ticks.job.uuid().as_simple(),
            state(lease, row).code(),
            u8::from(row.tick.fate == Fate::Late),
            row.tick.at.millis(),
            row.tick.due_at.millis(),
            ticks.epoch.raw(),
        )
    };
    rows::json(&all.iter().map(tick).collect::<Vec<_>>())
}

async fn insert(write: &mut DbTx, lease: Option<&Lease>, all: &[(&JobTicks, &RecordRow)]) -> Result<u64> {
    let inserted = write
        .execute_or_refuse(query!(
            "record/record",
            ticks(lease, all),
            write.now.millis(),
            lease.map(|lease| lease.node.as_str()),
            lease.map(|lease| lease.incarnation.uuid())
        ))
        .await?;
    Ok(inserted)
}

async fn enqueue(write: &mut DbTx, lease: Option<&Lease>, inserted: &[(&JobTicks, &RecordRow)]) -> Result<()> {
    let waiting: Vec<_> = inserted
        .iter()
        .filter(|(_, row)| state(lease, row) == State::Waiting)
        .map(|(ticks, row)| Queued { run: row.tick.id, priority: ticks.priority, key: ticks.key.as_deref() })
        .collect();
    wait(write, &waiting).await
}

/// Inserts ticks that were lost.
pub(super) async fn insert_repaired(tx: &mut DbTx, ticks: &JobTicks) -> Result<()> {
    insert_edited(tx, ticks).await.map(drop)
}

/// Inserts the last ticks of a definition that an edit ends, or ticks that were lost. Returns those that had no row. It
/// has no recording guards: the caller decided in this write transaction, and the cursor may already have passed an
/// `at` of a moment ago.
pub(super) async fn insert_edited(write: &mut DbTx, due: &JobTicks) -> Result<BTreeSet<RunId>> {
    if due.rows.is_empty() {
        return Ok(BTreeSet::new());
    }
    let all: Vec<(&JobTicks, &RecordRow)> = due.rows.iter().map(|row| (due, row)).collect();
    let inserted: Vec<Uuid> = sqlx::query_scalar(sql!("record/edit_ticks"))
        .bind(ticks(None, &all))
        .bind(write.now.millis())
        .bind(due.tenant.raw())
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    let inserted: BTreeSet<RunId> = inserted.into_iter().map(RunId::from_uuid).collect();
    let new: Vec<_> = all.into_iter().filter(|(_, row)| inserted.contains(&row.tick.id)).collect();
    enqueue(write, None, &new).await?;
    Ok(inserted)
}

/// A run to enqueue.
pub(super) struct Queued<'a> {
    pub run: RunId,
    pub priority: u8,
    pub key: Option<&'a str>,
}

/// Enqueues runs with the values of their rows, in the queue of their job if it has one.
pub(super) async fn wait(write: &mut DbTx, runs: &[Queued<'_>]) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let queued: Vec<_> = runs
        .iter()
        .map(|queued| {
            let (lead, late_lead) = (lead(queued.priority, false), lead(queued.priority, true));
            (Hex(queued.run.uuid()), queued.priority, lead, late_lead, queued.key.map(rows::text))
        })
        .collect();
    write.execute_or_refuse(query!("waiting/enqueue", rows::json(&queued), write.now.millis())).await?;
    Ok(())
}

async fn answers(write: &mut DbTx, lease: Option<&Lease>, all: &[(&JobTicks, &RecordRow)]) -> Result<Vec<RowAnswer>> {
    let found: Vec<i64> = write.scalars(query!("record/record_answers", ticks(lease, all), write.now.millis())).await?;
    let mut seen = HashSet::new();
    let answer = |(answer, (_, row)): (i64, &(&JobTicks, &RecordRow))| match answer {
        0 if seen.insert(row.tick.id) => RowAnswer::Inserted,
        0 | 1 => RowAnswer::Existed,
        2 => RowAnswer::Early,
        _ => RowAnswer::Stale,
    };
    Ok(found.into_iter().zip(all).map(answer).collect())
}
