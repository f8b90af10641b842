//! Where jobs live: a job with a home region stands in the block of partitions that its region has claimed, so that nodes
//! of that region can hold it; any other is spread over all partitions. Who holds a partition is decided by `assignment`.

use std::collections::BTreeMap;

use crate::{ids::JobId, invalid::Invalid, partition::PARTITIONS};

pub const REGION_BYTES_MAX: usize = 63;
/// How many partitions a region claims at once.
pub const BLOCK_PARTITIONS: u16 = 16;
/// How many regions jobs of a cluster may call home.
pub const BLOCKS: u16 = PARTITIONS / BLOCK_PARTITIONS;

/// A region is typed on command lines and compared byte by byte.
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

/// The blocks of a store, and the regions that have claimed them. A claim is for good: jobs stand in the block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Homes {
    partitions: u16,
    regions: BTreeMap<u16, String>,
}

/// Where a job stands, and the block that its region must claim first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
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
    /// Of a store of so many partitions, with the home region of those that have one. A store of less than a block has no
    /// homes: its jobs stand where they would without.
    pub fn new(partitions: u16, claimed: impl IntoIterator<Item = (u16, String)>) -> Self {
        let regions = claimed.into_iter().map(|(partition, region)| (partition / BLOCK_PARTITIONS, region)).collect();
        Self { partitions, regions }
    }

    /// Whether nothing is to be claimed for the region.
    #[must_use]
    pub fn knows(&self, region: &str) -> bool {
        self.blocks() == 0 || self.regions.values().any(|claimed| claimed == region)
    }

    /// Where a job stands: for a home region in its block, else by its id alone. A region's block is the one that its name
    /// hashes to, or the next that is free.
    pub fn place(&self, job: JobId, home_region: Option<&str>) -> Result<Place, Invalid> {
        let Some(region) = home_region.filter(|_| self.blocks() > 0) else {
            return Ok(Place { partition: job.partition(self.partitions), claim: None });
        };
        let within = |block: u16| block * BLOCK_PARTITIONS + job.partition(BLOCK_PARTITIONS);
        if let Some((block, _)) = self.regions.iter().find(|(_, claimed)| *claimed == region) {
            return Ok(Place { partition: within(*block), claim: None });
        }
        let [a, b, ..] = *blake3::hash(region.as_bytes()).as_bytes();
        let first = u16::from_be_bytes([a, b]) % self.blocks();
        let block = (0..self.blocks())
            .map(|step| (first + step) % self.blocks())
            .find(|block| !self.regions.contains_key(block))
            .ok_or_else(|| {
                let message = format!(
                    "{region:?} would be one too many: jobs of {} regions are there already, and a cluster keeps apart no more",
                    self.regions.len()
                );
                Invalid::new("home_region", message)
            })?;
        Ok(Place { partition: within(block), claim: Some(BlockClaim { block, region: region.to_owned() }) })
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
    fn a_job_without_home_stands_where_its_id_says() {
        for n in 0..100 {
            let place = cluster().place(job(n), None).unwrap();
            assert_eq!(place, Place { partition: job(n).partition(PARTITIONS), claim: None });
        }
    }

    #[test]
    fn the_jobs_of_a_region_are_spread_over_its_block_which_is_claimed_once() {
        let mut homes = cluster();
        let claim = homes.place(job(0), Some("eu")).unwrap().claim.unwrap();
        assert!(!homes.knows("eu"));
        homes.claim(&claim);
        assert!(homes.knows("eu") && !homes.knows("us"));
        let places: Vec<_> = (0..1_000).map(|n| homes.place(job(n), Some("eu")).unwrap()).collect();
        assert!(places.iter().all(|place| place.claim.is_none()));
        let mut partitions: Vec<_> = places.iter().map(|place| place.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        assert_eq!(partitions, claim.partitions().collect::<Vec<_>>());
    }

    #[test]
    fn regions_have_blocks_of_their_own_until_none_is_free() {
        let mut homes = cluster();
        for n in 0..BLOCKS {
            let claim = homes.place(job(1), Some(&format!("r{n}"))).unwrap().claim.unwrap();
            homes.claim(&claim);
        }
        assert_eq!(homes.regions.len(), usize::from(BLOCKS));
        let refused = homes.place(job(1), Some("one-more")).unwrap_err();
        assert_eq!(refused.field, "home_region");
        assert!(refused.message.contains("\"one-more\" would be one too many: jobs of 16 regions"), "{refused}");
        assert!(homes.place(job(1), Some("r0")).is_ok() && homes.place(job(1), None).is_ok());
    }

    #[test]
    fn homes_are_known_again_by_their_partitions() {
        let claim = cluster().place(job(1), Some("eu")).unwrap().claim.unwrap();
        let homes = Homes::new(PARTITIONS, claim.partitions().map(|partition| (partition, "eu".to_owned())));
        assert!(homes.knows("eu") && homes.regions.len() == 1);
    }

    #[test]
    fn a_store_of_one_partition_has_no_homes() {
        let homes = Homes::new(1, []);
        assert_eq!(homes.place(job(7), Some("eu")), Ok(Place { partition: 0, claim: None }));
        assert!(homes.knows("eu"));
    }
}
