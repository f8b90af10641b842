//! Workers that claim at the same time, and claims that race with edits.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{
    edit::Change,
    ids::RunId,
    job::{JobSpec, Overlap},
    plan::Fate,
    queue::QueueLimits,
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    ClaimQueue, PostgresStore, QueueStore, Store, Success,
    conformance::{TENANT, actor, overlapping, settle, spec, tick, ticks},
};
use sqlx::Row as _;

use super::{Opened, bench};

const RUNS: i64 = 60;
const WORKERS: usize = 4;

fn queued(spec: JobSpec) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..spec }
}

fn ask(limit: usize) -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit, lease: Span::minutes(10) }
}

async fn backlog(opened: &Opened, spec: JobSpec) {
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec).await);
    bench.go(RUNS * 10);
    let rows = (1..=RUNS).map(|n| tick(&job, n * 10, Fate::Run)).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
}

/// A lower bound of the runs that workers have claimed now: a run is added after its claim and removed before its
/// settlement.
#[derive(Default)]
struct Held {
    now: BTreeSet<RunId>,
    most: usize,
    done: BTreeSet<RunId>,
}

/// Works until nothing is left. Returns the most runs that were claimed at once.
async fn work_off(store: &Arc<PostgresStore>) -> usize {
    let held = Arc::new(Mutex::new(Held::default()));
    let work = |_| {
        let (store, held) = (store.clone(), held.clone());
        tokio::spawn(async move {
            while held.lock().unwrap().done.len() < usize::try_from(RUNS).unwrap() {
                let claims = store.claim_queue(&ask(3)).await.unwrap().claims;
                {
                    let mut held = held.lock().unwrap();
                    for claim in &claims {
                        assert!(held.now.insert(claim.run.id), "a run is claimed by one worker");
                        assert!(!held.done.contains(&claim.run.id), "a run is claimed once");
                    }
                    held.most = held.most.max(held.now.len());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                for claim in &claims {
                    let mut held = held.lock().unwrap();
                    held.now.remove(&claim.run.id);
                    held.done.insert(claim.run.id);
                }
                let settles: Vec<_> = claims.iter().map(|claim| settle(&claim.run, Verdict::Succeeded)).collect();
                store.settle(&settles).await.unwrap();
            }
        })
    };
    for worker in (0..WORKERS).map(work).collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let held = held.lock().unwrap();
    held.most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_claim_at_once_never_have_more_of_a_job_than_it_allows() {
    let opened = bench().await;
    backlog(&opened, JobSpec { overlap: Overlap::Allow, max_concurrent: Some(2), ..queued(spec("j")) }).await;
    let most = work_off(&opened.store).await;
    assert!(most <= 2, "{most} at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_claim_at_once_never_have_more_of_a_queue_than_it_allows() {
    let opened = bench().await;
    backlog(&opened, queued(overlapping("j"))).await;
    let limits = QueueLimits { concurrency: Some(4), rate: None };
    opened.store.set_queue(TENANT, &actor(), "q", limits).await.unwrap();
    let most = work_off(&opened.store).await;
    assert!(most <= 4, "{most} at once");
}

/// Claims lock the job, and claims and edits wait for each other. There is no deadlock, and no run is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_race_with_edits_of_the_target_lose_no_run() {
    let opened = bench().await;
    backlog(&opened, queued(spec("j"))).await;
    let edits = tokio::spawn({
        let bench = opened.bench.store.clone();
        async move {
            for n in 0..30 {
                let name = if n % 2 == 0 { "r" } else { "q" };
                let target = TargetSpec::Queue(QueueTarget { name: name.into() });
                let change = Change::Replace(Box::new(JobSpec { target, ..spec("j") }));
                let edit = everytick_store::conformance::change("j", change);
                bench.edit_job(TENANT, &actor(), edit).await.unwrap();
            }
        }
    });
    let mut retried = BTreeSet::new();
    while !edits.is_finished() {
        for claim in opened.store.claim_queue(&ask(3)).await.unwrap().claims {
            let verdict = if retried.insert(claim.run.id) { Verdict::Redeliver } else { Verdict::Succeeded };
            opened.store.settle(&[settle(&claim.run, verdict)]).await.unwrap();
        }
    }
    edits.await.unwrap();
    let mut look = opened.connect().await;
    let text = "select (select count(*) from waiting where queue <> 'q') as elsewhere,
                       (select count(*) from waiting) + (select count(*) from runs where state = 2) as all_runs,
                       (select count(*) from worker_claims) as held, (select queue from epochs) as queue";
    let row = sqlx::raw_sql(text).fetch_one(&mut look).await.unwrap();
    assert_eq!((row.get::<i64, _>("elsewhere"), row.get::<String, _>("queue").as_str()), (0, "q"));
    // The edits also record the ticks due by then.
    assert!(row.get::<i64, _>("all_runs") >= RUNS, "{}", row.get::<i64, _>("all_runs"));
    assert_eq!(row.get::<i64, _>("held"), 0);
}

/// A run with a log and an output is settled in a second commit.
#[tokio::test]
async fn the_settled_part_of_a_batch_is_answered_although_the_rest_fails() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(queued(overlapping("j"))).await);
    bench.go(40);
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 10, Fate::Run), tick(&job, 20, Fate::Run)])).await;
    let claims = bench.store.claim_queue(&ask(2)).await.unwrap().claims;
    let (plain, logged) = (&claims[0].run, &claims[1].run);
    assert!(bench.store.log_claim(TENANT, logged.id, logged.fence, "log".into()).await.unwrap());
    let done = [
        Success { run: plain.id, fence: plain.fence, output: None },
        Success { run: logged.id, fence: logged.fence, output: Some("output".to_owned()) },
    ];
    let mut session = opened.connect().await;
    let refuse = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$; \
         create trigger refuse before update on runs for each row when (new.id = '{}') execute function refuse()",
        logged.id
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&mut session).await.unwrap();
    let (alone, both) = (bench.store.succeed(TENANT, &done[1..]).await, bench.store.succeed(TENANT, &done).await);
    // Another test uses the database next, also if this one fails.
    sqlx::raw_sql("drop function refuse cascade").execute(&mut session).await.unwrap();
    assert!(alone.is_err(), "the second commit fails");
    assert_eq!(both.unwrap(), [Some(job.id), None]);
    assert_eq!(bench.store.succeed(TENANT, &done).await.unwrap(), [None, Some(job.id)]);
    assert_eq!(bench.run(logged.id).await.state, State::Succeeded);
}
