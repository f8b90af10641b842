//! Brings jobs into memory: those that come due before the horizon's end, those that were changed, those in doubt. The only
//! loop that reads jobs.

use std::sync::Arc;

use everytick_domain::{partition::PartitionSet, time::DbTime};
use everytick_store::{ChangeMark, Result};
use futures::future::try_join_all;
use metrics::histogram;

use super::unsure;
use crate::{
    clock::MonoTime,
    engine::Shared,
    settings::{
        CHANGES_PER_LOOK_MAX, FAILURE_PAUSE, HORIZON, HORIZON_EVERY, HORIZONS_AT_ONCE, JOBS_PER_HORIZON_MAX,
        JOBS_PER_LOAD_MAX, PLACES_PER_LOOK_MAX,
    },
};

pub(crate) async fn run(shared: Arc<Shared>, mut mark: ChangeMark) {
    let mut horizon_at = MonoTime::now();
    loop {
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
        let seen = shared.ask("look at the horizon", asked).await?;
        let mut memory = shared.memory();
        if memory.turn() != turn {
            return Ok(false);
        }
        for job in &seen {
            memory.changed(job, until);
        }
        drop(memory);
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

/// `false` when the turn has passed.
async fn pages(shared: &Arc<Shared>, partitions: PartitionSet, until: DbTime, turn: u64) -> Result<bool> {
    let mut after = None;
    loop {
        let lease = shared.lease();
        let asked = shared.parts.store.load_horizon(&lease, &partitions, until, after, JOBS_PER_HORIZON_MAX);
        let loaded = shared.ask("load the horizon", asked).await?;
        after = loaded.last().and_then(|job| job.cursor.map(|cursor| (cursor, job.job.id)));
        if !shared.memory().horizon(loaded, turn) {
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
        let changes = shared.ask("look for changes", asked).await?;
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
        let asked = shared.memory().take_wanted(JOBS_PER_LOAD_MAX);
        if asked.is_empty() {
            return Ok(());
        }
        let turn = shared.memory().turn();
        let ids: Vec<_> = asked.iter().map(|(id, _)| *id).collect();
        let loaded = shared.ask("load jobs", shared.parts.store.load_jobs(&ids)).await?;
        shared.memory().loaded(&asked, loaded, turn);
        shared.wake_tick.notify_one();
        shared.wake_claim.notify_one();
    }
}
