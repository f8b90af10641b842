//! Facts about one run, for `explain`.

use everytick_domain::{
    edit::Change,
    explain::{Asked, Did, IN_THE_WAY_SHOWN_MAX, Question, Reason, RunFacts, ShownIn, explain_run},
    ids::RunId,
    job::{JobSpec, Overlap},
    plan::Fate,
    queue::{KeyExpression, QueueLimits},
    retry::RetryPolicy,
    run::{CauseKind, SkipReason, State, Verdict},
    time::Span,
};

use super::{
    Bench, OTHER_TENANT, TENANT, actor, by_name,
    flows::{advance, after, child_of},
    new_run, overlapping, pause,
    queues::{ask, ids, in_queue, queue, queued},
    s, spec, tick, ticks,
};
use crate::{NewRun, Redrive, StoreError, Supersede};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_run_facts {
    ($open:path) => {
        $crate::conformance_group! { $open, run_facts:
            the_last_worker_that_asked_is_noted_by_queue_and_tenant,
            a_worker_that_asks_for_an_unknown_queue_is_not_noted,
            a_worker_that_asked_before_the_history_is_pruned,
            a_run_in_a_queue_has_the_facts_of_the_queue,
            a_run_with_a_concurrency_key_has_the_claimed_runs_of_that_key,
            a_run_waits_while_its_concurrency_key_is_full,
            a_run_waits_while_its_job_is_full,
            a_claim_of_a_worker_is_loaded_with_its_run,
            a_run_that_waits_for_a_node_has_the_owner_of_its_partition,
            a_waiting_run_has_the_open_runs_of_its_job,
            a_run_between_two_attempts_has_its_attempts,
            an_overlap_has_the_runs_around_it,
            a_superseded_run_has_the_run_that_superseded_it,
            a_failed_run_has_whether_its_job_was_edited_since,
            the_requests_about_a_run_are_listed_oldest_first,
            a_redriven_run_and_its_failed_run_name_each_other,
            a_run_of_a_flow_has_the_jobs_of_the_flow,
            a_job_without_a_schedule_has_its_newest_run_and_its_parents,
            a_run_of_a_deleted_job_has_its_job,
            run_facts_do_not_cross_tenants,
        }
    };
}

async fn facts(bench: &Bench, run: RunId) -> RunFacts {
    bench.store.load_run_facts(TENANT, run).await.unwrap()
}

pub async fn the_last_worker_that_asked_is_noted_by_queue_and_tenant(bench: &Bench) {
    bench.create(queued(spec("j"))).await;
    bench.create(in_queue(spec("k"), "other")).await;
    assert_eq!(queue(bench, "q").await.asked_at, None);
    for (seconds, worker) in [(5, "w1"), (9, "w2")] {
        bench.go(seconds);
        bench.store.note_asked(TENANT, "q", worker).await.unwrap();
    }
    bench.go(12);
    bench.store.note_asked(OTHER_TENANT, "q", "w3").await.unwrap();
    assert_eq!(queue(bench, "q").await.asked_at, Some(s(9)));
    assert_eq!(queue(bench, "other").await.asked_at, None);
    let run = bench.trigger(new_run("j", "k")).await.id;
    assert_eq!(facts(bench, run).await.queue.unwrap().asked, Some(Asked { at: s(9), worker: "w2".into() }));
}

/// Any worker may ask for any name, so a row for each would let the table grow without bound.
pub async fn a_worker_that_asks_for_an_unknown_queue_is_not_noted(bench: &Bench) {
    bench.created(OTHER_TENANT, in_queue(spec("j"), "theirs")).await.unwrap();
    let limits = QueueLimits { concurrency: Some(3), rate: None };
    bench.store.set_queue(TENANT, &actor(), "limited", limits).await.unwrap();
    bench.store.set_queue(OTHER_TENANT, &actor(), "limited-by-them", limits).await.unwrap();
    bench.go(5);
    for (name, noted) in [("unknown", false), ("theirs", false), ("limited-by-them", false), ("limited", true)] {
        assert_eq!(bench.store.note_asked(TENANT, name, "w").await.unwrap(), noted, "{name}");
    }
    for name in ["unknown", "theirs"] {
        bench.create(in_queue(spec(name), name)).await;
        assert_eq!(queue(bench, name).await.asked_at, None, "{name}");
        bench.store.note_asked(TENANT, name, "w").await.unwrap();
        assert_eq!(queue(bench, name).await.asked_at, Some(s(5)), "{name} has a job now");
    }
    assert_eq!(queue(bench, "limited").await.asked_at, Some(s(5)), "a queue with limits");
    assert!(!bench.store.note_asked(TENANT, "still-unknown", "w").await.unwrap(), "other queues have jobs");
}

pub async fn a_worker_that_asked_before_the_history_is_pruned(bench: &Bench) {
    bench.create(queued(spec("j"))).await;
    bench.go(5);
    bench.store.note_asked(TENANT, "q", "w").await.unwrap();
    bench.go(100);
    bench.store.prune(s(5), 100).await.unwrap();
    assert_eq!(queue(bench, "q").await.asked_at, Some(s(5)));
    bench.store.prune(s(6), 100).await.unwrap();
    assert_eq!(queue(bench, "q").await.asked_at, None);
}

pub async fn a_run_in_a_queue_has_the_facts_of_the_queue(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(queued(overlapping("j"))).await;
    let limits = QueueLimits { concurrency: Some(3), rate: "5/1m".parse().ok() };
    bench.store.set_queue(TENANT, &actor(), "q", limits).await.unwrap();
    bench.go(30);
    let mut runs = Vec::new();
    for seconds in [10, 20, 30] {
        runs.push(bench.waiting(&lease, &job, seconds).await);
    }
    bench.store.claim_queue(&ask(1)).await.unwrap();
    let found = facts(bench, runs[2]).await.queue.unwrap();
    assert_eq!((found.name.as_str(), found.limits, found.claimed, found.ahead), ("q", limits, 1, 1));
    assert!(found.spent_until > 0, "the claim used the rate");
    assert_eq!(facts(bench, runs[1]).await.queue.unwrap().ahead, 0);
    assert_eq!(facts(bench, runs[0]).await.queue, None, "it is claimed");
}

pub async fn a_run_with_a_concurrency_key_has_the_claimed_runs_of_that_key(bench: &Bench) {
    let key = KeyExpression::try_from("payload.customer".to_owned()).ok();
    bench.create(JobSpec { concurrency_key: key, ..queued(overlapping("j")) }).await;
    let mut runs = Vec::new();
    for (n, customer) in ["a", "a", "b"].iter().enumerate() {
        let payload = Some(format!("{{\"customer\": \"{customer}\"}}"));
        bench.go(n as i64);
        runs.push(bench.trigger(NewRun { payload, ..new_run("j", &n.to_string()) }).await.id);
    }
    bench.store.claim_queue(&ask(1)).await.unwrap();
    let same = async |run| facts(bench, run).await.same_key.iter().map(|row| row.run).collect::<Vec<_>>();
    assert_eq!((same(runs[1]).await, same(runs[2]).await), (vec![runs[0]], vec![]));
}

/// Triggers a run of the job `j`, whose queue is `q`.
async fn triggered(bench: &Bench, seconds: i64) -> RunId {
    bench.go(seconds);
    let payload = Some("{\"customer\": \"a\"}".to_owned());
    bench.trigger(NewRun { payload, ..new_run("j", &seconds.to_string()) }).await.id
}

/// Triggers this many such runs, and claims each of them.
async fn triggered_and_claimed(bench: &Bench, count: i64) {
    for seconds in 0..count {
        let run = triggered(bench, seconds).await;
        assert_eq!(ids(bench, 1).await, [run]);
    }
}

pub async fn a_run_waits_while_its_concurrency_key_is_full(bench: &Bench) {
    let key = KeyExpression::try_from("payload.customer".to_owned()).ok();
    bench.create(JobSpec { concurrency_key: key, max_per_key: 6, ..queued(overlapping("j")) }).await;
    triggered_and_claimed(bench, 5).await;
    let (next, waits) = (triggered(bench, 10).await, triggered(bench, 11).await);
    let explained = async || explain_run(&facts(bench, waits).await, ShownIn::JobZone);
    assert_ne!(explained().await.reason, Some(Reason::KeyBusy), "one more may start");
    assert_eq!(ids(bench, 9).await, [next]);
    let answer = explained().await;
    assert_eq!((answer.reason, answer.in_the_way.len()), (Some(Reason::KeyBusy), IN_THE_WAY_SHOWN_MAX));
    assert!(answer.words.contains(" and 1 more; at most 6 may be in progress"), "{}", answer.words);
}

pub async fn a_run_waits_while_its_job_is_full(bench: &Bench) {
    let allows = |max| JobSpec { max_concurrent: Some(max), ..queued(overlapping("j")) };
    bench.create(allows(40)).await;
    triggered_and_claimed(bench, 25).await;
    let waits = triggered(bench, 30).await;
    let explained = async || explain_run(&facts(bench, waits).await, ShownIn::JobZone);
    assert_ne!(explained().await.reason, Some(Reason::JobBusy), "15 more may start");
    bench.edit("j", Change::Replace(Box::new(allows(25)))).await;
    assert!(ids(bench, 9).await.is_empty());
    let answer = explained().await;
    assert_eq!((answer.reason, answer.in_the_way.len()), (Some(Reason::JobBusy), IN_THE_WAY_SHOWN_MAX));
    assert!(answer.words.contains(" and 20 more"), "{}", answer.words);
}

pub async fn a_claim_of_a_worker_is_loaded_with_its_run(bench: &Bench) {
    bench.create(JobSpec { timeout: Span::seconds(90), ..queued(spec("j")) }).await;
    bench.go(10);
    let run = bench.trigger(new_run("j", "k")).await.id;
    bench.store.claim_queue(&ask(1)).await.unwrap();
    let claim = facts(bench, run).await.claim.unwrap();
    assert_eq!((claim.worker.as_str(), claim.until, claim.timeout_at), ("w", s(40), s(100)));
    assert!(!claim.is_accepted);
}

pub async fn a_run_that_waits_for_a_node_has_the_owner_of_its_partition(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.acquire(&lease, &bench.all()).await.unwrap();
    bench.create(spec("j")).await;
    let run = bench.trigger(new_run("j", "k")).await.id;
    assert_eq!(facts(bench, run).await.owner.as_deref(), Some("a"));
    bench.store.leave(&lease).await.unwrap();
    assert_eq!(facts(bench, run).await.owner, None);
}

pub async fn a_waiting_run_has_the_open_runs_of_its_job(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(JobSpec { overlap: Overlap::Queue { limit: 5 }, ..spec("j") }).await;
    bench.go(20);
    let claimed = bench.claimed(&lease, &job, 10).await;
    let waits = bench.waiting(&lease, &job, 20).await;
    let found = facts(bench, waits).await;
    let others: Vec<_> = found.others.iter().map(|row| (row.run, row.state)).collect();
    assert_eq!(others, [(claimed.id, State::Claimed), (waits, State::Waiting)]);
    assert_eq!((found.now, found.run.run, found.job_name.as_str()), (s(20), waits, "j"));
    assert!(!found.is_cancelling);
}

pub async fn a_run_between_two_attempts_has_its_attempts(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Retry { due_at: s(40) }).await;
    let found = facts(bench, run.id).await;
    assert_eq!((found.run.attempt, found.run.due_at, found.attempts.len()), (1, s(40), 1));
    let attempt = &found.attempts[0];
    assert_eq!((attempt.attempt, attempt.outcome.as_deref(), attempt.finished_at), (1, Some("failed"), Some(s(12))));
    assert!(attempt.error.is_some());
}

pub async fn an_overlap_has_the_runs_around_it(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let first = bench.claimed(&lease, &job, 10).await;
    let skip = |seconds| tick(&job, seconds, Fate::Skip(SkipReason::Overlap));
    bench.go(30);
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, vec![skip(20)])).await;
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, vec![skip(30)])).await;
    let skipped = skip(30).tick.id;
    let others = async || -> Vec<_> {
        let found = facts(bench, skipped).await;
        assert_eq!(found.run.skip_reason, Some(SkipReason::Overlap));
        let mut others: Vec<_> = found.others.iter().map(|row| (row.run, row.state)).collect();
        others.dedup();
        others
    };
    assert_eq!(others().await, [(first.id, State::Claimed)], "other skips are left out");
    bench.settle(&first, Verdict::Succeeded).await;
    assert_eq!(others().await, [(first.id, State::Succeeded)], "after it has ended");
    // Ticks that were due together: the newest runs.
    bench.go(60);
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, vec![skip(50)])).await;
    let newest = bench.claimed(&lease, &job, 60).await;
    let found = facts(bench, skip(50).tick.id).await;
    assert!(found.others.iter().any(|row| row.run == newest.id), "{:?}", found.others);
}

pub async fn a_superseded_run_has_the_run_that_superseded_it(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(JobSpec { overlap: Overlap::CancelPrevious, ..spec("j") }).await;
    bench.go(20);
    let older = bench.claimed(&lease, &job, 10).await;
    let newer = bench.waiting(&lease, &job, 20).await;
    let given = Supersede { job: job.id, run: older.id, to: newer };
    bench.store.supersede(&lease, &[given]).await.unwrap();
    let answer = explain_run(&facts(bench, older.id).await, ShownIn::JobZone);
    let in_the_way: Vec<_> = answer.in_the_way.iter().map(|row| (row.run, row.state)).collect();
    assert_eq!((answer.reason, in_the_way), (Some(Reason::Superseded), vec![(newer, State::Waiting)]));
}

pub async fn a_failed_run_has_whether_its_job_was_edited_since(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let retried = |max_retries| JobSpec { retry: RetryPolicy::with_retries(max_retries), ..spec("j") };
    let job = bench.create(retried(0)).await;
    bench.go(9);
    bench.edit("j", Change::Replace(Box::new(JobSpec { enabled: true, ..retried(0) }))).await;
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Failed).await;
    let reason = async || explain_run(&facts(bench, run.id).await, ShownIn::JobZone).reason.unwrap().word();
    assert_eq!(reason().await, "attempts_used");
    bench.go(20);
    bench.edit("j", pause()).await;
    assert_eq!(reason().await, "attempts_used", "a pause changes no retries");
    bench.edit("j", Change::Replace(Box::new(retried(3)))).await;
    assert_eq!(reason().await, "failed", "the retries that it had are not known");
}

pub async fn the_requests_about_a_run_are_listed_oldest_first(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.go(3);
    let run = bench.trigger(NewRun { force: true, ..new_run("j", "k") }).await.id;
    bench.go(5);
    bench.store.cancel_run(TENANT, &actor(), run).await.unwrap();
    let found = facts(bench, run).await;
    let actions: Vec<_> = found.actions.iter().map(|action| (action.at, action.by.as_str(), &action.what)).collect();
    let expected = [(s(3), "tester", &Did::Triggered { force: true }), (s(5), "tester", &Did::Cancelled)];
    assert_eq!(actions, expected);
}

pub async fn a_redriven_run_and_its_failed_run_name_each_other(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let failed = bench.claimed(&lease, &job, 10).await;
    bench.settle(&failed, Verdict::Failed).await;
    assert_eq!(facts(bench, failed.id).await.redriven, None);
    let ask = Redrive { job: by_name("j"), from: s(0), to: None, limit: 10, dry_run: false };
    let redriven = bench.store.redrive(TENANT, &actor(), &ask).await.unwrap().runs.remove(0).run;
    assert_eq!(facts(bench, failed.id).await.redriven, Some((redriven, State::Waiting)));
    let found = facts(bench, redriven).await;
    assert_eq!(found.run.cause, CauseKind::Request);
    assert_eq!(found.actions[0].what, Did::Redrove { failed: Some(failed.id) });
}

pub async fn a_run_of_a_flow_has_the_jobs_of_the_flow(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.create(after("a", &[])).await;
    let child = bench.create(after("b", &["a"])).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let run = bench.claim(&lease, root).await;
    bench.settle(&run, Verdict::Failed).await;
    advance(bench).await;
    let found = facts(bench, child_of(&child, root)).await;
    assert_eq!((found.run.state, found.run.skip_reason), (State::Skipped, Some(SkipReason::Parent)));
    let flow = found.flow.unwrap();
    let nodes: Vec<_> = flow.nodes.iter().map(|node| (node.job.as_str(), node.run.as_ref().unwrap().state)).collect();
    assert_eq!((flow.flow, nodes), (root, vec![("a", State::Failed), ("b", State::Skipped)]));
    assert!(flow.nodes[0].run.as_ref().unwrap().error.is_some());
}

pub async fn a_job_without_a_schedule_has_its_newest_run_and_its_parents(bench: &Bench) {
    bench.create(after("a", &[])).await;
    bench.create(after("b", &["a:failed"])).await;
    let of_job = async |name: &str| {
        bench.store.load_facts(TENANT, &by_name(name), Question::default(), Span::days(90)).await.unwrap()
    };
    let found = of_job("b").await;
    assert!(found.last.is_none());
    assert_eq!((found.parents.len(), found.parents[0].job.as_str(), &found.parents[0].run), (1, "a", &None));
    let (first, last) = (bench.trigger(new_run("a", "1")).await.id, {
        bench.go(5);
        bench.trigger(NewRun { force: true, ..new_run("a", "2") }).await.id
    });
    assert!(first < last);
    assert_eq!(of_job("b").await.parents[0].run.as_ref().map(|run| run.run), Some(last));
    assert_eq!(of_job("a").await.last.map(|last| last.run.run), Some(last));
    bench.create(spec("c")).await;
    assert!(of_job("c").await.last.is_none(), "a job with a schedule is explained by its ticks");
}

pub async fn a_run_of_a_deleted_job_has_its_job(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let run = bench.trigger(new_run("j", "k")).await.id;
    bench.go(4);
    bench.edit("j", Change::Delete).await;
    let found = facts(bench, run).await;
    assert_eq!(found.job.map(|found| (found.id, found.deleted_at)), Some((job.id, Some(s(4)))));
}

pub async fn run_facts_do_not_cross_tenants(bench: &Bench) {
    bench.create(spec("j")).await;
    let run = bench.trigger(new_run("j", "k")).await.id;
    for (tenant, run) in [(OTHER_TENANT, run), (TENANT, RunId::floor(s(1)))] {
        let found = bench.store.load_run_facts(tenant, run).await;
        assert!(matches!(found, Err(StoreError::NotFound("run"))));
    }
}
