//! Re-exports what the simulated store shares with the stores of this crate. The simulated store is a separate package
//! because it is built with optimization, unlike the tests of the other stores.

pub use crate::{
    announced::is_announced,
    crons::CRONS,
    failures::{Search, page as page_of_runs},
};

pub mod backfills {
    pub use crate::backfills::Listed;
}

pub mod flows {
    pub use crate::flows::{ChildRow, FlowRow, NextRuns, Output};
}
