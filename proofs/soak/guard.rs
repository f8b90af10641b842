//! `soak guard`: short benchmarks of the real binary. Bounds apply only to ratios within one run, because machines differ and
//! may be busy. They fail if a cost grows with the number of jobs or becomes several times higher, but not on a busy machine.

use anyhow::Context;
use everytick_store::conformance::server::Server;
use serde_json::Value;
use tokio::process::Command;

use crate::binary;

/// Lower bound of a figure. Far below the value on an idle machine: see docs/reference/benchmarks.md.
struct Bound {
    figure: &'static str,
    at_least: f64,
}

const fn bound(figure: &'static str, at_least: f64) -> Bound {
    Bound { figure, at_least }
}

pub(crate) async fn run(jobs: u64) -> anyhow::Result<()> {
    let database = Server::shared().blank().await;
    let (many, few, url) = (jobs.to_string(), (jobs / 10).to_string(), database.url.as_str());
    let mut passed = true;
    let tick = ["tick", "--jobs", &many, "--from", &few, "--seconds", "4"];
    passed &= meets(url, &tick, &[bound("growth", 0.6), bound("ratio", 0.1)]).await?;
    let life = ["life", "--jobs", &few];
    passed &= meets(url, &life, &[bound("ratio", 0.03)]).await?;
    anyhow::ensure!(passed, "a figure is below its bound");
    Ok(())
}

/// Whether a benchmark meets its bounds. Repeats a failed measurement once, because a single one may be disturbed.
async fn meets(url: &str, bench: &[&str], bounds: &[Bound]) -> anyhow::Result<bool> {
    for last in [false, true] {
        let found = measure(url, bench).await?;
        let mut passed = true;
        for Bound { figure, at_least } in bounds {
            let is = found[figure].as_f64().with_context(|| format!("no {figure} in {found}"))?;
            passed &= is >= *at_least;
            let mark = if is >= *at_least { "" } else { "   BELOW" };
            println!("  bench {}: {figure} {is:.3}, at least {at_least}{mark}", bench.join(" "));
        }
        if passed || last {
            return Ok(passed);
        }
    }
    Ok(false)
}

async fn measure(url: &str, bench: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new(binary()?)
        .args(["--output", "json", "bench"])
        .args(bench)
        .args(["--database-url", url])
        .kill_on_drop(true)
        .output()
        .await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "bench {bench:?} failed: {stderr}");
    serde_json::from_slice(&output.stdout).with_context(|| format!("bench {bench:?} printed no JSON: {stderr}"))
}
