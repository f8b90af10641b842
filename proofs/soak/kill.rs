//! The jobs of `steady`, while the server is killed again and again.

use std::time::Duration;

use crate::{
    Checks, Random,
    ledger::Ledger,
    now_ms,
    server::Server,
    sink::{self, Sink},
    sleep_until_ms,
    steady::create,
};

pub(crate) async fn run(jobs: u64, times: u64, seed: u64) -> anyhow::Result<()> {
    println!("{jobs} jobs every second under {times} x kill -9, seed {seed}:");
    let dir = tempfile::tempdir()?;
    let mut random = Random::new(seed);
    let (sink, hook) = Sink::start().await?;
    let mut server = Server::start(dir.path()).await?;
    // Each server lives up to three seconds, and a start takes some time too.
    let seconds = times * 5 / 2 + 5;
    let from = (now_ms() / 1_000 + 4) * 1_000;
    let to = from + i64::try_from(seconds - 1)? * 1_000;
    create(&server, &hook, jobs, 1, from, to).await?;
    sleep_until_ms(from).await;
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(random.below(3_000))).await;
        server.kill().await?;
        server = Server::start(dir.path()).await?;
    }
    println!("  killed {times} times within {:.1} s", (now_ms() - from) as f64 / 1_000.0);
    sleep_until_ms(to).await;
    // Wait until no delivery has arrived for 4 s, so that retries of lost runs are included.
    let mut last = (sink.len(), 0);
    while last.1 < 40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        last = if sink.len() == last.0 { (last.0, last.1 + 1) } else { (sink.len(), 0) };
    }
    server.stop().await?;
    let ledger = Ledger::read(dir.path(), 1_000).await?;
    let deliveries = sink.all();
    let (p50, p99, max) = sink::lag(&deliveries);
    println!("  runs {}, skips by reason {:?} (1 overlap, 2 misfire, 3 catch_up)", ledger.runs, ledger.skips);
    println!("  deliveries {}, lag p50 {p50} ms, p99 {p99} ms, max {max} ms", deliveries.len());
    let mut checks = Checks::new();
    checks.expect("recorded ticks", ledger.ticks.len() as u64, jobs * seconds);
    checks.expect("ticks recorded twice", ledger.doubled(), 0);
    checks.expect("open runs", ledger.open, 0);
    checks.expect("duplicate deliveries of an attempt", sink::repeated(&deliveries), 0);
    checks.expect("early deliveries", sink::early(&deliveries), 0);
    println!("  integrity_check: {}", ledger.integrity);
    anyhow::ensure!(ledger.integrity == "ok", "the database file is damaged");
    checks.end()
}
