//! Why a run waits. The first check is the run itself (due later), and the second is its job (other runs in progress). The
//! last check is the queue in which the run waits, or the node that owns its partition.

use crate::{
    explain::{
        Explanation, Reason,
        local::{Local, about},
    },
    queue::ASKED_NOTED_EVERY,
    time::DbTime,
};

use super::{QueueFacts, RunFacts, about_run, attempt_words, in_the_way, last_attempt};

pub(super) fn waiting(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let mut answer = why(facts, local);
    if !facts.attempts.is_empty() {
        answer.details.extend(last_attempt(facts, local));
        answer.commands.push(format!("everytick run attempts {}", facts.run.run));
    }
    answer.queue.clone_from(&facts.queue);
    answer
}

fn why(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let (row, now) = (&facts.run, facts.now);
    if facts.is_cancelling {
        let words = "will not start: the waiting runs of the job are being cancelled";
        return about_run(facts, local, Reason::BeingCancelled, words);
    }
    if row.due_at > now {
        let due = format!("due at {} (in {})", local.text(row.due_at), about(row.due_at.since(now)));
        if row.attempt > 0 {
            let words = format!("waits for its next attempt, {}, {due}", attempt_words(facts, row.attempt + 1));
            return about_run(facts, local, Reason::RetryLater, &words);
        }
        return about_run(facts, local, Reason::DueLater, &format!("waits for its due time, {due}"));
    }
    let forced = facts.actions.iter().any(|action| action.what == super::Did::Triggered { force: true });
    let (busy, busy_count) = if forced { (Vec::new(), 0) } else { in_the_way::now(facts) };
    let per_key = facts.job.as_ref().map_or(1, |job| job.spec.max_per_key as usize);
    let since = format!("waits since {} ({})", local.text(row.due_at), about(now.since(row.due_at)));
    if facts.same_key_count >= per_key {
        let runs = in_the_way::listed(&facts.same_key, facts.same_key_count, local, now);
        let words = format!("{since}: with the same concurrency key, {runs}; at most {per_key} may be in progress");
        let answer = about_run(facts, local, Reason::KeyBusy, &words);
        return Explanation { in_the_way: facts.same_key.clone(), ..answer };
    }
    if busy_count > 0 {
        let runs = in_the_way::listed(&busy, busy_count, local, now);
        let words = format!("{since}: it starts after {runs}{}", policy(facts));
        let mut answer = about_run(facts, local, Reason::JobBusy, &words);
        answer.commands.extend(busy.first().map(|row| format!("everytick run get {}", row.run)));
        return Explanation { in_the_way: busy, ..answer };
    }
    match &facts.queue {
        Some(queue) => in_queue(facts, queue, local, &since),
        None => at_node(facts, local, &since),
    }
}

/// `; overlap is queue`
fn policy(facts: &RunFacts) -> String {
    facts.job.as_ref().map(|job| format!("; overlap is {}", job.spec.overlap.word())).unwrap_or_default()
}

fn in_queue(facts: &RunFacts, queue: &QueueFacts, local: Local<'_>, since: &str) -> Explanation {
    let name = &queue.name;
    let (reason, why) = queue_reason(facts, queue, local);
    let mut answer = about_run(facts, local, reason, &format!("{since} in queue {name}: {why}"));
    if matches!(reason, Reason::NoWorker | Reason::WorkersBusy) {
        answer.commands.push(format!("everytick worker --queue {name} -- COMMAND"));
    }
    answer.commands.push(format!("everytick queue get {name}"));
    answer
}

fn queue_reason(facts: &RunFacts, queue: &QueueFacts, local: Local<'_>) -> (Reason, String) {
    let (name, now) = (&queue.name, facts.now);
    let claimed = usize::try_from(queue.claimed).unwrap_or(usize::MAX);
    if let Some(max) = queue.limits.concurrency.filter(|max| claimed >= *max as usize) {
        let runs = if claimed == 1 { "1 run is".to_owned() } else { format!("{claimed} runs are") };
        return (Reason::QueueLimit, format!("{runs} claimed, and the limit of the queue is {max}"));
    }
    if let Some(rate) = queue.limits.rate.filter(|rate| rate.admits(queue.spent_until, now) == 0) {
        return (Reason::QueueRate, {
            let next = rate.admits_from(queue.spent_until).max(now);
            format!("the queue has used its rate of {rate}; the next run can be claimed at {}", local.text(next))
        });
    }
    let last = |at: DbTime| format!("{} ({} ago)", local.both(at), about(now.since(at)));
    let Some(asked) = &queue.asked else { return absent(queue, format!("no worker has asked for queue {name} yet")) };
    // A node notes the requests for a queue once per interval. So within the interval after `asked.at` there may have
    // been requests that were not noted.
    let (at, until) = (asked.at, asked.at.plus(ASKED_NOTED_EVERY));
    let no_worker = format!("no worker has asked for queue {name} since");
    if until < facts.run.due_at {
        return absent(queue, format!("{no_worker} {}, when {} did", last(at), asked.worker));
    }
    if at < facts.run.due_at && (until < now || queue.claimed > 0) {
        return absent(queue, format!("{no_worker} {}; the last was {}", last(until.min(now)), asked.worker));
    }
    let last = format!("worker {} asked last, at {}", asked.worker, last(at));
    match queue.ahead {
        0 => (Reason::NextClaim, format!("the next worker that asks gets it; {last}")),
        1 => (Reason::BehindOthers, format!("1 run is ahead of it; {last}")),
        ahead => (Reason::BehindOthers, format!("{ahead} runs are ahead of it; {last}")),
    }
}

/// No worker asks for the queue: all of them are busy, or there is none.
fn absent(queue: &QueueFacts, no_worker: String) -> (Reason, String) {
    match queue.claimed {
        0 => (Reason::NoWorker, no_worker),
        1 => (Reason::WorkersBusy, "workers are busy with 1 run of the queue".to_owned()),
        claimed => (Reason::WorkersBusy, format!("workers are busy with {claimed} runs of the queue")),
    }
}

fn at_node(facts: &RunFacts, local: Local<'_>, since: &str) -> Explanation {
    match &facts.owner {
        Some(node) => {
            let words = format!("{since}: {node} starts it when it has a free slot");
            about_run(facts, local, Reason::WaitsForSlot, &words)
        }
        None => {
            let words = format!("{since}: no living node owns the partition of the job; is a node running?");
            let mut answer = about_run(facts, local, Reason::NoNode, &words);
            answer.commands.push("everytick cluster".to_owned());
            answer
        }
    }
}
