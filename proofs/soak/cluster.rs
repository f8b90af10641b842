//! Nodes that share a PostgreSQL: how the crash or the orderly stop of a node delays ticks.

use std::{collections::BTreeMap, time::Duration};

use everytick_store::conformance::server::{Database, Server as Postgres};
use sqlx::{Connection as _, PgConnection};

use crate::{
    Checks, now_ms,
    server::Server,
    sink::{self, Delivery, Sink},
    sleep_until_ms,
    steady::create,
};

/// Maximum lag of a tick while nodes are restarted one after another.
const LAG_MAX_MS: i64 = 1_000;

async fn node(database: &Database, name: &str, lease: u64) -> anyhow::Result<Server> {
    let lease = format!("{lease}s");
    Server::serve(&["--database-url", &database.url, "--node-name", name, "--lease", &lease]).await
}

pub(crate) async fn takeover(jobs: u64, lease: u64, every: u64) -> anyhow::Result<()> {
    println!("{jobs} jobs every {every} s; the node that owns all partitions is killed, lease {lease} s:");
    let database = Postgres::shared().blank().await;
    let (sink, hook) = Sink::start().await?;
    let first = node(&database, "first", lease).await?;
    let from = (now_ms() / 1_000 + 4 + i64::try_from(jobs / 2_000)?) * 1_000;
    // Long enough for two ticks of each job, so that every job has a tick after the take-over.
    let ticks = (3 + 4 * lease).div_ceil(every).max(2);
    let to = from + i64::try_from(ticks * every - 1)? * 1_000;
    create(&first, &hook, jobs, every, from, to).await?;
    anyhow::ensure!(now_ms() < from, "the jobs were not created before their first tick; use fewer jobs");
    sleep_until_ms(from + 3_400).await;
    let killed = now_ms();
    first.kill().await?;
    let second = node(&database, "second", lease).await?;
    sleep_until_ms(to).await;
    settle(&sink).await;
    let metrics = reqwest::get(format!("{}/metrics", second.url)).await?.text().await?;
    let acquired = acquired_at(&database).await?;
    second.stop().await?;
    if let Some(line) = metrics.lines().find(|line| line.starts_with("everytick_take_up_duration_seconds_sum")) {
        println!("  {line}");
    }
    let deliveries = sink.all();
    let after = deliveries.iter().map(|delivery| delivery.arrived_at).filter(|at| *at > killed + 200).min();
    let first_after = after.map_or(i64::MAX, |at| at - killed);
    let caught_up = deliveries.iter().filter(|delivery| late(delivery)).map(|delivery| delivery.arrived_at).max();
    println!(
        "  first late tick delivered {first_after} ms after the kill, the last one {} ms after it",
        caught_up.unwrap_or(killed) - killed
    );
    let after_acquiring = |delivery: &&Delivery| delivery.arrived_at >= acquired && delivery.scheduled_at > killed;
    let (missed, ahead): (Vec<_>, Vec<_>) =
        deliveries.iter().filter(after_acquiring).partition(|delivery| delivery.scheduled_at < acquired);
    let mut waits: Vec<_> = missed.iter().map(|delivery| delivery.arrived_at - acquired).collect();
    waits.sort_unstable();
    let lag = ahead.iter().map(|delivery| delivery.arrived_at - delivery.scheduled_at).max();
    println!(
        "  acquired {} ms after the kill; {} ticks were due in between: delivered within {} ms after that, half of them within {}; \
         maximum lag of later ticks {} ms",
        acquired - killed,
        waits.len(),
        waits.last().copied().unwrap_or(0),
        waits.get(waits.len() / 2).copied().unwrap_or(0),
        lag.unwrap_or(0)
    );
    let mut checks = Checks::new();
    on_record(&database, jobs * ticks, &mut checks).await?;
    checks.expect("duplicate deliveries of an attempt", sink::repeated(&deliveries), 0);
    checks.expect("early deliveries", sink::early(&deliveries), 0);
    checks.expect("take-over longer than two leases", u64::from(first_after > i64::try_from(lease)? * 2_000), 0);
    checks.end()
}

pub(crate) async fn rolling(jobs: u64, lease: u64) -> anyhow::Result<()> {
    println!("{jobs} jobs every second; three nodes are restarted one after another, lease {lease} s:");
    let database = Postgres::shared().blank().await;
    let (sink, hook) = Sink::start().await?;
    let mut nodes = BTreeMap::new();
    for name in ["a", "b", "c"] {
        nodes.insert(name, node(&database, name, lease).await?);
    }
    let from = (now_ms() / 1_000 + 5) * 1_000;
    let seconds = 30;
    let to = from + (seconds - 1) * 1_000;
    create(&nodes["a"], &hook, jobs, 1, from, to).await?;
    for (n, name) in (0..).zip(["a", "b", "c"]) {
        sleep_until_ms(from + 3_100 + n * 8_000).await;
        if let Some(old) = nodes.remove(name) {
            let begun = now_ms();
            old.stop().await?;
            let stopped = now_ms();
            nodes.insert(name, node(&database, name, lease).await?);
            println!("  {name} stopped in {} ms and restarted in {} ms", stopped - begun, now_ms() - stopped);
        }
    }
    sleep_until_ms(to).await;
    settle(&sink).await;
    for (_, node) in nodes {
        node.stop().await?;
    }
    let deliveries = sink.all();
    let (p50, p99, max) = sink::lag(&deliveries);
    println!("  lag from tick to arrival: p50 {p50} ms, p99 {p99} ms, max {max} ms");
    let mut checks = Checks::new();
    on_record(&database, jobs * seconds.unsigned_abs(), &mut checks).await?;
    checks.expect("deliveries", deliveries.len() as u64, jobs * seconds.unsigned_abs());
    checks.expect("duplicate deliveries of an attempt", sink::repeated(&deliveries), 0);
    checks.expect("early deliveries", sink::early(&deliveries), 0);
    checks.expect("deliveries later than 1 s", deliveries.iter().filter(|delivery| late(delivery)).count() as u64, 0);
    checks.end()
}

fn late(delivery: &Delivery) -> bool {
    delivery.arrived_at - delivery.scheduled_at > LAG_MAX_MS
}

/// When the present owners acquired their partitions, by the database clock.
async fn acquired_at(database: &Database) -> anyhow::Result<i64> {
    let mut db = PgConnection::connect(&database.url).await?;
    Ok(sqlx::query_scalar("select max(since) from partitions where holder is not null").fetch_one(&mut db).await?)
}

/// Waits until no delivery has arrived for 3 s.
async fn settle(sink: &Sink) {
    let mut last = (sink.len(), 0);
    while last.1 < 30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        last = if sink.len() == last.0 { (last.0, last.1 + 1) } else { (sink.len(), 0) };
    }
}

/// Checks the recorded ticks, read from the tables.
async fn on_record(database: &Database, ticks: u64, checks: &mut Checks) -> anyhow::Result<()> {
    let mut db = PgConnection::connect(&database.url).await?;
    let count = async |db: &mut PgConnection, text: &'static str| -> anyhow::Result<u64> {
        Ok(sqlx::query_scalar::<_, i64>(text).fetch_one(db).await?.unsigned_abs())
    };
    let recorded = count(&mut db, "select count(distinct (job, scheduled_at)) from runs where cause = 1").await?;
    let rows = count(&mut db, "select count(*) from runs where cause = 1").await?;
    let skipped = count(&mut db, "select count(*) from runs where skip_reason is not null").await?;
    let open = count(&mut db, "select count(*) from runs where state < 2").await?;
    println!("  {rows} recorded ticks, {skipped} of them skipped");
    checks.expect("recorded ticks", recorded, ticks);
    checks.expect("ticks recorded twice", rows - recorded, 0);
    checks.expect("open runs", open, 0);
    Ok(())
}
