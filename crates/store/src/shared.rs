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

/// The statements as the databases get them, for the tests of their plans.
#[cfg(feature = "conformance")]
pub mod statements {
    use crate::{moving::PARTS, postgres, sqlite, statement::with_fragments};

    /// The text of a file in the folder of this store.
    #[must_use]
    pub fn of_file(store: &str, text: &str) -> String {
        with_fragments(
            text,
            if store == "postgres" { postgres::job_row::fragments } else { sqlite::job_row::fragments },
        )
    }
    /// The statements that read the source of a move.
    #[must_use]
    pub fn move_reads() -> Vec<String> {
        PARTS.iter().map(crate::moving::Part::read).collect()
    }
    /// The statements that write its target.
    #[must_use]
    pub fn move_writes() -> Vec<String> {
        PARTS.iter().map(postgres::moving::statement).collect()
    }
}
