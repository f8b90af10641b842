//! Everytick from the command line: parses, runs one command, and turns what went wrong into a message and an exit code.

mod cli;
mod client;
mod config;
mod failure;
mod logging;
mod node;
mod output;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
