//! Backfills: runs for past ticks, on request. Decides which ticks a backfill covers and how many of them get their runs now.
//! Backfilled runs never count as the record of their ticks (I2), and on-time runs go first.

use crate::{
    ids::{BackfillId, Cause, JobId, RunId},
    invalid::Invalid,
    job::{Job, JobSpec, LATE_AFTER_MAX, PAYLOAD_BYTES_MAX},
    queue::Rate,
    run::coded,
    schedule::{Schedule, Timing},
    time::{DbTime, Span},
};

/// Most ticks that one backfill covers.
pub const BACKFILL_TICKS_MAX: usize = 10_000;
/// Most backfills of one job in progress together.
pub const BACKFILLS_RUNNING_MAX: usize = 10;
/// Most open runs of one backfill.
pub const BACKFILL_OPEN_MAX: usize = 100;
/// A backfill that has lasted this long is ended. A lookup of claims reads a job's runs from the oldest claimed one on, and the
/// ids of backfilled runs are as old as the backfill.
pub const BACKFILL_LASTS_MAX: Span = Span::days(7);
/// The time prefixes of a backfill's run ids are spread over this many milliseconds, in the order of their ticks.
const IDS_SPREAD_MS: u64 = 10_000;
/// How many ticks a dry run lists from either end.
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

/// The requested period, both ends included, and the order of its ticks.
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
    /// The id of the run for a tick. Its time prefix is not the tick but an instant shortly before the backfill. So a lookup of
    /// claims need not read back for months, and the run is kept as long as other runs created then. The instant is more than
    /// `LATE_AFTER_MAX` before the backfill, so every on-time tick counts as newer and, under `cancel_previous`, is never
    /// superseded by a backfilled run.
    #[must_use]
    pub fn run(&self, job: JobId, tick: DbTime) -> RunId {
        let (of, all) =
            (tick.since(self.stretch.from).as_millis(), self.stretch.to.since(self.stretch.from).as_millis());
        let place = u128::from(of.min(all)) * u128::from(IDS_SPREAD_MS) / u128::from(all.max(1));
        let at = self.begins().plus(Span::millis(u64::try_from(place).unwrap_or(IDS_SPREAD_MS)));
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
    asked: Stretch,
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
    let Stretch { from, to, order } = asked;
    let mut wrong = Vec::new();
    if to < from {
        wrong.push(Invalid::new("to", format!("{to} is before from ({from}); it must be from or later")));
    }
    if to > now {
        wrong.push(Invalid::new("to", format!("{to} is in the future: the database time is {now}")));
    }
    if from < oldest {
        wrong.push(Invalid::new("from", format!("{from} is too old: runs are kept from {oldest} on")));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let Some(mut ticks) = free_ticks(schedule, from, to) else {
        let message = format!(
            "the schedule has more than {BACKFILL_TICKS_MAX} ticks from {from} to {to}, the limit of one backfill; \
             request a shorter period"
        );
        return Err(vec![Invalid::new("from", message)]);
    };
    if ticks.is_empty() {
        return Err(vec![Invalid::new("from", format!("no tick of the schedule fires from {from} to {to}"))]);
    }
    if let Some(invalid) = rate.and_then(|rate| too_slow(rate, ticks.len())) {
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

/// The error of a backfill's own payload, if it has one.
#[must_use]
pub fn payload_problem(payload: &str) -> Option<Invalid> {
    let size = payload.len();
    let message = || format!("is {size} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are allowed");
    (size > PAYLOAD_BYTES_MAX).then(|| Invalid::new("payload", message()))
}

/// The ticks that fire, ascending; `None` if there are too many. Calendars exclude whole dates, so the loop needs few passes
/// for a period within the kept history.
fn free_ticks(schedule: &Schedule, from: DbTime, to: DbTime) -> Option<Vec<DbTime>> {
    let (mut found, mut next) = (Vec::new(), schedule.first_from(from));
    while let Some(tick) = next.filter(|tick| *tick <= to) {
        if let Some(through) = schedule.excluded_through(tick, to) {
            next = schedule.next_after(through);
            continue;
        }
        let free_to = schedule.free_through(tick, to);
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

/// The state of a backfill, read under its lock.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    pub state: BackfillState,
    /// The next ticks without runs, in order; only as many as one step reads.
    pub next: &'a [DbTime],
    /// How many ticks without runs there are in total.
    pub left: usize,
    pub rate: Option<Rate>,
    /// The time up to which the rate is used (microseconds).
    pub spent_until: i64,
    /// Open runs of this backfill.
    pub open: usize,
    /// The job's present definition; `None` if it was deleted.
    pub job: Option<&'a JobSpec>,
    /// Open runs of the job, of any cause.
    pub job_open: usize,
    pub origin: Origin,
    /// How long runs are kept.
    pub kept: Span,
    pub now: DbTime,
}

/// The next step, written in one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The ticks that get runs now, in this order.
    pub make: Vec<DbTime>,
    pub spent_until: i64,
    pub state: BackfillState,
    /// Why the backfill was ended early.
    pub note: Option<String>,
    /// Whether another step is needed: runs remain to be created, or some are open.
    pub active: bool,
}

impl Progress<'_> {
    /// Decides the next step: as many runs as the rate, the backfill's own limit and the job's policy allow. If the policy
    /// limits the runs in progress, a run is created only if it could start. A waiting backlog would otherwise cause skips of
    /// on-time ticks or, under `cancel_previous`, make its runs cancel each other.
    #[must_use]
    pub fn step(&self) -> Step {
        let idle =
            Step { make: Vec::new(), spent_until: self.spent_until, state: self.state, note: None, active: true };
        let open = self.open > 0;
        let ended =
            |note: String| Step { state: BackfillState::Cancelled, note: Some(note), active: open, ..idle.clone() };
        let spec = match (self.state, self.job) {
            (BackfillState::Running, _) if self.left == 0 && !open => {
                return Step { state: BackfillState::Done, active: false, ..idle };
            }
            (BackfillState::Running, _) if self.left == 0 => return idle,
            (BackfillState::Running, Some(spec)) => spec,
            (BackfillState::Running, None) => return ended("its job was deleted".to_owned()),
            (BackfillState::Done | BackfillState::Cancelled, _) => return Step { active: open, ..idle },
            // A node of a later release handles it.
            (BackfillState::Unknown(_), _) => return idle,
        };
        let lasts_max = BACKFILL_LASTS_MAX.min(self.kept);
        if self.now.since(self.origin.begins()) > lasts_max {
            return ended(format!("it lasted longer than {lasts_max} with {} ticks left", self.left));
        }
        let make: Vec<_> = self.next.iter().copied().take(self.runs_allowed(spec)).collect();
        let spent_until = match self.rate {
            Some(rate) if !make.is_empty() => rate.spend(self.spent_until, self.now, make.len()),
            _ => self.spent_until,
        };
        Step { make, spent_until, ..idle }
    }

    fn runs_allowed(&self, spec: &JobSpec) -> usize {
        let own = BACKFILL_OPEN_MAX.saturating_sub(self.open);
        let pace = self.rate.map_or(usize::MAX, |rate| rate.admits(self.spent_until, self.now) as usize);
        let policy = spec.in_progress_max().map_or(usize::MAX, |max| (max as usize).saturating_sub(self.job_open));
        own.min(pace).min(policy)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        calendar::{Calendar, CalendarSpec, CalendarVersion, Exclusion},
        ids::Version,
        job::Overlap,
        plan::tests::{job, spec},
        time::Span,
    };

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    fn stretch(from: i64, to: i64) -> Stretch {
        Stretch { from: s(from), to: s(to), order: Order::Oldest }
    }

    fn fields(found: Result<Vec<DbTime>, Vec<Invalid>>) -> Vec<String> {
        found.unwrap_err().into_iter().map(|invalid| invalid.field).collect()
    }

    #[test]
    fn both_ends_of_the_period_are_included_and_the_order_is_as_requested() {
        let job = job(spec(Span::seconds(10)));
        let asked =
            |from, to, order| ticks(&job, Stretch { order, ..stretch(from, to) }, None, s(0), s(1_000)).unwrap();
        assert_eq!(asked(20, 40, Order::Oldest), [s(20), s(30), s(40)]);
        assert_eq!(asked(20, 40, Order::Newest), [s(40), s(30), s(20)]);
        assert_eq!(asked(20, 20, Order::Oldest), [s(20)]);
        assert_eq!(asked(21, 39, Order::Oldest), [s(30)]);
    }

    #[test]
    fn an_inverted_future_too_old_or_empty_period_is_refused() {
        let job = job(spec(Span::seconds(10)));
        let asked = |from, to| fields(ticks(&job, stretch(from, to), None, s(100), s(1_000)));
        assert_eq!(asked(300, 200), ["to"]);
        assert_eq!(asked(200, 1_001), ["to"]);
        assert_eq!(asked(99, 200), ["from"]);
        assert_eq!(asked(99, 2_000), ["to", "from"]);
        assert_eq!(asked(201, 209), ["from"]);
    }

    #[test]
    fn ten_thousand_ticks_are_covered_and_one_more_is_refused() {
        let job = job(spec(Span::seconds(1)));
        let last = i64::try_from(BACKFILL_TICKS_MAX).unwrap();
        assert_eq!(ticks(&job, stretch(1, last), None, s(0), s(last + 1)).unwrap().len(), BACKFILL_TICKS_MAX);
        assert_eq!(fields(ticks(&job, stretch(1, last + 1), None, s(0), s(last + 1))), ["from"]);
        // The refusal does not walk through all ticks.
        assert_eq!(fields(ticks(&job, stretch(0, 100 * 365 * 86_400), None, s(0), DbTime::MAX)), ["from"]);
    }

    #[test]
    fn a_job_without_ticks_is_refused() {
        let mut asked = job(spec(Span::seconds(10)));
        asked.schedule = None;
        Arc::make_mut(&mut asked.spec).schedule = None;
        assert_eq!(fields(ticks(&asked, stretch(0, 100), None, s(0), s(1_000))), ["job"]);
        let mut once = spec(Span::seconds(10));
        once.schedule = Some(Timing::At { at: s(50) }.into());
        assert_eq!(fields(ticks(&job(once), stretch(0, 100), None, s(0), s(1_000))), ["job"]);
    }

    #[test]
    fn excluded_ticks_get_no_backfilled_runs() {
        let days = CalendarSpec::new("UTC", vec!["1970-01-02/1970-01-03".parse().unwrap()], vec![]).unwrap();
        let version = CalendarVersion::new(Version::from_raw(1), DbTime::EPOCH, &days).unwrap();
        let mut job = job(spec(Span::hours(12)));
        let exclusion = Exclusion::new(vec![Arc::new(Calendar::new("c", vec![version]).unwrap())]);
        job.schedule = job.schedule.map(|schedule| schedule.excluding(exclusion));
        let day = 86_400;
        let found = ticks(&job, stretch(0, 4 * day), None, s(0), s(9 * day)).unwrap();
        assert_eq!(found, [0, day / 2, 3 * day, 3 * day + day / 2, 4 * day].map(s));
    }

    fn origin(created: i64) -> Origin {
        let backfill = BackfillId::from_uuid(uuid::Uuid::from_u128(7));
        Origin { backfill, created_at: s(created), stretch: stretch(0, 9_000) }
    }

    #[test]
    fn a_rate_that_would_take_too_long_is_refused() {
        let job = job(spec(Span::seconds(10)));
        let asked = |rate: &str| ticks(&job, stretch(0, 10_000), rate.parse().ok(), s(0), s(10_000));
        assert_eq!(asked("6/1h").unwrap().len(), 1_001, "it takes 166 hours, less than the limit");
        assert_eq!(fields(asked("5/1h")), ["rate"]);
        assert_eq!(fields(asked("1/1d")), ["rate"]);
    }

    #[test]
    fn backfilled_run_ids_are_ordered_and_older_than_every_on_time_tick() {
        let job = JobId::from_uuid(uuid::Uuid::from_u128(1));
        let origin = origin(20_000);
        let ids: Vec<_> = (0..=9_000).map(|second| origin.run(job, s(second))).collect();
        assert!(ids.iter().zip(&ids[1..]).all(|(one, next)| one.time() <= next.time()));
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        let on_time = RunId::floor(origin.created_at.minus(LATE_AFTER_MAX));
        assert!(ids[..9_000].iter().all(|id| *id < on_time));
        assert_eq!(ids[0].time(), s(20_000 - 3_600 - 10));
        assert_ne!(ids[0], RunId::of(job, Cause::Tick(s(0))));
        let alone = Origin { stretch: stretch(5, 5), ..origin };
        assert_eq!(alone.run(job, s(5)).time(), ids[0].time());
    }

    fn progress<'a>(job: &'a JobSpec, next: &'a [DbTime]) -> Progress<'a> {
        Progress {
            state: BackfillState::Running,
            next,
            left: next.len(),
            rate: None,
            spent_until: 0,
            open: 0,
            job: Some(job),
            job_open: 0,
            origin: origin(9_000),
            kept: Span::days(90),
            now: s(10_000),
        }
    }

    /// For each policy: the open runs of the job, and how many of many remaining runs are created.
    #[test]
    fn only_runs_that_could_start_are_created() {
        let next: Vec<_> = (0..150).map(s).collect();
        for (overlap, max_concurrent, job_open, made) in [
            (Overlap::Skip, None, 0, 1),
            (Overlap::Skip, None, 1, 0),
            (Overlap::Queue { limit: 5 }, None, 0, 1),
            (Overlap::Queue { limit: 5 }, None, 1, 0),
            (Overlap::CancelPrevious, None, 0, 1),
            (Overlap::CancelPrevious, None, 1, 0),
            (Overlap::Allow, Some(3), 1, 2),
            (Overlap::Allow, Some(3), 3, 0),
            (Overlap::Allow, None, 900, BACKFILL_OPEN_MAX),
        ] {
            let spec = JobSpec { overlap, max_concurrent, ..spec(Span::minutes(1)) };
            let step = Progress { job_open, ..progress(&spec, &next) }.step();
            assert_eq!(step.make, next[..made], "{overlap:?} {max_concurrent:?} beside {job_open}");
            assert_eq!((step.state, step.active), (BackfillState::Running, true));
        }
    }

    #[test]
    fn open_runs_and_the_rate_limit_new_runs() {
        let next: Vec<_> = (0..150).map(s).collect();
        let allow = JobSpec { overlap: Overlap::Allow, ..spec(Span::minutes(1)) };
        let progress = progress(&allow, &next);
        assert_eq!(Progress { open: 98, ..progress.clone() }.step().make.len(), 2);
        assert_eq!(Progress { open: 100, ..progress.clone() }.step().make.len(), 0);
        let rate: Rate = "10/1m".parse().unwrap();
        let paced = Progress { rate: Some(rate), ..progress };
        let first = paced.step();
        assert_eq!(first.make.len(), 10);
        let later = |seconds: i64| {
            let now = s(10_000 + seconds);
            Progress { spent_until: first.spent_until, now, ..paced.clone() }.step().make.len()
        };
        assert_eq!((later(0), later(5), later(6), later(30)), (0, 0, 1, 5));
    }

    #[test]
    fn a_backfill_ends_when_its_runs_ended_its_job_is_deleted_or_it_is_cancelled() {
        use BackfillState::{Cancelled, Done, Running};
        let spec = spec(Span::minutes(1));
        let (none, one) = (&[][..], &[s(1)][..]);
        for (state, next, open, deleted, ends) in [
            (Running, none, 0, false, (Done, false)),
            (Running, none, 2, false, (Running, true)),
            (Running, one, 0, false, (Running, true)),
            (Running, one, 0, true, (Cancelled, false)),
            (Running, one, 2, true, (Cancelled, true)),
            (Cancelled, one, 2, false, (Cancelled, true)),
            (Cancelled, one, 0, false, (Cancelled, false)),
            (Done, none, 0, false, (Done, false)),
        ] {
            let job = (!deleted).then_some(&spec);
            let step = Progress { state, open, job, ..progress(&spec, next) }.step();
            assert_eq!((step.state, step.active), ends, "{state:?}, {} left, {open} open, {deleted}", next.len());
            assert_eq!(step.make.is_empty(), ends != (Running, true) || next.is_empty());
            assert_eq!(step.note.is_some(), state == Running && ends.0 == Cancelled);
        }
    }

    #[test]
    fn a_backfill_that_lasts_too_long_is_ended_with_a_note() {
        let spec = spec(Span::minutes(1));
        let next = [s(1), s(2)];
        let after = |age: Span, kept: Span, open: usize| {
            let now = s(9_000).minus(LATE_AFTER_MAX).minus(Span::seconds(10)).plus(age);
            Progress { now, kept, open, ..progress(&spec, &next) }.step()
        };
        let week = BACKFILL_LASTS_MAX;
        assert_eq!(after(week, Span::days(90), 0).make, [s(1)]);
        let late = after(Span::millis(week.as_millis() + 1), Span::days(90), 0);
        assert_eq!((late.state, late.active, late.make.len()), (BackfillState::Cancelled, false, 0));
        assert_eq!(late.note.as_deref(), Some("it lasted longer than 7d with 2 ticks left"));
        assert!(
            after(Span::millis(week.as_millis() + 1), Span::days(90), 3).active,
            "open runs still have to be counted"
        );
        assert_eq!(
            after(Span::days(2), Span::days(1), 0).state,
            BackfillState::Cancelled,
            "it may not outlast the history that is kept"
        );
    }

    proptest! {
        /// Run to its end under any limits and any order of run ends: every tick gets one run, in order, with never too many
        /// open.
        #[test]
        fn each_tick_gets_one_run_in_order(
            every in 1_u64..50, from in 0_i64..500, length in 0_i64..3_000, newest: bool, limited: bool,
            rate in proptest::option::of((1_u32..20, 1_u64..10)), ends in proptest::collection::vec(0_usize..5, 1..20),
        ) {
            let overlap = if limited { Overlap::Skip } else { Overlap::Allow };
            let job = job(JobSpec { overlap, ..spec(Span::seconds(every)) });
            let order = if newest { Order::Newest } else { Order::Oldest };
            let asked = Stretch { order, ..stretch(from, from + length) };
            let Ok(ticks) = ticks(&job, asked, None, s(0), s(5_000)) else { return Ok(()) };
            let rate = rate.map(|(count, seconds)| Rate { count, per: Span::seconds(seconds) });
            let (mut made, mut open, mut spent_until, mut passes) = (Vec::<DbTime>::new(), 0, 0, 0_i64);
            loop {
                let next = &ticks[made.len()..];
                let progress = Progress {
                    next: &next[..next.len().min(BACKFILL_OPEN_MAX)], left: next.len(), rate, spent_until, open,
                    job_open: open, now: s(9_000 + passes), ..progress(&job.spec, &[])
                };
                let step = progress.step();
                made.extend(&step.make);
                open += step.make.len();
                spent_until = step.spent_until;
                prop_assert!(open <= BACKFILL_OPEN_MAX && (!limited || open <= 1));
                if step.state == BackfillState::Done {
                    prop_assert!(open == 0 && !step.active);
                    break;
                }
                open -= open.min(ends[usize::try_from(passes).unwrap() % ends.len()].max(usize::from(passes % 7 == 0)));
                passes += 1;
                prop_assert!(passes < 400_000, "the backfill does not end");
            }
            prop_assert_eq!(&made, &ticks);
            prop_assert_eq!(made.iter().collect::<BTreeSet<_>>().len() as u64, job.schedule.unwrap().count(s(from), s(from + length)));
        }
    }
}
