//! Which faults occur, in which order, and how long they last. Only the seed decides.

use crate::{
    common::Random,
    net::{NODES, Net, Peer, Way},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// kill -9, and a restart later.
    Kill {
        node: usize,
        down_ms: i64,
    },
    /// SIGSTOP, then SIGCONT.
    Freeze {
        node: usize,
        ms: i64,
    },
    Cut {
        node: usize,
        peer: Peer,
        way: Way,
        ms: i64,
    },
    /// Moves the wall clock of the last node, not its monotonic clock. With `restart` it is killed and starts with that clock.
    Clock {
        seconds: i64,
        ms: i64,
        restart: bool,
    },
    /// Stops and restarts each node, one after another.
    Rolling,
    DatabaseRestart {
        down_ms: i64,
    },
    DatabaseCrash {
        down_ms: i64,
    },
    DatabaseFreeze {
        ms: i64,
    },
}

impl Fault {
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill -9 of a node",
            Self::Freeze { .. } => "SIGSTOP of a node",
            Self::Cut { peer: Peer::Database, way: Way::Both, .. } => "node cut off from the database",
            Self::Cut { peer: Peer::Database, .. } => "node cut off from the database, one way",
            Self::Cut { peer: Peer::Sink, .. } => "node cut off from the sink",
            Self::Clock { restart: true, .. } => "node started under a wrong clock",
            Self::Clock { .. } => "clock of a node moved",
            Self::Rolling => "rolling restart",
            Self::DatabaseRestart { .. } => "PostgreSQL restarted",
            Self::DatabaseCrash { .. } => "PostgreSQL crashed",
            Self::DatabaseFreeze { .. } => "SIGSTOP of PostgreSQL",
        }
    }

    /// Whether the fault may delay ticks. A clock that moves in a running node must not.
    pub(crate) const fn touches(self) -> bool {
        !matches!(self, Self::Clock { restart: false, .. })
    }

    /// The indexes of the nodes that the fault affects; [`NODES`] is the database. A second fault at the same time must affect
    /// none of them.
    pub(crate) fn victims(self) -> Vec<usize> {
        match self {
            Self::Kill { node, .. } | Self::Freeze { node, .. } | Self::Cut { node, .. } => vec![node],
            Self::Clock { .. } => vec![NODES - 1],
            Self::Rolling => (0..NODES).collect(),
            Self::DatabaseRestart { .. } | Self::DatabaseCrash { .. } | Self::DatabaseFreeze { .. } => vec![NODES],
        }
    }
}

/// How often each kind is in the bag. The bag is emptied before it is refilled, so that every kind occurs.
const BAG: [u8; 20] = [0, 0, 0, 1, 1, 2, 3, 4, 5, 5, 6, 6, 7, 8, 9, 10, 10, 11, 11, 12];

pub(crate) struct Plan {
    random: Random,
    bag: Vec<u8>,
    net: Net,
    clocks: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64, net: Net, clocks: bool) -> Self {
        Self { random: Random::new(seed), bag: Vec::new(), net, clocks }
    }

    /// The next round: one fault, in one of seven rounds two at once.
    pub(crate) fn round(&mut self) -> Vec<Fault> {
        let first = self.draw();
        if self.random.below(7) > 0 {
            return vec![first];
        }
        let second = self.draw();
        let apart = second.victims().iter().all(|victim| !first.victims().contains(victim));
        if apart { vec![first, second] } else { vec![first] }
    }

    pub(crate) fn pause_ms(&mut self) -> i64 {
        self.random.between(700, 2_200)
    }

    fn draw(&mut self) -> Fault {
        if self.bag.is_empty() {
            self.bag = BAG.to_vec();
        }
        let at = usize::try_from(self.random.below(self.bag.len() as u64)).unwrap_or(0);
        let drawn = self.bag.swap_remove(at);
        let node = usize::try_from(self.random.below(NODES as u64)).unwrap_or(0);
        let short = self.random.between(2_000, 6_000);
        match drawn {
            0 => Fault::Kill { node, down_ms: self.random.between(500, 7_000) },
            // Mostly about as long as the lease; sometimes much longer.
            1 => Fault::Freeze { node, ms: self.random.between(2_000, 8_000) },
            2 => {
                let ms = if self.random.below(3) == 0 { self.random.between(10_000, 20_000) } else { short };
                Fault::Freeze { node, ms }
            }
            3 => self.cut(node, Peer::Database, Way::In, short),
            4 => self.cut(node, Peer::Database, Way::Out, short),
            5 => {
                let ms = self.random.between(2_000, 9_000);
                self.cut(node, Peer::Database, Way::Both, ms)
            }
            6 => {
                let way = [Way::Both, Way::In, Way::Out][usize::try_from(self.random.below(3)).unwrap_or(0)];
                self.cut(node, Peer::Sink, way, short)
            }
            7 => Fault::Rolling,
            8 | 9 if self.clocks => {
                let by = [10, -10, 3_600, -3_600][usize::try_from(self.random.below(4)).unwrap_or(0)];
                Fault::Clock { seconds: by, ms: short, restart: drawn == 9 }
            }
            8 | 9 => Fault::Kill { node, down_ms: short },
            10 => Fault::DatabaseFreeze { ms: self.random.between(1_000, 6_000) },
            11 => Fault::DatabaseCrash { down_ms: self.random.between(0, 3_000) },
            _ => Fault::DatabaseRestart { down_ms: self.random.between(0, 3_000) },
        }
    }

    fn cut(&self, node: usize, peer: Peer, way: Way, ms: i64) -> Fault {
        match self.net {
            Net::Spaces => Fault::Cut { node, peer, way, ms },
            Net::Plain => Fault::Freeze { node, ms },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn rounds(seed: u64, net: Net, clocks: bool) -> Vec<Vec<Fault>> {
        let mut plan = Plan::new(seed, net, clocks);
        (0..60).map(|_| plan.round()).collect()
    }

    #[test]
    fn a_seed_determines_the_plan() {
        assert_eq!(rounds(1, Net::Spaces, true), rounds(1, Net::Spaces, true));
        assert_ne!(rounds(1, Net::Spaces, true), rounds(2, Net::Spaces, true));
    }

    #[test]
    fn every_kind_occurs_within_a_campaign() {
        for seed in 0..50 {
            let kinds: BTreeSet<_> = rounds(seed, Net::Spaces, true).concat().into_iter().map(Fault::kind).collect();
            assert_eq!(kinds.len(), 11, "seed {seed}: {kinds:?}");
        }
    }

    #[test]
    fn two_faults_at_once_have_different_victims() {
        for seed in 0..50 {
            for round in rounds(seed, Net::Spaces, true).into_iter().filter(|round| round.len() == 2) {
                let struck: Vec<_> = round.iter().flat_map(|fault| fault.victims()).collect();
                assert_eq!(struck.iter().collect::<BTreeSet<_>>().len(), struck.len(), "{round:?}");
            }
        }
    }

    #[test]
    fn without_namespaces_nothing_is_cut_and_without_the_library_no_clock_is_moved() {
        let faults = rounds(3, Net::Plain, false).concat();
        assert!(faults.iter().all(|fault| !matches!(fault, Fault::Cut { .. } | Fault::Clock { .. })));
    }
}
