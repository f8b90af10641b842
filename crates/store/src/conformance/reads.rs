//! Reads for users: jobs, runs, ranges and the audit trail.

use everytick_domain::{
    edit::Change,
    ids::{Cause, RunId},
    job::{JobSpec, PAYLOAD_BYTES_MAX},
    plan::Fate,
    run::{SkipReason, State, Verdict},
    target::{HttpMethod, HttpTarget, TargetSpec},
};

use super::{Bench, OTHER_TENANT, START, TENANT, by_name, new_run, overlapping, pause, range, s, spec, tick, ticks};
use crate::{AuditFilter, JobFilter, JobRef, PAGE_BYTES_MAX, RunFilter, SettleAnswer, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_reads {
    ($open:path) => {
        $crate::conformance_group! { $open, reads:
            a_job_is_read_by_name_and_by_id_with_its_last_run,
            jobs_are_listed_by_name_in_pages,
            a_page_of_jobs_is_limited_in_bytes_and_the_next_page_continues,
            deleted_jobs_are_not_listed,
            jobs_are_filtered,
            runs_and_ranges_are_listed_together_newest_first_in_pages,
            runs_are_filtered_by_job_state_and_time,
            failed_runs_are_listed_however_many_other_runs_are_between,
            a_retry_or_a_stale_settlement_is_not_listed_as_a_failure,
            a_list_by_state_reads_a_bounded_number_of_runs_per_page,
            an_output_is_returned_with_its_run_but_not_in_lists,
            a_range_is_read_by_its_id,
            runs_show_the_present_name_of_their_job,
            the_audit_trail_is_read_newest_first_in_pages,
            unknown_runs_are_not_found,
            nothing_crosses_tenants,
        }
    };
}

pub async fn a_job_is_read_by_name_and_by_id_with_its_last_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    assert!(bench.store.get_job(TENANT, &by_name("j")).await.unwrap().last_run.is_none());
    bench.go(20);
    bench.waiting(&lease, &job, 10).await;
    let last = bench.waiting(&lease, &job, 20).await;
    bench.go(22);
    for name in [by_name("j"), JobRef::Id(job.id)] {
        let read = bench.store.get_job(TENANT, &name).await.unwrap();
        assert_eq!((read.job.id, read.cursor, read.now), (job.id, Some(s(10)), s(22)));
        assert_eq!(read.last_run.unwrap().id, last);
        assert_eq!(*read.job.spec, overlapping("j"));
    }
    assert!(matches!(bench.store.get_job(TENANT, &by_name("unknown")).await, Err(StoreError::NotFound("job"))));
}

async fn names(bench: &Bench, filter: &JobFilter) -> Vec<String> {
    let page = bench.store.list_jobs(TENANT, filter, None, 100).await.unwrap();
    page.items.into_iter().map(|record| record.job.spec.name.clone()).collect()
}

pub async fn jobs_are_listed_by_name_in_pages(bench: &Bench) {
    for name in ["c", "a", "d", "b"] {
        bench.create(spec(name)).await;
    }
    let all = JobFilter::default();
    let first = bench.store.list_jobs(TENANT, &all, None, 3).await.unwrap();
    assert_eq!(first.items.iter().map(|record| record.job.spec.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(first.next.as_deref(), Some("c"));
    let rest = bench.store.list_jobs(TENANT, &all, first.next.as_deref(), 3).await.unwrap();
    assert_eq!(rest.items.iter().map(|record| record.job.spec.name.as_str()).collect::<Vec<_>>(), ["d"]);
    assert_eq!(rest.next, None);
    assert_eq!(bench.store.list_jobs(TENANT, &all, None, 4).await.unwrap().next, None);
}

pub async fn a_page_of_jobs_is_limited_in_bytes_and_the_next_page_continues(bench: &Bench) {
    let payload = Some(format!("\"{}\"", "p".repeat(PAYLOAD_BYTES_MAX - 2)));
    let wanted: Vec<_> = (0..20).map(|n| format!("j{n:02}")).collect();
    for name in &wanted {
        bench.create(JobSpec { payload: payload.clone(), ..spec(name) }).await;
    }
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = bench.store.list_jobs(TENANT, &JobFilter::default(), after.as_deref(), 1_000).await.unwrap();
        assert!(page.items.len() * PAYLOAD_BYTES_MAX <= PAGE_BYTES_MAX + PAYLOAD_BYTES_MAX, "{}", page.items.len());
        found.extend(page.items.into_iter().map(|record| record.job.spec.name.clone()));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (wanted, 2));
}

pub async fn deleted_jobs_are_not_listed(bench: &Bench) {
    bench.create(spec("a")).await;
    bench.create(spec("b")).await;
    bench.edit("a", Change::Delete).await;
    assert_eq!(names(bench, &JobFilter::default()).await, ["b"]);
}

pub async fn jobs_are_filtered(bench: &Bench) {
    bench.create(JobSpec { description: "Sends the Invoices".into(), ..spec("plain") }).await;
    bench.create(JobSpec { enabled: false, ..spec("disabled") }).await;
    bench.create(spec("paused")).await;
    bench.edit("paused", pause()).await;
    let labels = [("team", "billing"), ("a.b\"c", "x y")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    bench.create(JobSpec { labels, ..spec("labelled") }).await;
    let http = HttpTarget {
        url: "https://example.org".into(),
        method: HttpMethod::Post,
        headers: Default::default(),
        secret: None,
        client_cert: None,
    };
    bench.create(JobSpec { target: TargetSpec::Http(http), ..spec("hook") }).await;

    let none = JobFilter::default();
    assert_eq!(names(bench, &JobFilter { enabled: Some(false), ..none.clone() }).await, ["disabled"]);
    let enabled = JobFilter { enabled: Some(true), ..none.clone() };
    assert_eq!(names(bench, &enabled).await, ["hook", "labelled", "paused", "plain"]);
    assert_eq!(names(bench, &JobFilter { paused: Some(true), ..none.clone() }).await, ["paused"]);
    assert_eq!(names(bench, &JobFilter { paused: Some(false), enabled: Some(true), ..none.clone() }).await.len(), 3);
    assert_eq!(names(bench, &JobFilter { target: Some("http".into()), ..none.clone() }).await, ["hook"]);
    assert_eq!(names(bench, &JobFilter { target: Some("shell".into()), ..none.clone() }).await.len(), 4);
    let label = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
    for (labels, found) in [
        (vec![label("team", None)], 1),
        (vec![label("team", Some("billing"))], 1),
        (vec![label("team", Some("other"))], 0),
        (vec![label("a.b\"c", Some("x y")), label("team", None)], 1),
        (vec![label("team", None), label("unknown", None)], 0),
    ] {
        assert_eq!(
            names(bench, &JobFilter { labels: labels.clone(), ..none.clone() }).await.len(),
            found,
            "{labels:?}"
        );
    }
    for (q, found) in [("INVOICE", vec!["plain"]), ("able", vec!["disabled"]), ("100%", vec![]), ("HOOK", vec!["hook"])]
    {
        assert_eq!(names(bench, &JobFilter { q: Some(q.into()), ..none.clone() }).await, found);
    }
}

pub async fn runs_and_ranges_are_listed_together_newest_first_in_pages(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(400);
    bench.range(&lease, &range(&job, 1, 10, 200)).await;
    bench.waiting(&lease, &job, 210).await;
    let epoch = bench.epoch(&job).await;
    bench.range(&lease, &range(&job, epoch, 210, 300)).await;
    bench.raise(&job, epoch, Some(s(220))).await;
    bench.range(&lease, &range(&job, epoch, 220, 300)).await;
    let asked = bench.trigger(new_run("j", "k")).await;
    let filter = RunFilter { job: Some(job.id), ..Default::default() };
    for filter in [RunFilter::default(), filter] {
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let page = bench.store.list_runs(TENANT, &filter, before, 1).await.unwrap();
            seen.extend(page.items.iter().map(|run| (run.scheduled_at, run.range.map(|range| range.to))));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let expected = [(s(400), None), (s(220), Some(s(300))), (s(210), None), (s(10), Some(s(200)))];
        assert_eq!(seen, expected);
        let page = bench.store.list_runs(TENANT, &filter, Some(asked.id), 3).await.unwrap();
        assert_eq!((page.items.len(), page.next), (3, None));
    }
}

pub async fn runs_are_filtered_by_job_state_and_time(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (a, b) = (bench.create(overlapping("a")).await, bench.create(spec("b")).await);
    bench.go(40);
    let done = bench.claimed(&lease, &a, 10).await;
    bench.settle(&done, Verdict::Succeeded).await;
    bench.waiting(&lease, &a, 20).await;
    bench.record(&lease, ticks(&a, 1, vec![tick(&a, 30, Fate::Skip(SkipReason::Overlap))])).await;
    bench.waiting(&lease, &b, 40).await;
    for (job, states, from, to, expected) in [
        (None, vec![], None, None, vec![40, 30, 20, 10]),
        (Some(a.id), vec![], None, None, vec![30, 20, 10]),
        (None, vec![State::Waiting], None, None, vec![40, 20]),
        (Some(a.id), vec![State::Succeeded, State::Skipped], None, None, vec![30, 10]),
        (None, vec![State::Failed], None, None, vec![]),
        (None, vec![], Some(s(20)), Some(s(30)), vec![20]),
        (None, vec![], Some(s(20)), Some(s(31)), vec![30, 20]),
        (Some(a.id), vec![], Some(s(20)), None, vec![30, 20]),
        (None, vec![], None, Some(s(20)), vec![10]),
    ] {
        let filter = RunFilter { job, states, from, to, ..RunFilter::default() };
        let found = bench.store.list_runs(TENANT, &filter, None, 10).await.unwrap().items;
        let ticks: Vec<_> = found.iter().map(|run| (run.scheduled_at.millis() - START.millis()) / 1_000).collect();
        assert_eq!(ticks, expected, "{filter:?}");
    }
}

/// All items of a list, and the number of items on each page.
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

pub async fn failed_runs_are_listed_however_many_other_runs_are_between(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let other = bench.create(overlapping("other")).await;
    bench.go(400);
    for at in (10..=300).step_by(10) {
        let run = bench.claimed(&lease, &job, at).await;
        let failed = at % 100 == 0;
        bench.settle(&run, if failed { Verdict::Failed } else { Verdict::Succeeded }).await;
    }
    let run = bench.claimed(&lease, &other, 150).await;
    bench.settle(&run, Verdict::Failed).await;
    let failed = RunFilter { states: vec![State::Failed], ..Default::default() };
    assert_eq!(pages(bench, &failed, 10).await, (vec![300, 200, 150, 100], vec![4]));
    assert_eq!(pages(bench, &failed, 3).await, (vec![300, 200, 150, 100], vec![3, 1]));
    let of_job = RunFilter { job: Some(job.id), ..failed.clone() };
    assert_eq!(pages(bench, &of_job, 2).await, (vec![300, 200, 100], vec![2, 1]));
    let between = RunFilter { from: Some(s(150)), to: Some(s(250)), ..failed };
    assert_eq!(pages(bench, &between, 10).await.0, [200, 150]);
}

pub async fn a_retry_or_a_stale_settlement_is_not_listed_as_a_failure(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(40);
    let retried = bench.claimed(&lease, &job, 10).await;
    bench.settle(&retried, Verdict::Retry { due_at: s(60) }).await;
    let done = bench.claimed(&lease, &job, 20).await;
    bench.settle(&done, Verdict::Succeeded).await;
    let late = bench.store.settle(&[super::settle(&done, Verdict::Failed)]).await.unwrap();
    assert_eq!(late, [SettleAnswer::Stale]);
    let failed = RunFilter { states: vec![State::Failed], ..Default::default() };
    assert_eq!(pages(bench, &failed, 10).await.0, [0; 0]);
}

pub async fn a_list_by_state_reads_a_bounded_number_of_runs_per_page(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(400);
    let first = bench.claimed(&lease, &job, 10).await;
    bench.settle(&first, Verdict::Succeeded).await;
    for at in (20..=200).step_by(10) {
        bench.waiting(&lease, &job, at).await;
    }
    // 20 runs, 8 per page: the only matching run is on the third page.
    for job in [None, Some(job.id)] {
        let succeeded = RunFilter { job, states: vec![State::Succeeded], ..Default::default() };
        assert_eq!(pages(bench, &succeeded, 10).await, (vec![10], vec![0, 0, 1]));
        let waiting = RunFilter { job, states: vec![State::Waiting], ..Default::default() };
        let (ticks, sizes) = pages(bench, &waiting, 5).await;
        assert_eq!(ticks, (2..=20).rev().map(|n| n * 10).collect::<Vec<_>>());
        assert!(sizes.iter().all(|size| *size <= 5), "{sizes:?}");
    }
}

pub async fn an_output_is_returned_with_its_run_but_not_in_lists(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let mut settled = super::settle(&run, Verdict::Succeeded);
    let printed = "\"é\" \\ \u{1f600}\n\t".repeat(4_000);
    settled.settlement.output = Some(printed.clone());
    bench.store.settle(&[settled]).await.unwrap();
    assert_eq!(bench.run(run.id).await.output, Some(printed));
    assert_eq!(bench.history(&job).await[0].output, None);
}

pub async fn a_range_is_read_by_its_id(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    bench.range(&lease, &range(&job, 1, 10, 200)).await;
    let read = bench.run(RunId::of(job.id, Cause::Range { from: s(10) })).await;
    assert_eq!(read.range, Some(range(&job, 1, 10, 200).range));
    assert_eq!((read.job, read.job_name.as_str(), read.tenant), (job.id, "j", TENANT));
    assert_eq!((read.scheduled_at, read.due_at, read.state), (s(10), s(10), State::Skipped));
    assert_eq!([read], bench.history(&job).await.as_slice());
}

pub async fn runs_show_the_present_name_of_their_job(bench: &Bench) {
    bench.create(spec("old")).await;
    let run = bench.trigger(new_run("old", "k")).await;
    bench.edit("old", Change::Replace(Box::new(spec("new")))).await;
    assert_eq!(bench.run(run.id).await.job_name, "new");
}

pub async fn the_audit_trail_is_read_newest_first_in_pages(bench: &Bench) {
    for name in ["a", "b", "c"] {
        bench.create(spec(name)).await;
    }
    let first = bench.store.list_audit(TENANT, &AuditFilter::default(), None, 2).await.unwrap();
    assert_eq!(first.items.len(), 2);
    assert!(first.items[0].id > first.items[1].id);
    let rest = bench.store.list_audit(TENANT, &AuditFilter::default(), first.next, 2).await.unwrap();
    assert_eq!((rest.items.len(), rest.next), (1, None));
    assert!(rest.items[0].id < first.items[1].id);
}

pub async fn unknown_runs_are_not_found(bench: &Bench) {
    let unknown = RunId::floor(START);
    assert!(matches!(bench.store.get_run(TENANT, unknown).await, Err(StoreError::NotFound("run"))));
    assert!(matches!(bench.store.list_attempts(TENANT, unknown).await, Err(StoreError::NotFound("run"))));
}

pub async fn nothing_crosses_tenants(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let theirs = OTHER_TENANT;
    for name in [by_name("j"), JobRef::Id(job.id)] {
        assert!(matches!(bench.store.get_job(theirs, &name).await, Err(StoreError::NotFound("job"))));
    }
    assert!(matches!(bench.store.get_run(theirs, run.id).await, Err(StoreError::NotFound("run"))));
    assert!(matches!(bench.store.list_attempts(theirs, run.id).await, Err(StoreError::NotFound("run"))));
    assert!(bench.store.list_jobs(theirs, &JobFilter::default(), None, 10).await.unwrap().items.is_empty());
    for job in [None, Some(job.id)] {
        let filter = RunFilter { job, ..Default::default() };
        assert!(bench.store.list_runs(theirs, &filter, None, 10).await.unwrap().items.is_empty());
    }
    assert!(bench.store.list_audit(theirs, &AuditFilter::default(), None, 10).await.unwrap().items.is_empty());
}
