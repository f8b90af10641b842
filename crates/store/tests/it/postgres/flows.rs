//! Flows on a shared server: parents that end at the same moment, and concurrent edits.

use std::sync::Arc;

use everytick_domain::{
    edit::Change,
    flow::{DependsOn, When},
    ids::{Cause, JobId, RunId},
    job::{Job, JobSpec, Overlap},
    run::{State, Verdict},
    time::Span,
};
use everytick_store::{
    FlowStore, Limits, NewJob, NodeInfo, PostgresStore, Store, StoreError,
    conformance::{
        TENANT, actor, change, incarnation, job_id, new_run,
        server::{Server, options},
        settle_with, spec,
    },
};
use tokio::sync::Barrier;

use super::bench;

fn after(name: &str, parents: &[&str]) -> JobSpec {
    let parent = |job: &&str| DependsOn { job: (*job).to_owned(), when: When::Succeeded };
    let depends_on = parents.iter().map(parent).collect();
    JobSpec { schedule: None, overlap: Overlap::Allow, depends_on, ..spec(name) }
}

async fn create(store: &PostgresStore, spec: JobSpec) -> Job {
    let new = NewJob { id: job_id(TENANT, &spec.name), spec };
    store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap().job
}

/// The number of flows in which b and c are claimed.
const FLOWS: usize = 1_000;
/// Flows whose two parents end concurrently.
const AT_ONCE: usize = 50;

/// Advances flows after the given one. A flow that another pass advances at the same moment may fail, and is retried.
async fn advance(store: &PostgresStore, after: Option<RunId>, limit: usize) -> usize {
    let flows = store.flows_with_steps(after, limit).await.unwrap();
    for flow in &flows {
        let _ = store.advance_flow(*flow).await;
    }
    flows.len()
}

/// Advances all flows with steps, from several positions in each store at once: concurrent passes do no harm.
async fn advance_all(stores: &[Arc<PostgresStore>; 2], roots: &[RunId]) {
    loop {
        let places = roots.iter().step_by(FLOWS / 8).copied();
        let pass = |(n, place): (usize, RunId)| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move { advance(&store, Some(place), FLOWS / 8 + 1).await })
        };
        let passes: Vec<_> = places.enumerate().map(pass).collect();
        let mut flows = advance(&stores[0], None, 10).await;
        for pass in passes {
            flows += pass.await.unwrap();
        }
        if flows == 0 {
            return;
        }
    }
}

/// Two parents of each flow are settled at the same moment through two stores, and both advance flows at once: the
/// child runs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_parents_that_end_at_the_same_moment_on_two_nodes_create_one_child_run() {
    let database = Server::shared().blank().await;
    let limits = Limits { open_requests_per_job_max: 1_000_000, ..Limits::default() };
    let open = || PostgresStore::connect(&database.url, options(None), limits);
    let stores = [Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())];
    let [one, _] = &stores;
    create(one, after("a", &[])).await;
    let parents = [create(one, after("b", &["a"])).await, create(one, after("c", &["a"])).await];
    let child = create(one, after("d", &["b", "c"])).await;
    let (lease, _) = one.join(&NodeInfo::named("n"), incarnation(1), Span::hours(1)).await.unwrap();
    let all = everytick_domain::partition::PartitionSet::all(one.partitions());

    let make = |n: usize| {
        let store = stores[n % 2].clone();
        tokio::spawn(async move {
            let mut made = Vec::new();
            for n in (n..FLOWS).step_by(8) {
                made.push(store.trigger(TENANT, &actor(), new_run("a", &n.to_string())).await.unwrap().id);
            }
            made
        })
    };
    let mut roots = Vec::new();
    for made in (0..8).map(make).collect::<Vec<_>>() {
        roots.extend(made.await.unwrap());
    }
    roots.sort_unstable();
    for some in roots.chunks(200) {
        let claimed = one.claim(&lease, &all, some).await.unwrap();
        let settles: Vec<_> =
            claimed.iter().map(|run| settle_with(run.id, run.fence, run.job, TENANT, Verdict::Succeeded)).collect();
        one.settle(&settles).await.unwrap();
    }
    advance_all(&stores, &roots).await;
    let run_of = |job: JobId, flow: RunId| RunId::of(job, Cause::Parent { flow });
    let mut fences = Vec::new();
    for job in &parents {
        let runs: Vec<RunId> = roots.iter().map(|flow| run_of(job.id, *flow)).collect();
        for some in runs.chunks(200) {
            fences.extend(one.claim(&lease, &all, some).await.unwrap().into_iter().map(|run| (run.id, run.fence)));
        }
    }
    let fences: Arc<std::collections::HashMap<_, _>> = Arc::new(fences.into_iter().collect());
    assert_eq!(fences.len(), 2 * FLOWS, "both parents of each flow are claimed");

    for some in roots.chunks(AT_ONCE) {
        let mut tasks = Vec::new();
        for flow in some {
            let barrier = Arc::new(Barrier::new(2));
            for (store, job) in stores.iter().cloned().zip(parents.iter().map(|job| job.id)) {
                let (barrier, fences, flow) = (barrier.clone(), fences.clone(), *flow);
                tasks.push(tokio::spawn(async move {
                    let run = run_of(job, flow);
                    barrier.wait().await;
                    let settle = settle_with(run, fences[&run], job, TENANT, Verdict::Succeeded);
                    store.settle(&[settle]).await.unwrap();
                }));
            }
        }
        let advancing = stores.clone().map(|store| tokio::spawn(async move { advance(&store, None, 20).await }));
        for task in tasks {
            task.await.unwrap();
        }
        for task in advancing {
            task.await.unwrap();
        }
    }
    advance_all(&stores, &roots).await;

    let filter = everytick_store::RunFilter { job: Some(child.id), ..Default::default() };
    let mut runs = Vec::new();
    let mut before = None;
    loop {
        let page = one.list_runs(TENANT, &filter, before, 500).await.unwrap();
        runs.extend(page.items);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(runs.len(), FLOWS, "one run of the child in each flow");
    assert!(runs.iter().all(|run| run.state == State::Waiting));
    let mut flows: Vec<_> = runs.iter().filter_map(|run| run.flow).collect();
    flows.sort_unstable();
    flows.dedup();
    assert_eq!(flows.len(), FLOWS);
}

/// Each of two jobs is edited at the same moment to depend on the other: one edit is refused, in every round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_concurrent_edits_create_no_cycle() {
    let database = Server::shared().blank().await;
    let open = || PostgresStore::connect(&database.url, options(None), Limits::default());
    let stores = [Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())];
    for name in ["a", "b", "c"] {
        create(&stores[0], after(name, &[])).await;
    }
    for round in 0..60 {
        // Directly, and through a third job.
        let through = round % 2 == 1;
        let c = if through { after("c", &["a"]) } else { after("c", &[]) };
        let edit = |spec: JobSpec| change(&spec.name.clone(), Change::Replace(Box::new(spec)));
        stores[0].edit_job(TENANT, &actor(), edit(c)).await.unwrap();
        let barrier = Arc::new(Barrier::new(2));
        let wanted = [after("a", &["b"]), after("b", &[if through { "c" } else { "a" }])];
        let tasks: Vec<_> = stores
            .iter()
            .cloned()
            .zip(wanted)
            .map(|(store, spec)| {
                let barrier = barrier.clone();
                tokio::spawn(async move {
                    let ask = change(&spec.name.clone(), Change::Replace(Box::new(spec)));
                    barrier.wait().await;
                    store.edit_job(TENANT, &actor(), ask).await
                })
            })
            .collect();
        let mut done = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => done += 1,
                Err(StoreError::Invalid(found)) => assert!(found[0].message.contains("cycle"), "{found:?}"),
                Err(error) => panic!("round {round}: {error:?}"),
            }
        }
        assert_eq!(done, 1, "round {round}: one of two is refused");
        for name in ["a", "b", "c"] {
            stores[0].edit_job(TENANT, &actor(), edit(after(name, &[]))).await.unwrap();
        }
    }
}

/// Payloads are rendered before the flow's row is locked. A payload edited in between is left to the next transaction.
#[tokio::test]
async fn a_payload_edited_after_rendering_is_rendered_again() {
    let opened = bench().await;
    let bench = &opened.bench;
    let taking = |payload: &str| JobSpec { payload: Some(payload.into()), ..after("c", &["b"]) };
    bench.create(after("a", &[])).await;
    bench.create(after("b", &["a"])).await;
    let c = bench.create(taking(r#"["{{ parents.b.run }}"]"#)).await;
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let b = RunId::of(job_id(TENANT, "b"), Cause::Parent { flow: root });
    for run in [root, b] {
        let claimed = bench.claim(&lease, run).await;
        bench.settle(&claimed, Verdict::Succeeded).await;
        if run == root {
            bench.store.advance_flow(root).await.unwrap();
        }
    }
    let (mut locker, mut admin) = (opened.connect().await, opened.connect().await);
    let lock = format!("begin; select 1 from flows where id = '{root}' for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut locker).await.unwrap();
    let store = bench.store.clone();
    let advancing = tokio::spawn(async move { store.advance_flow(root).await });
    let blocked = "select count(*) from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock' and query like '%flows%'";
    while sqlx::query_scalar::<_, i64>(blocked).fetch_one(&mut admin).await.unwrap() == 0 && !advancing.is_finished() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    bench.edit("c", Change::Replace(Box::new(taking(r#"{"run": "{{ parents.b.run }}"}"#)))).await;
    sqlx::raw_sql("commit").execute(&mut locker).await.unwrap();
    let first = advancing.await.unwrap().unwrap();
    assert_eq!((first.started, first.more), (0, true));
    assert_eq!(bench.store.advance_flow(root).await.unwrap().started, 1);
    let run = bench.run(RunId::of(c.id, Cause::Parent { flow: root })).await;
    assert_eq!(run.payload, Some(format!(r#"{{"run":"{b}"}}"#)));
}
