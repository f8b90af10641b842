//! `queue`: workers claim the runs.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueTarget {
    pub name: String,
}
