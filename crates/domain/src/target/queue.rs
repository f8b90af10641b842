//! `queue`: workers claim the runs.

use serde::{Deserialize, Serialize};

use super::TargetRules;

/// A queue from which workers claim the runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueTarget {
    pub name: String,
}

impl TargetRules for QueueTarget {
    fn queue(&self) -> Option<&str> {
        Some(&self.name)
    }
}
