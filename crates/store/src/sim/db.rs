//! The simulated tables, the leases, and the journal.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    ids::{Epoch, Fence, Incarnation, JobId, RunId, TenantId},
    job::{Job, LATE_AFTER_MAX},
    plan::SkipRange,
    run::{CauseKind, SkipReason, State, Verdict},
    time::{DbTime, Span},
};

use crate::{AttemptRecord, AuditRecord, Lease, Limits, Result, StoreError};

/// All that the simulated database holds.
#[derive(Debug)]
pub struct Db {
    pub(super) limits: Limits,
    pub(super) jobs: BTreeMap<JobId, JobRow>,
    pub(super) runs: BTreeMap<RunId, RunRow>,
    pub(super) history: BTreeSet<(JobId, RunId)>,
    pub(super) ranges: BTreeMap<RunId, RangeRow>,
    pub(super) waiting: BTreeMap<RunId, WaitingRow>,
    pub(super) attempts: BTreeMap<(RunId, u32), AttemptRecord>,
    pub(super) leases: BTreeMap<String, LeaseRow>,
    pub(super) requests: BTreeMap<(TenantId, String), RequestRow>,
    pub(super) audit: Vec<(TenantId, AuditRecord)>,
    pub(super) seq: i64,
    pub(super) journal: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct JobRow {
    pub job: Job,
    pub epoch: Epoch,
    pub seq: i64,
    pub cursor: Option<DbTime>,
}

#[derive(Clone, Debug)]
pub struct RunRow {
    pub job: JobId,
    pub tenant: TenantId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub due_at: DbTime,
    pub state: State,
    pub attempt: u32,
    pub lost: u32,
    pub fence: Fence,
    pub node: Option<String>,
    pub incarnation: Option<Incarnation>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
    pub output: Option<String>,
    pub skip_reason: Option<SkipReason>,
    pub payload: Option<String>,
}

#[derive(Clone, Debug)]
pub struct RangeRow {
    pub job: JobId,
    pub tenant: TenantId,
    pub range: SkipRange,
    pub recorded_at: DbTime,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRow {
    pub job: JobId,
    pub tenant: TenantId,
    pub priority: u8,
    pub due_at: DbTime,
    pub late: bool,
    pub force: bool,
    pub attempts: u32,
}

#[derive(Clone, Debug)]
pub(super) struct LeaseRow {
    pub incarnation: Incarnation,
    pub fence: Fence,
    pub until: DbTime,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRow {
    pub fingerprint: [u8; 32],
    pub subject: Subject,
    pub at: DbTime,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    Job(JobId),
    Run(RunId),
}

/// One change, as the journal keeps it for checkers.
#[derive(Clone, Debug)]
pub enum Entry {
    Created {
        job: Box<Job>,
        x: DbTime,
    },
    /// Written at the commit, whether or not the caller learned of it.
    Edited {
        job: Box<Job>,
        x: DbTime,
    },
    Recorded {
        run: RunId,
        job: JobId,
        state: State,
        at: DbTime,
    },
    RangeRecorded {
        job: JobId,
        from: DbTime,
        to: DbTime,
    },
    Claimed {
        run: RunId,
        job: JobId,
        attempt: u32,
        fence: Fence,
    },
    /// `fence` is what the settlement named, `held` what the run had.
    Settled {
        run: RunId,
        job: JobId,
        fence: Fence,
        held: Fence,
        was: State,
        verdict: Verdict,
    },
    Cancelled {
        run: RunId,
        job: JobId,
        was: State,
    },
}

impl Db {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            jobs: BTreeMap::new(),
            runs: BTreeMap::new(),
            history: BTreeSet::new(),
            ranges: BTreeMap::new(),
            waiting: BTreeMap::new(),
            attempts: BTreeMap::new(),
            leases: BTreeMap::new(),
            requests: BTreeMap::new(),
            audit: Vec::new(),
            seq: 0,
            journal: Vec::new(),
        }
    }

    #[must_use]
    pub fn journal(&self) -> &[Entry] {
        &self.journal
    }
    pub fn all_runs(&self) -> impl Iterator<Item = (RunId, &RunRow)> {
        self.runs.iter().map(|(id, row)| (*id, row))
    }
    /// When a run that waits is due; later than its tick for a retry.
    #[must_use]
    pub fn waits_until(&self, run: RunId) -> Option<DbTime> {
        self.waiting.get(&run).map(|row| row.due_at)
    }
    pub fn all_ranges(&self) -> impl Iterator<Item = &RangeRow> {
        self.ranges.values()
    }

    pub(super) fn join(&mut self, node: &str, incarnation: Incarnation, ttl: Span, now: DbTime) -> Lease {
        let old = self.leases.get(node).map_or(Fence::default(), |row| row.fence);
        // One process has the store: whoever else held a lease is dead.
        for row in self.leases.values_mut().filter(|row| row.incarnation != incarnation) {
            row.until = DbTime::EPOCH;
            row.fence = row.fence.raised(now);
        }
        // An older incarnation of the same node leaves its row behind under a name that no node has.
        if let Some(row) = self.leases.remove(node).filter(|row| row.incarnation != incarnation) {
            self.leases.insert(format!("{node}#{}", row.incarnation), row);
        }
        let fence = old.raised(now);
        self.leases.insert(node.to_owned(), LeaseRow { incarnation, fence, until: now.plus(ttl) });
        Lease { node: node.to_owned(), incarnation, fence }
    }

    pub(super) fn renew(&mut self, lease: &Lease, ttl: Span, _open_from: RunId, now: DbTime) -> Result<DbTime> {
        self.held(lease, now)?;
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.until = now.plus(ttl);
        }
        Ok(now)
    }

    pub(super) fn raise_fence(&mut self, lease: &Lease, now: DbTime) -> Result<Lease> {
        let row = self.leases.get_mut(&lease.node).ok_or(StoreError::LeaseLost)?;
        if row.incarnation != lease.incarnation || row.fence != lease.fence || row.until <= now {
            return Err(StoreError::LeaseLost);
        }
        row.fence = row.fence.raised(now);
        Ok(Lease { fence: row.fence, ..lease.clone() })
    }

    pub(super) fn leave(&mut self, lease: &Lease, now: DbTime) -> Result<()> {
        self.held(lease, now)?;
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.until = DbTime::EPOCH;
        }
        Ok(())
    }

    /// Guards whatever a node writes: its lease lives and carries the fence that the statement names.
    pub(super) fn held(&self, lease: &Lease, now: DbTime) -> Result<()> {
        match self.leases.get(&lease.node) {
            Some(row) if row.incarnation == lease.incarnation && row.fence == lease.fence && row.until > now => Ok(()),
            _ => Err(StoreError::LeaseLost),
        }
    }

    pub(super) fn next_seq(&mut self) -> i64 {
        self.seq += 1;
        self.seq
    }

    pub(super) fn insert_run(&mut self, id: RunId, row: RunRow, at: DbTime) {
        debug_assert!(
            row.due_at >= at.minus(LATE_AFTER_MAX) || row.state != State::Claimed,
            "born claimed, and too old"
        );
        self.journal.push(Entry::Recorded { run: id, job: row.job, state: row.state, at });
        if row.state == State::Claimed {
            self.journal.push(Entry::Claimed { run: id, job: row.job, attempt: row.attempt, fence: row.fence });
        }
        self.history.insert((row.job, id));
        self.runs.insert(id, row);
    }

    pub(super) fn runs_of(&self, job: JobId) -> impl DoubleEndedIterator<Item = (RunId, &RunRow)> {
        let (low, high) = (RunId::from_uuid(uuid::Uuid::nil()), RunId::from_uuid(uuid::Uuid::max()));
        self.history.range((job, low)..=(job, high)).filter_map(|(_, id)| self.runs.get(id).map(|row| (*id, row)))
    }
}
