//! Flows where several nodes share a server: parents that end at the same moment, and edits that race.

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

fn after(name: &str, parents: &[&str]) -> JobSpec {
    let parent = |job: &&str| DependsOn { job: (*job).to_owned(), when: When::Succeeded };
    let depends_on = parents.iter().map(parent).collect();
    JobSpec { schedule: None, overlap: Overlap::Allow, depends_on, ..spec(name) }
}

async fn create(store: &PostgresStore, spec: JobSpec) -> Job {
    let new = NewJob { id: job_id(TENANT, &spec.name), spec };
    store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap().job
}

/// As many flows as asked for, in which b and c are claimed.
const FLOWS: usize = 1_000;
/// Flows whose two parents end side by side.
const AT_ONCE: usize = 50;

/// Advances all that has steps, each store from several places at once: passes that meet do no harm.
async fn advance_all(stores: &[Arc<PostgresStore>; 2], roots: &[RunId]) {
    loop {
        let places = roots.iter().step_by(FLOWS / 8).copied();
        let pass = |(n, place): (usize, RunId)| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move { store.advance_flows(Some(place), FLOWS / 8 + 1).await.unwrap().flows })
        };
        let passes: Vec<_> = places.enumerate().map(pass).collect();
        let mut flows = stores[0].advance_flows(None, 10).await.unwrap().flows;
        for pass in passes {
            flows += pass.await.unwrap();
        }
        if flows == 0 {
            return;
        }
    }
}

/// Two parents of each flow are settled at the same moment through two stores, which each advance at once: the child runs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_parents_that_end_at_the_same_moment_on_two_nodes_make_one_child_a_thousand_times() {
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
                made.push(store.create_run(TENANT, &actor(), new_run("a", &n.to_string())).await.unwrap().id);
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
    assert_eq!(fences.len(), 2 * FLOWS, "both parents of each flow are being worked on");

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
        let advancing = stores.clone().map(|store| tokio::spawn(async move { store.advance_flows(None, 20).await }));
        for task in tasks {
            task.await.unwrap();
        }
        for task in advancing {
            task.await.unwrap().unwrap();
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

/// Each of two jobs is made to follow the other, at the same moment: one edit is refused, however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_edits_that_race_make_no_cycle() {
    let database = Server::shared().blank().await;
    let open = || PostgresStore::connect(&database.url, options(None), Limits::default());
    let stores = [Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())];
    for name in ["a", "b", "c"] {
        create(&stores[0], after(name, &[])).await;
    }
    for round in 0..60 {
        // Directly, and through a third.
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
