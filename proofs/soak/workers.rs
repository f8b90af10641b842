//! Workers of a queue, on PostgreSQL: killed at random while they work through a queue, and a thousand of them idle.

use std::{process::Stdio, time::Duration};

use anyhow::Context as _;
use everytick_store::conformance::server::{Database, Server as Postgres};
use everytick_worker::{Context, Failure, Worker};
use futures::{StreamExt as _, stream};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::{Checks, Random, now_ms, server::Server};

/// A lost run is available again within its lease plus one second.
const LOST_MS_MAX: u64 = 31_000;
/// Maximum CPU of the node with idle workers, in thousandths of one core.
const IDLE_CPU_MAX: u64 = 50;
/// p99 of the time from a trigger to its claim while workers wait.
const START_MS_MAX: u64 = 50;
const QUEUE: &str = "work";
/// Maximum number of waiting runs of one job.
const RUNS_PER_JOB: u64 = 1_000;

async fn node(database: &Database) -> anyhow::Result<Server> {
    Server::serve(&["--database-url", &database.url, "--node-name", "a"]).await
}

async fn create(url: &str, jobs: u64) -> anyhow::Result<()> {
    for n in 0..jobs {
        let job = json!({"name": format!("j{n}"), "target": {"queue": {"name": QUEUE}}, "overlap": "allow"});
        reqwest::Client::new().post(format!("{url}/api/v1/jobs")).json(&job).send().await?.error_for_status()?;
    }
    Ok(())
}

async fn trigger(http: &reqwest::Client, url: &str, job: u64) -> anyhow::Result<()> {
    http.post(format!("{url}/api/v1/jobs/j{job}/trigger")).send().await?.error_for_status()?;
    Ok(())
}

/// One worker in its own process, for `killed`.
pub(crate) async fn worker(url: &str) -> anyhow::Result<()> {
    Worker::new(url, QUEUE)?.concurrency(4).run(work, CancellationToken::new()).await?;
    Ok(())
}

async fn work(_: Context) -> Result<String, Failure> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok("done".to_owned())
}

fn start_worker(url: &str) -> anyhow::Result<Child> {
    let started = Command::new(std::env::current_exe()?)
        .args(["worker", url])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    started.context("could not start a worker")
}

/// `workers` processes work through `runs` runs; one of them is killed every 100 to 400 ms.
pub(crate) async fn killed(runs: u64, workers: u64, seed: u64) -> anyhow::Result<()> {
    println!("{runs} runs of a queue, {workers} workers that are killed at random, seed {seed}:");
    let database = Postgres::shared().blank().await;
    let server = node(&database).await?;
    let (http, url) = (reqwest::Client::new(), server.url.clone());
    create(&url, runs.div_ceil(RUNS_PER_JOB)).await?;
    let triggers = stream::iter(0..runs).map(|n| trigger(&http, &url, n / RUNS_PER_JOB)).buffer_unordered(8);
    triggers.collect::<Vec<_>>().await.into_iter().collect::<anyhow::Result<()>>()?;
    let mut children = (0..workers).map(|_| start_worker(&url)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut random, mut kills, begun) = (Random::new(seed), 0_u64, now_ms());
    let mut db = PgConnection::connect(&database.url).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(100 + random.below(300))).await;
        let [waiting, claimed, done] = counts(&mut db).await?;
        if waiting + claimed == 0 {
            break;
        }
        anyhow::ensure!(now_ms() - begun < 600_000, "{waiting} runs wait and {claimed} are claimed after ten minutes");
        // No kills at the end, so that the last lost runs can be executed.
        if done < runs * 8 / 10 {
            let victim = usize::try_from(random.below(workers))?;
            children[victim].kill().await?;
            children[victim] = start_worker(&url)?;
            kills += 1;
        }
    }
    println!("  {kills} kills; all runs executed in {:.1} s", (now_ms() - begun) as f64 / 1_000.0);
    let count = async |db: &mut PgConnection, text: &'static str| -> anyhow::Result<u64> {
        Ok(sqlx::query_scalar::<_, i64>(text).fetch_one(db).await?.unsigned_abs())
    };
    let lost = count(&mut db, "select count(*) from attempts where outcome = 'lost'").await?;
    let longest = "select coalesce(max(finished_at - started_at), 0) from attempts where outcome = 'lost'";
    let longest = count(&mut db, longest).await?;
    println!("  {lost} attempts were lost; longest time from claim to loss: {longest} ms");
    let mut checks = Checks::new();
    checks.expect("succeeded runs", count(&mut db, "select count(*) from runs where state = 2").await?, runs);
    checks.expect("other runs", count(&mut db, "select count(*) from runs where state <> 2").await?, 0);
    checks.expect("longer from claim to loss than a lease plus 1 s", u64::from(longest > LOST_MS_MAX), 0);
    checks.end()
}

async fn counts(db: &mut PgConnection) -> anyhow::Result<[u64; 3]> {
    let text = "select (select count(*) from waiting), (select count(*) from worker_claims), (select count(*) from runs where state = 2)";
    let (waiting, claimed, done): (i64, i64, i64) = sqlx::query_as(text).fetch_one(db).await?;
    Ok([waiting, claimed, done].map(i64::unsigned_abs))
}

/// `workers` wait for runs: measures what that costs node and database, and how soon a new run starts.
pub(crate) async fn idle(workers: u64, seconds: u64) -> anyhow::Result<()> {
    println!("{workers} idle workers for {seconds} s:");
    let database = Postgres::shared().blank().await;
    let server = node(&database).await?;
    let url = server.url.clone();
    create(&url, 1).await?;
    let http = reqwest::Client::builder().pool_max_idle_per_host(usize::MAX).build()?;
    for n in 0..workers {
        let (http, url) = (http.clone(), url.clone());
        tokio::spawn(async move {
            let body = json!({"worker": format!("w{n}"), "wait": "20s"});
            loop {
                let sent = http.post(format!("{url}/api/v1/queues/{QUEUE}/claim")).json(&body).send().await;
                let Ok(answer) = sent else { return };
                let Ok(claimed) = answer.json::<serde_json::Value>().await else { return };
                for run in claimed["runs"].as_array().into_iter().flatten() {
                    let settle = json!({"fence": run["fence"], "outcome": "succeeded"});
                    let path = format!("{url}/api/v1/runs/{}/settle", run["id"].as_str().unwrap_or_default());
                    let _ = http.post(path).json(&settle).send().await;
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut db = PgConnection::connect(&database.url).await?;
    let (cpu, queries, begun) = (server.cpu_ms()?, commits(&mut db).await?, now_ms());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let took = (now_ms() - begun).unsigned_abs().max(1);
    let cpu = (server.cpu_ms()? - cpu) * 1_000 / took;
    let queries = (commits(&mut db).await? - queries) as f64 * 1_000.0 / took as f64;
    println!("  the node uses {:.1} % of one core; {queries:.1} transactions a second", cpu as f64 / 10.0);
    let ones = 200;
    for _ in 0..ones {
        trigger(&http, &url, 0).await?;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let text = "select started_at - due_at from runs where state = 2 order by 1";
    let waited: Vec<i64> = sqlx::query_scalar(text).fetch_all(&mut db).await?;
    let at = |percent: usize| waited.get((waited.len() * percent / 100).min(waited.len().saturating_sub(1))).copied();
    let p99 = at(99).unwrap_or(i64::MAX);
    println!("  from trigger to claim: p50 {} ms, p99 {p99} ms", at(50).unwrap_or(i64::MAX));
    let mut checks = Checks::new();
    checks.expect("executed runs", waited.len() as u64, ones);
    checks.expect("more than 5 % of a core", u64::from(cpu > IDLE_CPU_MAX), 0);
    checks.expect("p99 above 50 ms", u64::from(p99.unsigned_abs() > START_MS_MAX), 0);
    checks.end()
}

async fn commits(db: &mut PgConnection) -> anyhow::Result<u64> {
    // The statistics are updated with a delay; the few queries of this test hardly count.
    let text = "select pg_stat_clear_snapshot()::text, xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
    let (_, count): (Option<String>, i64) = sqlx::query_as(text).fetch_one(db).await?;
    Ok(count.unsigned_abs())
}
