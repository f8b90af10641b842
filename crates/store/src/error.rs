//! The errors of a store, divided by what the caller does about them.

use everytick_domain::{
    backfill::BackfillState,
    flow::FlowState,
    ids::Version,
    invalid::Invalid,
    run::{Request, State},
};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no such {0}")]
    NotFound(&'static str),
    /// `If-Match` names a version other than the current one.
    #[error("the current version is {has}, not {wanted}")]
    VersionMismatch { has: Version, wanted: Version },
    #[error("a job named {0:?} exists")]
    NameTaken(String),
    /// The tenant already has as many of these as its quota allows.
    #[error("the tenant has {max} {what}, which is its quota")]
    QuotaFull { what: &'static str, max: u64 },
    /// Requests of a suspended tenant are refused.
    #[error("the tenant is suspended; an operator of the installation can resume it")]
    TenantSuspended,
    /// The request conflicts with the stored state.
    #[error("{0}")]
    Conflict(Invalid),
    /// The caller's grant does not include what it asks for.
    #[error("{0}")]
    NotAllowed(Invalid),
    /// The job already has as many waiting runs as requests may create.
    #[error("the job already has {0} waiting runs, which is the limit for requests")]
    BacklogFull(u64),
    /// Other objects still use it, so it cannot be deleted. `by` names some of them; `count` is their number.
    #[error("{}", in_use(.what, .by, *.count))]
    InUse { what: &'static str, by: Vec<String>, count: usize },
    /// The Idempotency-Key was used before for a different request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("{}", rejected(*.state, *.request))]
    Rejected { state: State, request: Request },
    #[error("the flow has ended: it is {}; only a running flow can be cancelled", .0.word())]
    FlowEnded(FlowState),
    #[error("the backfill has ended: it is {}; only a running backfill can be cancelled", .0.word())]
    BackfillEnded(BackfillState),
    /// The input is wrong in a way that only the store's clock or contents show.
    #[error("{}", .0.first().map_or_else(|| "invalid".to_owned(), ToString::to_string))]
    Invalid(Vec<Invalid>),
    /// The node's lease has ended or has another fence: stop writing under it, and join again.
    #[error("the node's lease is lost")]
    LeaseLost,
    /// The database refused the data itself, so a repeat fails too (a poisoned job).
    #[error("could not {doing}: the data was refused")]
    Refused { doing: &'static str, source: Source },
    /// A row that the transaction needs cannot be decoded: it is damaged, or written by a later release. Nothing was
    /// done, and a repeat fails until the row is repaired.
    #[error("could not {doing}: a stored row cannot be decoded")]
    Unreadable { doing: &'static str, source: Source },
    /// Known not to be committed: try again later.
    #[error("could not {doing}")]
    Failed { doing: &'static str, source: Source },
    /// All connections of the API are in use. Nothing was started: try again later.
    #[error("could not {doing}: every database connection of the API is in use")]
    Busy { doing: &'static str },
    /// It may have been committed, or may still be: raise the lease's fence, then reload.
    #[error("could not {doing}: outcome unknown, the database did not confirm the commit")]
    Unsure { doing: &'static str, source: Source },
    /// Another process is alive under the node's name.
    #[error("{0}; give each node a different --node-name, or replace that process with --replace-node")]
    NodeNameTaken(Box<crate::NameOwner>),
    /// Another process has the file open or has taken the node's name, or the schema belongs to another release.
    #[error("{0}")]
    Unusable(String),
}

fn in_use(what: &str, by: &[String], count: usize) -> String {
    let more = count.saturating_sub(by.len());
    let jobs = if count == 1 { "the job" } else { "the jobs" };
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let jobs = format!("{jobs} {}{rest}", by.join(", "));
    match what {
        "job" => format!(
            "the job can be neither deleted nor renamed: depends_on of {jobs} contains it; remove it there, or delete them first"
        ),
        _ => format!("the {what} cannot be deleted: exclude of {jobs} contains it; remove it there first"),
    }
}

fn rejected(state: State, request: Request) -> String {
    let state = state.word();
    match request {
        Request::Cancel => format!("the run has ended: it is {state}; only a waiting or running run can be cancelled"),
        Request::Rerun => format!("the run has not ended: it is {state}; only a run that has ended can be repeated"),
    }
}

impl StoreError {
    /// The data of the batch caused the error, so a part of the batch may succeed. Nothing was done.
    #[must_use]
    pub const fn is_for_its_data(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unreadable { .. })
    }

    /// Two processes under one name would end each other's lease forever, so the older process stops.
    pub fn replaced(node: &str) -> Self {
        Self::Unusable(format!(
            "another process has joined under this node's name, {node:?}; give each node a different --node-name"
        ))
    }
}

pub type Source = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
