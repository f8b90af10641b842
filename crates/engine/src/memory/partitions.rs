//! The partitions of the node: acquired, loaded, released.

use everytick_domain::{ids::JobId, partition::PartitionSet};
use everytick_store::Raise;

use super::Memory;

impl Memory {
    pub(crate) fn partitions(&self) -> PartitionSet {
        self.partitions
    }

    /// A number that changes whenever partitions are acquired or released.
    pub(crate) fn partition_generation(&self) -> u64 {
        self.partition_generation
    }

    /// Adds partitions that this node now owns. Their jobs are not loaded yet.
    pub(crate) fn add_partitions(&mut self, partitions: &PartitionSet) {
        let new = partitions.without(self.partitions);
        if !new.is_empty() {
            self.partitions = self.partitions.union(new);
            self.new_partitions = self.new_partitions.union(new);
            self.partition_generation += 1;
        }
    }

    /// The partitions whose horizon is to be loaded, and the present generation of the partitions.
    pub(crate) fn new_partitions(&self) -> (PartitionSet, u64) {
        (self.new_partitions, self.partition_generation)
    }

    pub(crate) fn partitions_loaded(&mut self, partitions: &PartitionSet, partition_generation: u64) {
        if self.partition_generation == partition_generation {
            self.new_partitions = self.new_partitions.without(*partitions);
        }
    }

    /// Removes partitions that this node no longer owns, with their jobs. The caller has made sure that nothing about them is
    /// being recorded or claimed. Claims of this node stay until they are settled. Returns the cursors that lag.
    pub(crate) fn remove_partitions(&mut self, partitions: &PartitionSet) -> Vec<Raise> {
        let raise = |id: &JobId| {
            let entry =
                self.jobs.get(id).filter(|entry| !entry.is_stale() && partitions.contains(entry.job.partition))?;
            Some(Raise { job: *id, epoch: entry.epoch, cursor: entry.next })
        };
        let raises = self.lagging.iter().filter_map(raise).collect();
        let id_of = |(id, entry): (&JobId, &super::Entry)| partitions.contains(entry.job.partition).then_some(*id);
        let ids: Vec<_> = self.jobs.iter().filter_map(id_of).collect();
        for id in ids {
            self.remove(id);
        }
        self.partitions = self.partitions.without(*partitions);
        self.new_partitions = self.new_partitions.without(*partitions);
        self.partition_generation += 1;
        raises
    }

    /// Removes a job from memory.
    pub(super) fn remove(&mut self, job: JobId) {
        self.unset_timer(job);
        self.jobs.remove(&job);
        self.wanted.remove(&job);
        self.lagging.remove(&job);
    }
}
