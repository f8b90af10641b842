//! Measures the PostgreSQL store on this machine, and compares it with a plain insert, which is the upper limit. It records ticks
//! and runs whole lives of runs in batches of 1,000, records 10,000 jobs in one statement, and loads a horizon. Next to each rate
//! it prints the CPU time of the server per row, if the server runs on this machine. On a busy machine, the CPU time varies less
//! than the rate.
//! `cargo run --release -p everytick-store --features sim --example postgres_throughput [jobs] [batches]`
//! `PROBE_URL` names an empty database; without it, the probe starts its own server, which does not sync. `PROBE_CONNECTIONS` is
//! the maximum number of connections of the store. Calls use them in rotation, and each is a server process with its own caches.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a probe, run by hand")]

use std::{collections::HashMap, time::Instant};

use everytick_domain::{
    ids::{Cause, Epoch, Fence, JobId, RunId, TenantId},
    partition::PartitionSet,
    plan::{Fate, TickRow},
    run::{SkipReason, Verdict},
    time::{DbTime, Span},
};
use everytick_store::{
    Actor, ClaimedRun, JobTicks, Limits, NewJob, NodeInfo, PostgresOptions, PostgresStore, Raise, RecordRow, Settle,
    Store,
    conformance::{incarnation, server::Server, settle_with, spec},
};
use sqlx::{Connection as _, PgConnection};

const BATCH: usize = 1_000;

#[tokio::main]
async fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|argument| argument.parse().unwrap()).collect();
    let jobs = arguments.first().copied().unwrap_or(10_000).max(10 * BATCH);
    let batches = arguments.get(1).copied().unwrap_or(100);
    let own = if std::env::var_os("PROBE_URL").is_none() { Some(Server::shared().blank().await) } else { None };
    let url = own.as_ref().map_or_else(|| std::env::var("PROBE_URL").unwrap(), |database| database.url.clone());
    let limits = Limits { jobs_per_tenant_max: u64::MAX, ..Limits::default() };
    let mut options = PostgresOptions::default();
    if let Ok(connections) = std::env::var("PROBE_CONNECTIONS") {
        options.connections_max = connections.parse().unwrap();
    }
    let store = PostgresStore::connect(&url, options, limits).await.unwrap();
    let (lease, now) = store.join(&NodeInfo::named("probe"), incarnation(1), Span::days(365)).await.unwrap();
    let all_partitions = PartitionSet::all(store.partitions());

    let mut ids: Vec<JobId> = (0..jobs as u64).map(id).collect();
    ids.sort_unstable();
    let began = clock();
    for (chunk, ids) in ids.chunks(BATCH).enumerate() {
        let new = |(n, id): (usize, &JobId)| NewJob { id: *id, spec: spec(&format!("j{}", chunk * BATCH + n)) };
        let made = ids.iter().enumerate().map(new).collect();
        for created in store.create_jobs(TenantId::DEFAULT, &Actor::local("probe"), made, None).await.unwrap() {
            created.unwrap();
        }
    }
    report("create_jobs", jobs, began);
    // Lower all cursors, because the probe records ticks of the last hour.
    for text in ["update cursors set next_tick = 0", "vacuum analyze"] {
        sqlx::raw_sql(text).execute(store.pool()).await.unwrap();
    }

    let mut at = now.minus(Span::minutes(50));
    let mut place = 0;
    let mut batch = |fate: Fate, born_claimed: bool| {
        if place + BATCH > ids.len() {
            place = 0;
            at = at.plus(Span::millis(1));
        }
        let rows = ids[place..place + BATCH].iter().map(|job| ticks(*job, at, fate, born_claimed));
        place += BATCH;
        rows.collect::<Vec<_>>()
    };

    let mut probe = Probe(PgConnection::connect(&url).await.unwrap());
    let planned: Vec<_> = (0..batches).map(|_| batch(Fate::Run, true)).collect();
    let mut limit = Spent::default();
    for ticks in &planned {
        limit += probe.spent(BATCH, plain(&store, &lease.node, lease.incarnation.uuid(), ticks, now)).await.1;
    }
    limit.report("plain insert of the same rows", None);

    for (what, fate) in [("record, skips", Fate::Skip(SkipReason::Overlap)), ("record, born claimed", Fate::Run)] {
        let planned: Vec<_> = (0..batches).map(|_| batch(fate, true)).collect();
        let mut all = Spent::default();
        for ticks in &planned {
            all += probe.spent(BATCH, async { store.record(&lease, ticks).await.unwrap() }).await.1;
        }
        all.report(what, Some(limit));
    }
    let planned: Vec<_> = (0..batches).map(|_| batch(Fate::Run, true)).collect();
    let (mut all, mut settling) = (Spent::default(), Spent::default());
    for ticks in &planned {
        let (recorded, spent) = probe.spent(BATCH, async { store.record(&lease, ticks).await.unwrap() }).await;
        all += spent;
        let ends: Vec<_> = ticks.iter().map(|ticks| end(ticks, recorded.now)).collect();
        let spent = probe.spent(BATCH, async { store.settle(&ends).await.unwrap() }).await.1;
        settling += spent;
        all += Spent { rows: 0, ..spent };
    }
    all.report("whole life: record born claimed, settle", Some(limit));
    settling.report("    of it: settle", None);

    let planned: Vec<_> = (0..batches / 2).map(|_| batch(Fate::Run, false)).collect();
    let mut steps = [Spent::default(); 4];
    for ticks in &planned {
        steps[0] += probe.spent(BATCH, async { store.record(&lease, ticks).await.unwrap() }).await.1;
        let peek = async { store.peek_waiting(&lease, &all_partitions, &[], None, BATCH).await.unwrap().due };
        let (waiting, spent) = probe.spent(BATCH, peek).await;
        steps[1] += spent;
        let runs: Vec<_> = waiting.iter().map(|run| run.id).collect();
        let claim = async { store.claim(&lease, &all_partitions, &runs).await.unwrap() };
        let (claimed, spent) = probe.spent(BATCH, claim).await;
        steps[2] += spent;
        let end = |run: &ClaimedRun| settle_with(run.id, run.fence, run.job, run.tenant, Verdict::Succeeded);
        let ends: Vec<_> = claimed.iter().map(end).collect();
        steps[3] += probe.spent(BATCH, async { store.settle(&ends).await.unwrap() }).await.1;
    }
    let mut all = Spent::default();
    for step in steps {
        all += Spent { rows: 0, ..step };
    }
    Spent { rows: planned.len() * BATCH, ..all }.report("whole life: record waiting, peek, claim, settle", Some(limit));
    for (what, step) in ["record waiting", "peek", "claim", "settle"].iter().zip(steps) {
        step.report(&format!("    of it: {what}"), None);
    }

    let at = at.plus(Span::seconds(10));
    let burst: Vec<_> = ids[..10 * BATCH].iter().map(|job| ticks(*job, at, Fate::Run, true)).collect();
    for what in ["one statement of ten thousand jobs", "the same again: all there"] {
        let record = async { store.record(&lease, &burst).await.unwrap() };
        probe.spent(burst.len(), record).await.1.report(what, None);
    }

    let mut raising = Spent::default();
    for by in 0..(batches * BATCH / jobs).max(1) as u64 {
        for chunk in ids.chunks(BATCH) {
            let cursor = Some(at.plus(Span::millis(by)));
            let raise = |job: &JobId| Raise { job: *job, epoch: Epoch::from_raw(1), cursor };
            let raises: Vec<_> = chunk.iter().map(raise).collect();
            raising += probe.spent(chunk.len(), async { store.raise_cursors(&raises).await.unwrap() }).await.1;
        }
    }
    raising.report("raise_cursors", None);
    let (updates, hot): (i64, i64) =
        sqlx::query_as("select sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint from pg_stat_user_tables where relname like 'runs_2%'")
            .fetch_one(store.pool())
            .await
            .unwrap();
    println!("settled: {updates} updates, {hot} of them HOT");
    // End the runs that the probe has left open. Otherwise loading the horizon would read all of them.
    for text in
        ["update runs set state = 2, finished_at = due_at, incarnation = null where state = 1", "vacuum analyze"]
    {
        sqlx::raw_sql(text).execute(store.pool()).await.unwrap();
    }
    let (began, mut after, mut loaded) = (clock(), None, 0);
    loop {
        let page = store.load_horizon(&lease, &all_partitions, now.plus(Span::minutes(1)), after, BATCH).await.unwrap();
        loaded += page.len();
        after = page.last().and_then(|job| job.cursor.map(|cursor| (cursor, job.job.id)));
        if page.len() < BATCH {
            break;
        }
    }
    report("load_horizon, every partition", loaded, began);
    let began = clock();
    store.load_claimed(&lease).await.unwrap();
    report("load_claimed, of all the runs above", batches * BATCH * 9 / 2 + 10 * BATCH, began);
}

fn ticks(job: JobId, at: DbTime, fate: Fate, born_claimed: bool) -> JobTicks {
    let tick = TickRow { id: RunId::of(job, Cause::Tick(at)), at, due_at: at, fate };
    let rows = vec![RecordRow { tick, born_claimed }];
    let partition = job.partition(256);
    JobTicks { job, tenant: TenantId::DEFAULT, partition, epoch: Epoch::from_raw(1), priority: 5, key: None, rows }
}

fn end(ticks: &JobTicks, now: DbTime) -> Settle {
    settle_with(ticks.rows[0].tick.id, Fence::default().raised(now), ticks.job, ticks.tenant, Verdict::Succeeded)
}

/// A plain insert of the same rows, without checks of lease, epoch, cursor and clock: the lowest possible cost.
async fn plain(store: &PostgresStore, node: &str, incarnation: uuid::Uuid, batch: &[JobTicks], now: DbTime) {
    let ids: Vec<_> = batch.iter().map(|ticks| ticks.rows[0].tick.id.uuid()).collect();
    let jobs: Vec<_> = batch.iter().map(|ticks| ticks.job.uuid()).collect();
    let at: Vec<_> = batch.iter().map(|ticks| ticks.rows[0].tick.at.millis()).collect();
    sqlx::query(
        "insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, node, incarnation, started_at)
         select t.id, 1, t.job, 1, t.tick, t.tick, 1, false, false, 1, 0, $4, $5, $6, $7
           from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as t (id, job, tick)",
    )
    .bind(ids)
    .bind(jobs)
    .bind(at)
    .bind(now.millis() * 1_000)
    .bind(node)
    .bind(incarnation)
    .bind(now.millis())
    .execute(store.pool())
    .await
    .unwrap();
}

/// An id derived from a number: evenly distributed, as real ids are, and the same at every start.
fn id(n: u64) -> JobId {
    let spread = u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    JobId::from_uuid(uuid::Uuid::from_u128(spread << 64 | u128::from(n)))
}

#[expect(clippy::disallowed_methods, reason = "a probe measures")]
fn clock() -> Instant {
    Instant::now()
}

fn report(what: &str, rows: usize, began: Instant) {
    let took = clock().duration_since(began).as_secs_f64();
    let rate = rows as f64 / took;
    println!("{what:50} {rows:>9} rows  {took:>7.2} s  {rate:>9.0} rows/s");
}

/// What a step took: the time, and the CPU time of the server if it runs on this machine.
#[derive(Clone, Copy, Default)]
struct Spent {
    rows: usize,
    seconds: f64,
    cpu_seconds: f64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.rows += more.rows;
        self.seconds += more.seconds;
        self.cpu_seconds += more.cpu_seconds;
    }
}

impl Spent {
    fn report(self, what: &str, limit: Option<Self>) {
        let rows = self.rows as f64;
        let (rate, cpu_us) = (rows / self.seconds, self.cpu_seconds * 1e6 / rows);
        print!("{what:50} {rows:>9} rows  {:>7.2} s  {rate:>9.0} rows/s  {cpu_us:>6.2} us of CPU", self.seconds);
        if let Some(limit) = limit {
            let limit_rows = limit.rows as f64;
            let of_rate = rate / (limit_rows / limit.seconds);
            print!("  {of_rate:.2} of the plain insert, {:.2} by CPU", limit.cpu_seconds * 1e6 / limit_rows / cpu_us);
        }
        println!();
    }
}

/// Reads the CPU time over its own connection, whose work is not counted.
struct Probe(PgConnection);

impl Probe {
    async fn spent<T>(&mut self, rows: usize, step: impl Future<Output = T>) -> (T, Spent) {
        let (before, began) = (self.cpu().await, clock());
        let done = step.await;
        let seconds = clock().duration_since(began).as_secs_f64();
        let mut cpu_seconds = 0.0;
        for (pid, after) in self.cpu().await {
            cpu_seconds += after - before.get(&pid).copied().unwrap_or_default();
        }
        (done, Spent { rows, seconds, cpu_seconds })
    }

    /// Seconds that each of the server's sessions of this database has spent on a processor.
    async fn cpu(&mut self) -> HashMap<i32, f64> {
        let sessions =
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
        let pids: Vec<i32> = sqlx::query_scalar(sessions).fetch_all(&mut self.0).await.unwrap();
        let spent = |pid: i32| {
            let read = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
            Some((pid, read.split(' ').next()?.parse::<f64>().ok()? / 1e9))
        };
        pids.into_iter().filter_map(spent).collect()
    }
}
