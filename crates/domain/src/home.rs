//! Maps a job to its partition. A job with a home region goes into the block of partitions that its region has claimed, so that
//! nodes of that region can own it. Other jobs are spread over all partitions. `assignment` decides which node owns a
//! partition.

use std::collections::BTreeMap;

use crate::{ids::JobId, invalid::Invalid, partition::PARTITIONS};

pub const REGION_BYTES_MAX: usize = 63;
/// How many partitions a region claims.
pub const BLOCK_PARTITIONS: u16 = 16;
/// How many home regions a cluster can have.
pub const BLOCKS: u16 = PARTITIONS / BLOCK_PARTITIONS;

/// Checks a region name. Names are typed on command lines and compared byte by byte.
pub fn check_region(region: &str) -> Result<(), String> {
    let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if region.is_empty() || region.len() > REGION_BYTES_MAX || !region.bytes().all(sound) {
        return Err(format!(
            "{:?} is not a region; write 1 to {REGION_BYTES_MAX} of a-z 0-9 -",
            region.chars().take(REGION_BYTES_MAX).collect::<String>()
        ));
    }
    Ok(())
}

/// The blocks of a store and the regions that claimed them. A claim is permanent, because jobs are stored in the block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Homes {
    partitions: u16,
    regions: BTreeMap<u16, String>,
}

/// A job's partition, and the block that its region must claim first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    pub partition: u16,
    pub claim: Option<BlockClaim>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockClaim {
    pub block: u16,
    pub region: String,
}

impl BlockClaim {
    pub fn partitions(&self) -> impl Iterator<Item = u16> + use<> {
        let first = self.block * BLOCK_PARTITIONS;
        first..first + BLOCK_PARTITIONS
    }
}

impl Homes {
    /// The homes of a store with `partitions` partitions; `claimed` lists the partitions that have a home region. A store with
    /// fewer partitions than one block has no homes: a home region then does not change the partition of a job.
    pub fn new(partitions: u16, claimed: impl IntoIterator<Item = (u16, String)>) -> Self {
        let regions = claimed.into_iter().map(|(partition, region)| (partition / BLOCK_PARTITIONS, region)).collect();
        Self { partitions, regions }
    }

    /// Whether the region needs no new claim.
    #[must_use]
    pub fn knows(&self, region: &str) -> bool {
        self.blocks() == 0 || self.regions.values().any(|claimed| claimed == region)
    }

    /// The partition of a job. A job with a home region gets a partition in the block of the region; any other job gets one by
    /// its id alone. A new region claims the block that its name hashes to, or the next free block.
    pub fn place(&self, job: JobId, home_region: Option<&str>) -> Result<Placement, Invalid> {
        let Some(region) = home_region.filter(|_| self.blocks() > 0) else {
            return Ok(Placement { partition: job.partition(self.partitions), claim: None });
        };
        let within = |block: u16| block * BLOCK_PARTITIONS + job.partition(BLOCK_PARTITIONS);
        if let Some((block, _)) = self.regions.iter().find(|(_, claimed)| *claimed == region) {
            return Ok(Placement { partition: within(*block), claim: None });
        }
        let [a, b, ..] = *blake3::hash(region.as_bytes()).as_bytes();
        let first = u16::from_be_bytes([a, b]) % self.blocks();
        let block = (0..self.blocks())
            .map(|step| (first + step) % self.blocks())
            .find(|block| !self.regions.contains_key(block))
            .ok_or_else(|| {
                let message = format!(
                    "{region:?} is a new home region, but the cluster already has {}, the most that it supports; use one of these",
                    self.regions.len()
                );
                Invalid::new("home_region", message)
            })?;
        Ok(Placement { partition: within(block), claim: Some(BlockClaim { block, region: region.to_owned() }) })
    }

    pub fn claim(&mut self, claim: &BlockClaim) {
        self.regions.insert(claim.block, claim.region.clone());
    }

    const fn blocks(&self) -> u16 {
        self.partitions / BLOCK_PARTITIONS
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn job(n: u128) -> JobId {
        JobId::from_uuid(Uuid::from_u128(n))
    }

    fn cluster() -> Homes {
        Homes::new(PARTITIONS, [])
    }

    #[test]
    fn regions_are_short_and_plain() {
        for sound in ["eu", "eu-west-1", "7", "-", &"r".repeat(63)] {
            assert_eq!(check_region(sound), Ok(()));
        }
        for wrong in ["", "EU", "eu west", "eu_1", "é", &"r".repeat(64)] {
            assert!(check_region(wrong).unwrap_err().contains("1 to 63 of a-z 0-9 -"), "{wrong}");
        }
    }

    #[test]
    fn the_partition_of_a_job_without_home_follows_from_its_id() {
        for n in 0..100 {
            let place = cluster().place(job(n), None).unwrap();
            assert_eq!(place, Placement { partition: job(n).partition(PARTITIONS), claim: None });
        }
    }

    #[test]
    fn the_jobs_of_a_region_are_spread_over_its_block_which_is_claimed_once() {
        let mut homes = cluster();
        let claim = homes.place(job(0), Some("eu")).unwrap().claim.unwrap();
        assert!(!homes.knows("eu"));
        homes.claim(&claim);
        assert!(homes.knows("eu") && !homes.knows("us"));
        let placements: Vec<_> = (0..1_000).map(|n| homes.place(job(n), Some("eu")).unwrap()).collect();
        assert!(placements.iter().all(|place| place.claim.is_none()));
        let mut partitions: Vec<_> = placements.iter().map(|place| place.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        assert_eq!(partitions, claim.partitions().collect::<Vec<_>>());
    }

    #[test]
    fn each_region_gets_its_own_block_until_none_is_free() {
        let mut homes = cluster();
        for n in 0..BLOCKS {
            let claim = homes.place(job(1), Some(&format!("r{n}"))).unwrap().claim.unwrap();
            homes.claim(&claim);
        }
        assert_eq!(homes.regions.len(), usize::from(BLOCKS));
        let refused = homes.place(job(1), Some("one-more")).unwrap_err();
        assert_eq!(refused.field, "home_region");
        assert!(
            refused.message.contains("\"one-more\" is a new home region, but the cluster already has 16"),
            "{refused}"
        );
        assert!(homes.place(job(1), Some("r0")).is_ok() && homes.place(job(1), None).is_ok());
    }

    #[test]
    fn homes_can_be_rebuilt_from_the_regions_of_partitions() {
        let claim = cluster().place(job(1), Some("eu")).unwrap().claim.unwrap();
        let homes = Homes::new(PARTITIONS, claim.partitions().map(|partition| (partition, "eu".to_owned())));
        assert!(homes.knows("eu") && homes.regions.len() == 1);
    }

    #[test]
    fn a_store_of_one_partition_has_no_homes() {
        let homes = Homes::new(1, []);
        assert_eq!(homes.place(job(7), Some("eu")), Ok(Placement { partition: 0, claim: None }));
        assert!(homes.knows("eu"));
    }
}
