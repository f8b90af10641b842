//! Three real nodes and a real PostgreSQL under seeded faults, with a checker that knows the schedules. `scripts/chaos` builds
//! and runs this; docs/explanation/chaos.md describes it and has the result of the last campaign.

mod campaign;
mod check;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod crowd;
mod edits;
mod faults;
mod forward;
mod history;
mod load;
mod net;
mod node;
mod oracle;
mod postgres;
mod probe;
mod process;
mod progress;
mod record;
mod report;
mod sabotage;
mod sink;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use sabotage::Sabotage;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Breaks three nodes and their database again and again, and checks that no tick is lost, doubled or early
#[derive(Parser, Debug)]
#[command(name = "chaos")]
struct Options {
    /// The same seed gives the same faults in the same order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 9)]
    minutes: i64,
    /// Duration in seconds, instead of --minutes
    #[arg(long)]
    seconds: Option<i64>,
    /// Removes a guard; the campaign must then fail
    #[arg(long)]
    sabotage: Option<Sabotage>,
    /// Repeatedly assigns partitions to nodes that do not own them; the campaign must pass
    #[arg(long)]
    lies: bool,
    /// Checks only safety, not speed
    #[arg(long)]
    safety_only: bool,
    #[arg(long, default_value = "text")]
    output: Format,
    /// This process has its own network namespace and may create more
    #[arg(long, hide = true)]
    spaces: bool,
    /// The server binary; default: the one next to this program
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Keeps logs and data even if all checks pass
    #[arg(long)]
    keep: bool,
}

impl Options {
    fn seconds(&self) -> i64 {
        self.seconds.unwrap_or(self.minutes * 60)
    }

    fn binary(&self) -> anyhow::Result<PathBuf> {
        let binary = self.binary.clone().map_or_else(common::binary, Ok)?;
        Ok(std::path::absolute(binary)?)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [command, socket, address] = words.as_slice()
        && command == "forward"
    {
        forward::run(socket, address).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse();
    let folder = campaign::folder(options.seed)?;
    eprintln!("logs in {}", folder.display());
    // The first process of a PID namespace gets only the signals that it handles.
    let mut terminated = signal(SignalKind::terminate())?;
    let report = tokio::select! {
        report = campaign::run(&options, &folder) => report?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("stopped"),
        _ = terminated.recv() => anyhow::bail!("stopped"),
    };
    let right = report.wrong().is_empty();
    match options.output {
        Format::Text => print!("{}", report.text()),
        Format::Json => println!("{}", report.json()?),
    }
    if right && !options.keep {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
