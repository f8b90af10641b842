//! Decides about a child whose edges are met. The child follows the same rules as a triggered run. Its payload is
//! rendered.

use crate::{
    flow::{Decision, Fate},
    job::Job,
    overlap::{Admission, OpenRuns, admit},
    run::SkipReason,
};

/// A child job, as read under its lock.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// `None` if the job no longer exists.
    pub job: Option<&'a Job>,
    pub open: OpenRuns,
    /// How many of its runs wait, and how many may wait.
    pub waiting: u64,
    pub waiting_max: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Judged {
    /// A waiting run. `payload` is set if the job's payload is a template.
    Wait {
        payload: Option<String>,
    },
    Skip(SkipReason, String),
}

impl Decision {
    /// The row of the decided job: a skip because of its parents, or the result of [`judge`].
    #[must_use]
    pub fn judge(&self, child: Child<'_>, payload: impl FnOnce(&Job) -> Result<Option<String>, String>) -> Judged {
        match &self.fate {
            Fate::Skip(why) => Judged::Skip(SkipReason::Parent, why.clone()),
            Fate::Start => judge(child, payload),
        }
    }

    /// The row of the decided job if the database rejects its start.
    #[must_use]
    pub fn give_up(&self, error: &str) -> Judged {
        match &self.fate {
            Fate::Skip(why) => Judged::Skip(SkipReason::Parent, why.clone()),
            Fate::Start => Judged::Skip(SkipReason::Error, error.to_owned()),
        }
    }
}

/// Decides about a job at which a rerun starts. If the repeated run had a payload of its own, the new run gets it again.
#[must_use]
pub fn judge_rerun(
    child: Child<'_>,
    repeated: Option<String>,
    payload: impl FnOnce(&Job) -> Result<Option<String>, String>,
) -> Judged {
    judge(child, |job| repeated.map_or_else(|| payload(job), |repeated| Ok(Some(repeated))))
}

/// Decides about a child. `payload` [renders](super::render) the job's payload.
#[must_use]
pub fn judge(child: Child<'_>, payload: impl FnOnce(&Job) -> Result<Option<String>, String>) -> Judged {
    let Some(job) = child.job.filter(|job| job.deleted_at.is_none()) else {
        return Judged::Skip(SkipReason::Error, "the job was deleted".to_owned());
    };
    if job.paused.is_some() {
        return Judged::Skip(SkipReason::Paused, "the job was paused".to_owned());
    }
    if !job.spec.enabled {
        return Judged::Skip(SkipReason::Paused, "the job is not enabled".to_owned());
    }
    if child.waiting >= child.waiting_max {
        let text = format!("{} of its runs are already waiting; at most {} may wait", child.waiting, child.waiting_max);
        return Judged::Skip(SkipReason::Quota, text);
    }
    if admit(&job.spec, child.open) == Admission::Skip {
        let text = format!("runs of the job were open and overlap is {}", job.spec.overlap.word());
        return Judged::Skip(SkipReason::Overlap, text);
    }
    match payload(job) {
        Ok(payload) => Judged::Wait { payload },
        Err(why) => Judged::Skip(SkipReason::Error, format!("payload: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::Paused,
        plan::tests::{job, spec},
        time::{DbTime, Span},
    };

    #[test]
    fn a_child_follows_the_same_rules_as_a_request() {
        let sound = job(spec(Span::minutes(1)));
        let paused = Job { paused: Some(Paused { at: DbTime::EPOCH, note: None }), ..sound.clone() };
        let gone = Job { deleted_at: Some(DbTime::EPOCH), ..sound.clone() };
        let mut off = spec(Span::minutes(1));
        off.enabled = false;
        let off = job(off);
        let mut broken = spec(Span::minutes(1));
        broken.payload = Some("broken".into());
        let broken = job(broken);
        let rendered = |job: &Job| match job.spec.payload.as_deref() {
            Some("broken") => Err("it has no such field".to_owned()),
            _ => Ok(None),
        };
        let busy = OpenRuns { in_progress: 1, waiting: 0 };
        for (job, open, waiting, skipped) in [
            (Some(&sound), OpenRuns::NONE, 0, None),
            (Some(&sound), busy, 0, Some(SkipReason::Overlap)),
            (Some(&sound), OpenRuns::NONE, 10, Some(SkipReason::Quota)),
            (Some(&paused), OpenRuns::NONE, 0, Some(SkipReason::Paused)),
            (Some(&off), OpenRuns::NONE, 0, Some(SkipReason::Paused)),
            (Some(&gone), OpenRuns::NONE, 0, Some(SkipReason::Error)),
            (None, OpenRuns::NONE, 0, Some(SkipReason::Error)),
            (Some(&broken), OpenRuns::NONE, 0, Some(SkipReason::Error)),
        ] {
            let found = match judge(Child { job, open, waiting, waiting_max: 10 }, rendered) {
                Judged::Wait { payload } => {
                    assert_eq!(payload, None);
                    None
                }
                Judged::Skip(reason, _) => Some(reason),
            };
            assert_eq!(found, skipped);
        }
    }

    #[test]
    fn a_rerun_repeats_the_payload_of_its_run_even_if_the_template_fails_now() {
        let sound = job(spec(Span::minutes(1)));
        let gone = Job { deleted_at: Some(DbTime::EPOCH), ..sound.clone() };
        let child = |job| Child { job: Some(job), open: OpenRuns::NONE, waiting: 0, waiting_max: 10 };
        let fails = |_: &Job| Err("it has no such field".to_owned());
        let repeated = Some("{}".to_owned());
        assert_eq!(judge_rerun(child(&sound), repeated.clone(), fails), Judged::Wait { payload: repeated.clone() });
        assert!(matches!(judge_rerun(child(&sound), None, fails), Judged::Skip(SkipReason::Error, _)));
        assert!(matches!(judge_rerun(child(&gone), repeated, fails), Judged::Skip(SkipReason::Error, _)));
    }

    #[test]
    fn a_decision_to_skip_is_recorded_as_a_skip_because_of_a_parent() {
        let sound = job(spec(Span::minutes(1)));
        let child = Child { job: Some(&sound), open: OpenRuns::NONE, waiting: 0, waiting_max: 10 };
        let decision = |fate| Decision { job: sound.id, fate };
        let (skip, start) = (decision(Fate::Skip("no".into())), decision(Fate::Start));
        assert_eq!(skip.judge(child, |_| Ok(None)), Judged::Skip(SkipReason::Parent, "no".into()));
        assert_eq!(skip.give_up("why"), Judged::Skip(SkipReason::Parent, "no".into()));
        assert_eq!(start.judge(child, |_| Ok(None)), Judged::Wait { payload: None });
        assert_eq!(start.give_up("why"), Judged::Skip(SkipReason::Error, "why".into()));
    }
}
