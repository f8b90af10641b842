//! Divides the open-file limit between delivery slots, API connections and the rest of the process. If the limit is too
//! small, the node has fewer slots, so that no delivery fails for lack of a descriptor.

use rustix::process::{Resource, getrlimit};

/// Deliveries need these beyond their slots: for DNS lookups, and for connections that are closing.
const FOR_DELIVERIES: u64 = 128;
/// Descriptors for the database, the log, and the process itself.
const FOR_THE_REST: u64 = 128;
/// The API always accepts at least this many connections.
const FOR_CLIENTS_MIN: u64 = 64;
const BESIDE_SLOTS: u64 = FOR_DELIVERIES + FOR_THE_REST + FOR_CLIENTS_MIN;
/// A webhook needs one connection.
const PER_SLOT: u64 = 1;
/// A command needs two pipes for its output, the socket of its supervisor, and one descriptor that signals its end.
const PER_SLOT_WITH_SHELL: u64 = 4;
/// Limit of API connections if `--max-connections` is not set.
const CLIENTS_DEFAULT_MAX: u64 = 16_384;

/// The slots and connections that a node may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// At most the configured number.
    pub(crate) slots: u32,
    /// API connections if `--max-connections` is not set.
    pub(crate) connections: u32,
}

/// Divides the open-file limit of this process. Logs a warning if it is too small for the configured slots.
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
    /// `None` means no limit.
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
    fn slots_and_connections_follow_from_the_open_file_limit() {
        for (limit, wanted, shell, slots, connections) in [
            (None, 1_000, false, 1_000, 16_384),
            (Some(1_048_576), 10_000, false, 10_000, 16_384),
            (Some(1_048_576), 10_000, true, 10_000, 16_384),
            (Some(4_096), 1_000, false, 1_000, 2_840),
            (Some(4_096), 1_000, true, 944, 64),
            (Some(1_320), 1_000, false, 1_000, 64),
            (Some(1_319), 1_000, false, 999, 64),
            (Some(1_024), 1_000, false, 704, 64),
            (Some(1_024), 1_000, true, 176, 64),
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
