//! Brings jobs into memory: those that come due before the horizon's end, those that were changed, those in doubt. The only
//! loop that reads jobs.

use std::sync::Arc;

use everytick_domain::{ids::JobId, partition::PartitionSet, time::DbTime};
use everytick_store::{ChangeMark, Result, StoreError};
use futures::future::try_join_all;
use metrics::histogram;

use super::unsure;
use crate::{
    clock::MonoTime,
    engine::Shared,
    pulse,
    settings::{
        CHANGES_PER_LOOK_MAX, FAILURE_PAUSE, HORIZON, HORIZON_EVERY, HORIZONS_AT_ONCE, JOBS_PER_HORIZON_MAX,
        JOBS_PER_LOAD_MAX, LOAD_SPLITS, PLACES_PER_LOOK_MAX,
    },
};

pub(crate) async fn run(shared: Arc<Shared>, mut mark: ChangeMark) {
    let mut horizon_at = MonoTime::now();
    loop {
        let pass_under_way = pulse::pass();
        if MonoTime::now() >= horizon_at {
            match all(&shared).await {
                Ok(true) => horizon_at = MonoTime::now().plus(HORIZON_EVERY),
                Ok(false) => {}
                Err(error) => failed(&shared, &error).await,
            }
        }
        match fresh(&shared).await {
            Ok(()) if shared.looked.is_cancelled() => shared.loaded.cancel(),
            Ok(()) => {}
            Err(error) => failed(&shared, &error).await,
        }
        if let Err(error) = pass(&shared, &mut mark).await {
            failed(&shared, &error).await;
        }
        drop(pass_under_way);
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = shared.parts.hints.on_jobs_changed() => {}
            () = shared.wake_load.notified() => wanted_only(&shared).await,
            () = tokio::time::sleep(shared.parts.settings.poll) => {}
        }
    }
}

async fn failed(shared: &Arc<Shared>, error: &everytick_store::StoreError) {
    unsure::report(shared, error);
    tokio::time::sleep(FAILURE_PAUSE).await;
}

/// The horizon of the partitions that were taken up since the last look.
async fn fresh(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let (partitions, turn) = shared.memory().fresh();
        if partitions.is_empty() {
            return Ok(());
        }
        let began = MonoTime::now();
        if horizon(shared, &partitions).await?.is_some() {
            shared.memory().made_ready(&partitions, turn);
            let took = MonoTime::now().since(began);
            histogram!("everytick_take_up_duration_seconds").record(took);
            let (partitions, jobs) = (partitions.len(), shared.memory().len());
            tracing::info!(partitions, jobs, ?took, "the jobs of the new partitions are loaded");
            shared.wake_claim.notify_one();
        }
    }
}

/// The horizon of all that we hold. Nearly all of its jobs are in memory: only what is new there is read. `false` when what we
/// hold has changed meanwhile.
async fn all(shared: &Arc<Shared>) -> Result<bool> {
    let (partitions, turn) = (shared.partitions(), shared.memory().turn());
    let until = shared.clock.now().plus(HORIZON);
    let mut after = None;
    loop {
        let lease = shared.lease();
        let asked = shared.parts.store.look_at_horizon(&lease, &partitions, until, after, PLACES_PER_LOOK_MAX);
        let seen = shared.read("look at the horizon", asked).await?;
        if !shared.memory().seen(&seen, until, turn) {
            return Ok(false);
        }
        after = seen.last().and_then(|last| last.cursor.map(|cursor| (cursor, last.id)));
        if after.is_none() {
            break;
        }
    }
    shared.memory().sweep(until);
    wanted(shared).await?;
    Ok(true)
}

/// All jobs due before the horizon's end. There is no lower bound: whatever lags is found too. `None` when partitions were
/// taken up or laid down meanwhile: what was read before may be older than that.
async fn horizon(shared: &Arc<Shared>, partitions: &PartitionSet) -> Result<Option<DbTime>> {
    let turn = shared.memory().turn();
    let until = shared.clock.now().plus(HORIZON);
    // While one is being taken in, the database reads the others.
    let share = |part| partitions.iter().skip(part).step_by(HORIZONS_AT_ONCE).collect::<PartitionSet>();
    let shares = (0..HORIZONS_AT_ONCE).map(share).filter(|share| !share.is_empty());
    let taken_in = try_join_all(shares.map(|share| pages(shared, share, until, turn))).await?;
    Ok(taken_in.into_iter().all(|taken_in| taken_in).then_some(until))
}

/// `false` when the turn has passed. The jobs of a page that cannot be loaded are wanted, which finds the one that is to blame.
async fn pages(shared: &Arc<Shared>, partitions: PartitionSet, until: DbTime, turn: u64) -> Result<bool> {
    let mut after = None;
    loop {
        let lease = shared.lease();
        let asked = shared.parts.store.load_horizon(&lease, &partitions, until, after, JOBS_PER_HORIZON_MAX);
        let taken_in = match shared.read("load the horizon", asked).await {
            Ok(loaded) => {
                after = loaded.last().and_then(|job| job.cursor.map(|cursor| (cursor, job.job.id)));
                shared.memory().horizon(loaded, turn)
            }
            Err(error @ StoreError::LeaseLost) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a page of jobs could not be loaded: its jobs are loaded in smaller pages");
                let asked = shared.parts.store.look_at_horizon(&lease, &partitions, until, after, JOBS_PER_HORIZON_MAX);
                let seen = shared.read("look at the horizon", asked).await?;
                after = seen.last().and_then(|last| last.cursor.map(|cursor| (cursor, last.id)));
                shared.memory().seen(&seen, until, turn)
            }
        };
        if !taken_in {
            return Ok(false);
        }
        shared.wake_tick.notify_one();
        // A page may be short because a job in it cannot be read: only an empty one is the last.
        if after.is_none() {
            return Ok(true);
        }
    }
}

/// What was changed since the last look, then what is wanted.
async fn pass(shared: &Arc<Shared>, mark: &mut ChangeMark) -> Result<()> {
    loop {
        let partitions = shared.partitions();
        if partitions.is_empty() {
            break;
        }
        let asked = shared.parts.store.changes(&partitions, *mark, CHANGES_PER_LOOK_MAX);
        let changes = shared.read("look for changes", asked).await?;
        let until = shared.clock.now().plus(HORIZON);
        {
            let mut memory = shared.memory();
            for changed in &changes.jobs {
                memory.changed(changed, until);
            }
        }
        *mark = changes.mark;
        if !changes.more {
            break;
        }
    }
    wanted(shared).await
}

async fn wanted_only(shared: &Arc<Shared>) {
    if let Err(error) = wanted(shared).await {
        failed(shared, &error).await;
    }
}

/// Reads the jobs in doubt. Those about which a statement is under way come later: its answer wakes us.
async fn wanted(shared: &Arc<Shared>) -> Result<()> {
    loop {
        let asked = shared.memory().take_wanted(JOBS_PER_LOAD_MAX, MonoTime::now());
        if asked.is_empty() {
            return Ok(());
        }
        load(shared, asked).await?;
    }
}

/// Reads jobs. Where that fails although the database answers, the page is split, down to the one job that is set aside, so that
/// it keeps no other from being loaded.
async fn load(shared: &Arc<Shared>, page: Vec<(JobId, u64)>) -> Result<()> {
    let mut pages = vec![page];
    while let Some(asked) = pages.pop() {
        let turn = shared.memory().turn();
        let ids: Vec<_> = asked.iter().map(|(id, _)| *id).collect();
        match shared.read("load jobs", shared.parts.store.load_jobs(&ids)).await {
            Ok(loaded) => {
                shared.memory().loaded(&asked, loaded, turn);
                shared.wake_tick.notify_one();
                shared.wake_claim.notify_one();
            }
            Err(error) => {
                // Where the clock cannot be read either, the database is to blame, and not a job.
                shared.read("read the clock", shared.parts.store.now()).await?;
                match ids.as_slice() {
                    [job] => {
                        let wait = shared.memory().set_aside(*job, MonoTime::now());
                        tracing::error!(%error, %job, ?wait, "a job could not be loaded: it is set aside");
                    }
                    _ => pages.extend(asked.chunks(asked.len().div_ceil(LOAD_SPLITS)).map(<[_]>::to_vec)),
                }
            }
        }
    }
    Ok(())
}
