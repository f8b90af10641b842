use std::{collections::BTreeSet, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{
    calendar::{Calendar, CalendarSpec, CalendarVersion, Exclusion},
    ids::Version,
    job::{JobSpec, Overlap},
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
fn the_start_of_the_period_is_included_its_end_is_not_and_the_order_is_as_requested() {
    let job = job(spec(Span::seconds(10)));
    let requested =
        |from, to, order| ticks(&job, Stretch { order, ..stretch(from, to) }, None, s(0), s(1_000)).unwrap();
    assert_eq!(requested(20, 40, Order::Oldest), [s(20), s(30)]);
    assert_eq!(requested(20, 41, Order::Newest), [s(40), s(30), s(20)]);
    assert_eq!(requested(20, 21, Order::Oldest), [s(20)]);
    assert_eq!(requested(21, 39, Order::Oldest), [s(30)]);
    // The clock of the client is ahead: the period ends at the database time.
    assert_eq!(requested(980, 1_060, Order::Oldest), [s(980), s(990)]);
}

#[test]
fn a_rate_that_the_overlap_policy_cannot_reach_is_refused() {
    let limited = |overlap, max_concurrent| job(JobSpec { overlap, max_concurrent, ..spec(Span::seconds(10)) });
    let rate = |job: &Job, rate: &str| ticks(job, stretch(20, 40), Some(rate.parse().unwrap()), s(0), s(1_000));
    let (skip, some) = (limited(Overlap::Skip, None), limited(Overlap::Allow, Some(3)));
    for (job, fast, slow) in [(&skip, "2/1s", "1/1s"), (&skip, "61/1m", "60/1m"), (&some, "4/1s", "3/1s")] {
        rate(job, slow).unwrap();
        let refused = rate(job, fast).unwrap_err();
        assert_eq!(refused[0].field, "rate");
        let per = if fast == "4/1s" { "3/1s" } else { "1/1s" };
        assert!(refused[0].message.contains(fast) && refused[0].message.contains(per), "{}", refused[0].message);
    }
    rate(&limited(Overlap::Allow, None), "1000/1s").unwrap();
}

#[test]
fn an_inverted_future_too_old_or_empty_period_is_refused() {
    let job = job(spec(Span::seconds(10)));
    let requested = |from, to| fields(ticks(&job, stretch(from, to), None, s(100), s(1_000)));
    assert_eq!(requested(300, 200), ["to"]);
    assert_eq!(requested(200, 200), ["to"]);
    assert_eq!(requested(200, 1_061), ["to"]);
    assert_eq!(requested(99, 200), ["from"]);
    assert_eq!(requested(99, 2_000), ["to", "from"]);
    assert_eq!(requested(201, 209), ["from"]);
}

#[test]
fn ten_thousand_ticks_are_covered_and_one_more_is_refused() {
    let job = job(spec(Span::seconds(1)));
    let last = i64::try_from(BACKFILL_TICKS_MAX).unwrap();
    assert_eq!(ticks(&job, stretch(1, last + 1), None, s(0), s(last + 2)).unwrap().len(), BACKFILL_TICKS_MAX);
    assert_eq!(fields(ticks(&job, stretch(1, last + 2), None, s(0), s(last + 2))), ["from"]);
    // The refusal does not walk through all ticks.
    assert_eq!(fields(ticks(&job, stretch(0, 100 * 365 * 86_400), None, s(0), DbTime::MAX)), ["from"]);
}

#[test]
fn a_job_without_ticks_is_refused() {
    let mut requested = job(spec(Span::seconds(10)));
    requested.schedule = None;
    Arc::make_mut(&mut requested.spec).schedule = None;
    assert_eq!(fields(ticks(&requested, stretch(0, 100), None, s(0), s(1_000))), ["job"]);
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
    assert_eq!(found, [0, day / 2, 3 * day, 3 * day + day / 2].map(s));
}

fn origin(created: i64) -> Origin {
    let backfill = BackfillId::from_uuid(uuid::Uuid::from_u128(7));
    Origin { backfill, created_at: s(created), stretch: stretch(0, 9_000) }
}

#[test]
fn a_rate_that_would_take_too_long_is_refused() {
    let job = job(spec(Span::seconds(10)));
    let requested = |rate: &str| ticks(&job, stretch(0, 10_000), rate.parse().ok(), s(0), s(10_000));
    assert_eq!(requested("6/1h").unwrap().len(), 1_000, "it takes 166 hours, less than the limit");
    assert_eq!(fields(requested("5/1h")), ["rate"]);
    assert_eq!(fields(requested("1/1d")), ["rate"]);
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

/// For each policy: the open runs of the job, and how many runs a step creates while 150 ticks lack runs.
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
    assert!(after(Span::millis(week.as_millis() + 1), Span::days(90), 3).active, "open runs still have to be counted");
    assert_eq!(
        after(Span::days(2), Span::days(1), 0).state,
        BackfillState::Cancelled,
        "it may not outlast the history that is kept"
    );
}

proptest! {
    /// For all limits and all orders in which runs end: every tick gets one run, in order. At no time are more runs open
    /// than the limits allow.
    #[test]
    fn each_tick_gets_one_run_in_order(
        every in 1_u64..50, from in 0_i64..500, length in 0_i64..3_000, newest: bool, limited: bool,
        rate in proptest::option::of((1_u32..20, 1_u64..10)), ends in proptest::collection::vec(0_usize..5, 1..20),
    ) {
        let overlap = if limited { Overlap::Skip } else { Overlap::Allow };
        let job = job(JobSpec { overlap, ..spec(Span::seconds(every)) });
        let order = if newest { Order::Newest } else { Order::Oldest };
        let requested = Stretch { order, ..stretch(from, from + length) };
        let Ok(ticks) = ticks(&job, requested, None, s(0), s(5_000)) else { return Ok(()) };
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
        prop_assert_eq!(made.iter().collect::<BTreeSet<_>>().len() as u64, job.schedule.unwrap().count(s(from), s(from + length).minus(Span::millis(1))));
    }
}
