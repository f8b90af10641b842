//! The command line, one file per command. A command parses its flags, calls the server, and prints the answer.
//! The rules are in the server and the domain.

mod audit;
mod backfill;
mod calendar;
mod cluster;
mod completions;
mod cron;
mod explanation;
mod fit;
mod flow;
mod flow_graph;
mod ids;
mod job;
mod login;
mod move_to;
mod number;
mod paragraphs;
mod preview;
mod queue;
mod recover;
mod redrive;
mod run;
mod run_period;
mod run_table;
mod secret;
pub(crate) mod serve;
mod started;
mod tenant;
mod token;
pub(crate) mod usage;
mod worker;

use std::path::PathBuf;

use clap::{Parser, Subcommand, builder::BoolishValueParser};
use everytick_worker::Certificates;

use crate::{
    bench::BenchCommand,
    client::{self, Client},
    config::{File, SERVER_DEFAULT},
    credentials::Credential,
    output::{self, Format, Output},
    times::Times,
};

const AFTER_HELP: &str = "\
First steps:
  everytick serve
  everytick job create hello --every 10s --queue hello
  everytick worker --queue hello -- echo hello
  everytick run list

A setting comes from its flag, else its EVERYTICK_* variable, else its key in everytick.toml
(the flag's name in snake_case: `drain_timeout = \"30s\"`), else the default. The global options are
read only from a file that --config or EVERYTICK_CONFIG names: everytick.toml in the working directory
could send your token to another server.

Exit codes:
  0  success
  1  the command failed, or the server refused it
  2  a flag, a variable or everytick.toml is wrong
  3  no such job, run, flow, backfill, calendar, queue, token or tenant
  4  conflict: the name is taken, the version is stale, other jobs refer to it, the state does not allow it, the triggered run was skipped, or several ids begin like the given one
  5  no server answers";

/// Run a distributed cron: every tick is recorded exactly once and delivered at least once, under one id, never early.
#[derive(Debug, Parser)]
#[command(name = "everytick", version, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// Read settings from this file [default: ./everytick.toml if it exists]
    #[arg(long, global = true, env = "EVERYTICK_CONFIG", value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
    /// Send requests to the server at this URL, or unix:PATH [default: http://127.0.0.1:8640]
    #[arg(long, global = true, env = "EVERYTICK_SERVER", value_name = "URL", help_heading = "Global options")]
    server: Option<String>,
    /// Trust only the authorities in this PEM file when the server uses TLS [default: those of the system]
    #[arg(long, global = true, env = "EVERYTICK_CA_FILE", value_name = "FILE", help_heading = "Global options")]
    ca_file: Option<PathBuf>,
    /// Show the server the certificate in this PEM file
    #[arg(long, global = true, env = "EVERYTICK_CLIENT_CERT", value_name = "FILE", help_heading = "Global options")]
    client_cert: Option<PathBuf>,
    /// Read the private key of --client-cert from this PEM file
    #[arg(long, global = true, env = "EVERYTICK_CLIENT_KEY", value_name = "FILE", help_heading = "Global options")]
    client_key: Option<PathBuf>,
    /// Print answers as tables, or as the JSON objects of the API [default: table]
    #[arg(
        long,
        short,
        global = true,
        env = "EVERYTICK_OUTPUT",
        value_name = "FORMAT",
        help_heading = "Global options"
    )]
    output: Option<Format>,
    /// Read and show times in UTC [default: the job's zone, else the local zone]
    #[arg(
        long,
        global = true,
        env = "EVERYTICK_UTC",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    utc: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node (scheduler, dispatcher and API), alone on a SQLite file or in a cluster on PostgreSQL
    #[command(after_help = serve::AFTER_HELP)]
    Serve(Box<serve::ServeFlags>),
    /// Create, change, inspect and trigger jobs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// List, inspect, cancel and repeat runs
    #[command(subcommand)]
    Run(run::RunCommand),
    /// List, inspect and cancel backfills (runs for past ticks); `everytick job backfill` creates one
    #[command(subcommand)]
    Backfill(backfill::BackfillCommand),
    /// List, inspect and cancel flows, and repeat them from the failed jobs
    #[command(subcommand)]
    Flow(flow::FlowCommand),
    /// Manage calendars: named sets of dates, such as holidays, that schedules exclude
    #[command(subcommand)]
    Calendar(calendar::CalendarCommand),
    /// List and inspect queues, and set their limits
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Claim runs from a queue and execute a command for each
    #[command(after_help = worker::AFTER_HELP)]
    Worker(worker::WorkerFlags),
    /// Show the nodes that share the database, and the partitions that each node owns
    #[command(after_help = cluster::AFTER_HELP)]
    Cluster(cluster::Cluster),
    /// Create, list, revoke and rotate API tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Create, list, change, suspend and delete tenants
    #[command(subcommand)]
    Tenant(tenant::TenantCommand),
    /// Set, list, rotate and delete secrets, and manage the keys that encrypt them
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Check a token at the server and store it for this user
    #[command(after_help = login::LOGIN_HELP)]
    Login(login::Login),
    /// Remove the stored token of the server
    #[command(after_help = login::LOGOUT_HELP)]
    Logout(login::Logout),
    /// Show the identity and the permissions of this user on the server
    #[command(after_help = login::WHOAMI_HELP)]
    Whoami(login::Whoami),
    /// Manage whether a server needs tokens, without the server
    #[command(subcommand)]
    Access(login::AccessCommand),
    /// List who changed what, newest first
    #[command(after_help = audit::AFTER_HELP)]
    Audit(audit::Audit),
    /// Explain a cron expression and list its ticks; needs no server
    #[command(subcommand)]
    Cron(cron::CronCommand),
    /// Show which runs a restart now would start; reads only the database and changes nothing
    #[command(after_help = recover::AFTER_HELP)]
    Recover(recover::Recover),
    /// Move a whole installation from a SQLite file to a PostgreSQL database
    #[command(after_help = move_to::AFTER_HELP)]
    Move(move_to::MoveFlags),
    /// Measure the speed of this release on this machine and database
    #[command(subcommand)]
    Bench(Box<BenchCommand>),
    /// Print a completion script for a shell
    #[command(after_help = completions::AFTER_HELP)]
    Completions(completions::Completions),
}

pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    let Cli { config, server, ca_file, client_cert, client_key, output, utc, command } = cli;
    if let Command::Completions(completions) = command {
        return completions.run(); // before the file is read, so that it works when everytick.toml is invalid
    }
    let mut file = File::load(config.as_deref())?;
    if config.is_none() {
        let ignored = file.ignore_client_keys();
        if !matches!(command, Command::Serve(_)) {
            ignored.iter().for_each(|warning| output::note_line(warning));
        }
    }
    let times = Times::new(utc.or(file.utc).unwrap_or(false));
    let out = Output::new(output.or(file.output).unwrap_or_default()).with_times(times);
    // The variable with a token is used only for a server that the caller names too.
    let named = server.is_some();
    let target = |file: File| {
        let address = server.clone().or(file.server).unwrap_or_else(|| SERVER_DEFAULT.to_owned());
        let certificates = Certificates {
            ca_file: ca_file.clone().or(file.ca_file),
            client_cert: client_cert.clone().or(file.client_cert),
            client_key: client_key.clone().or(file.client_key),
        };
        client::server(&address, certificates)
    };
    let client = |file: File| {
        let server = target(file)?;
        let credential = Credential::find(&server, named)?;
        Ok::<_, anyhow::Error>(Client::new(server)?.with_credential(credential))
    };
    match command {
        Command::Serve(flags) => serve::run(*flags, file),
        Command::Job(command) => block_on(command.run(&client(file)?, out)),
        Command::Run(command) => block_on(command.run(&client(file)?, out)),
        Command::Backfill(command) => block_on(command.run(&client(file)?, out)),
        Command::Flow(command) => block_on(command.run(&client(file)?, out)),
        Command::Calendar(command) => block_on(command.run(&client(file)?, out)),
        Command::Queue(command) => block_on(command.run(&client(file)?, out)),
        Command::Worker(flags) => {
            let server = target(file)?;
            let credential = Credential::find(&server, named)?;
            block_on(flags.run(server, &credential))
        }
        Command::Token(command) if command.is_offline() => block_on(command.run_offline(&file, out)),
        Command::Token(command) => block_on(command.run(&client(file)?, out)),
        Command::Tenant(command) => block_on(command.run(&client(file)?, out)),
        Command::Secret(command) if command.is_offline() => block_on(command.run_offline(&file, out)),
        Command::Secret(command) => block_on(command.run(&client(file)?, out)),
        Command::Login(login) => block_on(login.run(target(file)?, out)),
        Command::Logout(logout) => logout.run(&target(file)?),
        Command::Whoami(whoami) => block_on(whoami.run(&client(file)?, out)),
        Command::Access(command) => block_on(command.run(&file)),
        Command::Cluster(command) => block_on(command.run(&client(file)?, out)),
        Command::Audit(command) => block_on(command.run(&client(file)?, out)),
        Command::Cron(command) => command.run(out),
        Command::Recover(command) => block_on(command.run(file, out)),
        Command::Move(flags) => block_on(flags.run(out)),
        Command::Bench(command) => command.run(file, out),
        Command::Completions(completions) => completions.run(),
    }
}

/// Runs a client command. One thread is enough for the requests to one server.
fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_has_the_first_steps_of_the_banner() {
        for step in serve::FIRST_STEPS {
            assert!(AFTER_HELP.contains(&format!("\n  everytick {step}\n")), "{step}");
        }
    }

    #[test]
    fn clap_accepts_the_definition_of_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_a_help_text_and_every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
            assert!(command.get_about().is_some(), "{}", command.get_name());
            if command.has_subcommands() {
                command.get_subcommands().for_each(walk);
            } else {
                let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(examples.contains("everytick "), "{} has no example", command.get_name());
            }
        }
        walk(&Cli::command());
    }
}
