//! Adds jobs to memory, reloads them, and removes them.

use std::{collections::BTreeMap, ops::Bound, time::Duration};

use everytick_domain::{
    ids::{JobId, RunId},
    mutant::Mutant,
    overlap::Open,
    time::DbTime,
};
use everytick_store::{ChangedJob, LoadedJob, Raise};

use super::{
    LoadRetry, Memory,
    entry::{Entry, Lag},
};
use crate::{
    clock::MonoTime,
    settings::{JOBS_WATCHED_MAX, LOAD_RETRY_FIRST, LOAD_RETRY_MAX, RAISE_EVERY, RAISE_LAG_TICKS},
};

impl Memory {
    /// Marks a created or changed job to be loaded, if it is due before the end of the horizon or memory has an older epoch.
    pub(crate) fn note_change(&mut self, changed: &ChangedJob, until: DbTime) {
        match self.jobs.get(&changed.id) {
            Some(entry) if entry.epoch == changed.epoch => {}
            Some(_) => self.mark_stale(changed.id),
            None if changed.cursor.is_some_and(|cursor| cursor < until) => {
                self.wanted.insert(changed.id);
            }
            None => {}
        }
    }

    /// Marks each job to be loaded that is new or has another epoch than in memory. Returns `false` and marks no job if
    /// the partitions changed since the jobs were read.
    pub(crate) fn note_changes(&mut self, read: &[ChangedJob], until: DbTime, partition_generation: u64) -> bool {
        if self.partition_generation != partition_generation {
            return false;
        }
        for job in read {
            self.note_change(job, until);
        }
        true
    }

    /// Adds the jobs of the horizon that are not in memory yet. Returns `false` if the partitions changed after the
    /// load; then none is added.
    pub(crate) fn add_horizon(&mut self, loaded: Vec<LoadedJob>, partition_generation: u64) -> bool {
        if self.partition_generation != partition_generation && !Mutant::PartitionGenerationNotChecked.is_on() {
            return false;
        }
        for job in loaded {
            match self.jobs.get(&job.job.id) {
                Some(entry) if entry.epoch == job.epoch => {}
                Some(_) => self.mark_stale(job.job.id),
                None => self.insert(job),
            }
        }
        true
    }

    fn insert(&mut self, loaded: LoadedJob) {
        let id = loaded.job.id;
        self.wanted.remove(&id);
        self.wanted_for.remove(&id);
        if !self.partitions.contains(loaded.job.partition) && !Mutant::PartitionGenerationNotChecked.is_on() {
            return;
        }
        let open = self.open_runs(&loaded);
        let needs = self.needs_of(&loaded.job, false);
        let mut entry = Entry::new(loaded, open);
        entry.needs = needs;
        // All ticks between the cursor and the first unrecorded tick are recorded, so the cursor may be raised.
        if entry.cursor.is_some() && entry.next != entry.cursor {
            entry.lag = Some(Lag::begin());
            self.lagging.insert(id);
        }
        if entry.open_runs().waiting > 0 {
            self.with_waiting.insert(id);
        }
        self.jobs.insert(id, entry);
        self.set_timer(id);
    }

    /// The open runs of a job: those that were loaded, and those on which this node still works although another node ended
    /// them.
    fn open_runs(&self, loaded: &LoadedJob) -> BTreeMap<RunId, Open> {
        let mut open: BTreeMap<_, _> = loaded.open.iter().map(|run| (run.id, Open::from(*run))).collect();
        let id = loaded.job.id;
        let ours = self.claims_by_job.range((id, RunId::floor(DbTime::EPOCH))..).take_while(|(job, _)| *job == id);
        for own in ours.filter_map(|(_, run)| self.claims.get(run)) {
            let claim = &own.claim;
            open.entry(claim.run).or_insert(Open { claimed: true, attempts: claim.attempt }).claimed = true;
        }
        open
    }

    /// The jobs to load now, each with its `Entry::seq`. It leaves out jobs with a statement in progress or of unknown
    /// outcome. Pages rotate over all jobs. A job that could not be loaded is returned alone, after its delay, when no
    /// other job is left.
    pub(crate) fn take_wanted(&mut self, limit: usize, now: MonoTime) -> Vec<(JobId, u64)> {
        let may_load = |id: &JobId| self.jobs.get(id).is_none_or(|entry| entry.in_flight == 0 && !entry.is_unsure());
        let after = self.wanted_after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.wanted.range((after, Bound::Unbounded));
        let from_start = self.wanted_after.iter().flat_map(|last| self.wanted.range(..=*last));
        let healthy = rest.chain(from_start).copied().filter(|id| !self.load_retries.contains_key(id) && may_load(id));
        let mut ids: Vec<JobId> = healthy.take(limit).collect();
        self.wanted_after = ids.last().copied();
        if ids.is_empty() {
            let is_due =
                |(id, retry): &(&JobId, &LoadRetry)| retry.at <= now && self.wanted.contains(id) && may_load(id);
            ids.extend(self.load_retries.iter().find(is_due).map(|(id, _)| *id));
        }
        ids.into_iter().map(|id| (id, self.jobs.get(&id).map_or(0, |entry| entry.seq))).collect()
    }

    /// Adds one check to each job that is still to be loaded. Returns how many have waited for at least `checks` checks.
    pub(crate) fn count_overdue_loads(&mut self, checks: u64) -> usize {
        let wanted = self.wanted.iter().take(JOBS_WATCHED_MAX);
        self.wanted_for = wanted.map(|job| (*job, self.wanted_for.get(job).map_or(0, |waited| waited + 1))).collect();
        self.wanted_for.values().filter(|waited| **waited >= checks).count()
    }

    /// Delays the next retry of a job that could not be loaded alone. Returns the delay.
    pub(crate) fn delay_load(&mut self, job: JobId, now: MonoTime) -> Duration {
        let last = self.load_retries.get(&job);
        let delay = last.map_or(LOAD_RETRY_FIRST, |retry| (retry.delay * 2).min(LOAD_RETRY_MAX));
        self.load_retries.insert(job, LoadRetry { at: now.plus(delay), delay });
        delay
    }

    /// Applies loaded jobs. If a statement about a job was answered after the load was sent, the job is loaded again. A
    /// job that was not found is removed.
    pub(crate) fn loaded(&mut self, requested: &[(JobId, u64)], loaded: Vec<LoadedJob>, partition_generation: u64) {
        if self.partition_generation != partition_generation && !Mutant::PartitionGenerationNotChecked.is_on() {
            return;
        }
        let mut found: BTreeMap<_, _> = loaded.into_iter().map(|job| (job.job.id, job)).collect();
        for (id, seq) in requested {
            self.load_retries.remove(id);
            match (self.jobs.get_mut(id), found.remove(id)) {
                (Some(entry), _) if entry.in_flight > 0 || entry.is_unsure() || entry.seq != *seq => {}
                (Some(_), None) => self.remove(*id),
                // The job's home region has changed, and so has its partition.
                (Some(_), Some(job)) if !self.partitions.contains(job.job.partition) => self.remove(*id),
                (Some(_), Some(job)) => self.refresh(job),
                (None, Some(job)) => self.insert(job),
                (None, None) => {
                    self.wanted.remove(id);
                    self.wanted_for.remove(id);
                    self.missing.insert(*id);
                }
            }
        }
    }

    fn refresh(&mut self, loaded: LoadedJob) {
        let id = loaded.job.id;
        let open = self.open_runs(&loaded);
        let changed = self.jobs.get(&id).is_some_and(|entry| entry.epoch != loaded.epoch);
        let needs = self.needs_of(&loaded.job, changed);
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.needs = needs;
        let read = loaded.first_unrecorded();
        let same = entry.epoch == loaded.epoch && !entry.has_wrong_next_tick();
        entry.next = match (entry.next, read) {
            // Ticks recorded since the cursor was written are not planned again.
            (Some(next), Some(read)) if same => Some(next.max(read)),
            (None, _) if same => None,
            (_, read) => read,
        };
        if entry.epoch != loaded.epoch {
            entry.lag = None;
            self.lagging.remove(&id);
        }
        entry.epoch = loaded.epoch;
        entry.cursor = loaded.cursor;
        entry.set_job(loaded.job);
        entry.unread = loaded.unread;
        entry.remaining = loaded.remaining;
        entry.set_open(Some(open));
        if entry.open_runs().waiting > 0 {
            self.with_waiting.insert(id);
        }
        entry.mark_reloaded();
        entry.seq += 1;
        self.wanted_for.remove(&id);
        self.wanted.remove(&id);
        self.set_timer(id);
    }

    /// The cursors to raise now: those that have lagged long enough or by enough ticks. If there are more than `limit`, those
    /// that have lagged longest.
    pub(crate) fn raises(&self, now: MonoTime, limit: usize) -> Vec<Raise> {
        let lasts = |lag: Lag| now.since(lag.since) >= RAISE_EVERY || lag.ticks >= RAISE_LAG_TICKS;
        let due = |entry: &Entry| entry.lag.is_some_and(lasts);
        let lagging = self.lagging.iter().filter_map(|id| self.jobs.get(id).map(|entry| (*id, entry)));
        let mut chosen: Vec<_> = lagging.filter(|(_, entry)| !entry.is_stale() && due(entry)).collect();
        if chosen.len() > limit {
            chosen.sort_by_key(|(_, entry)| entry.lag.map(|lag| lag.since));
            chosen.truncate(limit);
        }
        let raise = |(job, entry): (JobId, &Entry)| Raise { job, epoch: entry.epoch, cursor: entry.next };
        chosen.into_iter().map(raise).collect()
    }

    /// Applies the answer to raised cursors: the cursors of the jobs in `done` are committed. A job with nothing more
    /// to do before `until` then leaves memory.
    pub(crate) fn raised(&mut self, raises: &[Raise], done: &[JobId], until: DbTime) {
        let done: std::collections::BTreeSet<_> = done.iter().collect();
        for raise in raises {
            let Some(entry) = self.jobs.get_mut(&raise.job) else { continue };
            if !done.contains(&raise.job) || entry.epoch != raise.epoch {
                self.mark_stale(raise.job);
                continue;
            }
            entry.cursor = raise.cursor;
            if entry.next != raise.cursor {
                entry.lag = Some(Lag::begin());
                continue;
            }
            entry.lag = None;
            self.lagging.remove(&raise.job);
            self.remove_if_idle(raise.job, until);
        }
    }

    /// Removes jobs with nothing to do before `until`. A job whose cursor lags stays until the cursor is raised.
    pub(crate) fn sweep(&mut self, until: DbTime) {
        self.missing.clear();
        self.load_retries.retain(|job, _| self.wanted.contains(job));
        let idle: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, entry)| entry.next.is_none_or(|next| next > until))
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.remove_if_idle(id, until);
        }
    }

    fn remove_if_idle(&mut self, job: JobId, until: DbTime) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let idle = entry.next.is_none_or(|next| next > until) && (entry.open.is_empty() || entry.is_pulled());
        if idle && entry.in_flight == 0 && !entry.is_stale() && !self.lagging.contains(&job) {
            self.unset_timer(job);
            self.jobs.remove(&job);
        }
    }
}
