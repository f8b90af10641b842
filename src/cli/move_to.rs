//! `everytick move`: moves an installation from a SQLite file to a PostgreSQL database. The store moves one batch after the
//! other; this command shows the progress and prints the row counts of both sides.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use everytick_store::{Move, MoveBatch, MovePlan, MoveStep, MovedTable, SystemClock, UndoTarget};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::{
    config::DatabaseUrl,
    failure::Failure,
    output::{self, Output, Text, Tone},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick move --from sqlite:jobs.db --to postgres://everytick@db/everytick --dry-run
  everytick move --from sqlite:jobs.db --to postgres://everytick@db/everytick
  everytick move --from sqlite:jobs.db --undo --to postgres://everytick@db/everytick

First stop the server of the file and create an empty database; the move creates the schema.
Jobs, runs in every state, attempts, skipped ranges, idempotency keys and the audit trail
keep their ids. Each cursor keeps its value, so no tick is lost and none fires twice. Ticks
that become due during the move follow the misfire rule of their job. Runs that were in progress
when the old server died are delivered again under the same id, with the next attempt.

To continue an interrupted move, run the same command again. Until the move is finished,
no node can serve the database. At the end the move compares the row counts; a difference is
an error.

Keep the file as a backup. The move marks it, and `serve` refuses a marked file, because the file
and the database together would fire every job twice. --undo removes the mark; changes made in
the database since then do not return to the file. After a finished move, --undo needs --to: it is
refused while a node serves that database, and afterwards no node can serve it. If the database
no longer exists, use --target-is-gone.

Put the password into PGPASSWORD or ~/.pgpass rather than into the URL.";

#[derive(Debug, Args)]
pub(crate) struct MoveFlags {
    /// Move from this database: sqlite:<file>
    #[arg(long, value_name = "URL", value_parser = source)]
    from: Address,
    /// Move to this empty database: postgres://...
    #[arg(long, value_name = "URL", required_unless_present = "undo", value_parser = destination)]
    to: Option<Address>,
    /// Show what would be moved and what prevents it, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove the mark from the file, so that it can be served again; no node can then serve the database of --to
    #[arg(long, conflicts_with = "dry_run")]
    undo: bool,
    /// With --undo, confirm that the database of the move no longer exists
    #[arg(long, requires = "undo", conflicts_with = "to")]
    target_is_gone: bool,
    /// Move this many rows per transaction
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = super::number::within::<u32>(1..=10_000))]
    batch_rows: u32,
}

/// The URL of a database, with its password and parameters.
#[derive(Clone, Debug)]
enum Address {
    Sqlite(PathBuf),
    Postgres(String),
}

fn source(text: &str) -> Result<Address, String> {
    let example = if text.contains(':') { "sqlite:jobs.db".to_owned() } else { format!("sqlite:{text}") };
    address(text).ok_or_else(|| format!("{} is not the URL of a SQLite file; write it like {example:?}", shown(text)))
}

fn destination(text: &str) -> Result<Address, String> {
    let example = "postgres://user@host/database";
    address(text)
        .ok_or_else(|| format!("{} is not the URL of a PostgreSQL database; write it like {example:?}", shown(text)))
}

fn address(text: &str) -> Option<Address> {
    Some(match text.parse().ok()? {
        DatabaseUrl::Sqlite(file) => Address::Sqlite(file),
        DatabaseUrl::Postgres(_) => Address::Postgres(text.to_owned()),
    })
}

/// The value for messages. A URL with a user may contain a password.
fn shown(text: &str) -> String {
    if text.contains('@') { "the value".to_owned() } else { format!("{text:?}") }
}

impl MoveFlags {
    pub(crate) async fn run(self, out: Output) -> anyhow::Result<()> {
        let Address::Sqlite(from) = self.from else {
            return Err(one_way("--from: moving out of PostgreSQL is not supported"));
        };
        let to = match self.to {
            None if self.target_is_gone => return undo(&from, UndoTarget::Gone, out).await,
            None => return undo(&from, UndoTarget::Unnamed, out).await,
            Some(Address::Postgres(to)) if self.undo => return undo(&from, UndoTarget::At(&to), out).await,
            Some(Address::Postgres(to)) => to,
            Some(Address::Sqlite(_)) => {
                return Err(one_way("--to: moving to another SQLite file is not supported; copy the file instead"));
            }
        };
        let clock = Arc::new(SystemClock);
        if self.dry_run {
            let plan = Move::look(&from, &to, clock).await?;
            return print_plan(&from, &to, &plan, out);
        }
        let batch = MoveBatch { rows_max: self.batch_rows as usize, ..MoveBatch::default() };
        let mut moving = Move::begin(&from, &to, clock, new_id()?, batch).await?;
        let plan = moving.plan().await?;
        match plan.finished_at {
            Some(at) => output::note_line(&format!("the move was finished at {}; nothing is left to do", out.time(at))),
            None if plan.resumed => output::note_line("continuing the interrupted move"),
            None => {}
        }
        let mut progress = Progress::new(&plan);
        let unfinished = "the move is not finished; run the same command again to continue it";
        while let Some(step) = moving.step().await.context(unfinished)? {
            progress.show(step);
        }
        progress.end();
        let tables = moving.finish().await.context(unfinished)?;
        print_tables(&from, &to, &tables, json!({ "resumed": plan.resumed }), out)?;
        let differ = |table: &&MovedTable| table.source != table.target;
        if tables.iter().any(|table| differ(&table)) {
            let names: Vec<_> = tables.iter().filter(differ).map(|table| table.table.as_str()).collect();
            anyhow::bail!(
                "the row counts of source and target differ in {}; nodes refuse to serve this target. \
                 Start again with an empty database",
                names.join(", ")
            );
        }
        output::note_line(&format!(
            "the move is finished. Start `everytick serve` with the same flags as before, and --database-url {}\nKeep {} as a \
             backup; it is marked, so that no server opens it.",
            DatabaseUrl::Postgres(to.clone()).shown(),
            from.display()
        ));
        Ok(())
    }
}

fn one_way(what: &str) -> anyhow::Error {
    Failure::usage(format!("{what}. Use: everytick move --from sqlite:<file> --to postgres://...")).into()
}

async fn undo(from: &Path, target: UndoTarget<'_>, out: Output) -> anyhow::Result<()> {
    let mark = Move::undo(from, target, Arc::new(SystemClock)).await?;
    if out.is_json() {
        let target = mark.as_ref().map(|mark| &mark.target);
        return Ok(
            out.json(&json!({ "source": from.display().to_string(), "unmarked": mark.is_some(), "target": target }))?
        );
    }
    let file = from.display();
    Ok(out.line(&match mark {
        None => format!("{file} has no mark; it can be served"),
        Some(mark) => format!(
            "{file} can be served again. Do not serve {}: both together would fire every job twice. \
             Before the next move, drop that database and create it again: a move needs an empty one",
            mark.target
        ),
    })?)
}

fn print_plan(from: &Path, to: &str, plan: &MovePlan, out: Output) -> anyhow::Result<()> {
    let more = json!({ "dry_run": true, "resumed": plan.resumed });
    print_tables(from, to, &plan.tables, more, out)?;
    output::note_line(match plan {
        MovePlan { finished_at: Some(_), .. } => "the move is already finished; nothing would be done",
        MovePlan { resumed: true, .. } => {
            "dry run: nothing was moved; the interrupted move would continue from these row counts"
        }
        MovePlan { .. } => "dry run: nothing was moved; nothing prevents the move",
    });
    Ok(())
}

fn print_tables(
    from: &Path,
    to: &str,
    tables: &[MovedTable],
    more: serde_json::Value,
    out: Output,
) -> anyhow::Result<()> {
    if out.is_json() {
        let mut report = more;
        report["source"] = from.display().to_string().into();
        report["target"] = Move::name_of_target(to)?.into();
        let row = |table: &MovedTable| json!({ "table": table.table, "source": table.source, "target": table.target });
        report["tables"] = tables.iter().map(row).collect();
        return Ok(out.json(&report)?);
    }
    let row = |table: &MovedTable| {
        let tone = if table.source == table.target { Tone::Plain } else { Tone::Warn };
        vec![
            Text::new(table.table.as_str(), tone),
            Text::number(table.source.to_string()),
            Text::number(table.target.to_string()),
        ]
    };
    Ok(out.table(&["TABLE", "SOURCE", "TARGET"], tables.iter().map(row).collect())?)
}

/// Shows a progress bar on a terminal, otherwise a line per table.
struct Progress {
    bar: Option<ProgressBar>,
    table: &'static str,
    rows: u64,
}

impl Progress {
    fn new(plan: &MovePlan) -> Self {
        let sum = |side: fn(&MovedTable) -> u64| plan.tables.iter().map(side).sum::<u64>();
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg:12} {wide_bar} {human_pos}/{human_len} rows, {eta} left");
            let bar = ProgressBar::new(sum(|table| table.source));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.inc(sum(|table| table.target));
            bar
        });
        Self { bar, table: "", rows: 0 }
    }

    fn show(&mut self, step: MoveStep) {
        if self.table != step.table {
            (self.table, self.rows) = (step.table, 0);
        }
        self.rows += step.rows;
        match &self.bar {
            Some(bar) => {
                bar.set_message(step.table);
                bar.inc(step.rows);
            }
            None if step.done && self.rows > 0 => output::note_line(&format!(
                "{}: {} {} moved",
                self.table,
                self.rows,
                if self.rows == 1 { "row" } else { "rows" }
            )),
            None => {}
        }
    }

    fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_id() -> anyhow::Result<uuid::Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the operating system returned no random bytes")?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
