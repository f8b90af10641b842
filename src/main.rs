//! The `everytick` binary: parses the command line, runs one command, and reports an error as a message and an exit code.

mod access;
mod audit_stream;
mod bench;
mod cli;
mod client;
mod config;
mod credentials;
mod descriptors;
mod failure;
mod identity;
mod listen;
mod logging;
mod node;
mod output;
mod sse;
mod telemetry;
mod times;
mod watchdog;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before everything else: it must be quick, and its arguments are no user's.
    if let Some(code) = everytick_targets::exec_command(std::env::args_os()) {
        return code;
    }
    // Does nothing without the feature `mutants`, which only test builds have.
    if let Err(wrong) = everytick_domain::mutant::set_from_env(|name| std::env::var(name).ok()) {
        return failure::report(&failure::Failure::usage(wrong).into());
    }
    match cli::usage::parse(std::env::args_os()).map_err(Into::into).and_then(cli::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
