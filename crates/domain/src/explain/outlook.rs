//! The last detail of an answer: the next tick of the job, or why it has none.

use crate::{
    job::Job,
    schedule::{Schedule, ScheduleSpec},
    time::DbTime,
};

use super::{
    Changed, Explanation, Facts, Kind, What,
    local::{Local, ShownIn, about},
    words::author_words,
};

/// Adds the next tick, or why there is none. Adds nothing if the answer already explains that there is none.
pub(super) fn add(explanation: &mut Explanation, facts: &Facts, local: Local<'_>) {
    let job = &facts.job;
    explanation.next_tick = job.next_tick(facts.cursor, facts.now);
    let is_answered = matches!(explanation.kind, Kind::Paused | Kind::Disabled | Kind::Deleted | Kind::NoSchedule);
    if is_answered && explanation.since.is_none_or(|since| explanation.at > since) {
        return;
    }
    match explanation.next_tick {
        Some(next) if next == explanation.at => {}
        Some(next) => {
            explanation.details.push(format!("next tick: {}, in {}", local.both(next), about(next.since(facts.now))));
        }
        None => explanation.details.extend(why_no_ticks(job, &facts.changes, facts.now, local)),
    }
}

/// Why a job has no further ticks; `None` if it has no schedule or has further ticks.
#[must_use]
pub fn no_ticks(job: &Job, changes: &[Changed], now: DbTime) -> Option<String> {
    why_no_ticks(job, changes, now, Local::of(job, ShownIn::JobZone))
}

fn why_no_ticks(job: &Job, changes: &[Changed], now: DbTime, local: Local<'_>) -> Option<String> {
    let by = |what: fn(&What) -> bool, at: DbTime| {
        let change = changes.iter().rev().find(|changed| what(&changed.what) && changed.effective_at == at);
        author_words(change.map(|changed| changed.by.as_str()))
    };
    if let Some(at) = job.deleted_at {
        let by = by(|what| *what == What::Deleted, at);
        return Some(format!("no further ticks: the job was deleted{by} at {}", local.text(at)));
    }
    let schedule = job.schedule.as_ref()?;
    if let Some(paused) = &job.paused {
        let by = by(|what| *what == What::Paused, paused.at);
        let note = paused.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        return Some(format!("no ticks while the job is paused; it was paused{by} at {}{note}", local.text(paused.at)));
    }
    if !job.spec.enabled {
        let since = disabled_since(changes);
        let since = since.map(|(by, at)| format!("; {by} disabled it at {}", local.text(at))).unwrap_or_default();
        return Some(format!("no ticks while the job is disabled{since}"));
    }
    if schedule.next_after(now).is_some() {
        return None;
    }
    let last = schedule.last_up_to(job.created_at, now);
    Some(match (ends_before_its_next_tick(job, now), last) {
        (Some((ends, _)), _) if ends <= now => {
            format!("no further ticks: the schedule ended at {} (ends_at)", local.text(ends))
        }
        (Some((ends, next)), _) => format!(
            "no further ticks: the schedule ends at {} (ends_at), before its next tick, which would be {}",
            local.text(ends),
            local.text(next)
        ),
        (None, Some(last)) => format!("no further ticks: the last tick of the schedule was {}", local.text(last)),
        (None, None) => "no further ticks: the schedule has none".to_owned(),
    })
}

/// The `ends_at` of a schedule that has no further tick because of it, and the tick that it would have without it.
fn ends_before_its_next_tick(job: &Job, now: DbTime) -> Option<(DbTime, DbTime)> {
    let spec = job.spec.schedule.as_ref()?;
    let ends = spec.ends_at?;
    let endless = Schedule::compile(&ScheduleSpec { ends_at: None, ..spec.clone() }).ok()?;
    Some((ends, endless.next_after(now)?))
}

/// Who disabled the job that is disabled now, and since when.
pub(super) fn disabled_since(changes: &[Changed]) -> Option<(&str, DbTime)> {
    let enabled = |changed: &&Changed| matches!(&changed.what, What::Edited(Some(was)) if was.enabled);
    changes.iter().rev().find(enabled).map(|changed| (changed.by.as_str(), changed.effective_at))
}
