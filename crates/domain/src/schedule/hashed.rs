//! Values derived from a hash: the value of an `H`, and the jitter of a run. They must never change. Otherwise announced ticks,
//! or due times that another node recorded, would move.

use crate::{ids::JobId, time::DbTime};

/// The hash that determines a job's `H` in one field.
pub(super) fn field(seed: &str, unit: u8) -> u64 {
    first_u64(blake3::Hasher::new().update(b"H").update(&[unit]).update(seed.as_bytes()))
}

/// How many milliseconds after its tick a run is due; less than `jitter_ms`.
pub(super) fn jitter(job: JobId, tick: DbTime, jitter_ms: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"jitter").update(job.uuid().as_bytes()).update(&tick.millis().to_be_bytes());
    first_u64(&hasher).checked_rem(jitter_ms).unwrap_or(0)
}

fn first_u64(hasher: &blake3::Hasher) -> u64 {
    let hash = hasher.finalize();
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
