//! Lists by filter, objects by the beginning of their id, and what a list says about its items.

use everytick_domain::{
    backfill::{Order, Stretch},
    flow::FlowState,
    ids::{BackfillId, IdPrefix, RunId},
    job::JobSpec,
    run::{CauseKind, State, Verdict},
    time::Span,
};
use uuid::Uuid;

use super::flows::{advance, after, child_of};
use super::{Bench, OTHER_TENANT, START, TENANT, actor, by_name, change, new_run, overlapping, pause, range, s, spec};
use crate::{Actor, AuditFilter, EditJob, FlowFilter, NewBackfill, RunFilter, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_lists {
    ($open:path) => {
        $crate::conformance_group! { $open, lists:
            runs_are_filtered_by_cause_flow_and_label,
            a_list_by_label_reads_a_bounded_number_of_runs_per_page,
            runs_are_found_by_the_beginning_of_their_id,
            jobs_and_backfills_are_found_by_the_beginning_of_their_id,
            a_cancelled_run_names_the_author_of_its_cancellation,
            a_job_names_its_followers,
            the_audit_trail_is_filtered,
            a_search_of_the_audit_trail_reads_a_bounded_number_of_rows_per_page,
            flows_are_listed_newest_first_in_pages_with_their_states,
            a_flow_is_listed_while_its_root_is_open,
        }
    };
}

fn labelled(name: &str, team: &str) -> JobSpec {
    JobSpec { labels: [("team".to_owned(), team.to_owned())].into(), ..overlapping(name) }
}

fn label(key: &str, value: Option<&str>) -> (String, Option<String>) {
    (key.to_owned(), value.map(ToOwned::to_owned))
}

/// The seconds of the listed runs, and the number of items on each page.
async fn pages(bench: &Bench, filter: &RunFilter, limit: usize) -> (Vec<i64>, Vec<usize>) {
    let (mut ticks, mut sizes, mut before) = (Vec::new(), Vec::new(), None);
    loop {
        let page = bench.store.list_runs(TENANT, filter, before, limit).await.unwrap();
        ticks.extend(page.items.iter().map(|run| (run.scheduled_at.millis() - START.millis()) / 1_000));
        sizes.push(page.items.len());
        before = page.next;
        if before.is_none() {
            return (ticks, sizes);
        }
    }
}

pub async fn runs_are_filtered_by_cause_flow_and_label(bench: &Bench) {
    let lease = bench.join("n", 1).await;
    let a = bench.create(labelled("a", "x")).await;
    let b = bench.create(JobSpec { labels: a.spec.labels.clone(), ..after("b", &["a:finished"]) }).await;
    let c = bench.create(labelled("c", "y")).await;
    bench.go(50);
    let root = bench.claimed(&lease, &a, 10).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    bench.waiting(&lease, &c, 10).await;
    bench.raise(&c, 1, Some(s(20))).await;
    bench.range(&lease, &range(&c, 1, 20, 30)).await;
    bench.trigger(new_run("c", "k")).await;
    let filter = RunFilter::default;
    let of = |filter: RunFilter| async move { pages(bench, &filter, 100).await.0 };
    let causes = |causes: &[CauseKind]| RunFilter { causes: causes.to_vec(), ..filter() };
    assert_eq!(of(causes(&[CauseKind::Tick])).await, [20, 10, 10]);
    assert_eq!(of(causes(&[CauseKind::Request])).await, [50]);
    assert_eq!(of(causes(&[CauseKind::Parent, CauseKind::Request])).await, [50, 10]);
    assert_eq!(of(causes(&[CauseKind::Backfill])).await, [0; 0]);

    let flow = bench.store.list_runs(TENANT, &RunFilter { flow: Some(root.id), ..filter() }, None, 9).await.unwrap();
    let mut ids: Vec<_> = flow.items.iter().map(|run| run.id).collect();
    ids.sort_unstable();
    let mut expected = [root.id, child_of(&b, root.id)];
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let unknown = RunFilter { flow: Some(RunId::floor(s(10))), ..filter() };
    assert_eq!(of(unknown).await, [0; 0]);

    let labels = |labels: &[(String, Option<String>)]| RunFilter { labels: labels.to_vec(), ..filter() };
    assert_eq!(of(labels(&[label("team", Some("x"))])).await, [10, 10]);
    assert_eq!(of(labels(&[label("team", Some("y"))])).await, [50, 20, 10]);
    assert_eq!(of(labels(&[label("team", None)])).await, [50, 20, 10, 10, 10]);
    assert_eq!(of(labels(&[label("team", Some("x")), label("other", None)])).await, [0; 0]);
    assert_eq!(of(labels(&[label("te\0am", Some("\0"))])).await, [0; 0]);
    let failed = RunFilter { states: vec![State::Failed], ..labels(&[label("team", Some("x"))]) };
    assert_eq!(of(failed.clone()).await, [10]);
    assert_eq!(of(RunFilter { job: Some(a.id), ..failed.clone() }).await, [10]);
    assert_eq!(of(RunFilter { job: Some(c.id), ..failed.clone() }).await, [0; 0]);
    assert_eq!(of(RunFilter { labels: vec![label("team", Some("y"))], ..failed }).await, [0; 0]);
}

pub async fn a_list_by_label_reads_a_bounded_number_of_runs_per_page(bench: &Bench) {
    let lease = bench.join("n", 1).await;
    let (few, many) = (bench.create(labelled("few", "x")).await, bench.create(labelled("many", "y")).await);
    bench.go(400);
    let first = bench.claimed(&lease, &few, 10).await;
    bench.settle(&first, Verdict::Failed).await;
    for at in (20..=200).step_by(10) {
        let run = bench.claimed(&lease, &many, at).await;
        bench.settle(&run, Verdict::Failed).await;
    }
    // 20 runs, 8 per page: the only matching run is on the third page, also among failed runs.
    let labels = vec![label("team", Some("x"))];
    for states in [vec![], vec![State::Failed]] {
        let filter = RunFilter { states, labels: labels.clone(), ..RunFilter::default() };
        assert_eq!(pages(bench, &filter, 10).await, (vec![10], vec![0, 0, 1]), "{filter:?}");
    }
    let of_job = RunFilter { job: Some(many.id), states: vec![State::Failed], labels, ..RunFilter::default() };
    assert_eq!(pages(bench, &of_job, 10).await, (vec![], vec![0, 0, 0]));
}

pub async fn runs_are_found_by_the_beginning_of_their_id(bench: &Bench) {
    let lease = bench.join("n", 1).await;
    let (a, b) = (bench.create(overlapping("a")).await, bench.create(overlapping("b")).await);
    bench.go(400);
    let mut found = [bench.waiting(&lease, &a, 10).await, bench.waiting(&lease, &b, 10).await];
    found.sort_unstable();
    bench.waiting(&lease, &b, 390).await;
    bench.raise(&a, 1, Some(s(20))).await;
    bench.range(&lease, &range(&a, 1, 20, 200)).await;
    let ids = |text: String| {
        let prefix: IdPrefix = text.parse().unwrap();
        let filter = RunFilter { ids: Some(prefix), ..RunFilter::default() };
        async move {
            let page = bench.store.list_runs(TENANT, &filter, None, 10).await.unwrap();
            let mut ids: Vec<_> = page.items.into_iter().map(|run| run.id).collect();
            ids.sort_unstable();
            ids
        }
    };
    let [low, high] = found.map(|id| id.to_string());
    assert_eq!(ids(low[..13].to_owned()).await, found, "both have the same instant");
    assert_eq!(ids(low.clone()).await, [found[0]]);
    assert_eq!(ids(high.replace('-', "")[..20].to_owned()).await, [found[1]]);
    let skipped = RunId::of(a.id, everytick_domain::ids::Cause::Range { from: s(20) });
    assert_eq!(ids(skipped.to_string()[..20].to_owned()).await, [skipped]);
    assert_eq!(ids("00000000".to_owned()).await, []);
    let filter = RunFilter { ids: low.parse().ok(), ..RunFilter::default() };
    assert!(bench.store.list_runs(OTHER_TENANT, &filter, None, 10).await.unwrap().items.is_empty());
}

pub async fn jobs_and_backfills_are_found_by_the_beginning_of_their_id(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    bench.create(overlapping("k")).await;
    bench.go(400);
    let prefix: IdPrefix = job.id.to_string()[..18].parse().unwrap();
    assert_eq!(bench.store.find_jobs(TENANT, prefix, 5).await.unwrap(), [(job.id, "j".to_owned())]);
    assert!(bench.store.find_jobs(OTHER_TENANT, prefix, 5).await.unwrap().is_empty());

    let id = |n: u128| BackfillId::from_uuid(Uuid::from_u128((0xabcd_0000_u128 << 96) + n));
    for n in [1, 2] {
        let ask = NewBackfill {
            id: id(n),
            job: by_name("j"),
            stretch: Stretch { from: s(0), to: s(20), order: Order::Oldest },
            rate: None,
            payload: None,
            kept: Span::days(90),
            idempotency: None,
        };
        bench.store.create_backfill(TENANT, &actor(), ask).await.unwrap();
    }
    let find = |text: &str| {
        let prefix: IdPrefix = text.parse().unwrap();
        async move { bench.store.find_backfills(TENANT, prefix, 5).await.unwrap() }
    };
    assert_eq!(find("abcd0000").await, [(id(1), "j".to_owned()), (id(2), "j".to_owned())]);
    assert_eq!(find(&id(2).to_string()).await, [(id(2), "j".to_owned())]);
    assert_eq!(find("abcd0001").await, []);
    bench.edit("j", everytick_domain::edit::Change::Delete).await;
    assert!(bench.store.find_jobs(TENANT, prefix, 5).await.unwrap().is_empty(), "a deleted job is not found");
}

pub async fn a_cancelled_run_names_the_author_of_its_cancellation(bench: &Bench) {
    let (lease, job) = (bench.join("n", 1).await, bench.create(overlapping("j")).await);
    bench.go(40);
    let one = bench.waiting(&lease, &job, 10).await;
    let ada = Actor::local("ada");
    let cancelled = bench.store.cancel_run(TENANT, &ada, one).await.unwrap().run;
    assert_eq!(cancelled.cancelled_by.as_deref(), Some("ada"));
    let two = bench.claimed(&lease, &job, 20).await.id;
    bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    let three = bench.waiting(&lease, &job, 30).await;
    let paused = EditJob { cancel: true, ..change("j", pause()) };
    bench.store.edit_job(TENANT, &Actor::local("eve"), paused).await.unwrap();
    for (run, by) in [(one, "ada"), (two, "tester"), (three, "eve")] {
        assert_eq!(bench.run(run).await.cancelled_by.as_deref(), Some(by));
    }
    // The pause recorded the tick at second 40 first, and cancelled its run too.
    let listed: Vec<_> = bench.history(&job).await.into_iter().map(|run| run.cancelled_by).collect();
    assert_eq!(listed, ["ada", "tester", "eve", "eve"].map(|by| Some(by.to_owned())));
    // A run that ended by itself has no such author.
    bench.create(overlapping("k")).await;
    assert_eq!(bench.trigger(new_run("k", "x")).await.cancelled_by, None);
}

pub async fn a_job_names_its_followers(bench: &Bench) {
    bench.create(spec("a")).await;
    bench.create(after("c", &["a"])).await;
    bench.create(after("b", &["a:failed"])).await;
    let followers =
        |name: &'static str| async move { bench.store.get_job(TENANT, &by_name(name)).await.unwrap().followers };
    assert_eq!(followers("a").await, ["b", "c"]);
    assert_eq!(followers("b").await, [""; 0]);
    bench.edit("c", everytick_domain::edit::Change::Delete).await;
    assert_eq!(followers("a").await, ["b"]);
}

async fn audited(bench: &Bench, filter: &AuditFilter, limit: usize) -> (Vec<String>, Vec<usize>) {
    let (mut rows, mut sizes, mut before) = (Vec::new(), Vec::new(), None);
    loop {
        let page = bench.store.list_audit(TENANT, filter, before, limit).await.unwrap();
        rows.extend(page.items.iter().map(|row| format!("{} {}", row.actor, row.action)));
        sizes.push(page.items.len());
        before = page.next;
        if before.is_none() {
            return (rows, sizes);
        }
    }
}

pub async fn the_audit_trail_is_filtered(bench: &Bench) {
    let a = bench.create(spec("a")).await;
    let b = bench.create(spec("b")).await;
    bench.go(600);
    bench.edit("a", pause()).await;
    bench.go(1_200);
    let ada = Actor::local("ada");
    bench.store.edit_job(TENANT, &ada, change("b", pause())).await.unwrap();
    bench.store.edit_job(TENANT, &ada, change("a", everytick_domain::edit::Change::Resume)).await.unwrap();
    let none = AuditFilter::default();
    let of = |filter: AuditFilter| async move { audited(bench, &filter, 10).await.0 };
    assert_eq!(of(none.clone()).await, ["ada resume", "ada pause", "tester pause", "tester create", "tester create"]);
    assert_eq!(of(AuditFilter { actor: Some("ada".into()), ..none.clone() }).await, ["ada resume", "ada pause"]);
    assert_eq!(of(AuditFilter { action: Some("pause".into()), ..none.clone() }).await, ["ada pause", "tester pause"]);
    let of_a = AuditFilter { subjects: vec![a.id.to_string()], ..none.clone() };
    assert_eq!(of(of_a.clone()).await, ["ada resume", "tester pause", "tester create"]);
    let pauses_of_a = AuditFilter { action: Some("pause".into()), ..of_a.clone() };
    assert_eq!(of(pauses_of_a).await, ["tester pause"]);
    let both = AuditFilter { subjects: vec![a.id.to_string(), b.id.to_string()], ..none.clone() };
    assert_eq!(audited(bench, &both, 2).await.0.len(), 5, "pages of several subjects are complete");
    let time = |from, to| AuditFilter { from, to, ..none.clone() };
    assert_eq!(of(time(Some(s(600)), Some(s(601)))).await, ["tester pause"]);
    assert_eq!(of(time(Some(s(601)), None)).await, ["ada resume", "ada pause"]);
    assert_eq!(of(time(None, Some(s(600)))).await, ["tester create", "tester create"]);
    assert_eq!(of(time(Some(s(1_201)), None)).await, [""; 0]);
    assert!(bench.store.list_audit(OTHER_TENANT, &of_a, None, 10).await.unwrap().items.is_empty());
}

pub async fn a_search_of_the_audit_trail_reads_a_bounded_number_of_rows_per_page(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    for _ in 0..9 {
        bench.edit("j", pause()).await;
        bench.edit("j", everytick_domain::edit::Change::Resume).await;
    }
    // 19 rows, 8 per page.
    let created = AuditFilter { action: Some("create".into()), ..AuditFilter::default() };
    let (rows, sizes) = audited(bench, &created, 10).await;
    assert_eq!((rows, sizes), (vec!["tester create".to_owned()], vec![0, 0, 1]));
    let of_job = AuditFilter { subjects: vec![job.id.to_string()], ..created };
    assert_eq!(audited(bench, &of_job, 10).await.1, [0, 0, 1]);
    assert_eq!(
        audited(bench, &AuditFilter::default(), 10).await.1,
        [10, 9],
        "without a filter, no row is read in vain"
    );
}

/// The jobs and states of the listed flows, and the number of items on each page.
async fn flows(bench: &Bench, filter: &FlowFilter, limit: usize) -> (Vec<(RunId, FlowState)>, Vec<usize>) {
    let (mut found, mut sizes, mut before) = (Vec::new(), Vec::new(), None);
    loop {
        let page = bench.store.list_flows(TENANT, filter, before, limit).await.unwrap();
        found.extend(page.items.iter().map(|flow| (flow.id, flow.state)));
        sizes.push(page.items.len());
        before = page.next;
        if before.is_none() {
            return (found, sizes);
        }
    }
}

pub async fn flows_are_listed_newest_first_in_pages_with_their_states(bench: &Bench) {
    let lease = bench.join("n", 1).await;
    let a = bench.create(overlapping("a")).await;
    bench.create(after("b", &["a"])).await;
    bench.go(200);
    let mut expected = Vec::new();
    for at in (10..=100).step_by(10) {
        let root = bench.claimed(&lease, &a, at).await;
        let fails = at % 20 == 0;
        bench.settle(&root, if fails { Verdict::Failed } else { Verdict::Succeeded }).await;
        advance(bench).await;
        if !fails {
            bench.store.cancel_flow(TENANT, &actor(), root.id).await.unwrap();
        }
        expected.insert(0, (root.id, if fails { FlowState::Failed } else { FlowState::Cancelled }));
    }
    let all = FlowFilter::default();
    assert_eq!(flows(bench, &all, 100).await.0, expected);
    assert_eq!(flows(bench, &all, 3).await, (expected.clone(), vec![3, 3, 3, 1]));
    let time = FlowFilter { from: Some(s(30)), to: Some(s(51)), ..all.clone() };
    assert_eq!(flows(bench, &time, 100).await.0, expected[5..8]);
    let failed = FlowFilter { states: vec![FlowState::Failed], ..all.clone() };
    assert_eq!(flows(bench, &failed, 100).await.0.len(), 5);
    let one = FlowFilter { ids: expected[4].0.to_string().parse().ok(), ..all.clone() };
    assert_eq!(flows(bench, &one, 100).await.0, expected[4..5]);
    assert!(bench.store.list_flows(OTHER_TENANT, &all, None, 100).await.unwrap().items.is_empty());
    let first = &bench.store.list_flows(TENANT, &all, None, 1).await.unwrap().items[0];
    assert_eq!(*first, bench.store.get_flow(TENANT, first.id).await.unwrap());
}

pub async fn a_flow_is_listed_while_its_root_is_open(bench: &Bench) {
    let lease = bench.join("n", 1).await;
    let a = bench.create(overlapping("a")).await;
    bench.create(after("b", &["a"])).await;
    let other = bench.create(overlapping("other")).await;
    bench.go(200);
    let ended = bench.claimed(&lease, &a, 10).await;
    bench.settle(&ended, Verdict::Failed).await;
    advance(bench).await;
    let (waits, open) = (bench.waiting(&lease, &a, 20).await, bench.claimed(&lease, &a, 30).await);
    bench.waiting(&lease, &other, 30).await;
    let running = FlowState::Running;
    let expected = vec![(open.id, running), (waits, running), (ended.id, FlowState::Failed)];
    assert_eq!(flows(bench, &FlowFilter::default(), 10).await.0, expected);
    assert_eq!(flows(bench, &FlowFilter::default(), 1).await, (expected.clone(), vec![1, 1, 1]));
    let by_id = FlowFilter { ids: waits.to_string().parse().ok(), ..FlowFilter::default() };
    assert_eq!(flows(bench, &by_id, 10).await.0, [(waits, running)]);
    let unknown = bench.store.get_flow(TENANT, RunId::floor(s(10))).await;
    assert!(matches!(unknown, Err(StoreError::NotFound("flow"))));
}
