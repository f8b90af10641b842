//! Virtual partitions of jobs, the unit of ownership: at most one node owns each. `PartitionSet` stores one bit per partition.

use std::fmt;

/// The number of partitions of a store that several nodes share. A job's partition is a function of its id and its home region.
pub const PARTITIONS: u16 = 256;

const WORDS: usize = PARTITIONS as usize / 64;

/// A set of partitions, numbered 0 to 255.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PartitionSet([u64; WORDS]);

impl PartitionSet {
    #[must_use]
    pub const fn none() -> Self {
        Self([0; WORDS])
    }

    /// The first `count` partitions: all of a store with `count` partitions.
    #[must_use]
    pub fn all(count: u16) -> Self {
        (0..count.min(PARTITIONS)).collect()
    }

    #[must_use]
    pub const fn contains(&self, partition: u16) -> bool {
        partition < PARTITIONS && self.0[partition as usize / 64] & (1 << (partition % 64)) != 0
    }

    /// Returns whether the partition was added. Numbers above 255 are ignored.
    pub const fn insert(&mut self, partition: u16) -> bool {
        if partition >= PARTITIONS || self.contains(partition) {
            return false;
        }
        self.0[partition as usize / 64] |= 1 << (partition % 64);
        true
    }

    /// Returns whether the partition was in the set.
    pub const fn remove(&mut self, partition: u16) -> bool {
        if !self.contains(partition) {
            return false;
        }
        self.0[partition as usize / 64] &= !(1 << (partition % 64));
        true
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let set = *self;
        (0..PARTITIONS).filter(move |partition| set.contains(*partition))
    }

    /// One bit per partition, lowest bit of the first byte first.
    #[must_use]
    pub fn to_bytes(self) -> [u8; PARTITIONS as usize / 8] {
        std::array::from_fn(|byte| self.0[byte / 8].to_le_bytes()[byte % 8])
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }
}

impl FromIterator<u16> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = u16>>(partitions: I) -> Self {
        let mut set = Self::none();
        for partition in partitions {
            set.insert(partition);
        }
        set
    }
}

impl fmt::Debug for PartitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_iterates_its_partitions_in_order() {
        let mut set: PartitionSet = [200, 3, 64, 63, 255, 0].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63, 64, 200, 255]);
        assert_eq!(set.len(), 6);
        assert!(!set.insert(64) && set.insert(65) && set.remove(64) && !set.remove(64));
        assert!(set.contains(65) && !set.contains(64));
        assert_eq!(format!("{set:?}"), "{0, 3, 63, 65, 200, 255}");
    }

    #[test]
    fn to_bytes_sets_the_bit_that_a_database_reads() {
        let set: PartitionSet = [0, 9, 63, 64, 255].into_iter().collect();
        let bytes = set.to_bytes();
        let bit = |n: u16| bytes[usize::from(n) / 8] >> (n % 8) & 1 == 1;
        assert_eq!((0..PARTITIONS).filter(|n| bit(*n)).collect::<PartitionSet>(), set);
    }

    #[test]
    fn a_set_ignores_numbers_that_are_not_partitions() {
        let mut set = PartitionSet::all(u16::MAX);
        assert_eq!((set.len(), set.contains(256), set.insert(256)), (256, false, false));
        assert_eq!(PartitionSet::all(1).iter().collect::<Vec<_>>(), [0]);
        assert!(PartitionSet::none().is_empty() && PartitionSet::all(0).is_empty());
    }

    #[test]
    fn sets_support_union_and_difference() {
        let (low, all) = (PartitionSet::all(100), PartitionSet::all(PARTITIONS));
        assert_eq!(all.without(low).union(low), all);
        assert_eq!(all.without(low).len(), 156);
    }
}
