//! The subcommand `exec-command` of everytick as a program of its own, so that the tests of this crate can start commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    everytick_targets::exec_command(std::env::args_os()).unwrap_or(ExitCode::FAILURE)
}
