//! Users who request backfills, and the rules for them: each tick that was processed has one run, in order, and no other tick
//! has one.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    backfill::{BackfillState, Order, Stretch},
    ids::{BackfillId, JobId, RunId, TenantId},
    queue::Rate,
    run::CauseKind,
    time::Span,
};
use everytick_engine::commands::Backfill;
use everytick_sim::{BackfillRow, Db, Entry};
use everytick_store::{JobRef, WallClock};

use super::{actor::users, checker::Definitions, random::Random, world::World};

/// A backfill covers at most this range. A longer one would still wait for its rate at the end of the history.
const STRETCH_SECONDS_MAX: u64 = 20;

pub async fn request(world: &World, random: &Random, job: JobId) {
    let to = world.clock.now().minus(Span::millis(random.below(30_000)));
    let from = to.minus(Span::seconds(random.below(STRETCH_SECONDS_MAX)));
    let order = *random.pick(&[Order::Oldest, Order::Newest]);
    let rate = random.chance(300).then(|| Rate { count: 1 + random.below(2) as u32, per: Span::seconds(2) });
    let request = Backfill {
        job: JobRef::Id(job),
        stretch: Stretch { from, to, order },
        rate,
        payload: None,
        history: Span::days(90),
        idempotency: None,
    };
    let _ = world.commands(random).backfill(TenantId::DEFAULT, &users(), request).await;
}

pub async fn cancel(world: &World, random: &Random, job: JobId) {
    let commands = world.commands(random);
    let Ok(page) = commands.queries().backfills(TenantId::DEFAULT, job, None, 5).await else { return };
    if !page.items.is_empty() {
        let backfill = random.pick(&page.items).id;
        let _ = commands.cancel_backfill(TenantId::DEFAULT, &users(), backfill, random.chance(500)).await;
    }
}

/// Each tick that a backfill has processed has one run, in order. No other tick has a run with cause `backfill`.
pub fn check(db: &Db, jobs: &Definitions<'_>, found: &mut Vec<String>) {
    let mut made: BTreeSet<RunId> =
        db.all_runs().filter(|(_, row)| row.cause == CauseKind::Backfill).map(|(run, _)| run).collect();
    // The position in the journal at which each run was created.
    let mut positions: BTreeMap<RunId, usize> = BTreeMap::new();
    for (position, entry) in db.journal().iter().enumerate() {
        if let Entry::Recorded { run, .. } = entry
            && made.contains(run)
            && positions.insert(*run, position).is_some()
        {
            found.push(format!("backfill: {run} was created twice"));
        }
    }
    for (id, row) in db.all_backfills() {
        covers_the_ticks_of_a_definition(id, row, jobs, found);
        let mut last = None;
        for tick in &row.ticks[..row.position] {
            let run = row.origin(id).run(row.job, *tick);
            if !made.remove(&run) {
                found.push(format!("backfill: {tick} of {id} was processed but has no run"));
            }
            let position = positions.get(&run).copied();
            if position < last {
                found.push(format!("backfill: {tick} of {id} was processed too early"));
            }
            last = position;
        }
        if row.state == BackfillState::Done && row.position < row.ticks.len() {
            found.push(format!("backfill: {id} is done after {} of {} ticks", row.position, row.ticks.len()));
        }
    }
    found.extend(made.iter().map(|run| format!("backfill: {run} belongs to no processed tick")));
}

/// Checks that one definition of the job has exactly the ticks of the backfill. `calendars` checks the calendars.
fn covers_the_ticks_of_a_definition(
    id: BackfillId,
    row: &BackfillRow,
    jobs: &Definitions<'_>,
    found: &mut Vec<String>,
) {
    let mut ticks = row.ticks.clone();
    if row.stretch.order == Order::Newest {
        ticks.reverse();
    }
    // The end is excluded. A clock that is ahead of the database may ask for ticks that are not yet due.
    let last = row.stretch.to.min(row.created_at).minus(Span::millis(1));
    let is_of = |definition: &super::checker::Definition<'_>| match &definition.job.schedule {
        Some(_) if !definition.job.spec.exclude().is_empty() => true,
        Some(schedule) => schedule.ticks(row.stretch.from, last).eq(ticks.iter().copied()),
        None => false,
    };
    if !jobs.get(&row.job).is_some_and(|definitions| definitions.iter().any(is_of)) {
        found.push(format!("backfill: {id} covers {} ticks that no definition of its job has", row.ticks.len()));
    }
}
