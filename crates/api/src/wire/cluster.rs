//! The answer of `/cluster`.

use everytick_domain::{ids::Incarnation, time::DbTime};
use everytick_engine::types::{Cluster, NodeRecord, PartitionRecord, UnreadableRow, UnreadableRows};
use serde::Serialize;
use utoipa::ToSchema;

/// The nodes and the owners of the partitions, read at one instant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterView {
    /// The database clock, which decides which ticks are due and which leases are alive.
    #[schema(value_type = String, format = DateTime)]
    now: DbTime,
    /// The node that prunes and detects dead schedules: the owner of partition 0.
    leader: Option<String>,
    /// How the nodes differ in what they can deliver; `null` when they do not. A run goes to a node that can deliver it.
    differences: Option<String>,
    /// How many stored rows nodes could not decode during the last day. Nodes skip such rows; see `unreadable`.
    unreadable_rows: u64,
    /// Up to 20 of them, the most recently seen first.
    unreadable: Vec<UnreadableView>,
    nodes: Vec<NodeView>,
    partitions: Vec<PartitionView>,
}

/// A stored row that cannot be decoded: it is damaged, or a later release wrote it. Nodes skip it and continue with the others.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnreadableView {
    /// The table.
    #[schema(example = "jobs")]
    table: String,
    /// The row's key, as text.
    key: String,
    error: String,
    /// When a node last tried to read it.
    #[schema(value_type = String, format = DateTime)]
    seen_at: DbTime,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeView {
    name: String,
    region: Option<String>,
    version: String,
    /// `live`, or `expired` when its lease has expired and no other node has taken over yet.
    #[schema(example = "live")]
    state: &'static str,
    /// Whether it may own partitions. `false` when the node is stopping or has only the role `api`.
    holds: bool,
    /// How many partitions it owns.
    partitions: usize,
    #[schema(value_type = String, format = DateTime)]
    started_at: DbTime,
    #[schema(value_type = String, format = DateTime)]
    renewed_at: DbTime,
    /// When its lease expires unless the node renews it.
    #[schema(value_type = String, format = DateTime)]
    lease_until: DbTime,
    /// The longest delay between due time and delivery, of the runs that started between its last two renewals.
    lag_ms: u64,
    /// How far the node's clock is behind the database clock. For information: nothing depends on the node's clock.
    clock_offset_ms: i64,
    /// Host name and process id; `null` for a node of the previous release.
    host: Option<String>,
    pid: Option<u32>,
    /// What its settings allow it to deliver: `{"shell": true, "webhook_ranges": ["10.0.0.0/8"]}`; `null` for a node of the
    /// previous release.
    #[schema(value_type = Option<Object>)]
    capabilities: Option<serde_json::Value>,
    #[schema(value_type = String, format = Uuid)]
    incarnation: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PartitionView {
    partition: u16,
    /// The owner; `null` when no live node owns the partition.
    node: Option<String>,
    /// The `home_region` of its jobs. A node of this region owns the partition while one is alive.
    home_region: Option<String>,
    /// Increases whenever the owner changes.
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
            node: name(row.owner),
            home_region: row.home_region.clone(),
            fence: row.fence.raw(),
            since: row.since,
        };
        let node = |node: &NodeRecord| NodeView {
            name: node.name.clone(),
            region: node.region.clone(),
            version: node.version.clone(),
            state: if live(&node) { "live" } else { "expired" },
            holds: node.may_own,
            partitions: cluster.partitions.iter().filter(|row| row.owner == Some(node.incarnation)).count(),
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
