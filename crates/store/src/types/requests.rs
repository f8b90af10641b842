//! Requests of users that change jobs and runs, and their answers.

use std::net::IpAddr;

use everytick_domain::{
    edit::Change,
    ids::{JobId, RunId, TokenId, Version},
    job::{Job, JobSpec},
    time::{DbTime, Span},
};

use super::RunRecord;

/// The author of a change. Audit rows have all of it; other rows have only the name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    pub name: String,
    pub kind: ActorKind,
    /// The token that authenticated the request.
    pub token: Option<TokenId>,
    /// The address that the request came from.
    pub ip: Option<IpAddr>,
    /// The id of the request.
    pub request: Option<String>,
}

impl Actor {
    /// A program on this machine.
    pub fn local(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: ActorKind::Local, token: None, ip: None, request: None }
    }
    /// A node, which acts without a request.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self { kind: ActorKind::Node, ..Self::local(format!("node:{name}")) }
    }
}

/// How an actor was authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActorKind {
    Local,
    /// A caller without a valid credential.
    Anonymous,
    Token,
    /// A user without a token, with a session.
    User,
    /// A user whom a trusted proxy has authenticated.
    Proxy,
    /// The owner of a client certificate.
    Certificate,
    Node,
}

impl ActorKind {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Anonymous => "anonymous",
            Self::Token => "token",
            Self::User => "user",
            Self::Proxy => "proxy",
            Self::Certificate => "cert",
            Self::Node => "node",
        }
    }
}

/// The `result` of an audit row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditResult {
    Ok,
    /// The caller's credential does not allow it.
    Denied,
    /// The caller may do it, and it was refused for another reason.
    Failed,
}

impl AuditResult {
    pub const ALL: [Self; 3] = [Self::Ok, Self::Denied, Self::Failed];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

/// A user's reference to a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobRef {
    Id(JobId),
    Name(String),
}

/// An Idempotency-Key and a hash of the request that used it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey {
    pub key: String,
    pub fingerprint: [u8; 32],
}

/// How long an Idempotency-Key is remembered.
pub const IDEMPOTENCY_KEPT: Span = Span::days(1);

/// A job to create.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub id: JobId,
    pub spec: JobSpec,
}

#[derive(Clone, Debug)]
pub struct Created {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The key was used before for the same request: this is the job created then.
    pub replayed: bool,
}

#[derive(Clone, Debug)]
pub struct EditJob {
    pub job: JobRef,
    pub change: Change,
    pub if_match: Option<Version>,
    /// With a pause or delete: cancels the open runs in the same transaction, and returns those that were claimed.
    pub cancel: bool,
}

#[derive(Clone, Debug)]
pub struct Edited {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The old definition applies up to this instant, the new one after it. `None` if nothing changed.
    pub effective_at: Option<DbTime>,
    /// Runs that were cancelled while claimed: the caller must stop the work.
    pub cancelled: Vec<RunId>,
    /// More runs wait than one transaction processes. The others are cancelled or moved in the background.
    pub backlog: bool,
}

/// A requested run.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub job: JobRef,
    /// Part of the run's id, with the instant of the request: derived from the Idempotency-Key, or random bytes.
    pub key: Vec<u8>,
    pub payload: Option<String>,
    /// Starts even if runs of the job are open.
    pub force: bool,
    pub idempotency: Option<IdempotencyKey>,
}

#[derive(Clone, Debug)]
pub struct CancelledRun {
    pub run: RunRecord,
    /// It was claimed: the caller must stop the work.
    pub was_claimed: bool,
}

/// The progress of a backlog that was too long for one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BacklogWork {
    pub action: BacklogAction,
    pub done: u64,
    /// Counted up to [`Limits::waiting_per_job_max`].
    pub remaining: u64,
}

/// What happens to the runs of a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BacklogAction {
    /// They are cancelled.
    Cancel,
    /// They move to the job's new queue, or to the partition of its new home.
    Move,
}

impl BacklogAction {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Move => "move",
        }
    }

    /// The code in the table.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Cancel => 1,
            Self::Move => 2,
        }
    }

    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Cancel),
            2 => Some(Self::Move),
            _ => None,
        }
    }
}

/// One processed batch of a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BacklogStep {
    /// The job of the backlog; `None` if no job has one, or if it is locked.
    pub job: Option<JobId>,
    pub cancelled: usize,
    pub moved: usize,
}
