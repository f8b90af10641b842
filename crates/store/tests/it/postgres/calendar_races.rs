//! Calendars are edited and deleted while jobs that use them are recorded, created and deleted.

use std::time::Duration;

use everytick_domain::{calendar::CalendarSpec, edit::Change, ids::JobId, job::JobSpec};
use everytick_store::{
    CalendarPut, NewJob, PutCalendar, Result, Store, StoreError,
    conformance::{TENANT, actor, by_name, change, raised, s, spec},
};
use uuid::Uuid;

use super::{
    bench,
    guards::{run, waits_for_a_lock},
};

fn naming(name: &str) -> JobSpec {
    let mut spec = spec(name);
    spec.schedule.as_mut().unwrap().exclude = vec!["c".into()];
    spec
}

async fn put(store: &dyn Store, date: &str) -> Result<CalendarPut> {
    let spec = CalendarSpec::new("UTC", vec![date.parse().unwrap()], vec![]).unwrap();
    store.put_calendar(TENANT, &actor(), PutCalendar { name: "c".into(), spec, if_match: None }).await
}

async fn make(store: &dyn Store, n: u128, name: &str) -> Result<()> {
    let new = NewJob { id: JobId::from_uuid(Uuid::from_u128(n)), spec: naming(name) };
    store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).map(drop)
}

/// The clock is read after the epochs are locked, so no tick recorded before is after the version's instant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_waits_for_the_batch_in_progress_and_is_valid_after_it() {
    let opened = bench().await;
    let bench = &opened.bench;
    put(bench.store.as_ref(), "1999-01-01").await.unwrap();
    let job = bench.create(naming("j")).await;
    bench.go(9);
    let mut recorder = opened.connect().await;
    run(&mut recorder, &format!("begin; select * from epochs where job = '{}' for key share", job.id)).await;
    let store = opened.store.clone();
    let mut putting = tokio::spawn(async move { put(&*store, "2026-11-16").await });
    waits_for_a_lock(&opened, &mut putting).await;
    bench.go(12);
    bench.store.now().await.unwrap();
    run(&mut recorder, "commit").await;
    assert_eq!(putting.await.unwrap().unwrap().effective_at, Some(s(12)));
    assert_eq!(bench.epoch(&job).await, raised(s(12)));
}

/// In either order, no job is left with a deleted calendar.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calendar_deleted_while_a_job_is_created_with_it_stays_or_the_job_is_refused() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (store, who) = (bench.store.as_ref(), actor());
    let (mut stayed, mut went) = (0, 0);
    for round in 0..40_u128 {
        put(store, "2026-12-25").await.unwrap();
        let name = format!("j{round}");
        let delete = async {
            // Varies which of the two starts first.
            tokio::time::sleep(Duration::from_micros(u64::try_from(round % 8).unwrap() * 250)).await;
            store.delete_calendar(TENANT, &who, "c", None).await
        };
        let (made, deleted) = tokio::join!(make(store, round + 1, &name), delete);
        match (made, deleted) {
            (Ok(()), Err(StoreError::InUse { by, .. })) => {
                assert_eq!(by, std::slice::from_ref(&name));
                stayed += 1;
                store.edit_job(TENANT, &who, change(&name, Change::Delete)).await.unwrap();
            }
            (Err(StoreError::Invalid(found)), Ok(_)) => {
                assert_eq!(found[0].field, "schedule.exclude");
                assert!(store.get_job(TENANT, &by_name(&name)).await.is_err());
                went += 1;
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    println!("the calendar was kept {stayed} times and deleted {went} times");
}

/// All of them lock calendars, epochs and tenants in this order, so none deadlocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calendar_edits_and_job_changes_do_not_deadlock() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (store, who) = (bench.store.as_ref(), actor());
    put(store, "1999-01-01").await.unwrap();
    make(store, 1_000, "stays").await.unwrap();
    for round in 0..30_u128 {
        let (goes, comes) = (format!("goes{round}"), format!("comes{round}"));
        make(store, round * 2 + 1, &goes).await.unwrap();
        let date = format!("20{:02}-01-01", 30 + round);
        let (edited, deleted, made, changed) = tokio::join!(
            put(store, &date),
            store.edit_job(TENANT, &who, change(&goes, Change::Delete)),
            make(store, round * 2 + 2, &comes),
            store.edit_job(
                TENANT,
                &who,
                change(
                    "stays",
                    Change::Replace(Box::new(JobSpec { priority: 1 + (round % 9) as u8, ..naming("stays") }))
                )
            ),
        );
        edited.unwrap();
        deleted.unwrap();
        made.unwrap();
        changed.unwrap();
        store.edit_job(TENANT, &who, change(&comes, Change::Delete)).await.unwrap();
    }
    let loaded = store.load_jobs(&[JobId::from_uuid(Uuid::from_u128(1_000))]).await.unwrap().remove(0);
    assert!(loaded.job.schedule.clone().unwrap().excluded("2059-01-01T00:00:00Z".parse().unwrap()).is_some());
    assert_eq!(store.get_calendar(TENANT, "c").await.unwrap().jobs, 1);
}
