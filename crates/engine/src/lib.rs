//! Runs one node: load, decide, commit. The loops act on time (ticks, leases, retries) and follow the life of a run:
//! `schedule`, `claim`, `dispatch`, `settle`; `cluster` and `upkeep` serve them. [`commands`] act on requests of users and workers.
//! Loops and commands communicate only through the database tables. [`Hints`] between them only shorten a wait.

mod access;
mod claim;
mod clock;
mod cluster;
pub mod commands;
mod dispatch;
mod engine;
mod hints;
pub mod live;
mod memory;
mod meters;
mod mutants;
mod outage;
mod pulse;
mod queries;
mod schedule;
pub mod secrets;
mod settings;
mod settle;
mod shared;
mod spawn;
mod tenants;
mod upkeep;

pub use access::{Access, CACHED_FOR, Credential, Lookup, TokenRequest, VALID_CHECK_EVERY, new_token};
pub use cluster::assign::differences;
pub use engine::{Engine, Parts};
pub use hints::Hints;
pub use queries::Queries;
pub use settings::Settings;
pub use spawn::{Spawn, TokioSpawn};
pub use tenants::Tenants;

/// The types that commands and queries take and return. The API sees these, never a store.
pub mod types {
    pub use everytick_store::{
        Actor, ActorKind, AttemptRecord, AuditFilter, AuditRecord, AuditResult, BackfillPreview, BackfillRecord,
        BacklogAction, BacklogWork, CalendarPut, CalendarRecord, CancelledFlow, CancelledJob, ClaimBeat, Cluster,
        Created, Creator, EditJob, Edited, FlowFilter, FlowNode, FlowRecord, GoneNode, IdempotencyKey, JobFilter,
        JobRecord, JobRef, NewTenant, NewToken, NodeRecord, NodeRun, Page, PartitionRecord, PutCalendar, QueueClaims,
        QueueRecord, Redrive, Redriven, RedrivenRun, RunFilter, RunRecord, SecretPut, SecretRecord, StoreError,
        TenantChange, TenantRecord, TenantRef, TokenKey, TokenRecord, UnreadableRow, UnreadableRows, WorkerClaim,
    };
}
