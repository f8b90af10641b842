//! How many slots and connections the open-file limit allows. Deliveries need descriptors, and so does everything else:
//! where the limit is too small, there are fewer slots, and no delivery fails for want of a descriptor.

use rustix::process::{Resource, getrlimit};

/// Beyond the slots, for deliveries: name lookups, and connections that are being closed.
const FOR_DELIVERIES: u64 = 128;
/// The database, the log, and what the process itself has open.
const FOR_THE_REST: u64 = 128;
/// The API answers at least so many clients.
const FOR_CLIENTS_MIN: u64 = 64;
const BESIDE_SLOTS: u64 = FOR_DELIVERIES + FOR_THE_REST + FOR_CLIENTS_MIN;
/// A webhook has one connection.
const PER_SLOT: u64 = 1;
/// A command has two pipes for its output, and the descriptor by which its end is noticed.
const PER_SLOT_WITH_SHELL: u64 = 3;
/// The most connections of the API where `--max-connections` is not set.
const CLIENTS_DEFAULT_MAX: u64 = 16_384;

/// What a node may open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// As many as were configured, or fewer.
    pub(crate) slots: u32,
    /// Connections of the API where `--max-connections` is not set.
    pub(crate) connections: u32,
}

/// Divides the open-file limit of this process. Logs a warning where it is too small for the configured slots.
pub(crate) fn divide(slots_wanted: u32, shell: bool) -> Shares {
    let limit = getrlimit(Resource::Nofile).current;
    let shares = Shares::within(limit, slots_wanted, shell);
    if shares.slots < slots_wanted {
        tracing::warn!(
            limit = limit.unwrap_or(u64::MAX),
            needed = u64::from(slots_wanted) * per_slot(shell) + BESIDE_SLOTS,
            "the open-file limit is too small for {slots_wanted} slots: using {}; raise it (ulimit -n, LimitNOFILE=)",
            shares.slots
        );
    }
    shares
}

const fn per_slot(shell: bool) -> u64 {
    if shell { PER_SLOT_WITH_SHELL } else { PER_SLOT }
}

impl Shares {
    /// `limit` is `None` where there is none.
    fn within(limit: Option<u64>, slots_wanted: u32, shell: bool) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        let slots = limit.saturating_sub(BESIDE_SLOTS) / per_slot(shell);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).clamp(1, slots_wanted.max(1));
        let taken = u64::from(slots) * per_slot(shell) + FOR_DELIVERIES + FOR_THE_REST;
        let connections = limit.saturating_sub(taken).clamp(FOR_CLIENTS_MIN, CLIENTS_DEFAULT_MAX);
        Self { slots, connections: u32::try_from(connections).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_connections_are_what_the_open_file_limit_leaves() {
        for (limit, wanted, shell, slots, connections) in [
            (None, 1_000, false, 1_000, 16_384),
            (Some(1_048_576), 10_000, false, 10_000, 16_384),
            (Some(1_048_576), 10_000, true, 10_000, 16_384),
            (Some(4_096), 1_000, false, 1_000, 2_840),
            (Some(4_096), 1_000, true, 1_000, 840),
            (Some(1_320), 1_000, false, 1_000, 64),
            (Some(1_319), 1_000, false, 999, 64),
            (Some(1_024), 1_000, false, 704, 64),
            (Some(1_024), 1_000, true, 234, 66),
            (Some(1_024), 100, false, 100, 668),
            (Some(256), 1_000, true, 1, 64),
            (Some(0), 1, false, 1, 64),
        ] {
            assert_eq!(
                Shares::within(limit, wanted, shell),
                Shares { slots, connections },
                "{limit:?} {wanted} {shell}"
            );
        }
    }

    #[test]
    fn slots_connections_and_the_rest_fit_within_the_open_file_limit() {
        for limit in (512..70_000).step_by(97) {
            for shell in [false, true] {
                let Shares { slots, connections } = Shares::within(Some(limit), 1_000, shell);
                let used = u64::from(slots) * per_slot(shell) + u64::from(connections) + FOR_DELIVERIES + FOR_THE_REST;
                assert!(used <= limit, "{used} of {limit}, shell {shell}");
            }
        }
    }
}
