//! The command line: one file a command. Commands parse, ask, and print; the rules are the server's and the domain's.

mod after_flags;
mod backfill;
mod calendar;
mod cluster;
mod completions;
mod cron;
mod flow;
mod flow_graph;
mod job;
mod job_flags;
mod move_to;
mod preview;
mod queue;
mod recover;
mod redrive;
mod run;
pub(crate) mod serve;
mod worker;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    bench::BenchCommand,
    client::Client,
    config::{File, SERVER_DEFAULT},
    output::{Format, Output},
};

const AFTER_HELP: &str = "\
Five minutes from here to a first run:
  everytick serve
  everytick job create hello --every 10s --url https://example.org/hook
  everytick run list

Settings come from a flag, else its EVERYTICK_* variable, else its key in everytick.toml
(a flag's name in snake_case: `drain_timeout = \"30s\"`), else the default.

Exit codes:
  0  done
  1  it failed, or the server refused it
  2  the command line, a variable or everytick.toml is wrong
  3  no such job, run, flow, backfill, calendar or queue
  4  a conflict: the name is taken, the version is stale, jobs name or follow it, or the run's state forbids it
  5  no server answers";

/// A distributed cron: every tick recorded exactly once, delivered at least once under one id, never early.
#[derive(Debug, Parser)]
#[command(name = "everytick", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// The file of settings; ./everytick.toml is read when it is there
    #[arg(long, global = true, env = "EVERYTICK_CONFIG", value_name = "FILE", help_heading = "Everywhere")]
    config: Option<PathBuf>,
    /// The server that commands talk to [default: http://127.0.0.1:8640]
    #[arg(long, global = true, env = "EVERYTICK_SERVER", value_name = "URL", help_heading = "Everywhere")]
    server: Option<String>,
    /// How answers are printed; json is the API's own objects [default: table]
    #[arg(long, short, global = true, env = "EVERYTICK_OUTPUT", value_name = "FORMAT", help_heading = "Everywhere")]
    output: Option<Format>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node: the scheduler, the deliveries and the API, alone on one file or with others on one PostgreSQL
    #[command(after_help = serve::AFTER_HELP)]
    Serve(Box<serve::ServeFlags>),
    /// Define jobs, and look at them
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Look at runs, stop them, repeat them
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Look at backfills, runs for past ticks, and end them; `everytick job backfill` makes them
    #[command(subcommand)]
    Backfill(backfill::BackfillCommand),
    /// Look at flows, stop them, repeat them from what failed
    #[command(subcommand)]
    Flow(flow::FlowCommand),
    /// Sets of dates, such as holidays, that schedules leave out
    #[command(subcommand)]
    Calendar(calendar::CalendarCommand),
    /// Look at queues, and limit them
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Work off a queue by running a command for each run
    #[command(after_help = worker::AFTER_HELP)]
    Worker(worker::WorkerFlags),
    /// Show the nodes that share the database, and what each holds
    #[command(after_help = cluster::AFTER_HELP)]
    Cluster(cluster::Cluster),
    /// Try out a cron expression; needs no server
    #[command(subcommand)]
    Cron(cron::CronCommand),
    /// Say what a restart now would fire, from the database itself; changes nothing
    #[command(after_help = recover::AFTER_HELP)]
    Recover(recover::Recover),
    /// Take everything from one file to one PostgreSQL database
    #[command(after_help = move_to::AFTER_HELP)]
    Move(move_to::MoveFlags),
    /// Measure how fast this release is on this machine and database
    #[command(subcommand)]
    Bench(Box<BenchCommand>),
    /// Print a completion script for a shell
    #[command(after_help = completions::AFTER_HELP)]
    Completions(completions::Completions),
}

pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { config, server, output, command } = cli;
    if let Command::Completions(completions) = command {
        return completions.run(); // also where everytick.toml is broken
    }
    let file = File::load(config.as_deref())?;
    let out = Output::new(output.or(file.output).unwrap_or_default());
    let address = |file: File| server.clone().or(file.server).unwrap_or_else(|| SERVER_DEFAULT.to_owned());
    let client = |file: File| Client::new(&address(file));
    match command {
        Command::Serve(flags) => serve::run(*flags, file),
        Command::Job(command) => block_on(command.run(&client(file)?, out)),
        Command::Run(command) => block_on(command.run(&client(file)?, out)),
        Command::Backfill(command) => block_on(command.run(&client(file)?, out)),
        Command::Flow(command) => block_on(command.run(&client(file)?, out)),
        Command::Calendar(command) => block_on(command.run(&client(file)?, out)),
        Command::Queue(command) => block_on(command.run(&client(file)?, out)),
        Command::Worker(flags) => block_on(flags.run(&address(file))),
        Command::Cluster(command) => block_on(command.run(&client(file)?, out)),
        Command::Cron(command) => command.run(out),
        Command::Recover(command) => block_on(command.run(file, out)),
        Command::Move(flags) => block_on(flags.run(out)),
        Command::Bench(command) => command.run(file, out),
        Command::Completions(completions) => completions.run(),
    }
}

/// One thread is enough to ask one server.
fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_says_what_it_is_and_every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
            assert!(command.get_about().is_some(), "{}", command.get_name());
            if command.has_subcommands() {
                command.get_subcommands().for_each(walk);
            } else {
                let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(examples.contains("everytick "), "{} shows no example", command.get_name());
            }
        }
        walk(&Cli::command());
    }
}
