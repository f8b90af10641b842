//! Everytick from the command line: parses, runs one command, and turns what went wrong into a message and an exit code.

mod bench;
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
    #[cfg(feature = "mutants")]
    make_mistakes();
    let cli = cli::Cli::parse();
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

/// The campaign's sabotage: the mistake that `EVERYTICK_MUTANT` names is made from here on.
#[cfg(feature = "mutants")]
fn make_mistakes() {
    use everytick_domain::mutant::{Mutant, set_everywhere};
    let Ok(name) = std::env::var("EVERYTICK_MUTANT") else { return };
    match Mutant::from_name(&name) {
        Some(mutant) => set_everywhere(mutant),
        None => eprintln!("EVERYTICK_MUTANT: there is no mistake named {name:?}"),
    }
}
