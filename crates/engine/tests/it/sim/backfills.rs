//! People who ask for runs of past ticks, and what must then be true: each tick that has had its turn has one run, in order, and
//! no other has one.

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

use super::{actor::people, checker::Definitions, random::Random, world::World};

/// No longer than this: all of it would else still wait for its pace at the end.
const STRETCH_SECONDS_MAX: u64 = 20;

pub async fn ask(world: &World, random: &Random, job: JobId) {
    let to = world.clock.now().minus(Span::millis(random.below(30_000)));
    let from = to.minus(Span::seconds(random.below(STRETCH_SECONDS_MAX)));
    let order = *random.pick(&[Order::Oldest, Order::Newest]);
    let rate = random.chance(300).then(|| Rate { count: 1 + random.below(5) as u32, per: Span::seconds(2) });
    let ask = Backfill {
        job: JobRef::Id(job),
        stretch: Stretch { from, to, order },
        rate,
        payload: None,
        kept: Span::days(90),
        idempotency: None,
    };
    let _ = world.commands(random).backfill(TenantId::DEFAULT, &people(), ask).await;
}

pub async fn cancel(world: &World, random: &Random, job: JobId) {
    let commands = world.commands(random);
    let Ok(page) = commands.store().list_backfills(TenantId::DEFAULT, job, None, 5).await else { return };
    if !page.items.is_empty() {
        let backfill = random.pick(&page.items).id;
        let _ = commands.cancel_backfill(TenantId::DEFAULT, &people(), backfill, random.chance(500)).await;
    }
}

pub fn are_whole(db: &Db, jobs: &Definitions<'_>, found: &mut Vec<String>) {
    let mut made: BTreeSet<RunId> =
        db.all_runs().filter(|(_, row)| row.cause == CauseKind::Backfill).map(|(run, _)| run).collect();
    // In which place of the journal each was made.
    let mut places: BTreeMap<RunId, usize> = BTreeMap::new();
    for (place, entry) in db.journal().iter().enumerate() {
        if let Entry::Recorded { run, .. } = entry
            && made.contains(run)
            && places.insert(*run, place).is_some()
        {
            found.push(format!("backfill: {run} was made twice"));
        }
    }
    for (id, row) in db.all_backfills() {
        covers_the_ticks_of_a_definition(id, row, jobs, found);
        let mut last = None;
        for tick in &row.ticks[..row.position] {
            let run = row.origin(id).run(row.job, *tick);
            if !made.remove(&run) {
                found.push(format!("backfill: {tick} of {id} has had its turn and no run"));
            }
            let place = places.get(&run).copied();
            if place < last {
                found.push(format!("backfill: {tick} of {id} had its turn too early"));
            }
            last = place;
        }
        if row.state == BackfillState::Done && row.position < row.ticks.len() {
            found.push(format!("backfill: {id} is done with {} of {}", row.position, row.ticks.len()));
        }
    }
    found.extend(made.iter().map(|run| format!("backfill: {run} is of no tick that has had its turn")));
}

/// As one of the job's definitions has them; calendars have rules of their own.
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
    let is_of = |definition: &super::checker::Definition<'_>| match &definition.job.schedule {
        Some(_) if !definition.job.spec.exclude().is_empty() => true,
        Some(schedule) => schedule.ticks(row.stretch.from, row.stretch.to).eq(ticks.iter().copied()),
        None => false,
    };
    if !jobs.get(&row.job).is_some_and(|definitions| definitions.iter().any(is_of)) {
        found.push(format!("backfill: {id} covers {} ticks that no definition of its job has", row.ticks.len()));
    }
}
