//! `everytick recover --dry-run`: what a restart now would fire, read from the database itself, since the nodes may be down.
//! Decides nothing: it plays what is due with the rule that a node plays by, and counts.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use clap::Args;
use everytick_domain::{
    ids::{JobId, TenantId},
    overlap::{Open, OpenRuns},
    recovery::{Forecast, Rate, forecast},
    retry::OnLost,
    run::{SkipReason, State},
    time::{DbTime, Span},
};
use everytick_store::{JobRef, LoadedJob, PostgresStore, SqliteStore, Store, StoreError, SystemClock};
use serde::Serialize;

use crate::{
    config::{DatabaseUrl, File, Named, database},
    failure::{Exit, Failure},
    output::{Output, Text},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick recover --dry-run
  everytick recover --dry-run --job nightly-report
  everytick recover --dry-run --database-url postgres://everytick@db/everytick
  everytick -o json recover --dry-run | jq .total

Recovery itself needs no command: a node that starts records every tick that was missed, as each job's
misfire rule says, starts what is on time at once, and late runs no faster than the jobs tick in normal
times. A SQLite file that is being served cannot be looked at: stop the server first.";

/// Jobs read in one statement.
const JOBS_PER_PAGE: usize = 500;
/// A node holds the jobs that are due within this: their ticks make its normal rate.
const HORIZON: Span = Span::seconds(60);

#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Say what would be fired, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only this job, by name or id
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// How many jobs to list, those with the most runs first; the totals are of all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// The database, if not the file in --data-dir: sqlite:<file> or postgres://...
    #[arg(long, env = "EVERYTICK_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// A file that has the address of the database in it
    #[arg(long, env = "EVERYTICK_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// Where the data is kept [default: ./everytick-data]
    #[arg(long, env = "EVERYTICK_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Recover {
    pub(crate) async fn run(self, file: File, out: Output) -> anyhow::Result<()> {
        if !self.dry_run {
            return Err(Failure::usage(
                "recovery happens by itself when a node starts (everytick serve): nothing has to be asked for; \
                 add --dry-run to see what it would fire",
            )
            .into());
        }
        let store: Box<dyn Store> =
            match database(Named { url: self.database_url, url_file: self.database_url_file }, self.data_dir, &file)? {
                DatabaseUrl::Sqlite(file) => Box::new(SqliteStore::open_read_only(file, Arc::new(SystemClock)).await?),
                DatabaseUrl::Postgres(url) => Box::new(PostgresStore::connect_read_only(&url).await?),
            };
        let now = store.now().await?;
        let jobs = match self.job {
            Some(job) => vec![one(store.as_ref(), &job).await?],
            None => overdue(store.as_ref(), now.plus(HORIZON)).await?,
        };
        print(&Report::of(&jobs, now, self.limit), out)
    }
}

async fn one(store: &dyn Store, job: &str) -> anyhow::Result<LoadedJob> {
    let named = job.parse().map_or_else(|_| JobRef::Name(job.to_owned()), JobRef::Id);
    let not_found = || Failure::new(Exit::NotFound, format!("there is no job {job:?}"));
    let found = match store.get_job(TenantId::DEFAULT, &named).await {
        Err(StoreError::NotFound(_)) => return Err(not_found().into()),
        found => found?,
    };
    Ok(store.load_jobs(&[found.job.id]).await?.pop().ok_or_else(not_found)?)
}

async fn overdue(store: &dyn Store, before: DbTime) -> anyhow::Result<Vec<LoadedJob>> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let page = store.load_overdue(before, after, JOBS_PER_PAGE).await?;
        after = page.last().and_then(|loaded| loaded.cursor.map(|cursor| (cursor, loaded.job.id)));
        jobs.extend(page);
        if after.is_none() {
            return Ok(jobs);
        }
    }
}

/// What is open of a job's runs once the nodes have been restarted: what they had claimed is lost, and is delivered again, or
/// has failed where the job wants that.
fn open_after_restart(loaded: &LoadedJob) -> OpenRuns {
    let fails = loaded.job.spec.on_lost == OnLost::Fail;
    let open = loaded.open.iter().filter(|run| !(fails && run.state == State::Claimed));
    open.map(|run| Open::from(*run)).collect()
}

#[derive(Debug, Serialize)]
struct Report {
    /// The database's clock: what is due is due at this instant.
    now: DbTime,
    jobs: Vec<JobReport>,
    /// Whether there are more jobs than are listed.
    more: bool,
    total: Total,
    /// Runs of these jobs that were in progress or wait: what was in progress is delivered again.
    open: usize,
    /// At most so many late runs are started a second, beside what is on time.
    late_per_second: f64,
    /// How long the late runs take at that rate.
    late_take: Span,
}

#[derive(Debug, Serialize)]
struct JobReport {
    job: String,
    id: String,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Debug, Serialize)]
struct Total {
    jobs: usize,
    #[serde(flatten)]
    counts: Counts,
}

/// Of the ticks that are due and not on the record: how many there are, and what becomes of them.
#[derive(Debug, Serialize)]
struct Counts {
    ticks: u64,
    from: Option<DbTime>,
    to: Option<DbTime>,
    on_time: u64,
    late: u64,
    /// Skipped as `overlap` here, because the run before is taken to be open still; each fires if that has ended by then.
    may_fire: u64,
    skipped: BTreeMap<&'static str, u64>,
}

impl Counts {
    fn of(forecast: &Forecast) -> Self {
        Self {
            ticks: forecast.ticks,
            from: forecast.span.map(|(from, _)| from),
            to: forecast.span.map(|(_, to)| to),
            on_time: forecast.on_time,
            late: forecast.late,
            may_fire: forecast.skips.get(&SkipReason::Overlap).copied().unwrap_or(0),
            skipped: forecast.skips.iter().map(|(reason, count)| (reason.word(), *count)).collect(),
        }
    }

    /// `58 catch_up, 539 misfire`
    fn skipped(&self) -> String {
        self.skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
    }
}

impl Report {
    fn of(jobs: &[LoadedJob], now: DbTime, limit: usize) -> Self {
        let mut total = Forecast::default();
        let mut due: Vec<(Forecast, &str, JobId)> = Vec::new();
        for loaded in jobs {
            let said = forecast(&loaded.job, loaded.first_unrecorded(), now, open_after_restart(loaded));
            if said.ticks > 0 {
                total.add(&said);
                due.push((said, &loaded.job.spec.name, loaded.job.id));
            }
        }
        due.sort_by_key(|(said, name, id)| (std::cmp::Reverse((said.on_time + said.late, said.ticks)), *name, *id));
        let rate = Rate::normal(jobs.iter().map(|loaded| &*loaded.job), now);
        let listed = due.iter().take(limit).map(|(said, name, id)| JobReport {
            job: (*name).to_owned(),
            id: id.to_string(),
            counts: Counts::of(said),
        });
        Self {
            now,
            jobs: listed.collect(),
            more: due.len() > limit,
            total: Total { jobs: due.len(), counts: Counts::of(&total) },
            open: jobs.iter().map(|loaded| open_after_restart(loaded).all()).sum(),
            late_per_second: rate.per_second(),
            late_take: rate.time_for(total.late),
        }
    }
}

fn print(report: &Report, out: Output) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(report)?);
    }
    let total = &report.total.counts;
    if report.total.jobs == 0 {
        return Ok(out.line("nothing is due: a restart now would fire nothing that it would not fire anyway")?);
    }
    let instant = |at: Option<DbTime>| Text::plain(at.map_or_else(String::new, |at| at.to_string()));
    let row = |job: &JobReport| {
        vec![
            Text::plain(&job.job),
            Text::number(job.counts.ticks.to_string()),
            Text::number(job.counts.on_time.to_string()),
            Text::number(job.counts.late.to_string()),
            instant(job.counts.from),
            instant(job.counts.to),
            Text::plain(job.counts.skipped()),
        ]
    };
    let header = ["JOB", "TICKS", "ON TIME", "LATE", "FROM", "TO", "SKIPPED"];
    out.table(&header, report.jobs.iter().map(row).collect())?;
    if report.more {
        out.line(&format!("... and {} more jobs; list them with --limit", report.total.jobs - report.jobs.len()))?;
    }
    out.line("")?;
    let late = match total.late {
        0 => "0".to_owned(),
        late => format!(
            "{late}, at most {:.1} a second beside what is on time: {} on one node",
            report.late_per_second, report.late_take
        ),
    };
    let overlap = match total.may_fire {
        0 => String::new(),
        count => {
            format!("up to {count} more fire, where the run before has ended by then; they count as overlap above")
        }
    };
    let open = match report.open {
        0 => String::new(),
        count => format!("{count} runs of these jobs besides: in progress when their node ended, or waiting"),
    };
    Ok(out.facts(vec![
        ("may fire", Text::plain(overlap)),
        ("fire again", Text::plain(open)),
        ("at", Text::plain(report.now.to_string())),
        ("jobs", Text::plain(report.total.jobs.to_string())),
        ("ticks due", Text::plain(total.ticks.to_string())),
        ("on time", Text::plain(total.on_time.to_string())),
        ("late", Text::plain(late)),
        ("skipped", Text::plain(total.skipped())),
    ])?)
}
