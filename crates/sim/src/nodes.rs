//! Leases and partitions: joining, renewing, taking over, and the guard of every write of a node.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    home::{BlockClaim, Homes},
    ids::{Fence, Incarnation, RunId},
    mutant::Mutant,
    partition::PartitionSet,
    time::{DbTime, Span},
};
use everytick_store::{
    Beat, Cluster, GoneNode, Lease, NameOwner, NodeInfo, NodeRecord, OLD_CLAIM_AFTER, PartitionRecord, Result,
    StoreError,
};

use super::{db::Db, journal::Entry};

#[derive(Clone, Debug)]
pub(super) struct LeaseRow {
    pub incarnation: Incarnation,
    pub fence: Fence,
    pub until: DbTime,
    pub ttl: Span,
    pub info: NodeInfo,
    pub started_at: DbTime,
    pub renewed_at: DbTime,
    pub beat: Beat,
    /// Claims below this id are found only if they are listed in `Db::listed`.
    pub open_from: RunId,
    /// Claims below this id are listed, or were made after the listing and are known to their node.
    pub compared_to: RunId,
    /// The node left, was fenced as dead, or a newer incarnation replaced it.
    pub ended: bool,
}

impl LeaseRow {
    pub(super) fn as_gone(&self) -> GoneNode {
        GoneNode {
            name: self.info.name.clone(),
            region: self.info.region.clone(),
            version: self.info.version.clone(),
            can: self.info.can.clone(),
            started_at: self.started_at,
            gone_since: self.renewed_at,
        }
    }

    fn end(&mut self, fence: Fence) {
        self.until = DbTime::EPOCH;
        self.ended = true;
        self.fence = fence;
    }

    fn name_owner(&self, now: DbTime) -> NameOwner {
        NameOwner {
            node: self.info.name.clone(),
            incarnation: self.incarnation,
            process: self.info.process.clone(),
            renewed_at: self.renewed_at,
            until: self.until,
            now,
        }
    }
}

impl Db {
    pub(super) fn homes(&self) -> Homes {
        let claimed = |row: &PartitionRecord| Some((row.partition, row.home_region.clone()?));
        Homes::new(u16::try_from(self.partitions.len()).unwrap_or(u16::MAX), self.partitions.iter().filter_map(claimed))
    }

    pub(super) fn claim_block(&mut self, claim: &BlockClaim) {
        for partition in claim.partitions() {
            if let Some(row) = self.partitions.get_mut(usize::from(partition)) {
                row.home_region = Some(claim.region.clone());
            }
        }
    }

    pub(super) fn join(&mut self, node: &NodeInfo, incarnation: Incarnation, ttl: Span, now: DbTime) -> Result<Lease> {
        self.cap_leases(now);
        let other = self.leases.get(&node.name).filter(|row| row.incarnation != incarnation && !row.ended);
        if let Some(other) = other.filter(|other| other.until > now) {
            if node.again {
                return Err(StoreError::replaced(&node.name));
            }
            // In a store for one process, an older process is gone: only one can open it.
            if self.shared && !node.takes_over.includes(other.incarnation) {
                return Err(StoreError::NodeNameTaken(Box::new(other.name_owner(now))));
            }
        }
        // An ended row of this incarnation under another name: the new row replaces it.
        self.leases.retain(|name, row| row.incarnation != incarnation || *name == node.name);
        let old = self.leases.get(&node.name);
        let same = old.filter(|row| row.incarnation == incarnation);
        let started_at = same.map_or(now, |row| row.started_at);
        let open_from = RunId::floor(now.minus(OLD_CLAIM_AFTER));
        let open_from = same.map_or(open_from, |row| row.open_from.min(open_from));
        // In a store for one process, the owner of any other lease is dead.
        let alone = !self.shared;
        let ends = self.next_lease_fence(now);
        for (name, row) in self.leases.iter_mut().filter(|(_, row)| row.incarnation != incarnation) {
            if alone || *name == node.name {
                row.end(ends);
            }
        }
        let fence = self.next_lease_fence(now);
        // The row of an older incarnation of the node is moved to a name that no node has.
        if let Some(row) = self.leases.remove(&node.name).filter(|row| row.incarnation != incarnation) {
            self.leases.insert(format!("{}#{}", node.name, row.incarnation), row);
        }
        let (until, info) = (now.plus(ttl), node.clone());
        let row = LeaseRow {
            incarnation,
            fence,
            until,
            ttl,
            info,
            started_at,
            renewed_at: now,
            ended: false,
            beat: Beat::of(open_from),
            open_from,
            compared_to: open_from,
        };
        self.leases.insert(node.name.clone(), row);
        self.journal.push(Entry::Leased { node: node.name.clone(), incarnation, fence });
        Ok(Lease { node: node.name.clone(), incarnation, fence })
    }

    pub(super) fn renew(&mut self, lease: &Lease, ttl: Span, beat: &Beat, now: DbTime) -> Result<DbTime> {
        self.check_lease(lease, now)?;
        self.cap_leases(now);
        if let Some(row) = self.leases.get_mut(&lease.node) {
            let raised = beat.open_from.map_or(row.open_from, |to| to.min(row.compared_to));
            row.open_from = row.open_from.max(raised);
            row.ttl = ttl;
            row.until = now.plus(ttl);
            row.renewed_at = now;
            row.beat = beat.clone();
        }
        // A claim with an older fence does not replace the listed newer claim on the same run.
        for claim in &beat.old_claims {
            if self.runs.get(&claim.run).is_some_and(|run| run.fence <= claim.fence) {
                self.listed.insert(claim.run, lease.incarnation);
            }
        }
        Ok(now)
    }

    /// Shortens leases that end more than 1 s later than their TTL allows: the clock was ahead when they were renewed.
    fn cap_leases(&mut self, now: DbTime) {
        for row in self.leases.values_mut().filter(|row| row.until > now.plus(row.ttl).plus(Span::seconds(1))) {
            row.until = now.plus(row.ttl);
        }
    }

    pub(super) fn raise_fence(&mut self, lease: &Lease, now: DbTime) -> Result<Lease> {
        self.check_lease(lease, now)?;
        let fence = self.next_lease_fence(now);
        let row = self.leases.get_mut(&lease.node).ok_or(StoreError::LeaseLost)?;
        row.fence = fence;
        self.journal.push(Entry::Leased { node: lease.node.clone(), incarnation: lease.incarnation, fence });
        Ok(Lease { fence, ..lease.clone() })
    }

    pub(super) fn retire(&mut self, lease: &Lease, now: DbTime) -> Result<()> {
        self.check_lease(lease, now)?;
        self.free(lease, &PartitionSet::all(u16::MAX), now);
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.info.may_own = false;
        }
        self.undelegate();
        self.journal.push(Entry::Retired { by: lease.incarnation });
        Ok(())
    }

    pub(super) fn leave(&mut self, lease: &Lease, now: DbTime) -> Result<()> {
        self.check_lease(lease, now)?;
        self.free(lease, &PartitionSet::all(u16::MAX), now);
        let fence = self.next_lease_fence(now);
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.end(fence);
        }
        Ok(())
    }

    fn next_lease_fence(&mut self, now: DbTime) -> Fence {
        self.lease_fence = self.lease_fence.raised(now);
        self.lease_fence
    }

    /// The nodes whose lease has not ended, and the partitions with their owners.
    #[must_use]
    pub fn cluster(&self, now: DbTime) -> Cluster {
        let node = |row: &LeaseRow| NodeRecord {
            name: row.info.name.clone(),
            region: row.info.region.clone(),
            version: row.info.version.clone(),
            incarnation: row.incarnation,
            fence: row.fence,
            until: row.until,
            started_at: row.started_at,
            renewed_at: row.renewed_at,
            may_own: row.info.may_own,
            lag: row.beat.lag,
            clock_offset_ms: row.beat.clock_offset_ms,
            process: row.info.process.clone(),
            can: row.info.can.clone(),
            listen: row.info.listen.clone(),
        };
        let nodes = self.leases.values().filter(|row| !row.ended).map(node).collect();
        Cluster { now, nodes, partitions: self.partitions.clone(), row_level_security: false }
    }

    pub(super) fn gone_nodes(&self, now: DbTime) -> Vec<GoneNode> {
        let lives = |node: &GoneNode| self.leases.values().any(|row| !row.ended && row.info.name == node.name);
        let from = now.minus(GoneNode::LISTED_FOR);
        let ended = self.leases.values().filter(|row| row.ended).map(LeaseRow::as_gone);
        let gone = ended.chain(self.gone.iter().cloned()).filter(|node| node.gone_since >= from && !lives(node));
        let mut gone: Vec<GoneNode> = gone.collect();
        gone.sort_by(|a, b| (b.gone_since, &a.name).cmp(&(a.gone_since, &b.name)));
        gone.truncate(GoneNode::LISTED_MAX);
        GoneNode::once_each(gone)
    }

    pub(super) fn count_jobs(&self) -> BTreeMap<u16, u64> {
        let mut counted: BTreeMap<u16, u64> = self.partitions.iter().map(|row| (row.partition, 0)).collect();
        for row in self.jobs.values().filter(|row| row.cursor.is_some()) {
            *counted.entry(row.job.partition).or_default() += 1;
        }
        counted
    }

    pub(super) fn acquire(&mut self, lease: &Lease, asked: &PartitionSet, now: DbTime) -> Result<PartitionSet> {
        self.check_lease(lease, now)?;
        let unfenced = Mutant::TakeOverUnfenced.is_on();
        if !unfenced {
            self.fence_expired(lease.incarnation, now);
        }
        let lives = |row: &&LeaseRow| !row.ended && (row.until > now || !unfenced);
        let living: BTreeSet<_> = self.leases.values().filter(lives).map(|row| row.incarnation).collect();
        let mut ours = PartitionSet::none();
        for row in self.partitions.iter_mut().filter(|row| asked.contains(row.partition)) {
            if row.owner.is_none_or(|owner| !living.contains(&owner)) {
                row.owner = Some(lease.incarnation);
                row.fence = row.fence.raised(now);
                row.since = now;
                let (partition, fence) = (row.partition, row.fence);
                self.journal.push(Entry::Acquired { partition, by: lease.incarnation, fence });
            }
            if row.owner == Some(lease.incarnation) {
                ours.insert(row.partition);
            }
        }
        Ok(ours)
    }

    pub(super) fn release(&mut self, lease: &Lease, partitions: &PartitionSet, now: DbTime) -> Result<()> {
        self.check_lease(lease, now)?;
        self.free(lease, partitions, now);
        Ok(())
    }

    fn free(&mut self, lease: &Lease, partitions: &PartitionSet, now: DbTime) {
        let ours =
            |row: &&mut PartitionRecord| partitions.contains(row.partition) && row.owner == Some(lease.incarnation);
        for row in self.partitions.iter_mut().filter(ours) {
            row.owner = None;
            row.since = now;
            self.journal.push(Entry::Released { partition: row.partition, by: lease.incarnation });
        }
    }

    /// Ends the expired leases of other incarnations under a new fence.
    pub(super) fn fence_expired(&mut self, but: Incarnation, now: DbTime) {
        let expired = |row: &&mut LeaseRow| row.incarnation != but && !row.ended && row.until <= now;
        for row in self.leases.values_mut().filter(expired) {
            self.lease_fence = self.lease_fence.raised(now);
            row.fence = self.lease_fence;
            row.ended = true;
        }
    }

    /// The `open_from` of this incarnation's lease. Claims on runs below it are listed; other claims need not be.
    pub(super) fn open_from(&self, incarnation: Incarnation) -> Option<RunId> {
        self.leases.values().find(|row| row.incarnation == incarnation).map(|row| row.open_from)
    }

    /// Whether this incarnation's claim on the run is listed. An entry of another incarnation does not count.
    pub(super) fn is_listed(&self, run: RunId, by: Incarnation) -> bool {
        self.listed.get(&run) == Some(&by)
    }

    /// Lists the claim of a node on this run if the run is below the `open_from` of the node's lease.
    pub(super) fn list_claim(&mut self, run: RunId, by: Incarnation) {
        if self.open_from(by).is_some_and(|open_from| run < open_from) {
            self.listed.insert(run, by);
        }
    }

    /// The guard of every write of a node: its lease must be alive and carry the fence that the call names.
    pub(super) fn check_lease(&self, lease: &Lease, now: DbTime) -> Result<()> {
        let ours = |row: &&LeaseRow| row.incarnation == lease.incarnation && row.fence == lease.fence;
        let alive = |row: &&LeaseRow| row.until > now && !row.ended;
        self.leases.get(&lease.node).filter(ours).filter(alive).map(drop).ok_or(StoreError::LeaseLost)
    }
}
