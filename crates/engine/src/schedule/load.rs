//! Loads jobs into memory: those due before the end of the horizon, changed ones, and stale ones. Only this loop adds
//! jobs to memory.

use std::sync::Arc;

use everytick_domain::{ids::JobId, partition::PartitionSet, time::DbTime};
use everytick_store::{ChangeMark, Result, StoreError};
use futures::future::try_join_all;
use metrics::histogram;

use crate::{
    clock::MonoTime,
    cluster::unsure,
    pulse,
    settings::{
        CHANGES_PER_READ_MAX, CURSORS_PER_READ_MAX, FAILURE_PAUSE, HORIZON, HORIZON_EVERY, HORIZONS_AT_ONCE,
        JOBS_PER_HORIZON_MAX, JOBS_PER_LOAD_MAX, LOAD_SPLITS,
    },
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>, mut mark: ChangeMark) {
    let mut horizon_at = MonoTime::now();
    loop {
        let current_pass = pulse::pass();
        if MonoTime::now() >= horizon_at {
            match read_horizon(&shared).await {
                Ok(true) => horizon_at = MonoTime::now().plus(HORIZON_EVERY),
                Ok(false) => {}
                Err(error) => failed(&shared, &error).await,
            }
        }
        match load_new_partitions(&shared).await {
            Ok(()) if shared.cluster_read.is_cancelled() => shared.loaded.cancel(),
            Ok(()) => {}
            Err(error) => failed(&shared, &error).await,
        }
        if let Err(error) = pass(&shared, &mut mark).await {
            failed(&shared, &error).await;
        }
        drop(current_pass);
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = shared.parts.hints.on_jobs_changed() => {}
            () = shared.wake_load.notified() => load_wanted_or_pause(&shared).await,
            () = tokio::time::sleep(shared.parts.settings.poll) => {}
        }
    }
}

async fn failed(shared: &Arc<Shared>, error: &everytick_store::StoreError) {
    unsure::report(shared, error);
    tokio::time::sleep(FAILURE_PAUSE).await;
}

/// Loads the horizon of the partitions that were acquired since the last pass.
async fn load_new_partitions(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let (partitions, partition_generation) = shared.memory().new_partitions();
        if partitions.is_empty() {
            return Ok(());
        }
        let began = MonoTime::now();
        if load_horizon(shared, &partitions).await? {
            shared.memory().partitions_loaded(&partitions, partition_generation);
            let took = MonoTime::now().since(began);
            histogram!("everytick_take_up_duration_seconds").record(took);
            let (partitions, jobs) = (partitions.len(), shared.memory().len());
            tracing::info!(partitions, jobs, ?took, "the jobs of the new partitions are loaded");
            shared.wake_claim.notify_one();
        }
    }
}

/// Reads the horizon of all owned partitions. Most of its jobs are in memory already; only new ones are loaded. Returns `false`
/// if the partitions have changed meanwhile.
async fn read_horizon(shared: &Arc<Shared>) -> Result<bool> {
    let (partitions, partition_generation) = (shared.partitions(), shared.memory().partition_generation());
    let until = shared.clock.now().plus(HORIZON);
    let mut after = None;
    loop {
        let lease = shared.lease();
        let call = shared.parts.store.look_at_horizon(&lease, &partitions, until, after, CURSORS_PER_READ_MAX);
        let read = shared.read("read the horizon", call).await?;
        if !shared.memory().note_changes(&read, until, partition_generation) {
            return Ok(false);
        }
        after = read.last().and_then(|last| last.cursor.map(|cursor| (cursor, last.id)));
        if after.is_none() {
            break;
        }
    }
    shared.memory().sweep(until);
    load_wanted(shared).await?;
    Ok(true)
}

/// Loads all jobs of the partitions that are due before the end of the horizon. There is no lower bound, so jobs that lag are
/// found too. Returns `false` if the node acquired or released partitions meanwhile: the jobs may have been read before that.
async fn load_horizon(shared: &Arc<Shared>, partitions: &PartitionSet) -> Result<bool> {
    let partition_generation = shared.memory().partition_generation();
    let until = shared.clock.now().plus(HORIZON);
    // While the jobs of one share are added to memory, the database reads the others.
    let share = |part| partitions.iter().skip(part).step_by(HORIZONS_AT_ONCE).collect::<PartitionSet>();
    let shares = (0..HORIZONS_AT_ONCE).map(share).filter(|share| !share.is_empty());
    let applied = try_join_all(shares.map(|share| load_pages(shared, share, until, partition_generation))).await?;
    Ok(applied.into_iter().all(|applied| applied))
}

/// Loads the jobs of some partitions, page by page. If a page cannot be loaded, its jobs are loaded later in smaller pages,
/// which finds the bad job. Returns `false` if the partitions have changed.
async fn load_pages(
    shared: &Arc<Shared>,
    partitions: PartitionSet,
    until: DbTime,
    partition_generation: u64,
) -> Result<bool> {
    let mut after = None;
    loop {
        let lease = shared.lease();
        let call = shared.parts.store.load_horizon(&lease, &partitions, until, after, JOBS_PER_HORIZON_MAX);
        let applied = match shared.read("load the horizon", call).await {
            Ok(loaded) => {
                after = loaded.last().and_then(|job| job.cursor.map(|cursor| (cursor, job.job.id)));
                shared.memory().add_horizon(loaded, partition_generation)
            }
            Err(error @ StoreError::LeaseLost) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "could not load a page of jobs; loading them in smaller pages");
                let call = shared.parts.store.look_at_horizon(&lease, &partitions, until, after, JOBS_PER_HORIZON_MAX);
                let read = shared.read("read the horizon", call).await?;
                after = read.last().and_then(|last| last.cursor.map(|cursor| (cursor, last.id)));
                shared.memory().note_changes(&read, until, partition_generation)
            }
        };
        if !applied {
            return Ok(false);
        }
        shared.wake_tick.notify_one();
        // A page may be short because a job in it cannot be decoded. So only an empty page is the last one.
        if after.is_none() {
            return Ok(true);
        }
    }
}

/// Reads the changes since the last poll, then loads the jobs that need it.
async fn pass(shared: &Arc<Shared>, mark: &mut ChangeMark) -> Result<()> {
    loop {
        let partitions = shared.partitions();
        if partitions.is_empty() {
            break;
        }
        let call = shared.parts.store.changes(&partitions, *mark, CHANGES_PER_READ_MAX);
        let changes = shared.read("read changes of jobs", call).await?;
        let until = shared.clock.now().plus(HORIZON);
        {
            let mut memory = shared.memory();
            for changed in &changes.jobs {
                memory.note_change(changed, until);
            }
        }
        *mark = changes.mark;
        if !changes.more {
            break;
        }
    }
    load_wanted(shared).await
}

async fn load_wanted_or_pause(shared: &Arc<Shared>) {
    if let Err(error) = load_wanted(shared).await {
        failed(shared, &error).await;
    }
}

/// Loads the stale and missing jobs. A job with a statement in progress is loaded later: the answer wakes this loop.
async fn load_wanted(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let wanted = shared.memory().take_wanted(JOBS_PER_LOAD_MAX, MonoTime::now());
        if wanted.is_empty() {
            return Ok(());
        }
        load_page(shared, wanted).await?;
    }
}

/// Loads one page of jobs. If that fails although the database answers, splits the page until the bad job is found, and delays
/// that job, so that it does not stop the others.
async fn load_page(shared: &Arc<Shared>, page: Vec<(JobId, u64)>) -> Result<()> {
    let mut pages = vec![page];
    while let Some(page) = pages.pop() {
        let partition_generation = shared.memory().partition_generation();
        let ids: Vec<_> = page.iter().map(|(id, _)| *id).collect();
        match shared.read("load jobs", shared.parts.store.load_jobs(&ids)).await {
            Ok(loaded) => {
                shared.memory().loaded(&page, loaded, partition_generation);
                shared.wake_tick.notify_one();
                shared.wake_claim.notify_one();
            }
            Err(error) => {
                // If the clock cannot be read either, the failure is the database's, not a job's.
                shared.read("read the clock", shared.parts.store.now()).await?;
                match ids.as_slice() {
                    [job] => {
                        let delay = shared.memory().delay_load(*job, MonoTime::now());
                        tracing::error!(%error, %job, ?delay, "could not load a job; trying again later");
                    }
                    _ => pages.extend(page.chunks(page.len().div_ceil(LOAD_SPLITS)).map(<[_]>::to_vec)),
                }
            }
        }
    }
    Ok(())
}
