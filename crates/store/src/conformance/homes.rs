//! Home regions in a shared store: the partitions of each region, and jobs that move to another region.

use std::collections::BTreeSet;

use everytick_domain::{
    edit::Change,
    home::{BLOCK_PARTITIONS, BLOCKS, Homes},
    ids::{JobId, TenantId},
    job::{Job, JobSpec},
    partition::PartitionSet,
    plan::Fate,
    run::Verdict,
    schedule::Timing,
};

use super::{
    Bench, START, TENANT, actor, by_name, change, job_id, new_run, partitions::only, raised, s, schedule, spec, tick,
    ticks,
};
use crate::{ChangeMark, EditJob, Edited, Lease, NewJob, Result, RowAnswer, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_homes {
    ($open:path) => {
        $crate::conformance_group! { $open, homes:
            the_first_job_of_a_region_claims_a_block_and_later_jobs_use_it,
            each_region_has_its_own_block_and_one_region_too_many_is_refused,
            a_refused_job_claims_no_block,
            regions_claimed_at_the_same_time_get_different_blocks,
            changing_the_home_moves_the_job_and_its_waiting_runs,
            a_move_leaves_other_jobs_in_their_partition,
            the_last_ticks_before_a_move_wait_in_the_new_partition,
            a_run_released_after_a_move_waits_in_the_new_partition,
            a_move_is_a_change_in_the_old_and_the_new_partition,
            an_edit_that_keeps_the_home_keeps_the_partition,
        }
    };
}

fn at_home(name: &str, region: &str) -> JobSpec {
    JobSpec { home_region: Some(region.to_owned()), ..spec(name) }
}

/// The partitions of a home region.
async fn block(bench: &Bench, region: &str) -> PartitionSet {
    let partitions = bench.store.cluster().await.unwrap().partitions;
    partitions.iter().filter(|row| row.home_region.as_deref() == Some(region)).map(|row| row.partition).collect()
}

async fn homes_claimed(bench: &Bench) -> usize {
    bench.store.cluster().await.unwrap().partitions.iter().filter(|row| row.home_region.is_some()).count()
}

pub async fn the_first_job_of_a_region_claims_a_block_and_later_jobs_use_it(bench: &Bench) {
    assert_eq!(homes_claimed(bench).await, 0);
    let first = bench.create(at_home("a", "eu")).await;
    let claimed = block(bench, "eu").await;
    assert_eq!(claimed.len(), usize::from(BLOCK_PARTITIONS));
    let homes = Homes::new(bench.store.partitions(), []);
    assert_eq!(
        homes.place(first.id, Some("eu")).unwrap().partition,
        first.partition,
        "it is in the block that the region's name hashes to"
    );
    for name in ["b", "c", "d", "e"] {
        let job = bench.create(at_home(name, "eu")).await;
        assert!(claimed.contains(job.partition));
        assert_eq!(bench.load(&job).await.job.partition, job.partition);
        let read = bench.store.get_job(TENANT, &by_name(name)).await.unwrap().job;
        assert_eq!((read.partition, read.spec.home_region.as_deref()), (job.partition, Some("eu")));
    }
    let elsewhere = bench.create(spec("f")).await;
    assert_eq!(elsewhere.partition, elsewhere.id.partition(bench.store.partitions()));
    assert_eq!(homes_claimed(bench).await, usize::from(BLOCK_PARTITIONS));
}

pub async fn each_region_has_its_own_block_and_one_region_too_many_is_refused(bench: &Bench) {
    let mut taken = PartitionSet::none();
    for n in 0..BLOCKS {
        let region = format!("r{n}");
        let job = bench.create(at_home(&format!("j{n}"), &region)).await;
        let claimed = block(bench, &region).await;
        assert!(claimed.contains(job.partition) && claimed.len() == usize::from(BLOCK_PARTITIONS));
        assert_eq!(taken.without(claimed), taken, "no block belongs to two regions");
        taken = taken.union(claimed);
    }
    let refused = |found: &StoreError| matches!(found, StoreError::Invalid(found) if found[0].field == "home_region");
    assert!(refused(&bench.created(TENANT, at_home("more", "one-more")).await.unwrap_err()));
    let edit = change("j0", Change::Replace(Box::new(at_home("j0", "one-more"))));
    assert!(refused(&edited(bench, edit).await.unwrap_err()));
    bench.create(at_home("more", "r3")).await;
}

pub async fn a_refused_job_claims_no_block(bench: &Bench) {
    bench.create(spec("taken")).await;
    let past = schedule(Timing::At { at: s(-86_400) });
    let again = NewJob { id: job_id(TENANT, "another"), spec: at_home("taken", "eu") };
    bench.store.create_jobs(TENANT, &actor(), vec![again], None).await.unwrap().remove(0).unwrap_err();
    bench.created(TENANT, JobSpec { schedule: Some(past), ..at_home("late", "eu") }).await.unwrap_err();
    let mut edit = change("taken", Change::Replace(Box::new(at_home("taken", "eu"))));
    edit.if_match = Some(everytick_domain::ids::Version::from_raw(7));
    edited(bench, edit).await.unwrap_err();
    assert_eq!(homes_claimed(bench).await, 0);
}

async fn edited(bench: &Bench, edit: EditJob) -> Result<Edited> {
    bench.store.edit_job(TENANT, &actor(), edit).await
}

/// Region names that hash to the same block, so that a later claim must see the earlier ones.
fn rivals(partitions: u16) -> Vec<String> {
    let homes = Homes::new(partitions, []);
    let block = |region: &str| homes.place(job_id(TENANT, "j"), Some(region)).unwrap().claim.unwrap().block;
    (0..).map(|n| format!("r{n}")).filter(|region| block(region) == 3).take(4).collect()
}

pub async fn regions_claimed_at_the_same_time_get_different_blocks(bench: &Bench) {
    let rivals = rivals(bench.store.partitions());
    let create = |n: usize| bench.created(TenantId::from_raw(n as i32 + 1), at_home("j", &rivals[n]));
    let (a, b, c, d) = tokio::join!(create(0), create(1), create(2), create(3));
    for (made, region) in [a, b, c, d].into_iter().zip(&rivals) {
        let claimed = block(bench, region).await;
        assert!(claimed.len() == usize::from(BLOCK_PARTITIONS) && claimed.contains(made.unwrap().job.partition));
    }
}

async fn loaded(bench: &Bench, lease: &Lease, partitions: &PartitionSet) -> Vec<JobId> {
    let found = bench.store.load_horizon(lease, partitions, s(600), None, 10).await.unwrap();
    found.into_iter().map(|job| job.job.id).collect()
}

async fn moved(bench: &Bench, home: Option<&str>) -> Job {
    let spec = JobSpec { home_region: home.map(str::to_owned), ..spec("j") };
    bench.edit("j", Change::Replace(Box::new(spec))).await.job
}

pub async fn changing_the_home_moves_the_job_and_its_waiting_runs(bench: &Bench) {
    let (lease, was) = (bench.join("a", 1).await, bench.create(at_home("j", "eu")).await);
    let asked = bench.trigger(new_run("j", "k")).await;
    bench.go(10);
    let now = moved(bench, Some("us")).await;
    assert!(block(bench, "us").await.contains(now.partition) && block(bench, "eu").await.contains(was.partition));
    assert_eq!(bench.load(&now).await.job.partition, now.partition);
    assert_eq!(loaded(bench, &lease, &only(now.partition)).await, [now.id]);
    assert!(loaded(bench, &lease, &only(was.partition)).await.is_empty());
    let waiting = async |partition: u16| {
        let found = bench.store.peek_waiting(&lease, &only(partition), &[], None, 10).await.unwrap();
        found.due.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(waiting(now.partition).await, [asked.id]);
    assert!(waiting(was.partition).await.is_empty());
    // Ticks and requests from now on wait there too.
    bench.claim(&lease, asked.id).await;
    bench.go(20);
    let next = tick(&now, 20, Fate::Run);
    let planned_before = ticks(&was, 1, vec![next.clone()]);
    assert_eq!(bench.record(&lease, planned_before).await, [RowAnswer::Stale]);
    let epoch = bench.load(&now).await.epoch.raw();
    assert_eq!(bench.record(&lease, ticks(&was, epoch, vec![next.clone()])).await, [RowAnswer::Inserted]);
    let forced = bench.trigger(crate::NewRun { force: true, ..new_run("j", "l") }).await;
    assert_eq!(waiting(now.partition).await, [forced.id, next.tick.id]);
}

pub async fn a_move_leaves_other_jobs_in_their_partition(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.create(at_home("j", "eu")).await;
    let other = bench.create(at_home("other", "eu")).await;
    let asked = bench.trigger(new_run("other", "k")).await;
    moved(bench, Some("us")).await;
    bench.go(10);
    let ticked = bench.waiting(&lease, &other, 10).await;
    assert_eq!(loaded(bench, &lease, &block(bench, "eu").await).await, [other.id]);
    let found = bench.store.peek_waiting(&lease, &only(other.partition), &[], None, 10).await.unwrap();
    let waiting: BTreeSet<_> = found.due.into_iter().map(|run| run.id).collect();
    assert_eq!(waiting, BTreeSet::from([asked.id, ticked]));
}

pub async fn the_last_ticks_before_a_move_wait_in_the_new_partition(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.create(at_home("j", "eu")).await;
    bench.go(10);
    let now = moved(bench, None).await;
    assert_eq!(now.partition, now.id.partition(bench.store.partitions()));
    let found = bench.store.peek_waiting(&lease, &only(now.partition), &[], None, 10).await.unwrap();
    assert_eq!(found.due.iter().map(|run| run.due_at).collect::<Vec<_>>(), [s(10)]);
}

pub async fn a_run_released_after_a_move_waits_in_the_new_partition(bench: &Bench) {
    let (lease, was) = (bench.join("a", 1).await, bench.create(at_home("j", "eu")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &was, 10).await;
    let now = moved(bench, Some("us")).await;
    bench.settle(&run, Verdict::Redeliver).await;
    let found = bench.store.peek_waiting(&lease, &only(now.partition), &[], None, 10).await.unwrap();
    assert_eq!(found.due.iter().map(|run| run.id).collect::<Vec<_>>(), [run.id]);
    let before = bench.store.peek_waiting(&lease, &only(was.partition), &[], None, 10).await.unwrap();
    assert!(before.due.is_empty());
}

pub async fn a_move_is_a_change_in_the_old_and_the_new_partition(bench: &Bench) {
    let was = bench.create(spec("j")).await;
    let mark = bench.store.changes(&bench.all(), ChangeMark::default(), 0).await.unwrap().mark;
    let now = moved(bench, Some("eu")).await;
    let told = async |partitions: &PartitionSet| {
        let found = bench.store.changes(partitions, mark, 10).await.unwrap();
        found.jobs.into_iter().map(|job| (job.id, job.epoch.raw())).collect::<Vec<_>>()
    };
    let (from, to) = (only(was.partition), only(now.partition));
    assert_eq!((told(&from).await, told(&to).await), (vec![(now.id, raised(START))], vec![(now.id, raised(START))]));
    assert!(told(&bench.all().without(from.union(to))).await.is_empty());
}

pub async fn an_edit_that_keeps_the_home_keeps_the_partition(bench: &Bench) {
    let was = bench.create(at_home("j", "eu")).await;
    let edited = JobSpec { priority: 7, ..at_home("j", "eu") };
    let now = bench.edit("j", Change::Replace(Box::new(edited))).await.job;
    assert_eq!(now.partition, was.partition);
    let paused = bench.edit("j", super::pause()).await.job;
    assert_eq!((paused.partition, bench.load(&now).await.job.partition), (was.partition, was.partition));
}
