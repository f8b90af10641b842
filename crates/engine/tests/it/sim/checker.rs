//! Checks the invariants on a finished history. It knows the schedules, the journal of the database and what the targets saw,
//! and nothing about how the engine works.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    ids::{Cause, JobId, RunId},
    job::{self, Job},
    retry::LOST_MAX,
    run::{CauseKind, State},
    time::{DbTime, Span},
};
use everytick_sim::{Db, Entry};
use everytick_store::WallClock;

use super::{backfills, calendars, flows, overlap, owners, pace, target::Delivery, world::World};

/// Near the end of a history, a tick younger than this may not be recorded yet, and a claim not delivered.
const RECENT: Span = Span::seconds(3);
/// The next run of a job begins within this time after a run has ended: a worker that found no run polls again within
/// this time.
const NEXT_WITHIN: Span = Span::seconds(2);
/// Once the faults are over, a run starts within this time after it is due, unless a run of its own job blocks it.
const STARTED_WITHIN: Span = Span::seconds(20);

/// The result of one history.
pub struct Checked {
    pub violations: Vec<String>,
    pub ticks: usize,
    pub deliveries: usize,
}

pub fn check(world: &World) -> Checked {
    let end = world.clock.now();
    let deliveries = world.history.0.lock().unwrap().clone();
    world.db.inspect(|db| {
        let mut found = Vec::new();
        let jobs = definitions(db);
        every_tick_once(db, &jobs, end, &mut found);
        deliveries_are_sound(db, &jobs, &deliveries, &mut found);
        the_journal_is_sound(db, &mut found);
        calendars::check(db, &mut found);
        owners::fences_only_increase(db, &mut found);
        backfills::check(db, &jobs, &mut found);
        flows::check(db, end, &mut found);
        // Nodes that all believe they own everything run the same jobs concurrently, so only the ledger is checked.
        if !world.scene.ownership_ignored {
            overlap::check(db, &jobs, world.scene, end, &mut found);
            nothing_is_stuck(db, &deliveries, end, &mut found);
            owners::only_owners_write(db, &jobs, &mut found);
            pace::check(db, &jobs, &deliveries, world.scene.nodes, &mut found);
            owners::every_partition_is_owned(db, world.scene.nodes, end, &mut found);
        }
        if std::env::var_os("EVERYTICK_SIM_JOURNAL").is_some() {
            db.journal().iter().for_each(|entry| println!("{entry:?}"));
        }
        Checked {
            violations: found,
            ticks: db.all_runs().filter(|(_, run)| run.cause == CauseKind::Tick).count(),
            deliveries: deliveries.len(),
        }
    })
}

/// A hash of everything that the database and the targets saw.
pub fn trace(world: &World) -> String {
    let mut trace = blake3::Hasher::new();
    world.db.inspect(|db| db.journal().iter().for_each(|entry| _ = trace.update(format!("{entry:?}").as_bytes())));
    for delivery in world.history.0.lock().unwrap().iter() {
        trace.update(format!("{delivery:?}").as_bytes());
    }
    trace.finalize().to_hex().to_string()
}

/// One definition of a job.
pub struct Definition<'a> {
    /// The instant from which on its ticks count.
    effective_at: DbTime,
    /// When it was committed.
    at: DbTime,
    pub job: &'a Job,
}

/// The definitions of each job, in order.
pub type Definitions<'a> = BTreeMap<JobId, Vec<Definition<'a>>>;

fn definitions(db: &Db) -> Definitions<'_> {
    let mut jobs = Definitions::new();
    for entry in db.journal() {
        let (job, effective_at, at) = match entry {
            Entry::Created { job, effective_at } => (job, *effective_at, job.updated_at),
            Entry::Edited { job, effective_at, at } => (job, *effective_at, *at),
            _ => continue,
        };
        jobs.entry(job.id).or_default().push(Definition { effective_at, at, job });
    }
    jobs
}

/// I1, I2, I3, I5, I11: each tick of each definition, while it was valid, has one row or lies in one range. Nothing else is
/// recorded.
fn every_tick_once(db: &Db, jobs: &Definitions<'_>, end: DbTime, found: &mut Vec<String>) {
    for (&id, definitions) in jobs {
        let mut expected = BTreeSet::new();
        for (n, Definition { effective_at, at, job }) in definitions.iter().enumerate() {
            let Some(schedule) = job.ticking() else { continue };
            let until = definitions.get(n + 1).map_or(end, |next| next.effective_at);
            let before = n.checked_sub(1).map(|n| definitions[n].job);
            let is_new = before.is_none_or(|before| before.spec.schedule != job.spec.schedule);
            // A new `at` that is slightly in the past counts as now.
            let from = match is_new {
                true => job::first_cursor(&job.spec, schedule, *effective_at, *at),
                false => schedule.next_after(*effective_at),
            };
            if let Some(from) = from {
                expected.extend(schedule.ticks(from, until));
            }
        }
        let mut recorded: BTreeMap<DbTime, u32> = BTreeMap::new();
        for (run, row) in db.all_runs().filter(|(_, row)| row.job == id && row.cause == CauseKind::Tick) {
            *recorded.entry(row.scheduled_at).or_default() += 1;
            if run != RunId::of(id, Cause::Tick(row.scheduled_at)) {
                found.push(format!("I5: {run} is not the id of {}", row.scheduled_at));
            }
        }
        for row in db.all_ranges().filter(|row| row.job == id) {
            let inside: Vec<_> = expected.range(row.range.from..=row.range.to).copied().collect();
            if inside.len() as u64 != row.range.count {
                found.push(format!("I2: range {:?} of {id} counts {} ticks", row.range, inside.len()));
            }
            for tick in inside {
                *recorded.entry(tick).or_default() += 1;
            }
        }
        for (tick, times) in &recorded {
            if *times > 1 {
                found.push(format!("I1: tick {tick} of {id} is recorded {times} times"));
            }
            if !expected.contains(tick) {
                found.push(format!("I11: {tick} of {id} was not a tick when it was recorded"));
            }
        }
        for tick in expected.iter().filter(|tick| **tick < end.minus(RECENT)) {
            if !recorded.contains_key(tick) {
                found.push(format!("I2: tick {tick} of {id} has no record"));
            }
        }
    }
}

/// I4, I5, I6, I13: no delivery is early, each attempt is sent at most once and only under its claim, and the number of
/// attempts is bounded.
fn deliveries_are_sound(db: &Db, jobs: &Definitions<'_>, deliveries: &[Delivery], found: &mut Vec<String>) {
    let claims: BTreeSet<_> = db
        .journal()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Claimed { run, attempt, fence, .. } => Some((*run, *attempt, *fence)),
            _ => None,
        })
        .collect();
    let mut sent = BTreeSet::new();
    for delivery in deliveries {
        if delivery.clock < delivery.scheduled_at {
            found.push(format!("I4: {} of {} was sent at {}", delivery.run, delivery.scheduled_at, delivery.clock));
        }
        if !sent.insert((delivery.run, delivery.attempt)) {
            found.push(format!("I6: attempt {} of {} was sent twice", delivery.attempt, delivery.run));
        }
        if !claims.contains(&(delivery.run, delivery.attempt, delivery.fence)) {
            found.push(format!("I6: attempt {} of {} was sent without a claim", delivery.attempt, delivery.run));
        }
        let retries =
            jobs.get(&delivery.job).and_then(|jobs| jobs.last()).map_or(0, |last| last.job.spec.retry.max_retries);
        if delivery.attempt > 1 + retries + LOST_MAX {
            found.push(format!("I13: {} has {} attempts", delivery.run, delivery.attempt));
        }
    }
}

/// I7, I8: a run is settled only under the fence of its claim, and nothing changes it after its end.
fn the_journal_is_sound(db: &Db, found: &mut Vec<String>) {
    let mut over = BTreeSet::new();
    for entry in db.journal() {
        match entry {
            Entry::Claimed { run, .. } if over.contains(run) => {
                found.push(format!("I8: {run} was claimed after its end"));
            }
            Entry::Settled { run, fence, run_fence, was, verdict, .. } => {
                if fence != run_fence || *was != State::Claimed {
                    found.push(format!("I7: {run} was settled by fence {fence} while {was:?} under {run_fence}"));
                }
                if over.contains(run) {
                    found.push(format!("I8: {run} was settled after its end"));
                }
                if verdict.is_terminal() {
                    over.insert(*run);
                }
            }
            Entry::Cancelled { run, .. } if over.contains(run) => {
                found.push(format!("I8: {run} was cancelled after its end"));
            }
            Entry::Cancelled { run, .. } => _ = over.insert(*run),
            _ => {}
        }
    }
}

/// I19: some time after the last fault, every due run has ended, or is in progress, or waits for a run of its own job.
fn nothing_is_stuck(db: &Db, deliveries: &[Delivery], end: DbTime, found: &mut Vec<String>) {
    let at_work: BTreeSet<_> =
        deliveries.iter().filter(|delivery| !delivery.ended).map(|delivery| (delivery.run, delivery.fence)).collect();
    let busy: BTreeSet<_> = db
        .all_runs()
        .filter(|(_, row)| {
            let just_ended =
                row.finished_at.is_some_and(|at| row.state != State::Skipped && at >= end.minus(NEXT_WITHIN));
            row.state == State::Claimed || (row.state == State::Waiting && row.attempt > 0) || just_ended
        })
        .map(|(_, row)| row.job)
        .collect();
    let claimed: BTreeSet<_> =
        db.all_runs().filter(|(_, row)| row.state == State::Claimed).map(|(_, row)| row.job).collect();
    for (run, row) in db.all_runs().filter(|(_, row)| row.due_at < end.minus(STARTED_WITHIN)) {
        let recent = row.started_at.is_some_and(|at| at >= end.minus(RECENT));
        // The lease of a lost worker expires by the database clock, which may have been set back since.
        let leased = db.worker_claims_until(run).is_some_and(|until| until >= end.minus(RECENT));
        if row.state == State::Claimed && !at_work.contains(&(run, row.fence)) && !recent && !leased {
            found.push(format!("I19: {run} is claimed under {} and no process works on it", row.fence));
        }
        let waits = db.waits_until(run).is_some_and(|due_at| due_at < end.minus(STARTED_WITHIN));
        if waits && row.attempt > 0 && !claimed.contains(&row.job) {
            found.push(format!("I19: {run} waits after attempt {}, and nothing blocks it", row.attempt));
        }
        if row.state == State::Waiting && row.attempt == 0 && !busy.contains(&row.job) {
            found.push(format!("I19: {run} of {} has waited since {}, and nothing blocks it", row.job, row.due_at));
        }
    }
}
