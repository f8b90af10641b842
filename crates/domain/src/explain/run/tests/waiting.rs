//! What a run in a queue waits for, when requests of workers are noted only once per interval.

use super::*;

/// The reason and the text of a run that is due at 00:01:00 and waits in a queue; `asked` is when a request was last noted.
fn waits(asked: i64, claimed: u64, now: i64) -> (&'static str, String) {
    let mut facts = facts(State::Waiting);
    facts.now = s(now);
    queued(&mut facts, |queue| {
        queue.asked = Some(Asked { at: s(asked), worker: "w1".to_owned() });
        queue.claimed = claimed;
    });
    let answer = explain_run(&facts, ShownIn::JobZone);
    (answer.reason.unwrap().word(), text(&answer))
}

#[test]
fn no_worker_is_reported_only_if_a_request_would_have_been_noted() {
    for (situation, asked, claimed, now, reason, contains) in [
        ("noted before it was due, and busy", 59, 1, 600, "workers_busy", "workers are busy with 1 run of the queue"),
        ("noted long before, and busy", 30, 2, 600, "workers_busy", "workers are busy with 2 runs of the queue"),
        ("a request may not be noted yet", 59, 0, 63, "next_claim", "worker w1 asked last, at 2026-11-16T00:00:59Z"),
        (
            "a request after the interval would be noted",
            59,
            0,
            600,
            "no_worker",
            "no worker has asked for queue mail since 2026-11-16T00:01:04Z",
        ),
        ("noted long before", 30, 0, 600, "no_worker", "since 2026-11-16T00:00:30Z (9m30s ago), when w1 did"),
        ("noted since it was due", 61, 1, 600, "next_claim", "the next worker that asks gets it"),
    ] {
        let (found, text) = waits(asked, claimed, now);
        assert_eq!(found, reason, "{situation}: {text}");
        assert!(text.contains(contains), "{situation}: {text} does not contain {contains:?}");
    }
}

#[test]
fn workers_are_busy_although_no_request_was_noted() {
    let mut facts = facts(State::Waiting);
    queued(&mut facts, |queue| (queue.asked, queue.claimed) = (None, 1));
    let answer = explain_run(&facts, ShownIn::JobZone);
    assert_eq!(answer.reason.map(Reason::word), Some("workers_busy"), "{}", answer.words);
    assert!(answer.commands.contains(&"everytick worker --queue mail -- COMMAND".to_owned()), "{answer:?}");
}
