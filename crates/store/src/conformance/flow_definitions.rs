//! How jobs name their parents: resolution, cycles, and what children forbid.

use everytick_domain::{edit::Change, job::JobSpec};

use super::flows::{after, diamond, follow, job_of, shown};
use super::{Bench, OTHER_TENANT, TENANT, actor, change, job_id, new_run, spec};
use crate::{NewJob, Result, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_flow_definitions {
    ($open:path) => {
        $crate::conformance_group! { $open, flow_definitions:
            parents_are_resolved_when_a_job_is_defined,
            jobs_created_together_may_depend_on_each_other,
            a_cycle_is_refused_and_named,
            a_job_with_children_cannot_be_deleted_or_renamed,
        }
    };
}

fn message(result: Result<crate::Created>) -> String {
    match result.unwrap_err() {
        StoreError::Invalid(found) => found[0].to_string(),
        error => error.to_string(),
    }
}

pub async fn parents_are_resolved_when_a_job_is_defined(bench: &Bench) {
    let unknown = message(bench.created(TENANT, after("b", &["a"])).await);
    assert_eq!(unknown, "depends_on[0].job: there is no job \"a\"; create it first");
    let a = bench.create(spec("a")).await;
    let by_id = bench.create(after("b", &[&a.id.to_string()])).await;
    assert_eq!(by_id.spec.depends_on[0].job, "a", "the definition stores the name of the parent");
    assert!(message(bench.created(OTHER_TENANT, after("b", &["a"])).await).contains("no job \"a\""));
    let twice = message(bench.created(TENANT, after("c", &["a", &a.id.to_string()])).await);
    assert_eq!(twice, "depends_on[1].job: \"a\" is named twice");
}

pub async fn jobs_created_together_may_depend_on_each_other(bench: &Bench) {
    let new = |spec: JobSpec| NewJob { id: job_id(TENANT, &spec.name), spec };
    let jobs = vec![new(after("c", &["b"])), new(after("b", &["a"])), new(spec("a")), new(after("x", &["unknown"]))];
    let made = bench.store.create_jobs(TENANT, &actor(), jobs, None).await.unwrap();
    let names: Vec<_> = made.iter().map(|made| made.as_ref().ok().map(|made| made.job.spec.name.as_str())).collect();
    assert_eq!(names, [Some("c"), Some("b"), Some("a"), None], "answers are in the order of the request");
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    assert_eq!(shown(bench, root).await, "a waiting, b -, c -");
    bench.claim(&lease, root).await;
}

pub async fn a_cycle_is_refused_and_named(bench: &Bench) {
    diamond(bench).await;
    let edit = change("a", follow(&["d"])(spec("a")));
    let refused = bench.store.edit_job(TENANT, &actor(), edit).await.unwrap_err();
    let StoreError::Invalid(found) = refused else { panic!("{refused}") };
    assert_eq!(found[0].to_string(), "depends_on: makes a cycle: a -> b -> d -> a");
    assert!(job_of(bench, "a").await.spec.depends_on.is_empty());
    // The reversed edge is no cycle after the first edges are removed.
    bench.edit("b", follow(&[])(after("b", &[]))).await;
    bench.edit("c", follow(&[])(after("c", &[]))).await;
    bench.edit("a", follow(&["d"])(spec("a"))).await;
    assert_eq!(job_of(bench, "a").await.spec.depends_on[0].job, "d");
}

pub async fn a_job_with_children_cannot_be_deleted_or_renamed(bench: &Bench) {
    diamond(bench).await;
    let refused = bench.store.edit_job(TENANT, &actor(), change("a", Change::Delete)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the job can be neither deleted nor renamed: depends_on of the jobs b, c contains it; remove it there, or delete them first"
    );
    let renamed = Change::Replace(Box::new(JobSpec { name: "z".into(), ..spec("a") }));
    assert!(matches!(
        bench.store.edit_job(TENANT, &actor(), change("a", renamed)).await,
        Err(StoreError::InUse { what: "job", count: 2, .. })
    ));
    // Jobs without children can be deleted, children first.
    for name in ["d", "c", "b", "a"] {
        bench.edit(name, Change::Delete).await;
    }
}
