//! How many slots the open-file limit has room for. A delivery needs a descriptor, and so does everything else: where the limit
//! is too small, there are fewer slots, and no delivery fails for want of one.

use rustix::process::{Resource, getrlimit};

/// Beyond the slots, for deliveries: name lookups, and connections that are being closed.
const FOR_DELIVERIES: u64 = 128;
/// The database, the log, and what the process itself has open.
const FOR_THE_REST: u64 = 128;
/// The API answers at least so many clients.
const FOR_CLIENTS_MIN: u64 = 64;
const BESIDE_SLOTS: u64 = FOR_DELIVERIES + FOR_THE_REST + FOR_CLIENTS_MIN;

/// The slots that a node has: as many as it was told, or fewer.
pub(crate) fn slots(wanted: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile).current;
    let slots = slots_within(limit, wanted);
    if slots < wanted {
        tracing::warn!(
            limit = limit.unwrap_or(u64::MAX),
            needed = u64::from(wanted) + BESIDE_SLOTS,
            "the open-file limit is too small for {wanted} slots: using {slots}; raise it (ulimit -n, LimitNOFILE=)"
        );
    }
    slots
}

fn slots_within(limit: Option<u64>, wanted: u32) -> u32 {
    let room = limit.map_or(u64::MAX, |limit| limit.saturating_sub(BESIDE_SLOTS));
    u32::try_from(room).unwrap_or(u32::MAX).clamp(1, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_what_the_open_file_limit_leaves() {
        for (limit, wanted, slots) in [
            (None, 1_000, 1_000),
            (Some(1_048_576), 10_000, 10_000),
            (Some(1_320), 1_000, 1_000),
            (Some(1_319), 1_000, 999),
            (Some(1_024), 1_000, 704),
            (Some(256), 1_000, 1),
            (Some(1_024), 7, 7),
        ] {
            assert_eq!(slots_within(limit, wanted), slots, "{limit:?}");
        }
    }
}
