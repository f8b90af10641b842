//! `everytick move`: takes everything from one SQLite file to one PostgreSQL database. Asks the store for one batch after the
//! other, shows how far it is, and prints the numbers of rows on both sides.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    str::FromStr,
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

Stop the server of the file first, and make an empty database; the schema comes by itself.
Jobs, runs in every state, attempts, skipped ranges, idempotency keys and the audit trail
keep their ids. Each cursor stays where it is, so no tick is lost and none fires twice; what
falls due meanwhile is caught up with as each job says. Runs that were in progress when the
old server died are delivered again under the same id, with the next attempt.

An interrupted move goes on where it was: run the same command again. Until it is finished
nobody can serve the database. At the end the numbers of rows are compared; a difference is
an error.

Keep the file as a backup. It is marked, and `serve` refuses it: both together would fire
every job twice. --undo takes the mark off; what has happened in the database since does not
come back to the file. After a move that was finished it needs --to: it is refused while a node
serves that database, and no node can serve it afterwards. Where the database does not exist any
more, say --target-is-gone.

A password is better given as PGPASSWORD or in ~/.pgpass than in the address.";

#[derive(Debug, Args)]
pub(crate) struct MoveFlags {
    /// What everything is in now: sqlite:<file>
    #[arg(long, value_name = "URL")]
    from: Address,
    /// Where everything goes: postgres://..., an empty database
    #[arg(long, value_name = "URL", required_unless_present = "undo")]
    to: Option<Address>,
    /// Only tell what would be moved, and what stands in the way
    #[arg(long)]
    dry_run: bool,
    /// Take the mark of a move off the file, so that it can be served again; with --to, which is then not served any more
    #[arg(long, conflicts_with = "dry_run")]
    undo: bool,
    /// With --undo: the database that the file was moved to does not exist any more
    #[arg(long, requires = "undo", conflicts_with = "to")]
    target_is_gone: bool,
    /// How many rows go over in one transaction
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch_rows: u32,
}

/// A database's address, kept whole.
#[derive(Clone, Debug)]
enum Address {
    Sqlite(PathBuf),
    Postgres(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.parse()? {
            DatabaseUrl::Sqlite(file) => Self::Sqlite(file),
            _ => Self::Postgres(text.to_owned()),
        })
    }
}

impl MoveFlags {
    pub(crate) async fn run(self, out: Output) -> anyhow::Result<()> {
        let Address::Sqlite(from) = self.from else {
            return Err(one_way("--from: an installation does not move out of PostgreSQL"));
        };
        let to = match self.to {
            None if self.target_is_gone => return undo(&from, UndoTarget::Gone, out).await,
            None => return undo(&from, UndoTarget::Unnamed, out).await,
            Some(Address::Postgres(to)) if self.undo => return undo(&from, UndoTarget::At(&to), out).await,
            Some(Address::Postgres(to)) => to,
            Some(Address::Sqlite(_)) => {
                return Err(one_way("--to: an installation does not move to another file; copy it"));
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
            Some(at) => output::note_line(&format!("everything was moved at {at}; there is nothing left to do")),
            None if plan.resumed => output::note_line("going on with the move that was interrupted"),
            None => {}
        }
        let mut progress = Progress::new(&plan);
        let again = "the move is not finished; run the same command again, and it goes on from here";
        while let Some(step) = moving.step().await.context(again)? {
            progress.show(step);
        }
        progress.end();
        let tables = moving.finish().await.context(again)?;
        print_tables(&from, &to, &tables, json!({ "resumed": plan.resumed }), out)?;
        let differ = |table: &&MovedTable| table.source != table.target;
        if tables.iter().any(|table| differ(&table)) {
            let names: Vec<_> = tables.iter().filter(differ).map(|table| table.table.as_str()).collect();
            anyhow::bail!(
                "the target does not have as many rows as the source in {}; it is not served like this. \
                 Begin again with an empty database",
                names.join(", ")
            );
        }
        output::note_line(&format!(
            "all of it is over. Serve it with the flags that the file was served with, and --database-url {}\nKeep {} as a \
             backup; it is marked, and is not served any more.",
            DatabaseUrl::Postgres(to.clone()).shown(),
            from.display()
        ));
        Ok(())
    }
}

fn one_way(what: &str) -> anyhow::Error {
    Failure::usage(format!("{what}. What there is: everytick move --from sqlite:<file> --to postgres://...")).into()
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
        None => format!("{file} bears no mark; it can be served"),
        Some(mark) => format!(
            "{file} can be served again. {} must not be served: both together would fire every job twice. \
             Before you move again, make that database empty",
            mark.target
        ),
    })?)
}

fn print_plan(from: &Path, to: &str, plan: &MovePlan, out: Output) -> anyhow::Result<()> {
    let more = json!({ "dry_run": true, "resumed": plan.resumed });
    print_tables(from, to, &plan.tables, more, out)?;
    output::note_line(match plan {
        MovePlan { finished_at: Some(_), .. } => "everything was moved before; nothing would be done",
        MovePlan { resumed: true, .. } => "nothing was moved now; an interrupted move would go on from these numbers",
        MovePlan { .. } => "nothing was moved; nothing stands in the way",
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

/// A bar on a terminal; a line for each table elsewhere.
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
            None if step.done && self.rows > 0 => {
                output::note_line(&format!("{}: {} rows moved", self.table, self.rows))
            }
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
    getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
