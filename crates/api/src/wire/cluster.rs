//! The cluster, as people read it.

use everytick_domain::{ids::Incarnation, time::DbTime};
use everytick_engine::store::{Cluster, NodeRecord, PartitionRecord, UnreadableRow, UnreadableRows};
use serde::Serialize;
use utoipa::ToSchema;

/// Who is there, and who holds what, read at one instant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterView {
    /// The database's clock, which judges ticks and leases.
    #[schema(value_type = String, format = DateTime)]
    now: DbTime,
    /// The node that prunes and watches over schedules: whoever holds the first partition.
    leader: Option<String>,
    /// How the nodes differ in what they can deliver; `null` when they do not. Runs go to a node that can.
    differences: Option<String>,
    /// How many stored rows nodes could not decode during the last day. Each is skipped; see `unreadable`.
    unreadable_rows: u64,
    /// The first 20 of them, those that a node met last first.
    unreadable: Vec<UnreadableView>,
    nodes: Vec<NodeView>,
    partitions: Vec<PartitionView>,
}

/// A stored row that cannot be decoded: it is damaged, or of a later release. It is skipped, and everything else goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnreadableView {
    /// The table.
    #[schema(example = "jobs")]
    table: String,
    /// The row's key, as text.
    key: String,
    error: String,
    /// When a node met it last.
    #[schema(value_type = String, format = DateTime)]
    seen_at: DbTime,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeView {
    name: String,
    region: Option<String>,
    version: String,
    /// `live`, or `expired` when its lease has run out and nobody has taken its place yet.
    #[schema(example = "live")]
    state: &'static str,
    /// Whether partitions are given to it; not when it is about to stop, or only answers the API.
    holds: bool,
    /// How many partitions it holds.
    partitions: usize,
    #[schema(value_type = String, format = DateTime)]
    started_at: DbTime,
    #[schema(value_type = String, format = DateTime)]
    renewed_at: DbTime,
    /// Without another renewal it counts as gone from then on.
    #[schema(value_type = String, format = DateTime)]
    lease_until: DbTime,
    /// The longest that a run waited for its delivery, of those that began between its last two renewals.
    lag_ms: u64,
    /// How far its own clock is behind the database's. It harms nothing; it is worth knowing.
    clock_offset_ms: i64,
    /// The host and the number of its process; `null` for a node of the release before.
    host: Option<String>,
    pid: Option<u32>,
    /// What it can deliver by its settings: `{"shell": true, "webhook_ranges": ["10.0.0.0/8"]}`; `null` for a node of the release
    /// before.
    #[schema(value_type = Option<Object>)]
    capabilities: Option<serde_json::Value>,
    #[schema(value_type = String, format = Uuid)]
    incarnation: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PartitionView {
    partition: u16,
    /// `null` when no node that lives holds it.
    node: Option<String>,
    /// The region that its jobs call home: nodes of it are given the partition while one lives.
    home_region: Option<String>,
    /// Rises whenever it changes hands.
    fence: i64,
    #[schema(value_type = String, format = DateTime)]
    since: DbTime,
}

impl ClusterView {
    pub(crate) fn new(cluster: &Cluster, unreadable: UnreadableRows) -> Self {
        let live = |node: &&NodeRecord| node.until > cluster.now;
        let name = |holder: Option<Incarnation>| {
            let node = cluster.nodes.iter().filter(live).find(|node| Some(node.incarnation) == holder)?;
            Some(node.name.clone())
        };
        let partition = |row: &PartitionRecord| PartitionView {
            partition: row.partition,
            node: name(row.holder),
            home_region: row.home_region.clone(),
            fence: row.fence.raw(),
            since: row.since,
        };
        let node = |node: &NodeRecord| NodeView {
            name: node.name.clone(),
            region: node.region.clone(),
            version: node.version.clone(),
            state: if live(&node) { "live" } else { "expired" },
            holds: node.holds,
            partitions: cluster.partitions.iter().filter(|row| row.holder == Some(node.incarnation)).count(),
            started_at: node.started_at,
            renewed_at: node.renewed_at,
            lease_until: node.until,
            lag_ms: node.lag.as_millis(),
            clock_offset_ms: node.clock_offset_ms,
            host: node.process.as_ref().map(|process| process.host.clone()),
            pid: node.process.as_ref().map(|process| process.pid),
            capabilities: node.can.as_deref().and_then(|can| serde_json::from_str(can).ok()),
            incarnation: node.incarnation.to_string(),
        };
        let partitions: Vec<_> = cluster.partitions.iter().map(partition).collect();
        Self {
            now: cluster.now,
            leader: partitions.first().and_then(|first| first.node.clone()),
            differences: everytick_engine::differences(cluster),
            unreadable_rows: unreadable.count,
            unreadable: unreadable.rows.into_iter().map(UnreadableView::from).collect(),
            nodes: cluster.nodes.iter().map(node).collect(),
            partitions,
        }
    }
}

impl From<UnreadableRow> for UnreadableView {
    fn from(row: UnreadableRow) -> Self {
        Self { table: row.table, key: row.key, error: row.error, seen_at: row.seen_at }
    }
}
