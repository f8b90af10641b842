//! Jobs that tick every second, without faults.

use std::time::Duration;

use anyhow::Context;

use crate::{
    Checks, create_jobs,
    ledger::Ledger,
    now_ms, rfc3339,
    server::Server,
    sink::{self, Sink},
    sleep_until_ms,
};

/// Creates `jobs` jobs through the batch API. Each ticks every `every` seconds from `from` to `to`, both included. Their first
/// ticks are spread over the first period.
pub(crate) async fn create(
    server: &Server,
    hook: &str,
    jobs: u64,
    every: u64,
    from: i64,
    to: i64,
) -> anyhow::Result<()> {
    let lines: String = (0..jobs)
        .map(|n| {
            let starts_at = from + i64::try_from(n % every).unwrap_or(0) * 1_000;
            let job = serde_json::json!({
                "name": format!("job-{n:05}"),
                "schedule": {"every": format!("{every}s"), "starts_at": rfc3339(starts_at), "ends_at": rfc3339(to)},
                "target": {"http": {"url": hook}},
            });
            format!("{job}\n")
        })
        .collect();
    create_jobs(reqwest::Client::new().post(format!("{}/api/v1/jobs/batch", server.url)), lines).await
}

pub(crate) async fn run(jobs: u64, seconds: u64) -> anyhow::Result<()> {
    println!("{jobs} jobs every second for {seconds} s:");
    let dir = tempfile::tempdir()?;
    let (sink, hook) = Sink::start().await?;
    let server = Server::start(dir.path()).await?;
    let from = (now_ms() / 1_000 + 4 + i64::try_from(jobs / 2_000)?) * 1_000;
    let to = from + i64::try_from(seconds - 1)? * 1_000;
    create(&server, &hook, jobs, 1, from, to).await?;
    anyhow::ensure!(now_ms() < from, "the jobs were not created before their first tick; use fewer jobs");
    let ticks = jobs * seconds;
    sleep_until_ms(to).await;
    for _ in 0..600 {
        if sink.len() as u64 >= ticks {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let metrics = reqwest::get(format!("{}/metrics", server.url)).await?.text().await?;
    server.stop().await.context("could not stop the server")?;
    let ledger = Ledger::read(dir.path(), 1_000).await?;
    let deliveries = sink.all();
    let (p50, p99, max) = sink::lag(&deliveries);
    println!("  lag from tick to arrival: p50 {p50} ms, p99 {p99} ms, max {max} ms");
    if let Some(line) = metrics.lines().find(|line| line.starts_with("everytick_dispatch_lag_seconds_sum")) {
        println!("  {line}");
    }
    let mut checks = Checks::new();
    checks.expect("recorded ticks", ledger.ticks.len() as u64, ticks);
    checks.expect("ticks recorded twice", ledger.doubled(), 0);
    checks.expect("runs", ledger.runs, ticks);
    checks.expect("deliveries", deliveries.len() as u64, ticks);
    checks.expect("duplicate deliveries of an attempt", sink::repeated(&deliveries), 0);
    checks.expect("early deliveries", sink::early(&deliveries), 0);
    checks.end()
}
