//! Records ticks. A batch is one statement. Only if some of its rows were left out does a second statement read which
//! rows and why. On a duplicate key the plain insert fails and is retried with `ON CONFLICT DO NOTHING`, which is slower.
//! The slower form also serves the rare batch with several ticks of one job, because the plain form would judge each of
//! them on its own.

use std::collections::{BTreeSet, HashMap, HashSet};

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    plan::{Fate, SkipRange, TickRow},
    queue::lead,
    run::{SkipReason, State},
    schedule::Schedule,
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{
    DbTx, Failed, PostgresStore,
    days::{self, Day},
    jobs, lease, lost, range, rows,
};
use crate::{JobTicks, Lease, OldClaim, RecordRow, Recorded, Result, RowAnswer, StoreError};

const DOING: &str = "record ticks";

type Ticks<'a> = Vec<(&'a JobTicks, &'a RecordRow)>;

pub(super) async fn record(store: &PostgresStore, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded> {
    let mut all: Ticks<'_> = batch.iter().flat_map(|ticks| ticks.rows.iter().map(move |row| (ticks, row))).collect();
    // In the order of jobs, so that locks are taken in that order. A job's ticks keep their order.
    all.sort_by_key(|(ticks, _)| ticks.job);
    let (now, found) = record_all(store, lease, &all).await?;
    let Some(found) = found else {
        let jobs = batch.iter().map(|ticks| vec![RowAnswer::Inserted; ticks.rows.len()]).collect();
        return Ok(Recorded { now, jobs });
    };
    let mut seen = HashSet::new();
    let answer = |row: &RecordRow| match found.get(&row.tick.id).copied().unwrap_or(RowAnswer::Stale) {
        RowAnswer::Inserted if !seen.insert(row.tick.id) => RowAnswer::Existed,
        answer => answer,
    };
    let answers: Vec<RowAnswer> = batch.iter().flat_map(|ticks| &ticks.rows).map(answer).collect();
    let mut answers = answers.into_iter();
    let jobs = batch.iter().map(|ticks| answers.by_ref().take(ticks.rows.len()).collect()).collect();
    Ok(Recorded { now, jobs })
}

/// How to send a batch.
#[derive(Clone, Copy)]
struct How {
    /// Some rows already exist, or several ticks belong to one job.
    again: bool,
    /// It claims runs below the lease's `open_from`, and a node of a release that does not read `open_claims` is alive.
    lowers: bool,
}

/// The answers for the rows of a batch; `None` if all were inserted.
type Answers = Option<HashMap<RunId, RowAnswer>>;

enum Tried {
    Done(DbTime, Answers),
    There,
    Below,
    NoDay,
}

async fn record_all(store: &PostgresStore, lease: &Lease, all: &Ticks<'_>) -> Result<(DbTime, Answers)> {
    let of_one_job = |pair: &[(&JobTicks, &RecordRow)]| pair[0].0.job == pair[1].0.job;
    let mut how = How { again: all.windows(2).any(of_one_job), lowers: false };
    let mut days_made = false;
    loop {
        match try_record(store, lease, all, how).await? {
            Tried::Done(now, answers) => return Ok((now, answers)),
            Tried::There => how.again = true,
            Tried::Below => how.lowers = true,
            Tried::NoDay if !days_made => {
                days_made = true;
                let days = days::make(store).await?;
                let is_old = |row: &RecordRow| days.lack(Day::of(row.tick.at));
                let old_jobs: HashSet<JobId> =
                    all.iter().filter(|(_, row)| is_old(row)).map(|(ticks, _)| ticks.job).collect();
                if old_jobs.is_empty() {
                    continue;
                }
                let (old, rest): (Ticks<'_>, Ticks<'_>) =
                    all.iter().partition(|(ticks, _)| old_jobs.contains(&ticks.job));
                for (_, ticks) in grouped(&old) {
                    skip_old(store, lease, &ticks.into_iter().filter(|(_, row)| is_old(row)).collect()).await?;
                }
                let (now, found) = Box::pin(record_all(store, lease, &rest)).await?;
                let found =
                    found.unwrap_or_else(|| rest.iter().map(|(_, row)| (row.tick.id, RowAnswer::Inserted)).collect());
                return Ok((now, Some(found)));
            }
            Tried::NoDay => {
                let source = "the table of the tick's day is missing".into();
                return Err(StoreError::Failed { doing: DOING, source });
            }
        }
    }
}

fn grouped<'a>(all: &Ticks<'a>) -> HashMap<JobId, Ticks<'a>> {
    let mut jobs: HashMap<JobId, Ticks<'a>> = HashMap::new();
    for (ticks, row) in all {
        jobs.entry(ticks.job).or_default().push((ticks, row));
    }
    jobs
}

async fn try_record(store: &PostgresStore, lease: &Lease, all: &Ticks<'_>, how: How) -> Result<Tried> {
    let mut write = store.write_batch(DOING).await?;
    match insert(&mut write, lease, all, how).await {
        Ok(done @ Tried::Done(..)) => write.finish(Ok(done)).await,
        Ok(tried @ (Tried::There | Tried::Below | Tried::NoDay)) => {
            write.rollback().await;
            Ok(tried)
        }
        Err(error) => write.finish(Err(error)).await,
    }
}

async fn insert(write: &mut DbTx, lease: &Lease, all: &Ticks<'_>, how: How) -> Result<Tried> {
    if how.lowers {
        lease::lock_lease_alone(write, lease).await?;
    }
    let waits = all.iter().any(|(_, row)| state(row) == State::Waiting);
    let statement = match (how.again, waits) {
        (true, _) => sql!("record/record_again"),
        (false, true) => sql!("record/record_waiting"),
        (false, false) => sql!("record/record"),
    };
    let column = |of: fn(&(&JobTicks, &RecordRow)) -> i64| all.iter().map(of).collect::<Vec<_>>();
    let on_tick = all.iter().all(|(_, row)| row.tick.due_at == row.tick.at);
    let mut insert = sqlx::query(statement)
        .bind(lease.incarnation.uuid())
        .bind(&lease.node)
        .bind(lease.fence.raw())
        .bind(rows::run_ids(all.iter().map(|(_, row)| row.tick.id)))
        .bind(rows::job_ids(all.iter().map(|(ticks, _)| ticks.job)))
        .bind(column(|(ticks, _)| ticks.epoch.raw()))
        .bind(column(|(_, row)| row.tick.at.millis()))
        .bind(if on_tick { Vec::new() } else { column(|(_, row)| row.tick.due_at.millis()) })
        .bind(all.iter().map(|(_, row)| state(row).code()).collect::<Vec<_>>())
        .bind(rows::unless_all(all.iter().map(|(_, row)| row.tick.fate == Fate::Late), &false))
        .bind(rows::unless_all(all.iter().map(|(_, row)| reason(&row.tick).unwrap_or(0)), &0));
    if how.again || waits {
        insert = insert
            .bind(all.iter().map(|(ticks, _)| i16::from(ticks.priority)).collect::<Vec<_>>())
            .bind(column(|(ticks, row)| lead(ticks.priority, row.tick.fate == Fate::Late)))
            .bind(rows::unless_all(all.iter().map(|(ticks, _)| rows::text_of(ticks.key.as_ref())), &None));
    }
    let inserted = insert.fetch_optional(&mut *write.tx).await;
    let row = match inserted {
        Err(error) if is_there(&error) && !how.again => return Ok(Tried::There),
        Err(error) if is_without_day(&error) => return Ok(Tried::NoDay),
        inserted => inserted.failed_or_refused(DOING)?.ok_or(StoreError::LeaseLost)?,
    };
    let (now, until) = (rows::at(&row, "now").failed(DOING)?, rows::at(&row, "until").failed(DOING)?);
    if until <= now {
        return Err(StoreError::LeaseLost);
    }
    let count: i64 = row.try_get("count").failed(DOING)?;
    let inserted = if usize::try_from(count).is_ok_and(|count| count == all.len()) {
        None
    } else {
        let ids: Option<Vec<Uuid>> = row.try_get("ids").failed(DOING)?;
        Some(ids.into_iter().flatten().map(RunId::from_uuid).collect::<HashSet<_>>())
    };
    let open_from = rows::run_id(&row, "open_from").failed(DOING)?;
    let old = born_below(all, inserted.as_ref(), open_from, now);
    if let Some(lowest) = old.iter().map(|claim| claim.run).min() {
        if !how.lowers && lease::old_release_lives(write).await? {
            return Ok(Tried::Below);
        }
        lost::list(write, lease, &old).await?;
        if how.lowers {
            lease::lower_open_from(write, lease, lowest).await?;
        }
    }
    let Some(inserted) = inserted else { return Ok(Tried::Done(now, None)) };
    let mut answers: HashMap<RunId, RowAnswer> = HashMap::with_capacity(all.len());
    answers.extend(inserted.into_iter().map(|id| (id, RowAnswer::Inserted)));
    let left: Ticks<'_> = all.iter().filter(|(_, row)| !answers.contains_key(&row.tick.id)).copied().collect();
    answers.extend(why(write, &left, now).await?);
    Ok(Tried::Done(now, Some(answers)))
}

/// The ticks born claimed with ids below the lease's `open_from`; only those in `inserted`, if it is given. A tick that
/// was recorded before may be claimed by another incarnation, whose row in `open_claims` must stay.
fn born_below(all: &Ticks<'_>, inserted: Option<&HashSet<RunId>>, open_from: RunId, now: DbTime) -> Vec<OldClaim> {
    let is_new = |run: &RunId| inserted.is_none_or(|inserted| inserted.contains(run));
    let is_ours = |row: &RecordRow| state(row) == State::Claimed && row.tick.id < open_from && is_new(&row.tick.id);
    let born = all.iter().filter(|(_, row)| is_ours(row));
    let claim = |(ticks, row): &(&JobTicks, &RecordRow)| OldClaim {
        run: row.tick.id,
        job: ticks.job,
        tenant: ticks.tenant,
        fence: Fence::default().raised(now),
    };
    let mut old: Vec<OldClaim> = born.map(claim).collect();
    old.sort_unstable_by_key(|claim| claim.run);
    old.dedup_by_key(|claim| claim.run);
    old
}

fn is_there(error: &sqlx::Error) -> bool {
    super::is_taken(error, "runs") || super::is_taken(error, "waiting")
}

/// No day has a table for the row: a failed check without a named constraint.
fn is_without_day(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|answer| answer.code().as_deref() == Some("23514") && answer.constraint().is_none())
}

fn state(row: &RecordRow) -> State {
    match row.tick.fate {
        Fate::Skip(_) => State::Skipped,
        Fate::Run | Fate::Late if row.born_claimed => State::Claimed,
        Fate::Run | Fate::Late => State::Waiting,
    }
}

fn reason(tick: &TickRow) -> Option<i16> {
    match tick.fate {
        Fate::Skip(reason) => Some(reason.code()),
        Fate::Run | Fate::Late => None,
    }
}

/// Why these were left out.
async fn why(write: &mut DbTx, left: &Ticks<'_>, now: DbTime) -> Result<Vec<(RunId, RowAnswer)>> {
    let found: Vec<i16> = write
        .scalars(query!(
            "record/record_answers",
            rows::run_ids(left.iter().map(|(_, row)| row.tick.id)),
            rows::job_ids(left.iter().map(|(ticks, _)| ticks.job)),
            left.iter().map(|(ticks, _)| ticks.epoch.raw()).collect::<Vec<_>>(),
            left.iter().map(|(_, row)| row.tick.at.millis()).collect::<Vec<_>>(),
            now.millis()
        ))
        .await?;
    let answer = |(answer, (_, row)): (i16, &(&JobTicks, &RecordRow))| {
        let answer = match answer {
            1 => RowAnswer::Existed,
            2 => RowAnswer::Early,
            _ => RowAnswer::Stale,
        };
        (row.tick.id, answer)
    };
    Ok(found.into_iter().zip(left).map(answer).collect())
}

/// Records ticks of one job from before the oldest day as a skip range, because they have no table, and moves the
/// cursor past them. The job's epoch rises, so the caller reloads it and continues from there.
async fn skip_old(store: &PostgresStore, lease: &Lease, old: &Ticks<'_>) -> Result<()> {
    let mut write = store.write(DOING).await?;
    let done = write_old(&mut write, lease, old).await;
    write.finish(done).await
}

async fn write_old(write: &mut DbTx, lease: &Lease, old: &Ticks<'_>) -> Result<()> {
    let (Some((ticks, first)), Some((_, last))) = (old.first(), old.last()) else { return Ok(()) };
    lease::lock_lease(write, lease).await?;
    let Some((tenant, cursor)) = range::lock(write, ticks.job, ticks.epoch).await? else { return Ok(()) };
    // Ticks are planned in order, so all ticks between the cursor and the first of these are recorded.
    if cursor.is_none_or(|cursor| cursor > first.tick.at) || last.tick.at > write.now {
        return Ok(());
    }
    let found = jobs::load(write, &[ticks.job]).await?;
    let Some(schedule) = found.first().and_then(|row| row.job.schedule.clone()) else { return Ok(()) };
    let skipped = ranges_of(old.iter().map(|(_, row)| &row.tick));
    range::insert_ranges(write, ticks.job, tenant, &skipped).await?;
    let next = Schedule::next_after(&schedule, last.tick.at);
    range::move_on(write, ticks.job, next).await?;
    Ok(())
}

/// These ticks as ranges of skips, one for each sequence of ticks with the same reason. A tick that would have fired is
/// a `misfire`.
pub(super) fn ranges_of<'a>(ticks: impl Iterator<Item = &'a TickRow>) -> Vec<SkipRange> {
    let mut ranges: Vec<SkipRange> = Vec::new();
    for tick in ticks {
        let reason = match tick.fate {
            Fate::Skip(reason) => reason,
            Fate::Run | Fate::Late => SkipReason::Misfire,
        };
        match ranges.last_mut() {
            Some(last) if last.reason == reason => {
                last.to = tick.at;
                last.count += 1;
            }
            _ => ranges.push(SkipRange { from: tick.at, to: tick.at, count: 1, reason }),
        }
    }
    ranges
}

/// Inserts ticks that were lost. The caller has locked the job.
pub(super) async fn insert_repaired(tx: &mut DbTx, ticks: &JobTicks) -> Result<()> {
    let found = jobs::load(tx, &[ticks.job]).await?;
    let queue = found.first().and_then(|row| row.job.spec.target.queue());
    insert_edited(tx, ticks, queue).await.map(drop)
}

/// Inserts the last ticks of a definition that an edit ends, or ticks that were lost. Returns those that had no row.
/// The caller has locked the job, so no other transaction records any.
pub(super) async fn insert_edited(write: &mut DbTx, due: &JobTicks, queue: Option<&str>) -> Result<BTreeSet<RunId>> {
    if due.rows.is_empty() {
        return Ok(BTreeSet::new());
    }
    let rows = &due.rows;
    let inserted: Vec<Uuid> = sqlx::query_scalar(sql!("record/edit_ticks"))
        .bind(rows::run_ids(rows.iter().map(|row| row.tick.id)))
        .bind(rows.iter().map(|row| row.tick.at.millis()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.tick.due_at.millis()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| state(row).code()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.tick.fate == Fate::Late).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| reason(&row.tick)).collect::<Vec<_>>())
        .bind(due.job.uuid())
        .bind(due.tenant.raw())
        .bind(write.now.millis())
        .bind(rows::partition(due.partition))
        .bind(i16::from(due.priority))
        .bind(queue)
        .bind(lead(due.priority, false))
        .bind(lead(due.priority, true))
        .bind(rows::texts(due.key.as_ref()))
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    Ok(inserted.into_iter().map(RunId::from_uuid).collect())
}

#[cfg(test)]
mod tests {

    /// Compares the statements up to the parts that differ: every form of a batch must have the same guards.
    #[test]
    fn all_forms_of_the_recording_statement_have_the_same_guards() {
        let between = |text: &'static str, from: &str, to: &str| {
            let begin = text.find(from).unwrap();
            &text[begin..begin + text[begin..].find(to).unwrap()]
        };
        let [plain, waiting, again] =
            [sql!("record/record"), sql!("record/record_waiting"), sql!("record/record_again")];
        let (to_insert, to_wait) =
            (between(plain, "with lease", ")\nselect"), between(waiting, "with lease", "), queued as ("));
        assert_eq!(to_insert, to_wait);
        assert_eq!(between(plain, "with lease", "), locked as"), between(again, "with lease", "), locked as"));
        for text in [plain, again] {
            assert!(text.contains("where exists (select 1 from clock k where k.until > k.now)"));
            assert!(text.contains("for key share of e skip locked"));
        }
        for guard in [
            "e.epoch = p.epoch",
            "e.epoch = t.epoch",
            "coalesce((select c.next_tick from cursors c where c.job = t.job) <= t.tick, false)",
            "t.tick <= k.now",
        ] {
            assert!(again.contains(guard), "{guard}");
        }
    }
}
