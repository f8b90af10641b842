//! `everytick recover`: counts the runs that a restart now would start. It reads the database directly, because
//! the nodes may be down. The forecast comes from the same domain rule that a node uses for due ticks.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    overlap::{Open, OpenRuns},
    recovery::{Forecast, Rate, forecast},
    retry::{OnLost, RetryPolicy},
    run::{Claim, Policy, SkipReason, State},
    target::Outcome,
    time::{DbTime, Span},
};
use everytick_store::{JobRef, LoadedJob, PostgresStore, RunFilter, SqliteStore, Store, StoreError, SystemClock};
use serde::Serialize;

use crate::{
    config::{DatabaseSource, DatabaseUrl, File, database},
    failure::{Exit, Failure},
    output::{self, Output, Text},
};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick recover --dry-run
  everytick recover --dry-run --job nightly-report
  everytick recover --dry-run --database-url postgres://everytick@db/everytick
  everytick -o json recover --dry-run | jq .total

It also lists the runs in progress: if their node has ended, they are lost, and a restart starts them again or lets them fail,
as on_lost of their job says.
The command changes nothing, with or without --dry-run. Recovery itself needs no command: a starting node records every missed tick by the job's misfire rule. It starts
on-time runs at once, and late runs at the normal tick rate of the jobs, or at 5 per second if that is faster.
The command cannot read a SQLite file that a server has open: stop the server first.";

/// Jobs or runs per statement.
const JOBS_PER_PAGE: usize = 500;
/// How many pages of runs are searched for runs in progress.
const PAGES_MAX: usize = 100;
/// About how many runs in progress are listed.
const IN_PROGRESS_MAX: usize = 1_000;
/// A node has the jobs in memory that are due within this time. Their ticks determine its normal rate.
const HORIZON: Span = Span::seconds(60);

#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Show which runs would start, and change nothing; the command does the same without this flag
    #[arg(long)]
    dry_run: bool,
    /// Show only this job, by name or id
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// List at most this many jobs, those with the most runs first; the totals include all jobs
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Read this database instead of the file in --data-dir: sqlite:<file> or postgres://...
    #[arg(long, env = "EVERYTICK_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Read the database URL from this file
    #[arg(long, env = "EVERYTICK_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// Read the SQLite database in this directory [default: ./everytick-data]
    #[arg(long, env = "EVERYTICK_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl Recover {
    pub(crate) async fn run(self, file: File, out: Output) -> anyhow::Result<()> {
        if !self.dry_run {
            output::note_line(
                "recovery needs no command: a node recovers by itself when it starts (everytick serve). This is a dry run \
                 of the next start; nothing is changed.",
            );
        }
        let store: Box<dyn Store> = match database(
            DatabaseSource { url: self.database_url, url_file: self.database_url_file },
            self.data_dir,
            &file,
        )? {
            DatabaseUrl::Sqlite(file) => Box::new(SqliteStore::open_read_only(file, Arc::new(SystemClock)).await?),
            DatabaseUrl::Postgres(url) => Box::new(PostgresStore::connect_read_only(&url).await?),
        };
        let now = store.now().await?;
        let jobs = match &self.job {
            Some(job) => vec![one(store.as_ref(), job).await?],
            None => overdue(store.as_ref(), now.plus(HORIZON)).await?,
        };
        let only = self.job.as_ref().and_then(|_| jobs.first()).map(|loaded| loaded.job.id);
        let (lost, searched_to) = in_progress(store.as_ref(), only, now).await?;
        print(&Report { in_progress: lost, searched_to, ..Report::of(&jobs, now, self.limit) }, out)
    }
}

/// The runs that nodes have in progress, newest first, and how far back the search went if it did not reach the end.
async fn in_progress(
    store: &dyn Store,
    job: Option<JobId>,
    now: DbTime,
) -> anyhow::Result<(Vec<InProgress>, Option<DbTime>)> {
    let filter = RunFilter { job, states: vec![State::Claimed], ..RunFilter::default() };
    let (mut runs, mut before) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = store.list_runs(TenantId::DEFAULT, &filter, before, JOBS_PER_PAGE).await?;
        // A worker keeps its claim while the nodes restart, and so does a receiver that answered 202.
        runs.extend(page.items.into_iter().filter(|run| run.worker.is_none()));
        before = page.next;
        if before.is_none() || runs.len() >= IN_PROGRESS_MAX {
            break;
        }
    }
    let ids: Vec<JobId> = runs.iter().map(|run| run.job).collect::<BTreeSet<_>>().into_iter().collect();
    let jobs: BTreeMap<JobId, OnLost> =
        store.load_jobs(&ids).await?.iter().map(|loaded| (loaded.job.id, loaded.job.spec.on_lost)).collect();
    let found = runs.into_iter().map(|run| {
        let on_lost = jobs.get(&run.job).copied().unwrap_or_default();
        let claim = Claim { run: run.id, fence: run.fence, attempt: run.attempt, lost: run.lost };
        let policy = Policy { retry: RetryPolicy::with_retries(0), on_lost };
        let settled = claim.settle(Outcome::Lost, policy, now, 0);
        let starts = settled.is_some_and(|settled| settled.verdict.state().is_open());
        InProgress {
            job: run.job_name,
            run: run.id.to_string(),
            attempt: run.attempt,
            node: run.node,
            on_lost,
            next_attempt: starts.then_some(run.attempt + 1),
        }
    });
    Ok((found.collect(), before.map(RunId::time)))
}

async fn one(store: &dyn Store, job: &str) -> anyhow::Result<LoadedJob> {
    let named = job.parse().map_or_else(|_| JobRef::Name(job.to_owned()), JobRef::Id);
    let not_found = || Failure::new(Exit::NotFound, format!("--job: there is no job {job:?}"));
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

/// The open runs of a job after a restart. Claimed runs are lost: they are delivered again, or fail under `on_lost: fail`.
fn open_after_restart(loaded: &LoadedJob) -> OpenRuns {
    let fails = loaded.job.spec.on_lost == OnLost::Fail;
    let open = loaded.open.iter().filter(|run| !(fails && run.state == State::Claimed));
    open.map(|run| Open::from(*run)).collect()
}

#[derive(Debug, Serialize)]
struct Report {
    /// The database clock. The report counts ticks due at this instant.
    now: DbTime,
    jobs: Vec<JobReport>,
    /// More jobs have due ticks than `jobs` lists.
    more: bool,
    total: Total,
    /// Runs of these jobs that were in progress or wait. Those in progress are delivered again.
    open: usize,
    /// Limit of late runs started per second, in addition to on-time runs.
    late_per_second: f64,
    /// Time to start all late runs at that rate.
    late_take: Span,
    /// The runs that nodes have in progress. If their node ends, they are lost.
    in_progress: Vec<InProgress>,
    /// How far back runs in progress were searched; absent if the search reached the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    searched_to: Option<DbTime>,
}

#[derive(Debug, Serialize)]
struct InProgress {
    job: String,
    run: String,
    attempt: u32,
    node: Option<String>,
    on_lost: OnLost,
    /// The attempt that a restart starts; `null` if the run then fails.
    next_attempt: Option<u32>,
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

/// The ticks that are due and not recorded, by what recovery does with them.
#[derive(Debug, Serialize)]
struct Counts {
    ticks: u64,
    from: Option<DbTime>,
    to: Option<DbTime>,
    on_time: u64,
    late: u64,
    /// Counted as `overlap` skips, because the forecast assumes that earlier runs are still open. A tick fires if its
    /// predecessor has ended by then.
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
            let forecast = forecast(&loaded.job, loaded.first_unrecorded(), now, open_after_restart(loaded));
            if forecast.ticks > 0 {
                total.add(&forecast);
                due.push((forecast, &loaded.job.spec.name, loaded.job.id));
            }
        }
        due.sort_by_key(|(forecast, name, id)| {
            (std::cmp::Reverse((forecast.on_time + forecast.late, forecast.ticks)), *name, *id)
        });
        let rate = Rate::normal(jobs.iter().map(|loaded| &*loaded.job), now);
        let listed = due.iter().take(limit).map(|(forecast, name, id)| JobReport {
            job: (*name).to_owned(),
            id: id.to_string(),
            counts: Counts::of(forecast),
        });
        Self {
            now,
            jobs: listed.collect(),
            more: due.len() > limit,
            total: Total { jobs: due.len(), counts: Counts::of(&total) },
            open: jobs.iter().map(|loaded| open_after_restart(loaded).all()).sum(),
            late_per_second: rate.per_second(),
            late_take: rate.time_for(total.late),
            in_progress: Vec::new(),
            searched_to: None,
        }
    }
}

fn print(report: &Report, out: Output) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(report)?);
    }
    let total = &report.total.counts;
    if report.total.jobs == 0 {
        let message = match report.in_progress.len() {
            0 => "no tick is overdue: a restart now would start no additional runs",
            _ => "no tick is overdue: a restart now would start only the runs again that are in progress",
        };
        out.line(message)?;
        return print_in_progress(report, out);
    }
    let instant = |at: Option<DbTime>| Text::plain(at.map_or_else(String::new, |at| out.time(at)));
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
        out.line(&format!("... and {} more jobs; raise --limit to list them", report.total.jobs - report.jobs.len()))?;
    }
    out.line("")?;
    let late = match total.late {
        0 => "0".to_owned(),
        late => format!(
            "{late}, at most {:.1} per second in addition to on-time runs: {} on one node",
            report.late_per_second, report.late_take
        ),
    };
    let overlap = match total.may_fire {
        0 => String::new(),
        count => {
            format!("up to {count} more, if the earlier run has ended by then; counted as overlap under skipped")
        }
    };
    let open = match report.open {
        0 => String::new(),
        count => format!("{count} other runs of these jobs: in progress when their node ended, or waiting"),
    };
    out.facts(vec![
        ("may fire", Text::plain(overlap)),
        ("fire again", Text::plain(open)),
        ("at", Text::plain(report.now.to_string())),
        ("jobs", Text::plain(report.total.jobs.to_string())),
        ("ticks due", Text::plain(total.ticks.to_string())),
        ("on time", Text::plain(total.on_time.to_string())),
        ("late", Text::plain(late)),
        ("skipped", Text::plain(total.skipped())),
    ])?;
    print_in_progress(report, out)
}

/// The runs that are lost if their nodes end, and what a restart does with each.
fn print_in_progress(report: &Report, out: Output) -> anyhow::Result<()> {
    if report.in_progress.is_empty() {
        return Ok(());
    }
    out.line("\nIn progress; a run is lost if its node has ended:")?;
    let row = |run: &InProgress| {
        let then = run.next_attempt.map_or_else(|| "fails".to_owned(), |attempt| format!("starts attempt {attempt}"));
        vec![
            Text::plain(&run.job),
            Text::plain(&run.run),
            Text::number(run.attempt.to_string()),
            Text::plain(match run.on_lost {
                OnLost::Retry => "retry",
                OnLost::Fail => "fail",
            }),
            Text::plain(then),
        ]
    };
    out.table(&["JOB", "RUN", "ATTEMPT", "ON LOST", "A RESTART"], report.in_progress.iter().map(row).collect())?;
    if let Some(to) = report.searched_to {
        out.line(&format!("... searched only back to {}; earlier runs may be in progress too", out.time(to)))?;
    }
    Ok(())
}
