//! An installation with data of every kind, and a snapshot of it as a store shows it.

use std::{any::Any, path::Path, sync::Arc};

use everytick_domain::{
    backfill::{Order, Stretch},
    calendar::CalendarSpec,
    edit::Change,
    ids::{BackfillId, Fence, JobId},
    job::JobSpec,
    plan::Fate,
    run::{SkipReason, Verdict},
    time::Span,
};
use everytick_store::{
    AttemptRecord, AuditFilter, IdempotencyKey, NewBackfill, NewJob, NewRun, PutCalendar, RunFilter, RunRecord,
    SqliteStore, Store,
    conformance::{
        Bench, OTHER_TENANT, TENANT, actor, by_name, job_id, new_run, overlapping, range, s, settle, spec, tick, ticks,
    },
};
use tempfile::TempDir;

/// The clock at the end, in seconds.
pub(super) const NOW: i64 = 200;
const DAY: i64 = 86_400;

pub(super) struct Installation {
    folder: TempDir,
    pub(super) snapshot: Snapshot,
    /// Has a lagging cursor and runs in every state.
    pub(super) busy: JobId,
    /// Has one run, which is 500 days old.
    pub(super) old: JobId,
    deleted: JobId,
    /// Has created one of its three runs.
    pub(super) backfill: BackfillId,
    pub(super) lease_fence: Fence,
}

/// The retention of the history.
pub(super) const HISTORY: Span = Span::days(90);

/// The data that users and nodes see. Partitions are left out, because they differ between stores.
#[derive(Default, Debug)]
pub(super) struct Snapshot {
    jobs: Vec<String>,
    loaded: Vec<String>,
    pub(super) runs: Vec<RunRecord>,
    attempts: Vec<AttemptRecord>,
    audit: Vec<String>,
    calendars: Vec<String>,
    backfills: Vec<String>,
    pub(super) last_audit: i64,
}

pub(super) fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey { key: name.to_owned(), fingerprint: [7; 32] }
}

pub(super) fn keyed_run() -> NewRun {
    NewRun { idempotency: Some(key("run")), force: true, payload: Some("{}".into()), ..new_run("busy", "keyed") }
}

impl Installation {
    pub(super) async fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("everytick.db");
        let bench = Bench::open(async |clock, limits| {
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, clock, limits).await.unwrap());
            (store, Box::new(()) as Box<dyn Any + Send + Sync>)
        })
        .await;
        // The last run of a job, which is kept although its day is deleted.
        bench.go(-500 * DAY);
        let (lease, old) = (bench.join("a", 1).await, bench.create(overlapping("old")).await);
        bench.go(-500 * DAY + 10);
        let run = bench.claimed(&lease, &old, -500 * DAY + 10).await;
        bench.settle(&run, Verdict::Succeeded).await;
        bench.raise(&old, 1, Some(s(NOW))).await;
        // 100 days of history, with an open run at the start.
        bench.go(-100 * DAY);
        let lease = bench.join("a", 2).await;
        let (busy, gone) = (bench.create(overlapping("busy")).await, bench.create(spec("gone")).await);
        bench.go(-100 * DAY + 20);
        let run = bench.claimed(&lease, &busy, -100 * DAY + 10).await;
        bench.settle(&run, Verdict::Failed).await;
        bench.claimed(&lease, &busy, -100 * DAY + 20).await;
        bench.claimed(&lease, &gone, -100 * DAY + 10).await;
        // Runs in every state, before and after the cursor.
        bench.go(NOW);
        let lease = bench.join("a", 3).await;
        for lost in bench.store.load_lost(&lease, 10).await.unwrap() {
            if lost.job == gone.id {
                bench.settle(&lost, Verdict::Cancelled).await;
            }
        }
        let mut settled = settle(&bench.claimed(&lease, &busy, 10).await, Verdict::Succeeded);
        settled.settlement.output = Some("printed, and \u{1f600}".into());
        bench.store.settle(&[settled]).await.unwrap();
        let run = bench.claimed(&lease, &busy, 20).await;
        bench.settle(&run, Verdict::Retry { due_at: s(100) }).await;
        let epoch = bench.epoch(&busy).await;
        bench.record(&lease, ticks(&busy, epoch, vec![tick(&busy, 30, Fate::Skip(SkipReason::Overlap))])).await;
        bench.waiting(&lease, &busy, 40).await;
        bench.claimed(&lease, &busy, 50).await;
        let run = bench.claimed(&lease, &busy, 60).await;
        bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
        bench.raise(&busy, epoch, Some(s(30))).await;
        bench.trigger(keyed_run()).await;
        // Jobs of other kinds.
        bench.raise(&gone, 1, Some(s(NOW + 10))).await;
        bench.edit("gone", Change::Delete).await;
        // A calendar with two versions, used by the next job.
        for dates in [vec![], vec!["2026-12-24/2026-12-26".parse().unwrap()]] {
            let put = PutCalendar {
                name: "holidays".into(),
                spec: CalendarSpec::new("Europe/Berlin", dates, vec!["01-01".parse().unwrap()]).unwrap(),
                if_match: None,
            };
            bench.store.put_calendar(TENANT, &actor(), put).await.unwrap();
        }
        let mut excluding = spec("paused");
        excluding.schedule.as_mut().unwrap().exclude = vec!["holidays".into()];
        bench.create(excluding).await;
        bench.edit("paused", Change::Pause { note: Some("for a while".into()) }).await;
        bench.create(JobSpec { schedule: None, ..spec("never") }).await;
        bench.created(OTHER_TENANT, spec("busy")).await.unwrap();
        let new = NewJob { id: job_id(TENANT, "keyed"), spec: spec("keyed") };
        let keyed = bench.store.create_jobs(TENANT, &actor(), vec![new], Some(&key("job"))).await.unwrap().remove(0);
        let keyed = keyed.unwrap().job;
        bench.go(NOW + 40);
        bench.range(&lease, &range(&keyed, 1, NOW + 10, NOW + 30)).await;
        bench.go(NOW);
        let backfill = NewBackfill {
            id: BackfillId::from_uuid(uuid::Uuid::from_u128(7)),
            job: by_name("keyed"),
            stretch: Stretch { from: s(0), to: s(21), order: Order::Newest },
            rate: "60/1m".parse().ok(),
            payload: Some("[1]".into()),
            kept: HISTORY,
            idempotency: None,
        };
        let backfill = bench.store.create_backfill(TENANT, &actor(), backfill).await.unwrap().id;
        bench.store.advance_backfill(&lease, backfill, HISTORY).await.unwrap();

        let mut made = Self {
            folder,
            snapshot: Snapshot::default(),
            busy: busy.id,
            old: old.id,
            deleted: gone.id,
            backfill,
            lease_fence: lease.fence,
        };
        made.snapshot = take_snapshot(bench.store.as_ref(), &made).await;
        made
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

pub(super) async fn take_snapshot(store: &dyn Store, installation: &Installation) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for tenant in [TENANT, OTHER_TENANT] {
        let jobs = store.list_jobs(tenant, &Default::default(), None, 100).await.unwrap().items;
        let ids: Vec<JobId> = jobs.iter().map(|record| record.job.id).chain([installation.deleted]).collect();
        for id in &ids {
            let backfills = store.list_backfills(tenant, *id, None, 100).await.unwrap().items;
            snapshot.backfills.extend(backfills.iter().map(|backfill| format!("{backfill:?}")));
        }
        for mut record in jobs {
            record.job.partition = 0;
            snapshot.jobs.push(format!("{:?} {:?} {:?}", record.job, record.cursor, record.last_run));
        }
        for mut loaded in store.load_jobs(&ids).await.unwrap() {
            Arc::make_mut(&mut loaded.job).partition = 0;
            // A store need not find the last tick of a job without a cursor.
            loaded.last_tick = loaded.last_tick.filter(|_| loaded.cursor.is_some());
            snapshot.loaded.push(format!("{loaded:?}"));
        }
        for run in store.list_runs(tenant, &RunFilter::default(), None, 1_000).await.unwrap().items.into_iter().rev() {
            // Read the run again: the list omits the output.
            snapshot.runs.push(store.get_run(tenant, run.id).await.unwrap());
            if run.range.is_none() {
                snapshot.attempts.extend(store.list_attempts(tenant, run.id).await.unwrap());
            }
        }
        let calendars = store.list_calendars(tenant, None, 100).await.unwrap().items;
        snapshot.calendars.extend(calendars.iter().map(|calendar| format!("{calendar:?}")));
        let audit = store.list_audit(tenant, &AuditFilter::default(), None, 1_000).await.unwrap().items;
        snapshot.last_audit = audit.iter().map(|record| record.id).max().unwrap_or_default().max(snapshot.last_audit);
        snapshot.audit.extend(audit.iter().map(|record| format!("{record:?}")));
    }
    snapshot
}

impl Snapshot {
    /// Compares item by item, so that a failing test shows the item that differs.
    #[track_caller]
    pub(super) fn assert_is(&self, expected: &Self) {
        #[track_caller]
        fn same<T: PartialEq + std::fmt::Debug>(snapshot: &[T], expected: &[T]) {
            snapshot.iter().zip(expected).for_each(|(snapshot, expected)| assert_eq!(snapshot, expected));
            assert_eq!(snapshot.len(), expected.len());
        }
        same(&self.jobs, &expected.jobs);
        same(&self.loaded, &expected.loaded);
        same(&self.runs, &expected.runs);
        same(&self.attempts, &expected.attempts);
        same(&self.audit, &expected.audit);
        same(&self.calendars, &expected.calendars);
        same(&self.backfills, &expected.backfills);
    }
}
