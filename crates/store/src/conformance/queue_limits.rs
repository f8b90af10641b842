//! Limits of queues and concurrency keys, and what operators see of queues.

use everytick_domain::{
    edit::Change,
    job::JobSpec,
    plan::Fate,
    queue::{KeyExpression, QueueLimits},
    run::Verdict,
};

use super::queues::{ask, backlog, claims, ids, in_queue, joined, one, queued};
use super::{Bench, OTHER_TENANT, TENANT, actor, new_run, overlapping, s, spec, tick, ticks};
use crate::{ClaimQueue, NewRun};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_queue_limits {
    ($open:path) => {
        $crate::conformance_group! { $open, queue_limits:
            claims_obey_the_concurrency_limit_of_the_queue,
            claims_obey_the_rate_limit_of_the_queue,
            a_claim_uses_only_the_rate_of_its_own_queue,
            claims_obey_the_limit_per_key,
            a_redelivered_run_keeps_its_key,
            a_busy_key_does_not_block_other_keys,
            a_poll_returns_the_queues_with_due_runs,
            queues_are_listed_with_their_counts_in_pages,
        }
    };
}

pub(super) fn keyed(spec: JobSpec, max_per_key: u32) -> JobSpec {
    let key = KeyExpression::try_from("payload.customer".to_owned()).unwrap();
    JobSpec { concurrency_key: Some(key), max_per_key, ..spec }
}

pub(super) fn of_customer(job: &str, key: &str, customer: &str) -> NewRun {
    NewRun { payload: Some(format!("{{\"customer\":\"{customer}\"}}")), ..new_run(job, key) }
}

pub async fn claims_obey_the_concurrency_limit_of_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(50);
    backlog(bench, &lease, &job, 5).await;
    let limits = QueueLimits { concurrency: Some(2), rate: None };
    bench.store.set_queue(TENANT, &actor(), "q", limits).await.unwrap();
    let first = claims(bench, 9).await;
    assert_eq!(first.len(), 2);
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&first[0].run, Verdict::Succeeded).await;
    assert_eq!(claims(bench, 9).await.len(), 1);
    bench.store.set_queue(TENANT, &actor(), "q", QueueLimits::default()).await.unwrap();
    assert_eq!(claims(bench, 9).await.len(), 2);
    let audit = bench.audit().await;
    let last = audit.last().unwrap();
    assert_eq!((last.action.as_str(), last.subject.as_str()), ("limit", "queue q"));
}

pub async fn claims_obey_the_rate_limit_of_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(100);
    backlog(bench, &lease, &job, 10).await;
    let limits = QueueLimits { concurrency: None, rate: Some("2/10s".parse().unwrap()) };
    bench.store.set_queue(TENANT, &actor(), "q", limits).await.unwrap();
    assert_eq!(claims(bench, 9).await.len(), 2);
    assert!(claims(bench, 9).await.is_empty());
    bench.go(104);
    assert!(claims(bench, 9).await.is_empty());
    bench.go(105);
    assert_eq!(claims(bench, 9).await.len(), 1);
    bench.go(300);
    assert_eq!(claims(bench, 1).await.len(), 1);
    assert_eq!(claims(bench, 9).await.len(), 1);
}

pub async fn a_claim_uses_only_the_rate_of_its_own_queue(bench: &Bench) {
    let limits = QueueLimits { concurrency: None, rate: Some("1/10s".parse().unwrap()) };
    let queues = [(TENANT, "q"), (TENANT, "r"), (OTHER_TENANT, "q")];
    for (tenant, queue) in queues {
        bench.created(tenant, in_queue(overlapping(queue), queue)).await.unwrap();
        bench.store.set_queue(tenant, &actor(), queue, limits).await.unwrap();
        bench.store.trigger(tenant, &actor(), new_run(queue, "k")).await.unwrap();
    }
    for (tenant, queue) in queues {
        let ask = ClaimQueue { tenant, queue: queue.into(), ..ask(9) };
        assert_eq!(bench.store.claim_queue(&ask).await.unwrap().claims.len(), 1, "{tenant:?} {queue}");
    }
}

pub async fn claims_obey_the_limit_per_key(bench: &Bench) {
    joined(bench, keyed(queued(overlapping("j")), 1)).await;
    let first = bench.trigger(of_customer("j", "1", "acme")).await;
    bench.go(1);
    let second = bench.trigger(of_customer("j", "2", "acme")).await;
    let third = bench.trigger(of_customer("j", "3", "other")).await;
    let got = claims(bench, 9).await;
    assert_eq!(got.iter().map(|claim| claim.run.id).collect::<Vec<_>>(), [first.id, third.id]);
    assert!(claims(bench, 9).await.is_empty());
    // The redelivered run waits again under its key.
    bench.settle(&got[0].run, Verdict::Redeliver).await;
    let again = claims(bench, 9).await;
    assert_eq!(again.len(), 1);
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&again[0].run, Verdict::Succeeded).await;
    let last = one(bench).await;
    assert!([first.id, second.id].contains(&last.id) && last.id != again[0].run.id);
}

pub async fn a_redelivered_run_keeps_its_key(bench: &Bench) {
    joined(bench, keyed(queued(overlapping("j")), 1)).await;
    bench.trigger(of_customer("j", "1", "acme")).await;
    bench.trigger(of_customer("j", "2", "other")).await;
    let held = claims(bench, 2).await;
    assert_eq!(held.len(), 2);
    for claim in held {
        bench.settle(&claim.run, Verdict::Redeliver).await;
        assert_eq!(ids(bench, 2).await, [claim.run.id], "only the other key is busy");
    }
}

pub async fn a_busy_key_does_not_block_other_keys(bench: &Bench) {
    let of = |customer: &str| {
        let payload = Some(format!("{{\"customer\":\"{customer}\"}}"));
        JobSpec { payload, ..keyed(queued(overlapping("j")), 1) }
    };
    let (lease, job) = joined(bench, of("acme")).await;
    bench.go(1_790);
    backlog(bench, &lease, &job, 179).await;
    let job = bench.edit("j", Change::Replace(Box::new(of("other")))).await.job;
    bench.go(1_800);
    let other = bench.waiting(&lease, &job, 1_800).await;
    assert!(one(bench).await.id < other);
    assert_eq!(ids(bench, 9).await, [other]);
}

pub async fn a_poll_returns_the_queues_with_due_runs(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.create(in_queue(overlapping("later"), "r")).await;
    bench.go(20);
    let asked = [(TENANT, "q".to_owned()), (TENANT, "r".to_owned()), (OTHER_TENANT, "q".to_owned())];
    let look = async || bench.store.look_at_queues(&asked).await.unwrap();
    assert_eq!((look().await.due.len(), look().await.next_due), (0, None));
    let mut row = tick(&job, 20, Fate::Run);
    row.tick.due_at = s(25);
    bench.record(&lease, ticks(&job, 1, vec![row])).await;
    assert_eq!((look().await.due.len(), look().await.next_due, look().await.now), (0, Some(s(25)), s(20)));
    bench.go(25);
    assert_eq!((look().await.due, look().await.next_due), (vec![(TENANT, "q".to_owned())], None));
    assert!(bench.store.look_at_queues(&[]).await.unwrap().due.is_empty());
}

pub async fn queues_are_listed_with_their_counts_in_pages(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.create(in_queue(spec("k"), "a")).await;
    let limits = QueueLimits { concurrency: Some(3), rate: Some("5/1m".parse().unwrap()) };
    bench.store.set_queue(TENANT, &actor(), "z", limits).await.unwrap();
    bench.go(30);
    backlog(bench, &lease, &job, 2).await;
    let mut later = tick(&job, 30, Fate::Run);
    later.tick.due_at = s(50);
    bench.record(&lease, ticks(&job, 1, vec![later])).await;
    one(bench).await;
    let page = bench.store.list_queues(TENANT, None, 2).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!((names, page.next.as_deref()), (vec!["a", "q"], Some("z")));
    let q = &page.items[1];
    assert_eq!((q.due, q.later, q.claimed, q.oldest), (1, 1, 1, Some(s(20))));
    let page = bench.store.list_queues(TENANT, page.next.as_deref(), 2).await.unwrap();
    assert_eq!((page.items.len(), page.items[0].limits, page.next), (1, limits, None));
    assert!(bench.store.list_queues(OTHER_TENANT, None, 9).await.unwrap().items.is_empty());
}
