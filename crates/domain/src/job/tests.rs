use super::*;
use crate::{
    plan::tests::{job, spec},
    schedule::Timing,
};

fn s(seconds: i64) -> DbTime {
    DbTime::from_millis(seconds * 1_000)
}

fn once(keep: Option<Span>) -> JobSpec {
    let mut spec = spec(Span::seconds(10));
    spec.schedule = Some(Timing::At { at: s(100) }.into());
    spec.keep = keep;
    spec
}

#[test]
fn a_one_shot_job_is_spent_when_its_last_run_ended_long_enough_ago() {
    let kept = job(once(Some(Span::seconds(60))));
    for (ended, now, spent) in [
        (Some(110), 169, false),
        (Some(110), 170, true),
        (None, 9_999, false),
        // Triggered before its instant.
        (Some(10), 99, false),
    ] {
        assert_eq!(is_spent(&kept, ended.map(s), s(now)), spent, "{ended:?} {now}");
    }
    assert!(!is_spent(&job(once(None)), Some(s(110)), s(9_999)), "without `keep` the job is never deleted");
}

#[test]
fn keep_is_accepted_only_with_a_one_shot_schedule() {
    assert!(once(Some(Span::days(7))).problems().is_empty());
    let mut every = spec(Span::seconds(10));
    every.keep = Some(Span::days(7));
    assert_eq!(every.problems()[0].field, "keep");
    assert_eq!(once(Some(Span::days(4_000))).problems()[0].field, "keep");
}
