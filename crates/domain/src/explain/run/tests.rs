mod ended;
mod waiting;

use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    explain::Backfilled,
    flow::When,
    ids::{BackfillId, RunId},
    job::{CatchUp, Job, JobSpec, Overlap},
    overlap::{Open, superseded_error},
    plan::tests::{job, spec},
    queue::{QueueLimits, Rate},
    run::{CauseKind, SkipReason},
    time::DbTime,
};

/// 2026-11-16T00:00:00Z.
const BEGIN: i64 = 1_794_787_200;

fn s(seconds: i64) -> DbTime {
    DbTime::from_millis((BEGIN + seconds) * 1_000)
}

fn id(seconds: i64) -> RunId {
    RunId::floor(s(seconds))
}

/// The facts at 00:10:00 about the run of the tick 00:01:00. The job has no retries.
pub(in crate::explain) fn facts(state: State) -> RunFacts {
    let ended = !state.is_open();
    let claimed = state == State::Claimed;
    RunFacts {
        now: s(600),
        run: RunRow {
            run: id(60),
            cause: CauseKind::Tick,
            scheduled_at: s(60),
            due_at: s(60),
            state,
            skip_reason: None,
            attempt: u32::from(state != State::Waiting && state != State::Skipped),
            lost: 0,
            node: claimed.then(|| "a".to_owned()),
            worker: None,
            started_at: (claimed || state == State::Succeeded || state == State::Failed).then(|| s(61)),
            finished_at: ended.then(|| s(90)),
            error: (state == State::Failed).then(|| "status 404".to_owned()),
            range: None,
        },
        job: Some(job(spec(Span::minutes(1)))),
        job_name: "j".to_owned(),
        attempts: Vec::new(),
        actions: Vec::new(),
        others: Vec::new(),
        open: BTreeMap::new(),
        same_key: Vec::new(),
        same_key_count: 0,
        queue: None,
        owner: Some("a".to_owned()),
        is_cancelling: false,
        claim: None,
        flow: None,
        backfill: None,
        redriven: None,
        is_edited_since: false,
    }
}

fn with(facts: &mut RunFacts, change: impl FnOnce(&mut JobSpec)) {
    let job: &mut Job = facts.job.as_mut().unwrap();
    let mut spec = (*job.spec).clone();
    change(&mut spec);
    job.spec = Arc::new(spec);
}

/// Another run of the job.
fn other(at: i64, state: State) -> RunRow {
    RunRow { run: id(at), scheduled_at: s(at), due_at: s(at), started_at: Some(s(at)), ..facts(state).run }
}

fn queue() -> QueueFacts {
    QueueFacts {
        name: "mail".to_owned(),
        limits: QueueLimits::default(),
        spent_until: 0,
        claimed: 0,
        ahead: 0,
        asked: Some(Asked { at: s(598), worker: "w1".to_owned() }),
    }
}

fn queued(facts: &mut RunFacts, change: impl FnOnce(&mut QueueFacts)) {
    let mut queue = queue();
    change(&mut queue);
    facts.queue = Some(queue);
}

fn action(what: Did) -> Action {
    Action { at: s(70), by: "ann".to_owned(), what }
}

type Case = (&'static str, State, fn(&mut RunFacts), Reason, &'static [&'static str]);

/// Situation, state of the run, change of the facts, expected reason, and expected parts of the text.
const CASES: &[Case] = &[
    (
        "jitter",
        State::Waiting,
        |f| f.run.due_at = s(620),
        Reason::DueLater,
        &["waits for its due time, due at 2026-11-16T00:10:20Z (in 20s)"],
    ),
    (
        "a retry",
        State::Waiting,
        |f| {
            with(f, |spec| spec.retry.max_retries = 3);
            (f.run.attempt, f.run.due_at) = (1, s(700));
            let (finished_at, outcome) = (Some(s(580)), Some("failed".to_owned()));
            f.attempts = vec![Attempt { attempt: 1, finished_at, outcome, error: Some("status 503".to_owned()) }];
        },
        Reason::RetryLater,
        &[
            "attempt 2 of 4, due at 2026-11-16T00:11:40Z (in 1m40s)",
            "attempt 1 failed at 2026-11-16T00:09:40Z: status 503",
        ],
    ),
    (
        "an attempt after a lost one",
        State::Claimed,
        |f| {
            with(f, |spec| spec.retry.max_retries = 1);
            (f.run.attempt, f.run.lost) = (2, 1);
            let (finished_at, outcome) = (Some(s(580)), Some("lost".to_owned()));
            let error = Some("lost: the node or worker that claimed it vanished".to_owned());
            f.attempts = vec![Attempt { attempt: 1, finished_at, outcome, error }];
        },
        Reason::InProgress,
        &[
            "is in progress on a, attempt 2, 1 lost before it, since",
            "attempt 1 was lost at 2026-11-16T00:09:40Z: the node or worker that claimed it vanished",
            "lost attempts use no retry (max_retries is 1); a run is started again after at most 3 of them",
        ],
    ),
    (
        "another run of the job",
        State::Waiting,
        |f| {
            with(f, |spec| spec.overlap = Overlap::Queue { limit: 10 });
            f.others = vec![other(50, State::Claimed), f.run.clone()];
            f.open = BTreeMap::from([(id(50), Open { claimed: true, attempts: 1 })]);
        },
        Reason::JobBusy,
        &["it starts after run", "in progress since 2026-11-16T00:00:50Z (9m10s), on a", "overlap is queue"],
    ),
    (
        "the same concurrency key",
        State::Waiting,
        |f| {
            with(f, |spec| spec.overlap = Overlap::Allow);
            f.same_key = vec![RunRow { worker: Some("w1".to_owned()), ..other(50, State::Claimed) }];
            f.same_key_count = 1;
            queued(f, |_| ());
        },
        Reason::KeyBusy,
        &["with the same concurrency key, run", "worker w1", "at most 1 may be in progress"],
    ),
    (
        "the limit of the queue",
        State::Waiting,
        |f| queued(f, |queue| (queue.claimed, queue.limits.concurrency) = (5, Some(5))),
        Reason::QueueLimit,
        &["5 runs are claimed, and the limit of the queue is 5"],
    ),
    (
        "the rate of the queue",
        State::Waiting,
        |f| {
            queued(f, |queue| {
                queue.limits.rate = Some(Rate { count: 1, per: Span::minutes(1) });
                queue.spent_until = s(700).millis() * 1_000;
            });
        },
        Reason::QueueRate,
        &["has used its rate of 1/1m"],
    ),
    (
        "no worker ever",
        State::Waiting,
        |f| queued(f, |queue| queue.asked = None),
        Reason::NoWorker,
        &["waits since 2026-11-16T00:01:00Z (9m) in queue mail: no worker has asked for queue mail yet"],
    ),
    (
        "no worker since then",
        State::Waiting,
        |f| queued(f, |queue| queue.asked = Some(Asked { at: s(30), worker: "w1".to_owned() })),
        Reason::NoWorker,
        &["no worker has asked for queue mail since 2026-11-16T00:00:30Z (9m30s ago), when w1 did"],
    ),
    (
        "busy workers",
        State::Waiting,
        |f| queued(f, |queue| (queue.asked, queue.claimed) = (None, 2)),
        Reason::WorkersBusy,
        &["workers are busy with 2 runs of the queue"],
    ),
    (
        "behind other runs",
        State::Waiting,
        |f| queued(f, |queue| queue.ahead = 12),
        Reason::BehindOthers,
        &["12 runs are ahead of it; worker w1 asked last, at 2026-11-16T00:09:58Z (2s ago)"],
    ),
    (
        "the next run of the queue",
        State::Waiting,
        |f| queued(f, |_| ()),
        Reason::NextClaim,
        &["the next worker that asks gets it"],
    ),
    ("no owner", State::Waiting, |f| f.owner = None, Reason::NoNode, &["no living node owns the partition"]),
    ("no slot", State::Waiting, |_| (), Reason::WaitsForSlot, &["a starts it when it has a free slot"]),
    (
        "forced beside another run",
        State::Waiting,
        |f| {
            f.run.cause = CauseKind::Request;
            f.others = vec![other(50, State::Claimed)];
            f.open = BTreeMap::from([(id(50), Open { claimed: true, attempts: 1 })]);
            f.actions = vec![action(Did::Triggered { force: true })];
        },
        Reason::WaitsForSlot,
        &["free slot", "triggered with force by ann at 2026-11-16T00:01:10Z"],
    ),
    (
        "a cancelled backlog",
        State::Waiting,
        |f| f.is_cancelling = true,
        Reason::BeingCancelled,
        &["will not start", "being cancelled"],
    ),
    (
        "on a node",
        State::Claimed,
        |f| with(f, |spec| spec.timeout = Span::minutes(10)),
        Reason::InProgress,
        &[
            "is in progress on a, attempt 1",
            "since 2026-11-16T00:01:01Z (8m59s)",
            "it times out at 2026-11-16T00:11:01Z",
        ],
    ),
    (
        "with a worker",
        State::Claimed,
        |f| {
            f.run.worker = Some("w1".to_owned());
            let (until, timeout_at) = (s(625), s(900));
            f.claim = Some(ClaimFacts { worker: "w1".to_owned(), until, timeout_at, is_accepted: false });
        },
        Reason::InProgress,
        &["by worker w1", "the last heartbeat of worker w1 was 5s ago", "it times out at 2026-11-16T00:15:00Z"],
    ),
    (
        "with a silent worker",
        State::Claimed,
        |f| {
            let (until, timeout_at) = (s(610), s(900));
            f.claim = Some(ClaimFacts { worker: "w1".to_owned(), until, timeout_at, is_accepted: false });
        },
        Reason::NoHeartbeat,
        &["was 20s ago", "a heartbeat every 10s", "the claim is lost at 2026-11-16T00:10:10Z"],
    ),
    (
        "a success",
        State::Succeeded,
        |f| f.run.attempt = 3,
        Reason::Succeeded,
        &["succeeded at attempt 3 at 2026-11-16T00:01:30Z"],
    ),
    (
        "a failure of the last attempt",
        State::Failed,
        |f| {
            with(f, |spec| spec.retry.max_retries = 3);
            (f.run.attempt, f.redriven) = (4, Some((id(61), State::Succeeded)));
        },
        Reason::AttemptsUsed,
        &[
            "failed at 2026-11-16T00:01:30Z after 4 attempts: status 404; all retries are used (max_retries is 3)",
            "redriven: run",
            "succeeded",
        ],
    ),
    (
        "a failure without retries",
        State::Failed,
        |f| with(f, |spec| spec.retry.max_retries = 0),
        Reason::AttemptsUsed,
        &["after 1 attempt: status 404; the job has no retries (max_retries is 0)"],
    ),
    (
        "a failure that is not retried",
        State::Failed,
        |f| with(f, |spec| spec.retry.max_retries = 3),
        Reason::NotRetried,
        &["status 404; the target allowed no retry"],
    ),
    (
        "a lost run",
        State::Failed,
        |f| (f.run.error, f.run.attempt, f.run.lost) = (Some("lost 4 times".to_owned()), 4, 3),
        Reason::Lost,
        &["after 4 attempts: lost 4 times"],
    ),
    (
        "a failure before an edit",
        State::Failed,
        |f| f.is_edited_since = true,
        Reason::Failed,
        &["after 1 attempt: status 404; the job was edited since"],
    ),
    (
        "a cancelled run",
        State::Cancelled,
        |f| f.actions = vec![action(Did::Cancelled)],
        Reason::Cancelled,
        &["was cancelled by ann at 2026-11-16T00:01:30Z"],
    ),
    (
        "a superseded run",
        State::Cancelled,
        |f| f.run.error = Some(superseded_error(id(70))),
        Reason::Superseded,
        &["superseded it, because overlap is cancel_previous"],
    ),
];

/// The answer as one text.
fn text(answer: &Explanation) -> String {
    [std::slice::from_ref(&answer.words), &answer.details].concat().join("\n")
}

#[test]
fn every_state_of_a_run_is_explained() {
    for (situation, state, change, reason, contains) in CASES {
        let mut facts = facts(*state);
        change(&mut facts);
        let answer = explain_run(&facts, ShownIn::JobZone);
        assert_eq!((answer.kind, answer.reason), (Kind::Run, Some(*reason)), "{situation}: {}", answer.words);
        let text = text(&answer);
        assert!(text.starts_with("2026-11-16T00:01:00Z: run "), "{situation}: {text}");
        for word in *contains {
            assert!(text.contains(word), "{situation}: {text} does not contain {word:?}");
        }
    }
    for reason in Reason::ALL {
        assert!(CASES.iter().any(|case| case.3 == *reason), "{reason:?} is not in the table");
    }
}

fn skipped(reason: SkipReason) -> RunFacts {
    let mut facts = facts(State::Skipped);
    facts.run.skip_reason = Some(reason);
    facts
}

#[test]
fn an_overlap_names_the_run_in_the_way() {
    let ended = |at: i64, from: i64| RunRow { finished_at: Some(s(at)), ..other(from, State::Failed) };
    let skipped_since = |from: i64| RunRow { skip_reason: Some(SkipReason::Overlap), ..other(from, State::Skipped) };
    for (situation, others, named) in [
        ("still in progress", vec![other(0, State::Claimed)], Some((0, "in progress since 2026-11-16T00:00:00Z"))),
        (
            "ended since",
            vec![ended(300, 0)],
            Some((0, "in progress from 2026-11-16T00:00:00Z until 2026-11-16T00:05:00Z")),
        ),
        ("settled just before the skip", vec![ended(89, 0)], Some((0, "it failed"))),
        ("ended long before", vec![ended(30, 0)], None),
        ("began after", vec![other(95, State::Claimed)], None),
        ("other skips", vec![skipped_since(0)], None),
        (
            "it waited",
            vec![RunRow { attempt: 0, started_at: None, ..other(20, State::Waiting) }],
            Some((20, "waiting since")),
        ),
    ] {
        let mut facts = skipped(SkipReason::Overlap);
        facts.others = others;
        let answer = explain_run(&facts, ShownIn::JobZone);
        assert_eq!((answer.kind, answer.skip_reason), (Kind::Skipped, Some(SkipReason::Overlap)));
        let found: Vec<_> = answer.in_the_way.iter().map(|row| row.run).collect();
        assert_eq!(found, named.iter().map(|(at, _)| id(*at)).collect::<Vec<_>>(), "{situation}: {}", answer.words);
        if let Some((at, words)) = named {
            assert!(answer.words.contains(&format!("still open: run {}", id(at))), "{situation}: {}", answer.words);
            assert!(
                answer.words.contains(words) && answer.words.contains("overlap is skip"),
                "{situation}: {}",
                answer.words
            );
        }
    }
}

#[test]
fn a_run_with_retries_was_in_the_way_also_between_its_attempts() {
    let mut facts = skipped(SkipReason::Overlap);
    let retried = RunRow { attempt: 2, started_at: Some(s(400)), due_at: s(400), ..other(0, State::Succeeded) };
    facts.others = vec![RunRow { finished_at: Some(s(410)), ..retried }];
    assert_eq!(explain_run(&facts, ShownIn::JobZone).in_the_way.len(), 1);
}

#[test]
fn an_overlap_of_ticks_that_were_due_together_names_the_newest() {
    let mut facts = skipped(SkipReason::Overlap);
    facts.others = vec![RunRow { started_at: Some(s(91)), ..other(80, State::Succeeded) }];
    let answer = explain_run(&facts, ShownIn::JobZone);
    assert!(answer.words.contains("a newer tick was due as well, 2026-11-16T00:01:20Z"), "{}", answer.words);
    assert_eq!(answer.in_the_way[0].run, id(80));
}

fn node(job: &str, parents: &[(&str, When)], state: Option<State>) -> FlowJob {
    let error = (state == Some(State::Failed)).then(|| "no space".to_owned());
    let run = state.map(|state| FlowRun { run: id(60), state, finished_at: Some(s(80)), error });
    FlowJob {
        job: job.to_owned(),
        parents: parents.iter().map(|(name, when)| ((*name).to_owned(), *when)).collect(),
        run,
    }
}

#[test]
fn a_job_of_a_flow_names_the_first_parent_that_did_not_end_as_required() {
    let mut facts = skipped(SkipReason::Parent);
    facts.run.cause = CauseKind::Parent;
    facts.flow = Some(FlowFacts {
        flow: id(60),
        cancelled_at: None,
        nodes: vec![
            node("extract", &[], Some(State::Failed)),
            node("check", &[("extract", When::Finished)], Some(State::Succeeded)),
            node("transform", &[("extract", When::Succeeded), ("check", When::Succeeded)], Some(State::Skipped)),
            node("j", &[("check", When::Succeeded), ("transform", When::Succeeded)], Some(State::Skipped)),
        ],
    });
    let answer = explain_run(&facts, ShownIn::JobZone);
    let chain = "skipped: parent transform was skipped, and depends_on requires succeeded; transform was skipped because \
                 parent extract failed, and depends_on requires succeeded; run ";
    assert!(answer.words.contains(chain), "{}", answer.words);
    assert!(answer.words.ends_with("of extract failed at 2026-11-16T00:01:20Z: no space"), "{}", answer.words);
    assert!(answer.details.contains(&"started by the jobs that it depends on".to_owned()));
    facts.flow = None;
    facts.run.error = Some("parent transform is skipped, not succeeded".to_owned());
    assert!(
        explain_run(&facts, ShownIn::JobZone).words.ends_with("skipped: parent transform is skipped, not succeeded")
    );
}

#[test]
fn every_skip_reason_is_explained() {
    for reason in SkipReason::ALL {
        let mut facts = skipped(*reason);
        let answer = explain_run(&facts, ShownIn::JobZone);
        assert!(answer.words.contains("skipped: "), "{reason:?}: {}", answer.words);
        facts.run.range = Some(crate::plan::SkipRange { from: s(60), to: s(120), count: 2, reason: *reason });
        let answer = explain_run(&facts, ShownIn::JobZone);
        assert!(answer.words.contains("2 ticks from 2026-11-16T00:01:00Z to 2026-11-16T00:02:00Z"), "{}", answer.words);
        assert!(answer.commands.iter().all(|command| !command.contains("run get")), "a range is no run");
    }
    let mut late = skipped(SkipReason::CatchUp);
    with(&mut late, |spec| (spec.misfire.catch_up, spec.misfire.late_after) = (CatchUp::None, Span::seconds(1)));
    assert!(text(&explain_run(&late, ShownIn::JobZone)).contains("; catch_up is none, late_after is 1s"));
    with(&mut late, |spec| (spec.misfire.catch_up, spec.misfire.max_runs) = (CatchUp::All, 7));
    assert!(text(&explain_run(&late, ShownIn::JobZone)).contains("catch_up is all, late_after is 1s, max_runs is 7"));
    let mut facts = skipped(SkipReason::Misfire);
    with(&mut facts, |spec| spec.misfire.grace = Some(Span::hours(1)));
    assert!(text(&explain_run(&facts, ShownIn::JobZone)).contains("; grace is 1h"));
    facts.run.finished_at = Some(s(60 + 7_200));
    let text = text(&explain_run(&facts, ShownIn::JobZone));
    assert!(text.contains("it was recorded at 2026-11-16T02:01:00Z, 2h after the tick"), "{text}");
}

#[test]
fn the_origin_of_a_run_is_named() {
    let backfill = BackfillId::from_uuid(uuid::Uuid::nil());
    let made = Backfilled { backfill, by: "bob".into(), created_at: s(9), run: id(60), state: None, is_running: true };
    for (cause, actions, backfill, expected) in [
        (CauseKind::Tick, vec![], None, None),
        (
            CauseKind::Request,
            vec![action(Did::Triggered { force: false }), action(Did::Cancelled)],
            None,
            Some("triggered by ann at 2026-11-16T00:01:10Z".to_owned()),
        ),
        (
            CauseKind::Request,
            vec![action(Did::Redrove { failed: Some(id(5)) })],
            None,
            Some(format!("it redrives the failed run {}, requested by ann at 2026-11-16T00:01:10Z", id(5))),
        ),
        (
            CauseKind::Backfill,
            vec![],
            Some(made),
            Some(format!(
                "created by backfill {backfill}, requested by bob at 2026-11-16T00:00:09Z, for the tick 2026-11-16T00:01:00Z"
            )),
        ),
        (CauseKind::Parent, vec![], None, Some("started by the jobs that it depends on".to_owned())),
    ] {
        let mut facts = facts(State::Succeeded);
        (facts.run.cause, facts.actions, facts.backfill) = (cause, actions, backfill);
        assert_eq!(explain_run(&facts, ShownIn::JobZone).details.first().cloned(), expected, "{cause:?}");
    }
}
