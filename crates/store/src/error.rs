//! What can go wrong in a store, by what a caller would do about it.

use everytick_domain::{
    ids::Version,
    invalid::Invalid,
    run::{Request, State},
};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no such {0}")]
    NotFound(&'static str),
    /// `If-Match` named another version than there is.
    #[error("it is at version {has}, not {wanted}")]
    VersionMismatch { has: Version, wanted: Version },
    #[error("a job named {0:?} exists")]
    NameTaken(String),
    /// The tenant has as many jobs as it may have.
    #[error("the tenant has {0} jobs, which is its quota")]
    QuotaReached(u64),
    /// As many runs of the job wait as may be asked for.
    #[error("{0} runs of the job wait already, which is the most that a request may add to")]
    BacklogFull(u64),
    /// Others name it: it cannot go. Some of them, and how many they are.
    #[error("the {what} is named by {}", named(.by, *.count))]
    InUse { what: &'static str, by: Vec<String>, count: usize },
    /// An Idempotency-Key was used before for something else.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("a run that is {state} cannot be {}", match .request { Request::Cancel => "cancelled", Request::Rerun => "rerun" }, state = .state.word())]
    Rejected { state: State, request: Request },
    /// The input is wrong in a way that only the store's clock or contents can tell.
    #[error("{}", .0.first().map_or_else(|| "invalid".to_owned(), ToString::to_string))]
    Invalid(Vec<Invalid>),
    /// The node's lease is gone, or carries another fence: stop writing under it, and join again.
    #[error("the node's lease is lost")]
    LeaseLost,
    /// The database refused the data itself; sending it again will not help (a poisoned job).
    #[error("could not {doing}: the data was refused")]
    Refused { doing: &'static str, source: Source },
    /// A row that the transaction needs cannot be decoded: it is damaged, or of a later release. Nothing was done, and a repeat
    /// fails again until the row is mended.
    #[error("could not {doing}: a stored row cannot be decoded")]
    Unreadable { doing: &'static str, source: Source },
    /// Known not to have been committed: try again later.
    #[error("could not {doing}")]
    Failed { doing: &'static str, source: Source },
    /// The API's share of the connections is in use. Nothing was begun: try again later.
    #[error("could not {doing}: every database connection of the API is in use")]
    Busy { doing: &'static str },
    /// It may have been committed, or may still be: raise the lease's fence, then read again.
    #[error("could not learn whether it was done: {doing}")]
    Unsure { doing: &'static str, source: Source },
    /// Another process is alive under the node's name.
    #[error("{0}; give each node a --node-name of its own, or end that process with --replace-node")]
    NameHeld(Box<crate::NameHolder>),
    /// Another process holds the file or has taken the node's name, or the schema is of another release.
    #[error("{0}")]
    Unusable(String),
}

fn named(by: &[String], count: usize) -> String {
    let more = count.saturating_sub(by.len());
    let jobs = if count == 1 { "the job" } else { "the jobs" };
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{jobs} {}{rest}", by.join(", "))
}

impl StoreError {
    /// Something in the batch itself is to blame, and a part of the batch may succeed. Nothing was done.
    #[must_use]
    pub const fn is_for_its_data(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unreadable { .. })
    }

    /// Two processes under one name would end each other's lease for ever: the older one gives way.
    pub fn replaced(node: &str) -> Self {
        Self::Unusable(format!(
            "another process has joined under this node's name, {node:?}; give each node a --node-name of its own"
        ))
    }
}

pub type Source = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
