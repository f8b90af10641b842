//! Failed runs: a lost run is recognized by its exact error text, and an error that only resembles it is not.

use super::*;
use crate::{
    ids::Fence,
    retry::{LOST_MAX, OnLost, RetryPolicy},
    run::{Claim, Policy},
    target::Outcome,
};

/// The answer for a run of a job with 3 retries that failed at its first attempt with this error.
fn failed(error: &str, lost: u32) -> Explanation {
    let mut facts = facts(State::Failed);
    with(&mut facts, |spec| spec.retry.max_retries = 3);
    (facts.run.error, facts.run.attempt, facts.run.lost) = (Some(error.to_owned()), lost + 1, lost);
    explain_run(&facts, ShownIn::JobZone)
}

#[test]
fn an_error_that_begins_with_lost_is_no_lost_run() {
    for error in ["lost connection to the mail server", "lost", "lost 2 times the lock", "lost 9 times"] {
        let answer = failed(error, 0);
        assert_eq!(answer.reason, Some(Reason::NotRetried), "{error}: {}", answer.words);
        assert!(answer.words.ends_with("; the target allowed no retry"), "{}", answer.words);
    }
}

#[test]
fn every_settlement_of_a_lost_run_is_explained_as_lost() {
    for (on_lost, lost) in [(OnLost::Fail, 0), (OnLost::Fail, 2), (OnLost::Retry, LOST_MAX)] {
        let claim = Claim { run: id(60), fence: Fence::from_raw(1), attempt: lost + 1, lost };
        let policy = Policy { retry: RetryPolicy::with_retries(3), on_lost };
        let settled = claim.settle(Outcome::Lost, policy, s(90), 0).unwrap();
        assert_eq!(settled.verdict.state(), State::Failed);
        let answer = failed(&settled.error.unwrap(), lost);
        assert_eq!(answer.reason, Some(Reason::Lost), "{}", answer.words);
    }
}

#[test]
fn a_run_of_a_deleted_or_unknown_job_is_explained() {
    let mut facts = facts(State::Failed);
    facts.job.as_mut().unwrap().deleted_at = Some(s(300));
    let answer = explain_run(&facts, ShownIn::JobZone);
    assert!(answer.details.contains(&"the job j was deleted at 2026-11-16T00:05:00Z".to_owned()), "{answer:?}");
    assert!(answer.commands.iter().all(|command| !command.contains("rerun")), "{answer:?}");
    facts.job = None;
    assert!(explain_run(&facts, ShownIn::JobZone).words.contains("status 404"));
}
