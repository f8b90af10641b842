//! Where a run comes from: a tick, a request, a backfill, a redrive or a flow.

use crate::{explain::local::Local, run::CauseKind};

use super::{Did, RunFacts};

/// The sentences that come first among the details of a run.
pub(super) fn details(facts: &RunFacts, local: Local<'_>) -> Vec<String> {
    let mut details: Vec<String> = cause(facts, local).into_iter().collect();
    details.extend(facts.flow.as_ref().map(|flow| format!("it belongs to flow {}", flow.flow)));
    if let Some(at) = facts.job.as_ref().and_then(|job| job.deleted_at) {
        details.push(format!("the job {} was deleted at {}", facts.job_name, local.text(at)));
    }
    details
}

/// `None` for a tick: the answer begins with it.
fn cause(facts: &RunFacts, local: Local<'_>) -> Option<String> {
    let made = facts.actions.iter().find(|action| action.what != Did::Cancelled);
    match facts.run.cause {
        CauseKind::Tick => None,
        CauseKind::Request => Some(match made.map(|action| (&action.what, action)) {
            Some((Did::Redrove { failed: Some(failed) }, action)) => {
                format!("it redrives the failed run {failed}, requested by {} at {}", action.by, local.text(action.at))
            }
            Some((Did::Triggered { force: true }, action)) => {
                format!("triggered with force by {} at {}", action.by, local.text(action.at))
            }
            Some((_, action)) => format!("triggered by {} at {}", action.by, local.text(action.at)),
            None => "created by request".to_owned(),
        }),
        CauseKind::Backfill => Some(match &facts.backfill {
            Some(of) => format!(
                "created by backfill {}, requested by {} at {}, for the tick {}",
                of.backfill,
                of.by,
                local.text(of.created_at),
                local.both(facts.run.scheduled_at)
            ),
            None => format!("created by a backfill for the tick {}", local.both(facts.run.scheduled_at)),
        }),
        CauseKind::Parent => Some("started by the jobs that it depends on".to_owned()),
        CauseKind::Unknown(_) => None,
    }
}
