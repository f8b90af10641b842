//! `everytick cron`: explains a cron expression and lists its ticks, without a server.

use clap::{Args, Subcommand};
use everytick_domain::{
    instant::{InstantText, Lean},
    schedule::{Fold, Gap, PREVIEW_TICKS_MAX, Preview, Schedule, ScheduleSpec},
};
use everytick_store::{SystemClock, WallClock};

use super::preview::Ticks;
use crate::{
    failure::{Exit, Failure},
    output::Output,
};

const EXPLAIN_HELP: &str = "\
Examples:
  everytick cron explain '*/15 9-17 * * MON-FRI' --tz Europe/Paris
  everytick cron explain '0 2 * * *' --tz America/New_York --from 2026-03-07
  everytick cron explain 'H H * * *' --name nightly-report
  everytick -o json cron explain '@daily'

Fields: minute hour day month weekday. Six fields have seconds first, seven also have the year last.
Also L, W, # and +, names, @daily and similar, `@every 90s`, and H for a value derived from the job's name.";

const NEXT_HELP: &str = "\
Examples:
  everytick cron next '0 2 * * *' --tz Europe/Paris -n 5
  everytick cron next '0 0 L * *' --from 2026-01-01
  everytick -o json cron next '30 2 * * *' --tz America/New_York | jq -r '.ticks[].at'";

#[derive(Debug, Subcommand)]
pub(crate) enum CronCommand {
    /// Describe an expression in plain English, and list its next ticks with the effects of clock changes
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// List the next ticks of an expression
    #[command(after_help = NEXT_HELP)]
    Next(Next),
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    expression: Expression,
    /// Show this many ticks
    #[arg(short = 'n', long, default_value_t = 5, value_parser = count)]
    count: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Next {
    #[command(flatten)]
    expression: Expression,
    /// Show this many ticks
    #[arg(short = 'n', long, default_value_t = 10, value_parser = count)]
    count: usize,
}

#[derive(Debug, Args)]
struct Expression {
    /// The expression, in quotes
    #[arg(value_name = "EXPR", allow_hyphen_values = true)]
    cron: String,
    /// Evaluate the expression in this time zone, an IANA name [default: UTC]
    #[arg(long, visible_alias = "timezone", value_name = "ZONE")]
    tz: Option<String>,
    /// When clocks go forward over a fixed time, fire right after the change (shift) or not on that day (skip)
    #[arg(long, value_enum, default_value_t)]
    gap: GapWord,
    /// When clocks go back and a fixed time occurs twice, fire at this occurrence
    #[arg(long, value_enum, default_value_t)]
    fold: FoldWord,
    /// Show the ticks from this time on [default: now]
    #[arg(long, visible_alias = "since", value_name = "TIME", allow_hyphen_values = true)]
    from: Option<InstantText>,
    /// Derive the value of an H in the expression from this job name
    #[arg(long, value_name = "JOB", default_value = "", hide_default_value = true)]
    name: String,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum GapWord {
    #[default]
    Shift,
    Skip,
}

impl GapWord {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Shift => "shift",
            Self::Skip => "skip",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum FoldWord {
    #[default]
    First,
    Last,
    Both,
}

impl FoldWord {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Last => "last",
            Self::Both => "both",
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is not a number of ticks; write 1 to {PREVIEW_TICKS_MAX}");
    text.parse().ok().filter(|count| (1..=PREVIEW_TICKS_MAX).contains(count)).ok_or_else(wrong)
}

impl CronCommand {
    pub(crate) fn run(&self, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Explain(Explain { expression, count }) => {
                let preview = expression.preview(out, *count)?;
                if out.is_json() {
                    return Ok(out.json(&preview)?);
                }
                out.line(&preview.description)?;
                out.line("")?;
                print_ticks(out, preview)
            }
            Self::Next(Next { expression, count }) => {
                let preview = expression.preview(out, *count)?;
                if out.is_json() { Ok(out.json(&preview)?) } else { print_ticks(out, preview) }
            }
        }
    }
}

fn print_ticks(out: Output, preview: Preview) -> anyhow::Result<()> {
    let ticks = Ticks::from(preview);
    if ticks.is_empty() {
        return Err(Failure::new(Exit::Failed, "the expression has no further ticks").into());
    }
    Ok(ticks.print(out)?)
}

impl Expression {
    fn schedule(&self) -> Result<Schedule, Failure> {
        let gap = match self.gap {
            GapWord::Shift => Gap::Shift,
            GapWord::Skip => Gap::Skip,
        };
        let fold = match self.fold {
            FoldWord::First => Fold::First,
            FoldWord::Last => Fold::Last,
            FoldWord::Both => Fold::Both,
        };
        ScheduleSpec::cron(&self.cron, self.tz.as_deref(), gap, fold, &self.name)
            .and_then(|timing| Schedule::compile(&timing.into()))
            .map_err(|found| {
                let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
                match lines.as_slice() {
                    [one] => Failure::usage(one),
                    many => Failure::usage(format!("the schedule is not valid\n  {}", many.join("\n  "))),
                }
            })
    }

    fn preview(&self, out: Output, count: usize) -> Result<Preview, Failure> {
        let schedule = self.schedule()?;
        let from = match &self.from {
            Some(text) => out.times().read("from", text, Lean::Future, schedule.zone_name())?,
            None => SystemClock.now(),
        };
        Ok(schedule.preview(from, count))
    }
}
