//! Backfills: runs for past ticks, on request. Decides which ticks a backfill covers and how many of them get their runs now.
//! Backfilled runs never count as the record of their ticks (I2), and on-time runs go first.

mod step;
#[cfg(test)]
mod tests;

pub use step::{Progress, Step};

use crate::{
    ids::{BackfillId, Cause, JobId, RunId},
    invalid::Invalid,
    job::{Job, JobSpec, LATE_AFTER_MAX, PAYLOAD_BYTES_MAX},
    queue::Rate,
    run::coded,
    schedule::{Schedule, Timing},
    time::{DbTime, Span},
};

/// Maximum number of ticks that one backfill covers.
pub const BACKFILL_TICKS_MAX: usize = 10_000;
/// Maximum number of backfills of one job that are in progress together.
pub const BACKFILLS_RUNNING_MAX: usize = 10;
/// How often a backfill creates runs.
pub const BACKFILL_EVERY: Span = Span::seconds(1);
/// Maximum number of open runs of one backfill.
pub const BACKFILL_OPEN_MAX: usize = 100;
/// A backfill that lasts longer than this is ended. Its runs have ids as old as the backfill, and a lookup of claims
/// reads all runs of the job from its oldest claimed id on.
pub const BACKFILL_LASTS_MAX: Span = Span::days(7);
/// The time prefixes of a backfill's run ids are spread over this many milliseconds, in the order of their ticks.
const IDS_SPREAD_MS: u64 = 10_000;
/// A client may request a period that ends at its own "now". Its clock may be ahead of the database clock by this much.
const CLOCKS_DIFFER_MAX: Span = Span::minutes(1);
/// How many ticks a dry run lists from each end of the period.
pub const BACKFILL_TICKS_NAMED: usize = 5;

/// Which ticks get their runs first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    Oldest,
    Newest,
}

impl Order {
    pub const ALL: [Self; 2] = [Self::Oldest, Self::Newest];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::Newest => "newest",
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word)
    }
}

coded! {
    BackfillState {
        Running = 0 "running",
        Done = 1 "done",
        Cancelled = 2 "cancelled",
    }
}

/// The requested period, `from` included and `to` excluded, and the order of its ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub from: DbTime,
    pub to: DbTime,
    pub order: Order,
}

/// The facts of a backfill from which its run ids are derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub backfill: BackfillId,
    pub created_at: DbTime,
    pub stretch: Stretch,
}

impl Origin {
    /// The id of the run for a tick. Its time prefix is not the tick but an instant shortly before the backfill. So a
    /// lookup of claims does not read months of runs. The run is also kept as long as other runs that were created at
    /// that time. The instant is more than `LATE_AFTER_MAX` before the backfill, so every on-time tick counts as newer
    /// and, under `cancel_previous`, is never superseded by a backfilled run.
    #[must_use]
    pub fn run(&self, job: JobId, tick: DbTime) -> RunId {
        let (of, all) =
            (tick.since(self.stretch.from).as_millis(), self.stretch.to.since(self.stretch.from).as_millis());
        let offset = u128::from(of.min(all)) * u128::from(IDS_SPREAD_MS) / u128::from(all.max(1));
        let at = self.begins().plus(Span::millis(u64::try_from(offset).unwrap_or(IDS_SPREAD_MS)));
        RunId::of(job, Cause::Backfill { at, backfill: self.backfill, tick })
    }

    const fn begins(&self) -> DbTime {
        self.created_at.minus(LATE_AFTER_MAX).minus(Span::millis(IDS_SPREAD_MS))
    }
}

/// The ticks of the present schedule in the requested period, without excluded ones, in the order in which they get their runs.
/// Runs older than `oldest` are not kept, so the period must not begin before it.
pub fn ticks(
    job: &Job,
    requested: Stretch,
    rate: Option<Rate>,
    oldest: DbTime,
    now: DbTime,
) -> Result<Vec<DbTime>, Vec<Invalid>> {
    let timing = job.spec.schedule.as_ref().map(|spec| &spec.timing);
    let schedule = match (&job.schedule, timing) {
        (Some(_), Some(Timing::At { at })) => {
            let message = format!(
                "{:?} has a schedule with one instant ({at}), so there is nothing to backfill; trigger the job instead",
                job.spec.name
            );
            return Err(vec![Invalid::new("job", message)]);
        }
        (Some(schedule), Some(Timing::Cron { .. } | Timing::Every { .. })) => schedule,
        _ => {
            let message = format!("{:?} has no schedule, so it has no ticks; trigger the job instead", job.spec.name);
            return Err(vec![Invalid::new("job", message)]);
        }
    };
    let Stretch { from, to, order } = requested;
    let mut wrong = Vec::new();
    if to <= from {
        wrong.push(Invalid::new("to", format!("{to} is not after from ({from}); the period ends before to")));
    }
    if to > now.plus(CLOCKS_DIFFER_MAX) {
        let message = format!("{to} is in the future: the database time is {now}; a backfill covers past ticks");
        wrong.push(Invalid::new("to", message));
    }
    let to = to.min(now);
    if from < oldest {
        wrong
            .push(Invalid::new("from", format!("{from} is too old: runs are kept from {oldest} on; use a later time")));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let Some(mut ticks) = free_ticks(schedule, from, to.minus(Span::millis(1))) else {
        let message = format!(
            "the schedule has more than {BACKFILL_TICKS_MAX} ticks from {from} to before {to}, the limit of one backfill; \
             request a shorter period"
        );
        return Err(vec![Invalid::new("from", message)]);
    };
    if ticks.is_empty() {
        return Err(vec![Invalid::new(
            "from",
            format!("no tick of the schedule fires from {from} to before {to}; request a longer period"),
        )]);
    }
    if let Some(invalid) = rate.and_then(|rate| too_slow(rate, ticks.len()).or_else(|| too_fast(rate, &job.spec))) {
        return Err(vec![invalid]);
    }
    if order == Order::Newest {
        ticks.reverse();
    }
    Ok(ticks)
}

fn too_slow(rate: Rate, ticks: usize) -> Option<Invalid> {
    // The first `count` ticks need no wait.
    let wait = (ticks as u64).saturating_sub(rate.count.into());
    let takes = Span::millis(rate.per.as_millis().saturating_mul(wait) / u64::from(rate.count.max(1)));
    let message = || {
        format!(
            "{rate} would take more than {BACKFILL_LASTS_MAX} for {ticks} ticks, the longest that a backfill may last; \
             use a faster rate, or split the period"
        )
    };
    (takes > BACKFILL_LASTS_MAX).then(|| Invalid::new("rate", message()))
}

/// The error for a rate that the backfill could never reach. If the overlap policy limits the runs in progress, one
/// step creates only as many runs as may start.
fn too_fast(rate: Rate, spec: &JobSpec) -> Option<Invalid> {
    let max = u64::from(spec.in_progress_max()?);
    let fast =
        u64::from(rate.count).saturating_mul(BACKFILL_EVERY.as_millis()) > max.saturating_mul(rate.per.as_millis());
    let message = || {
        format!(
            "{rate} is faster than the overlap policy of {:?} allows: at most {max} of its runs may be in progress, so a \
             backfill creates at most {max} in {BACKFILL_EVERY}; write {max}/{BACKFILL_EVERY} or slower, leave out the \
             rate, or set overlap to allow",
            spec.name
        )
    };
    fast.then(|| Invalid::new("rate", message()))
}

/// The error of a backfill's own payload, if it has one.
#[must_use]
pub fn payload_problem(payload: &str) -> Option<Invalid> {
    let size = payload.len();
    let message = || format!("is {size} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are allowed");
    (size > PAYLOAD_BYTES_MAX).then(|| Invalid::new("payload", message()))
}

/// The ticks that fire from `from` to `last`, both included, in ascending order; `None` if there are too many.
/// Calendars exclude whole dates, so the loop needs few passes for a period within the kept history.
fn free_ticks(schedule: &Schedule, from: DbTime, last: DbTime) -> Option<Vec<DbTime>> {
    let (mut found, mut next) = (Vec::new(), schedule.first_from(from));
    while let Some(tick) = next.filter(|tick| *tick <= last) {
        if let Some(through) = schedule.excluded_through(tick, last) {
            next = schedule.next_after(through);
            continue;
        }
        let free_to = schedule.free_through(tick, last);
        for tick in schedule.ticks(tick, free_to) {
            if found.len() == BACKFILL_TICKS_MAX {
                return None;
            }
            found.push(tick);
        }
        next = schedule.next_after(free_to);
    }
    Some(found)
}
