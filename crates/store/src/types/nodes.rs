//! Nodes, leases and partitions, and the listed claims of a node.

use everytick_domain::{
    ids::{Fence, Incarnation, JobId, RunId, TenantId},
    time::{DbTime, Span},
};

use super::ClaimedRun;

/// A node's right to write. It ends when it expires on the database clock, or when its fence is raised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub node: String,
    pub incarnation: Incarnation,
    pub fence: Fence,
}

/// The process that has a node's lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeProcess {
    pub host: String,
    pub pid: u32,
    /// Distinguishes this process from a later one with the same pid. Compared only with a mark of the same form. Empty
    /// if the operating system provides none.
    pub mark: String,
}

/// Which live process a starting node may replace under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TakeOver {
    /// None: the node may use the name only if no lease is alive under it.
    #[default]
    Expired,
    /// This incarnation, whose process is known to have ended.
    Only(Incarnation),
    /// Any process: the operator asked for it.
    Any,
}

impl TakeOver {
    #[must_use]
    pub fn includes(self, owner: Incarnation) -> bool {
        match self {
            Self::Expired => false,
            Self::Only(gone) => gone == owner,
            Self::Any => true,
        }
    }
}

/// A live lease under the name of a node that wants to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameOwner {
    pub node: String,
    pub incarnation: Incarnation,
    /// `None` if the node's release does not publish it.
    pub process: Option<NodeProcess>,
    pub renewed_at: DbTime,
    pub until: DbTime,
    pub now: DbTime,
}

impl std::fmt::Display for NameOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a node named {:?} is alive: ", self.node)?;
        match &self.process {
            Some(process) => write!(f, "process {} on host {}", process.pid, process.host)?,
            None => f.write_str("a process of an earlier release")?,
        }
        write!(f, " renewed its lease {} ago", self.now.since(self.renewed_at))
    }
}

/// What a node publishes about itself when it joins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    /// Whether it may own partitions.
    pub may_own: bool,
    /// It has joined before and lost its lease. Another process may have taken its name since.
    pub again: bool,
    /// Which live process with the same name it may replace. Applies only to a shared store: a SQLite file is open in one process at a time.
    pub takes_over: TakeOver,
    pub process: Option<NodeProcess>,
    /// The targets that it can deliver, in the form in which nodes exchange it.
    pub can: Option<String>,
    /// The addresses and ports of its API, separated by commas.
    pub listen: Option<String>,
}

impl NodeInfo {
    /// A node of this release, without a region, that may own partitions.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { name: name.to_owned(), version, may_own: true, ..Self::default() }
    }
}

/// What a node reports with each renewal of its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The id up to which the lease's `open_from` may be raised: not past what [`crate::Store::list_old_claims`] has
    /// listed, and never lowered. `None` while the node may have claims that it does not know of.
    pub open_from: Option<RunId>,
    /// All claims below `open_from` that the node knows of. The renewal lists those that were made since the last
    /// listing.
    pub old_claims: Vec<OldClaim>,
    /// The longest wait for delivery among the runs that became due since the last renewal.
    pub lag: Span,
    /// How far the node's clock is behind the database clock.
    pub clock_offset_ms: i64,
}

impl Beat {
    /// The report of a node without lag.
    #[must_use]
    pub const fn of(open_from: RunId) -> Self {
        Self { open_from: Some(open_from), old_claims: Vec::new(), lag: Span::ZERO, clock_offset_ms: 0 }
    }
}

/// A claim on a run whose id is older than this is listed. Claims on younger runs are found by reading the runs.
pub const OLD_CLAIM_AFTER: Span = Span::minutes(1);

/// A search for claims reads the runs of this span at once.
pub const CLAIM_PAGE: Span = Span::seconds(30);

/// Maximum number of pages of one search for claims. For a node that was stopped for hours, each page spans more.
pub const CLAIM_PAGES_PER_WAY: u64 = 64;

/// Listed claims that one statement reads.
pub const LISTED_PER_PAGE_MAX: usize = 1_000;

/// A listed claim: its run's id is older than [`OLD_CLAIM_AFTER`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldClaim {
    pub run: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub fence: Fence,
}

impl OldClaim {
    /// From a committed claim.
    #[must_use]
    pub const fn of(run: &ClaimedRun) -> Self {
        Self { run: run.id, job: run.job, tenant: run.tenant, fence: run.fence }
    }

    /// The end of the page that begins at `from` on the way to `to`. Pages are short, but a long range has at most
    /// [`CLAIM_PAGES_PER_WAY`] of them.
    #[must_use]
    pub fn page_end(from: RunId, to: RunId) -> RunId {
        let way = to.time().since(from.time());
        let page = Span::millis(way.as_millis() / CLAIM_PAGES_PER_WAY).max(CLAIM_PAGE);
        RunId::floor(from.time().plus(page)).min(to)
    }

    /// Whether the claim on a run that ended at this instant may be in the list.
    #[must_use]
    pub fn may_be_listed(run: RunId, ended_at: DbTime) -> bool {
        run.time() < ended_at.minus(OLD_CLAIM_AFTER)
    }
}

/// A page of an incarnation's listed claims, and the id from which on its claims are not listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedClaims {
    /// `None` if the incarnation has no lease.
    pub open_from: Option<RunId>,
    /// The listed claims that still exist, by run id, without payloads.
    pub claims: Vec<ClaimedRun>,
    /// The position of the next page.
    pub next: Option<RunId>,
}

/// The live nodes and the owner of each partition, read in one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub now: DbTime,
    /// Nodes whose lease has neither ended nor been fenced, by name. An expired lease stays here until it is fenced.
    pub nodes: Vec<NodeRecord>,
    /// Every partition, in order.
    pub partitions: Vec<PartitionRecord>,
    /// Whether the database separates tenants for the node that read this.
    pub row_level_security: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRecord {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    pub incarnation: Incarnation,
    pub fence: Fence,
    /// The node is alive while this is after `now`.
    pub until: DbTime,
    pub started_at: DbTime,
    pub renewed_at: DbTime,
    /// Whether it may own partitions; false when it is about to stop.
    pub may_own: bool,
    pub lag: Span,
    pub clock_offset_ms: i64,
    /// `None` if the node's release does not publish it.
    pub process: Option<NodeProcess>,
    /// `None` if the node's release does not publish it. Other nodes then delegate no runs to it.
    pub can: Option<String>,
    /// `None` if the node's release does not publish it.
    pub listen: Option<String>,
}

/// A node whose last lease has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoneNode {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    /// As in [`NodeRecord`].
    pub can: Option<String>,
    pub started_at: DbTime,
    /// The last renewal of its lease.
    pub gone_since: DbTime,
}

impl GoneNode {
    /// How long a node is listed as gone.
    pub const LISTED_FOR: Span = Span::days(1);
    /// Maximum number of starts of nodes that a list reads.
    pub const LISTED_MAX: usize = 100;

    /// Keeps the first of each name.
    #[must_use]
    pub fn once_each(nodes: Vec<Self>) -> Vec<Self> {
        let mut seen = std::collections::BTreeSet::new();
        nodes.into_iter().filter(|node| seen.insert(node.name.clone())).collect()
    }
}

/// The jobs of a cluster are counted up to this many, evenly divided among the partitions.
pub const JOBS_COUNTED_MAX: usize = 1_000_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRecord {
    pub partition: u16,
    /// The incarnation that acquired it last and has not released it. Its lease may have expired since.
    pub owner: Option<Incarnation>,
    pub fence: Fence,
    /// When it was acquired or became free.
    pub since: DbTime,
    /// The home region that has claimed this partition, if any.
    pub home_region: Option<String>,
}
