//! Runs for ticks of the past, on request: which ticks a backfill covers, and how many of them get their runs now. Such runs
//! never count as the record of their ticks (I2), and come behind whatever is on time.

use crate::{
    ids::{BackfillId, Cause, JobId, RunId},
    invalid::Invalid,
    job::{Job, JobSpec, LATE_AFTER_MAX, PAYLOAD_BYTES_MAX},
    queue::Rate,
    run::coded,
    schedule::{Schedule, Timing},
    time::{DbTime, Span},
};

/// Ticks that one backfill covers.
pub const BACKFILL_TICKS_MAX: usize = 10_000;
/// Backfills of one job that are under way together.
pub const BACKFILLS_RUNNING_MAX: usize = 10;
/// Runs of one backfill that are not over.
pub const BACKFILL_OPEN_MAX: usize = 100;
/// A backfill that has lasted this long is ended. Whoever looks for claims reads a job's runs from the oldest claimed one on, and
/// those of a backfill are as old as itself.
pub const BACKFILL_LASTS_MAX: Span = Span::days(7);
/// The ids of a backfill's runs have so many milliseconds among them, in the order of their ticks.
const IDS_SPREAD_MS: u64 = 10_000;
/// How many ticks a dry run names from either end.
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

/// The stretch that somebody asks for, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub from: DbTime,
    pub to: DbTime,
    pub order: Order,
}

/// A backfill, as far as its runs' ids are made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub backfill: BackfillId,
    pub created_at: DbTime,
    pub stretch: Stretch,
}

impl Origin {
    /// The run of a tick. Its id's time is not the tick's but just before the backfill: what looks for claims need not go back
    /// for months, and its history is kept as long as that of other runs made then. So much before that every tick which is
    /// on time counts as newer, and under `cancel_previous` gives way to none of them.
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

/// The ticks of the job's present schedule in the stretch, without those that its calendars leave out, in the order in which
/// they get their runs; or what is wrong with the request. Nothing older than `oldest` is kept.
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
            let message = format!("{:?} has one instant, {at}, and no ticks to go through; trigger it", job.spec.name);
            return Err(vec![Invalid::new("job", message)]);
        }
        (Some(schedule), Some(Timing::Cron { .. } | Timing::Every { .. })) => schedule,
        _ => {
            let message = format!("{:?} has no schedule, so it has no ticks; trigger it", job.spec.name);
            return Err(vec![Invalid::new("job", message)]);
        }
    };
    let Stretch { from, to, order } = asked;
    let mut wrong = Vec::new();
    if to < from {
        wrong.push(Invalid::new("to", format!("{to} lies before from, which is {from}")));
    }
    if to > now {
        wrong.push(Invalid::new("to", format!("{to} lies ahead: it is {now} on the database's clock")));
    }
    if from < oldest {
        wrong.push(Invalid::new("from", format!("{from} is too old: runs are kept from {oldest} on")));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let Some(mut ticks) = free_ticks(schedule, from, to) else {
        let message = format!(
            "has more than {BACKFILL_TICKS_MAX} ticks from {from} to {to}, and one backfill makes so many runs at the most; \
             ask for a shorter stretch"
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
    // The first ones come at once.
    let wait = (ticks as u64).saturating_sub(rate.count.into());
    let takes = Span::millis(rate.per.as_millis().saturating_mul(wait) / u64::from(rate.count.max(1)));
    let message = || {
        format!(
            "{rate} would take more than {BACKFILL_LASTS_MAX} for {ticks} ticks, which is the longest that a backfill lasts; \
             ask for a faster rate, or for the stretch in parts"
        )
    };
    (takes > BACKFILL_LASTS_MAX).then(|| Invalid::new("rate", message()))
}

/// What is wrong with a payload of its own.
#[must_use]
pub fn payload_problem(payload: &str) -> Option<Invalid> {
    let size = payload.len();
    let message = || format!("is {size} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are delivered");
    (size > PAYLOAD_BYTES_MAX).then(|| Invalid::new("payload", message()))
}

/// The ticks that fire, ascending; `None` when there are too many. A calendar leaves out whole dates, so a stretch that is kept
/// has few turns of the loop.
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

/// How a backfill stands, read under its lock.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    pub state: BackfillState,
    /// The ticks that have had no turn yet, in their order, as many as are looked at at once.
    pub next: &'a [DbTime],
    /// How many of them there are in all.
    pub left: usize,
    pub rate: Option<Rate>,
    /// The time that the rate has spent (microseconds).
    pub spent_until: i64,
    /// Runs of this backfill that are not over.
    pub open: usize,
    /// The job as it stands; `None` when it was deleted.
    pub job: Option<&'a JobSpec>,
    /// Runs of the job that are not over, whatever made them.
    pub job_open: usize,
    pub origin: Origin,
    /// How long runs are kept.
    pub kept: Span,
    pub now: DbTime,
}

/// What is to be done about it now, in one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// These get their runs, in this order.
    pub make: Vec<DbTime>,
    pub spent_until: i64,
    pub state: BackfillState,
    /// Why it was ended before its time.
    pub note: Option<String>,
    /// Whether somebody has to look again: runs are to be made, or some are not over.
    pub active: bool,
}

impl Standing<'_> {
    /// Decides the next step: as many runs as the rate, the backfill's own limit and the job's policy have room for. Under a
    /// policy that limits what is in progress, a run is made only where it could start: a backlog that waits would have ticks
    /// on time skipped, or (under `cancel_previous`) its runs cancel each other.
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
            // A node of a later release works on it.
            (BackfillState::Unknown(_), _) => return idle,
        };
        let lasts_max = BACKFILL_LASTS_MAX.min(self.kept);
        if self.now.since(self.origin.begins()) > lasts_max {
            return ended(format!("it had lasted for {lasts_max}, and {} ticks were left", self.left));
        }
        let make: Vec<_> = self.next.iter().copied().take(self.room(spec)).collect();
        let spent_until = match self.rate {
            Some(rate) if !make.is_empty() => rate.spend(self.spent_until, self.now, make.len()),
            _ => self.spent_until,
        };
        Step { make, spent_until, ..idle }
    }

    fn room(&self, spec: &JobSpec) -> usize {
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
        calendar::{Calendar, CalendarSpec, Exclusion, Held},
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
    fn both_ends_of_the_stretch_are_in_it_and_the_order_is_as_asked() {
        let job = job(spec(Span::seconds(10)));
        let asked =
            |from, to, order| ticks(&job, Stretch { order, ..stretch(from, to) }, None, s(0), s(1_000)).unwrap();
        assert_eq!(asked(20, 40, Order::Oldest), [s(20), s(30), s(40)]);
        assert_eq!(asked(20, 40, Order::Newest), [s(40), s(30), s(20)]);
        assert_eq!(asked(20, 20, Order::Oldest), [s(20)]);
        assert_eq!(asked(21, 39, Order::Oldest), [s(30)]);
    }

    #[test]
    fn a_stretch_that_is_upside_down_ahead_too_old_or_empty_is_refused() {
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
        // Nobody walks through all of them to say so.
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
    fn what_a_calendar_leaves_out_is_not_made() {
        let days = CalendarSpec::new("UTC", vec!["1970-01-02/1970-01-03".parse().unwrap()], vec![]).unwrap();
        let held = Held::new(Version::from_raw(1), DbTime::EPOCH, &days).unwrap();
        let mut job = job(spec(Span::hours(12)));
        let exclusion = Exclusion::new(vec![Arc::new(Calendar::new("c", vec![held]).unwrap())]);
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
        assert_eq!(asked("6/1h").unwrap().len(), 1_001, "it takes 166 hours");
        assert_eq!(fields(asked("5/1h")), ["rate"]);
        assert_eq!(fields(asked("1/1d")), ["rate"]);
    }

    #[test]
    fn the_ids_of_its_runs_are_in_order_and_older_than_every_tick_that_is_on_time() {
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

    fn standing<'a>(job: &'a JobSpec, next: &'a [DbTime]) -> Standing<'a> {
        Standing {
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

    /// Policy by policy: what is open of the job, and how many runs are made of many that are left.
    #[test]
    fn no_more_runs_are_made_than_could_start() {
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
            let step = Standing { job_open, ..standing(&spec, &next) }.step();
            assert_eq!(step.make, next[..made], "{overlap:?} {max_concurrent:?} beside {job_open}");
            assert_eq!((step.state, step.active), (BackfillState::Running, true));
        }
    }

    #[test]
    fn runs_that_are_not_over_and_the_rate_leave_less_room() {
        let next: Vec<_> = (0..150).map(s).collect();
        let allow = JobSpec { overlap: Overlap::Allow, ..spec(Span::minutes(1)) };
        let standing = standing(&allow, &next);
        assert_eq!(Standing { open: 98, ..standing.clone() }.step().make.len(), 2);
        assert_eq!(Standing { open: 100, ..standing.clone() }.step().make.len(), 0);
        let rate: Rate = "10/1m".parse().unwrap();
        let paced = Standing { rate: Some(rate), ..standing };
        let first = paced.step();
        assert_eq!(first.make.len(), 10);
        let later = |seconds: i64| {
            let now = s(10_000 + seconds);
            Standing { spent_until: first.spent_until, now, ..paced.clone() }.step().make.len()
        };
        assert_eq!((later(0), later(5), later(6), later(30)), (0, 0, 1, 5));
    }

    #[test]
    fn it_ends_when_all_is_made_and_over_or_its_job_is_gone_or_somebody_ends_it() {
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
            let step = Standing { state, open, job, ..standing(&spec, next) }.step();
            assert_eq!((step.state, step.active), ends, "{state:?}, {} left, {open} open, {deleted}", next.len());
            assert_eq!(step.make.is_empty(), ends != (Running, true) || next.is_empty());
            assert_eq!(step.note.is_some(), state == Running && ends.0 == Cancelled);
        }
    }

    #[test]
    fn one_that_has_lasted_too_long_is_ended_with_a_note() {
        let spec = spec(Span::minutes(1));
        let next = [s(1), s(2)];
        let after = |age: Span, kept: Span, open: usize| {
            let now = s(9_000).minus(LATE_AFTER_MAX).minus(Span::seconds(10)).plus(age);
            Standing { now, kept, open, ..standing(&spec, &next) }.step()
        };
        let week = BACKFILL_LASTS_MAX;
        assert_eq!(after(week, Span::days(90), 0).make, [s(1)]);
        let late = after(Span::millis(week.as_millis() + 1), Span::days(90), 0);
        assert_eq!((late.state, late.active, late.make.len()), (BackfillState::Cancelled, false, 0));
        assert_eq!(late.note.as_deref(), Some("it had lasted for 7d, and 2 ticks were left"));
        assert!(after(Span::millis(week.as_millis() + 1), Span::days(90), 3).active, "somebody counts what is open");
        assert_eq!(after(Span::days(2), Span::days(1), 0).state, BackfillState::Cancelled, "history is shorter");
    }

    proptest! {
        /// Played to its end, whatever limits it and however its runs end: every tick once, in order, and never too many open.
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
                let standing = Standing {
                    next: &next[..next.len().min(BACKFILL_OPEN_MAX)], left: next.len(), rate, spent_until, open,
                    job_open: open, now: s(9_000 + passes), ..standing(&job.spec, &[])
                };
                let step = standing.step();
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
                prop_assert!(passes < 400_000, "it ends");
            }
            prop_assert_eq!(&made, &ticks);
            prop_assert_eq!(made.iter().collect::<BTreeSet<_>>().len() as u64, job.schedule.unwrap().count(s(from), s(from + length)));
        }
    }
}
