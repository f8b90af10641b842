//! Measures the SQLite store on this machine: recording ticks, and whole lives of runs, in batches of 1,000.
//! `cargo run --release -p everytick-store --features sim --example sqlite_throughput [jobs] [batches]`
//! `PROBE_FOLDER` is the folder of the database file. With `SHUFFLED=1`, the jobs of an instant are recorded in random order.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a probe, run by hand")]

use std::{sync::Arc, time::Instant};

use everytick_domain::{
    ids::{Cause, Fence, JobId, RunId, TenantId},
    partition::PartitionSet,
    plan::{Fate, TickRow},
    run::{SkipReason, Verdict},
    time::{DbTime, Span},
};
use everytick_store::{
    Actor, JobTicks, Limits, ManualClock, NewJob, NodeInfo, Raise, RecordRow, SqliteStore, Store,
    conformance::{START, incarnation, settle_with, spec},
};

const BATCH: usize = 1_000;

#[tokio::main]
async fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|argument| argument.parse().unwrap()).collect();
    let jobs = arguments.first().copied().unwrap_or(10_000).max(BATCH);
    let batches = arguments.get(1).copied().unwrap_or(200);
    let folder = tempfile::tempdir_in(std::env::var_os("PROBE_FOLDER").unwrap_or_else(|| ".".into())).unwrap();
    let clock = Arc::new(ManualClock::at(START));
    let limits = Limits { jobs_per_tenant_max: u64::MAX, ..Limits::default() };
    let store = SqliteStore::open(folder.path().join("probe.db"), clock.clone(), limits).await.unwrap();
    let (lease, _) = store.join(&NodeInfo::named("probe"), incarnation(1), Span::days(365)).await.unwrap();

    let mut ids: Vec<JobId> = (0..jobs as u64).map(id).collect();
    // The horizon returns the jobs of one instant in this order. A batch then touches neighbouring pages of the history index.
    if std::env::var_os("SHUFFLED").is_none() {
        ids.sort_unstable();
    }
    let began = now();
    for (chunk, ids) in ids.chunks(BATCH).enumerate() {
        let new = |(n, id): (usize, &JobId)| NewJob { id: *id, spec: spec(&format!("j{}", chunk * BATCH + n)) };
        let made = ids.iter().enumerate().map(new).collect();
        for created in store.create_jobs(TenantId::DEFAULT, &Actor::local("probe"), made, None).await.unwrap() {
            created.unwrap();
        }
    }
    report("create_jobs", jobs, began);

    let mut at = START;
    let mut place = 0;
    let mut batch = |fate: Fate, born_claimed: bool| {
        if place + BATCH > ids.len() {
            place = 0;
        }
        if place == 0 {
            at = at.plus(Span::seconds(10));
            clock.set(at);
        }
        let rows = ids[place..place + BATCH].iter().map(|job| {
            let tick = TickRow { id: RunId::of(*job, Cause::Tick(at)), at, due_at: at, fate };
            let rows = vec![RecordRow { tick, born_claimed }];
            let epoch = everytick_domain::ids::Epoch::from_raw(1);
            JobTicks { job: *job, tenant: TenantId::DEFAULT, partition: 0, epoch, priority: 5, key: None, rows }
        });
        place += BATCH;
        (at, rows.collect::<Vec<_>>())
    };
    for (what, fate) in [("record, skips", Fate::Skip(SkipReason::Overlap)), ("record, born claimed", Fate::Run)] {
        let planned: Vec<_> = (0..batches).map(|_| batch(fate, true)).collect();
        let began = now();
        for (_, ticks) in &planned {
            store.record(&lease, ticks).await.unwrap();
        }
        report(what, batches * BATCH, began);
    }
    let planned: Vec<_> = (0..batches).map(|_| batch(Fate::Run, true)).collect();
    let began = now();
    for (_, ticks) in &planned {
        let recorded = store.record(&lease, ticks).await.unwrap();
        let ends: Vec<_> = ticks.iter().map(|ticks| end(ticks, recorded.now)).collect();
        store.settle(&ends).await.unwrap();
    }
    report("whole life: record born claimed, settle", batches * BATCH, began);
    let planned: Vec<_> = (0..batches).map(|_| batch(Fate::Run, false)).collect();
    let began = now();
    for (_, ticks) in &planned {
        store.record(&lease, ticks).await.unwrap();
        let waiting = store.peek_waiting(&lease, &PartitionSet::all(1), &[], None, BATCH).await.unwrap().due;
        let runs: Vec<_> = waiting.iter().map(|run| run.id).collect();
        let claimed = store.claim(&lease, &everytick_domain::partition::PartitionSet::all(256), &runs).await.unwrap();
        let end =
            |run: &everytick_store::ClaimedRun| settle_with(run.id, run.fence, run.job, run.tenant, Verdict::Succeeded);
        store.settle(&claimed.iter().map(end).collect::<Vec<_>>()).await.unwrap();
    }
    report("whole life: record waiting, peek, claim, settle", batches * BATCH, began);
    let began = now();
    for chunk in ids.chunks(BATCH) {
        let raise =
            |job: &JobId| Raise { job: *job, epoch: everytick_domain::ids::Epoch::from_raw(1), cursor: Some(at) };
        store.raise_cursors(&chunk.iter().map(raise).collect::<Vec<_>>()).await.unwrap();
    }
    report("raise_cursors", jobs, began);
    let began = now();
    let loaded =
        store.load_horizon(&lease, &PartitionSet::all(1), at.plus(Span::minutes(1)), None, BATCH).await.unwrap();
    report("load_horizon", loaded.len(), began);
}

fn end(ticks: &JobTicks, now: DbTime) -> everytick_store::Settle {
    settle_with(ticks.rows[0].tick.id, Fence::default().raised(now), ticks.job, ticks.tenant, Verdict::Succeeded)
}

/// An id derived from a number: evenly distributed, as real ids are, and the same at every start.
fn id(n: u64) -> JobId {
    let spread = u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    JobId::from_uuid(uuid::Uuid::from_u128(spread << 64 | u128::from(n)))
}

#[expect(clippy::disallowed_methods, reason = "a probe measures")]
fn now() -> Instant {
    Instant::now()
}

fn report(what: &str, rows: usize, began: Instant) {
    let took = now().duration_since(began).as_secs_f64();
    println!("{what:50} {rows:>9} rows  {took:>7.2} s  {:>9.0} rows/s", rows as f64 / took);
}
