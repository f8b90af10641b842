//! Measures how long a node takes from acquiring the partitions of a dead node until all their jobs are in memory, and the CPU
//! time of the server and of this process. By default there are 40,000 jobs with periods of one second to one hour, all due, with
//! five minutes of history. One job in 50 has a claimed run, and one in 100 a waiting run.
//! `cargo run --release -p everytick-store --features sim --example postgres_takeover [jobs] [jobs in a page] [loads at once]`
//! `PROBE_URL` names an empty database; without it, the probe starts its own server, which does not sync.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a probe, run by hand")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    job::JobSpec,
    partition::PartitionSet,
    schedule::Timing,
    time::{DbTime, Span},
};
use everytick_store::{
    Actor, Lease, Limits, LoadedJob, NewJob, NodeInfo, PostgresOptions, PostgresStore, Store,
    conformance::{incarnation, schedule, server::Server, spec},
};
use uuid::Uuid;

const HISTORY: Span = Span::minutes(5);

#[tokio::main]
async fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|argument| argument.parse().unwrap()).collect();
    let argument = |place: usize, usual: usize| arguments.get(place).copied().unwrap_or(usual);
    let (jobs, page, at_once) = (argument(0, 40_000), argument(1, 4_000), argument(2, 3));
    let own = if std::env::var_os("PROBE_URL").is_none() { Some(Server::shared().blank().await) } else { None };
    let url = own.as_ref().map_or_else(|| std::env::var("PROBE_URL").unwrap(), |database| database.url.clone());
    let limits = Limits { jobs_per_tenant_max: u64::MAX, ..Limits::default() };
    let store = Arc::new(PostgresStore::connect(&url, PostgresOptions::default(), limits).await.unwrap());
    let now = with_history(&store, jobs).await;

    let (lease, _) = store.join(&NodeInfo::named("new"), incarnation(2), Span::days(1)).await.unwrap();
    let all = PartitionSet::all(store.partitions());
    let until = now.plus(Span::hours(2));
    // Three rounds: in the first one, the server reads pages from disk. A real take-over finds them in its caches.
    for round in ["first", "again", "and again"] {
        sqlx::raw_sql(
            "update partitions set holder = (select incarnation from leases where node = 'dead');
             update leases set ended = false, until = 0 where node = 'dead'",
        )
        .execute(store.pool())
        .await
        .unwrap();
        let before = cpu(&store).await;
        let began = clock();
        let acquired = store.acquire(&lease, &all).await.unwrap();
        assert_eq!(acquired, all);
        let acquiring = began.elapsed();
        let groups: Vec<PartitionSet> =
            (0..at_once).map(|group| all.iter().filter(|one| usize::from(*one) % at_once == group).collect()).collect();
        let loads: Vec<_> = groups
            .into_iter()
            .map(|group| tokio::spawn(load(store.clone(), lease.clone(), group, until, page)))
            .collect();
        let (mut loaded, mut open) = (0, 0);
        for load in loads {
            let (jobs, runs) = load.await.unwrap();
            (loaded, open) = (loaded + jobs, open + runs);
        }
        let took = began.elapsed();
        let after = cpu(&store).await;
        println!(
            "{round:10} {loaded} jobs, {open} open runs: {took:.0?} from acquiring (which took {acquiring:.0?}); processor: \
             server {:.0?}, ours {:.0?}",
            after.0 - before.0,
            after.1 - before.1
        );
    }
}

async fn load(
    store: Arc<PostgresStore>,
    lease: Lease,
    group: PartitionSet,
    until: DbTime,
    page: usize,
) -> (usize, usize) {
    let (mut after, mut jobs, mut open) = (None, 0, 0);
    loop {
        let loaded: Vec<LoadedJob> = store.load_horizon(&lease, &group, until, after, page).await.unwrap();
        jobs += loaded.len();
        open += loaded.iter().map(|job| job.open.len()).sum::<usize>();
        after = loaded.last().and_then(|job| job.cursor.map(|cursor| (cursor, job.job.id)));
        if after.is_none() {
            return (jobs, open);
        }
    }
}

/// Creates jobs with the history of a node that died 15 s ago. Returns the present time.
async fn with_history(store: &PostgresStore, jobs: usize) -> DbTime {
    let (dead, now) = store.join(&NodeInfo::named("dead"), incarnation(1), Span::days(1)).await.unwrap();
    store.acquire(&dead, &PartitionSet::all(store.partitions())).await.unwrap();
    let numbers: Vec<u64> = (0..jobs as u64).collect();
    for numbers in numbers.chunks(1_000) {
        let made = numbers.iter().map(|n| NewJob { id: id(*n), spec: described(*n) }).collect();
        for created in store.create_jobs(TenantId::DEFAULT, &Actor::local("probe"), made, None).await.unwrap() {
            created.unwrap();
        }
    }
    let died = now.minus(Span::seconds(15));
    let text = format!(
        "create temporary table played as
           select c.job, (j.spec::jsonb #>> '{{labels,period}}')::bigint * 1000 as period from cursors c join jobs j on j.id = c.job;
         create function run_id(job uuid, at bigint) returns uuid language sql as
           $$ select (lpad(to_hex(at), 12, '0') || '8' || substr(md5(job::text || at::text), 1, 3) || '8' || substr(md5(job::text || at::text), 4, 15))::uuid $$;
         insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, started_at, finished_at)
           select run_id(p.job, at), 1, p.job, 1, at, at, 2, false, false, 1, 0, 1, at, at
             from played p cross join generate_series({died} - {died} % p.period - ({kept} / p.period) * p.period, {died}, p.period) as at;
         update cursors c set next_tick = greatest({died} - {died} % p.period - 5000 + 5000 % p.period, {died} - {died} % p.period - p.period)
           from played p where p.job = c.job;
         update runs r set state = 1, finished_at = null, node = 'dead', incarnation = '{dead}'
           from (select distinct on (job) id, job from runs where id >= '{recent}' order by job, id desc) l
          where r.id = l.id and hashtext(r.job::text) % 50 = 0;
         update runs r set state = 0, finished_at = null
           from (select distinct on (job) id, job from runs where id >= '{recent}' order by job, id desc) l
          where r.id = l.id and hashtext(r.job::text) % 100 = 1;
         insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts)
           select r.id, r.job, 1, c.partition, 5, r.due_at, false, false, 0 from runs r join cursors c on c.job = r.job where r.state = 0;
         update leases set open_from = (select min(id::text)::uuid from runs where state = 1), until = {died};
         drop table played; drop function run_id(uuid, bigint)",
        died = died.millis(),
        kept = HISTORY.as_millis(),
        dead = dead.incarnation.uuid(),
        recent = RunId::floor(died.minus(Span::minutes(2))).uuid(),
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(store.pool()).await.unwrap();
    sqlx::raw_sql("vacuum analyze").execute(store.pool()).await.unwrap();
    let counted: (i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from runs), (select count(*) from runs where state = 1), (select count(*) from waiting)",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    println!("{jobs} jobs, {} runs, {} of them claimed and {} waiting", counted.0, counted.1, counted.2);
    now
}

/// Of 100 jobs, 1 ticks every second, 9 every 10 seconds, 30 every minute, and 60 every hour.
fn described(n: u64) -> JobSpec {
    let seconds = match n % 100 {
        0 => 1,
        1..=9 => 10,
        10..=39 => 60,
        _ => 3_600,
    };
    let mut described = spec(&format!("job-{n}"));
    described.schedule = Some(schedule(Timing::Every { every: Span::seconds(seconds) }));
    described.labels.insert("team".to_owned(), format!("team-{}", n % 20));
    described.labels.insert("period".to_owned(), seconds.to_string());
    described
}

/// An id derived from a number: evenly distributed, as real ids are, and the same at every start.
fn id(n: u64) -> JobId {
    let spread = u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    JobId::from_uuid(Uuid::from_u128(spread << 64 | u128::from(n)))
}

/// The CPU time of the server's sessions in this database, and of this process.
async fn cpu(store: &PostgresStore) -> (Duration, Duration) {
    let sessions: Vec<i32> =
        sqlx::query_scalar("select pid from pg_stat_activity where datname = current_database() and pid is not null")
            .fetch_all(store.pool())
            .await
            .unwrap();
    let server = sessions.iter().map(|pid| process_cpu(&format!("/proc/{pid}/stat"))).sum();
    (server, process_cpu("/proc/self/stat"))
}

/// The kernel counts in units of 10 ms. The name of the command is in parentheses and may contain spaces.
fn process_cpu(path: &str) -> Duration {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|count| count.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

#[expect(clippy::disallowed_methods, reason = "a probe measures")]
fn clock() -> Instant {
    Instant::now()
}
