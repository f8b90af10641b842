//! Measures how fast plain jobs are registered in bulk, the CPU time of the server and of this process, and the disk space of each
//! job with all its indexes.
//! `cargo run --release -p everytick-store --features sim --example postgres_register [jobs] [jobs in a batch] [keep]`
//! With a third argument, a node owns all partitions meanwhile and polls for changes, as `serve` does. The probe reports the time
//! of these polls separately.
//! `PROBE_URL` names an empty database; without it, the probe starts its own server, which does not sync.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a probe, run by hand")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use everytick_domain::{
    ids::{JobId, TenantId},
    job::JobSpec,
    partition::PartitionSet,
    schedule::{Fold, Gap, ScheduleSpec},
    splitmix::SplitMix64,
    target::{HttpTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    Actor, ChangeMark, Limits, NewJob, NodeInfo, PostgresOptions, PostgresStore, Store,
    conformance::{incarnation, server::Server},
};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, usual: usize| arguments.get(place).map_or(usual, |text| text.parse().unwrap());
    let (jobs, batch) = (number(0, 100_000), number(1, 1_000));
    let own = if std::env::var_os("PROBE_URL").is_none() { Some(Server::shared().blank().await) } else { None };
    let url = own.as_ref().map_or_else(|| std::env::var("PROBE_URL").unwrap(), |database| database.url.clone());
    let limits = Limits { jobs_per_tenant_max: u64::MAX, ..Limits::default() };
    let store = Arc::new(PostgresStore::connect(&url, PostgresOptions::default(), limits).await.unwrap());

    let ended = Arc::new(AtomicBool::new(false));
    let holder = (arguments.len() > 2).then(|| tokio::spawn(hold(url.clone(), limits, ended.clone())));

    let described = plain();
    let mut random = SplitMix64::new(1);
    let (server_before, ours_before) = cpu(&store).await;
    let (mut made, mut slowest, mut reported) = (0, Duration::ZERO, 0);
    let began = clock();
    while made < jobs {
        let now = store.now().await.unwrap();
        let count = batch.min(jobs - made);
        let mut ids: Vec<JobId> = (0..count).map(|_| JobId::new(now, bytes(&mut random))).collect();
        ids.sort_unstable();
        let specs = (made..).map(|n| JobSpec { name: format!("job-{n:07}"), ..described.clone() });
        let batch = ids.into_iter().zip(specs).map(|(id, spec)| NewJob { id, spec }).collect();
        let asked = clock();
        for created in store.create_jobs(TenantId::DEFAULT, &Actor::local("local"), batch, None).await.unwrap() {
            created.unwrap();
        }
        slowest = slowest.max(asked.elapsed());
        made += count;
        if made / 1_000_000 > reported {
            reported = made / 1_000_000;
            println!("{made:9} jobs after {:.1?}", began.elapsed());
        }
    }
    let took = began.elapsed();
    let (server, ours) = cpu(&store).await;
    ended.store(true, Ordering::Relaxed);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / jobs as f64;
    println!(
        "{jobs} jobs, {batch} in a batch: {:.0} jobs/s, slowest batch {slowest:.0?}; processor a job: server {:.1} us, ours \
         {:.1} us",
        jobs as f64 / took.as_secs_f64(),
        each(server - server_before),
        each(ours - ours_before),
    );
    if let Some(holder) = holder {
        println!("the polling node {}", holder.await.unwrap());
    }
    sizes(&store, jobs).await;
}

/// A typical job: daily, for a webhook, with defaults for all other fields.
fn plain() -> JobSpec {
    let url = "https://example.org/hook".to_owned();
    let target = TargetSpec::Http(HttpTarget::post(url));
    let daily = ScheduleSpec::cron("15 3 * * *", Some("Europe/Paris"), Gap::Shift, Fold::First, "job").unwrap();
    JobSpec { schedule: Some(daily.into()), ..JobSpec::new("job", target) }
}

/// Polls for changes every 200 ms until the registration has ended. Returns a report of the polls.
async fn hold(url: String, limits: Limits, ended: Arc<AtomicBool>) -> String {
    let store = PostgresStore::connect(&url, PostgresOptions::default(), limits).await.unwrap();
    let (lease, _) = store.join(&NodeInfo::named("holder"), incarnation(1), Span::days(1)).await.unwrap();
    let all = PartitionSet::all(store.partitions());
    store.acquire(&lease, &all).await.unwrap();
    let mut mark = store.changes(&all, ChangeMark::default(), 0).await.unwrap().mark;
    let (told, mut looking, mut looks) = (AtomicU64::new(0), Duration::ZERO, 0_u32);
    while !ended.load(Ordering::Relaxed) {
        let asked = clock();
        loop {
            let changes = store.changes(&all, mark, 4_000).await.unwrap();
            told.fetch_add(changes.jobs.len() as u64, Ordering::Relaxed);
            mark = changes.mark;
            looks += 1;
            if !changes.more || ended.load(Ordering::Relaxed) {
                break;
            }
        }
        looking += asked.elapsed();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    format!("read {} changes in {looks} polls, which took {looking:.1?}", told.into_inner())
}

/// Prints the bytes per job of each table and index that a registration writes.
async fn sizes(store: &PostgresStore, jobs: usize) {
    let found: Vec<(String, String, i64)> = sqlx::query_as(
        "select t.relname::text, c.relname::text, pg_total_relation_size(c.oid)
                - case when c.oid = t.oid then pg_indexes_size(c.oid) else 0 end
           from pg_class t
           join lateral (select t.oid union all select indexrelid from pg_index where indrelid = t.oid) as part (oid) on true
           join pg_class c on c.oid = part.oid
          where t.relname in ('jobs', 'epochs', 'cursors', 'audit') and t.relkind = 'r'
          order by 1, c.relkind desc, 2",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    let each = |bytes: i64| bytes as f64 / jobs as f64;
    for (_, name, bytes) in &found {
        println!("{name:16} {:7.1} B", each(*bytes));
    }
    let of =
        |audit: bool| found.iter().filter(|(table, ..)| (table == "audit") == audit).map(|(.., bytes)| bytes).sum();
    println!("a job            {:7.1} B, and {:.1} B of audit trail", each(of(false)), each(of(true)));
}

fn bytes(random: &mut SplitMix64) -> [u8; 10] {
    let mut bytes = [0; 10];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&random.draw().to_le_bytes()[..part.len()]);
    }
    bytes
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
