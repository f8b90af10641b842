//! The answer of `/cluster`.

use std::collections::BTreeMap;

use everytick_domain::{ids::Incarnation, time::DbTime};
use everytick_engine::types::{Cluster, GoneNode, NodeRecord, PartitionRecord, UnreadableRow, UnreadableRows};
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
    /// What each node can deliver, if the nodes differ; otherwise `null`. A run goes to a node that can deliver it.
    differences: Option<String>,
    /// `on` if the database separates tenants for the node that answers; `off` if that node connects as the owner of the tables, and
    /// with SQLite.
    #[schema(example = "on")]
    row_level_security: &'static str,
    /// How many stored rows nodes could not decode during the last day. Nodes skip such rows; see `unreadable`.
    unreadable_rows: u64,
    /// Up to 20 of them, the most recently seen first.
    unreadable: Vec<UnreadableView>,
    nodes: Vec<NodeView>,
    /// Nodes that stopped or lost their lease during the last day and have not returned, the last one first; at most 100.
    gone: Vec<GoneView>,
    partitions: Vec<PartitionView>,
}

/// A node that is gone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GoneView {
    name: String,
    region: Option<String>,
    version: String,
    /// As for a live node.
    roles: Option<Vec<String>>,
    /// As for a live node.
    #[schema(value_type = Option<Object>)]
    capabilities: Option<serde_json::Value>,
    #[schema(value_type = String, format = DateTime)]
    started_at: DbTime,
    /// The last renewal of its lease.
    #[schema(value_type = String, format = DateTime)]
    gone_since: DbTime,
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
    /// How many jobs with a next tick are in its partitions. A cluster counts up to 1,000,000 jobs, evenly divided among the
    /// partitions.
    jobs: u64,
    /// `api`, `scheduler`, `dispatcher`; `null` for a node of the previous release.
    roles: Option<Vec<String>>,
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
    pub(crate) fn new(
        cluster: &Cluster,
        gone: Vec<GoneNode>,
        jobs: &BTreeMap<u16, u64>,
        unreadable: UnreadableRows,
    ) -> Self {
        let live = |node: &&NodeRecord| node.until > cluster.now;
        let name = |owner: Option<Incarnation>| {
            let node = cluster.nodes.iter().filter(live).find(|node| Some(node.incarnation) == owner)?;
            Some(node.name.clone())
        };
        let partition = |row: &PartitionRecord| PartitionView {
            partition: row.partition,
            node: name(row.owner),
            home_region: row.home_region.clone(),
            fence: row.fence.raw(),
            since: row.since,
        };
        let owned = |node: &NodeRecord| {
            let own = cluster.partitions.iter().filter(|row| row.owner == Some(node.incarnation));
            own.map(|row| row.partition).collect::<Vec<_>>()
        };
        let node = |node: &NodeRecord| NodeView {
            name: node.name.clone(),
            region: node.region.clone(),
            version: node.version.clone(),
            state: if live(&node) { "live" } else { "expired" },
            holds: node.may_own,
            partitions: owned(node).len(),
            jobs: owned(node).iter().filter_map(|partition| jobs.get(partition)).sum(),
            roles: Published::read(node.can.as_deref()).roles,
            started_at: node.started_at,
            renewed_at: node.renewed_at,
            lease_until: node.until,
            lag_ms: node.lag.as_millis(),
            clock_offset_ms: node.clock_offset_ms,
            host: node.process.as_ref().map(|process| process.host.clone()),
            pid: node.process.as_ref().map(|process| process.pid),
            capabilities: Published::read(node.can.as_deref()).capabilities,
            incarnation: node.incarnation.to_string(),
        };
        let partitions: Vec<_> = cluster.partitions.iter().map(partition).collect();
        Self {
            now: cluster.now,
            leader: partitions.first().and_then(|first| first.node.clone()),
            differences: everytick_engine::differences(cluster),
            row_level_security: if cluster.row_level_security { "on" } else { "off" },
            unreadable_rows: unreadable.count,
            unreadable: unreadable.rows.into_iter().map(UnreadableView::from).collect(),
            nodes: cluster.nodes.iter().map(node).collect(),
            gone: gone.into_iter().map(GoneView::from).collect(),
            partitions,
        }
    }
}

impl From<UnreadableRow> for UnreadableView {
    fn from(row: UnreadableRow) -> Self {
        Self { table: row.table, key: row.key, error: row.error, seen_at: row.seen_at }
    }
}

impl From<GoneNode> for GoneView {
    fn from(node: GoneNode) -> Self {
        let Published { capabilities, roles } = Published::read(node.can.as_deref());
        Self {
            name: node.name,
            region: node.region,
            version: node.version,
            roles,
            capabilities,
            started_at: node.started_at,
            gone_since: node.gone_since,
        }
    }
}

/// What a node publishes about itself, in the two parts that the API shows.
#[derive(Default)]
struct Published {
    capabilities: Option<serde_json::Value>,
    roles: Option<Vec<String>>,
}

impl Published {
    fn read(can: Option<&str>) -> Self {
        let Some(mut value) = can.and_then(|can| serde_json::from_str::<serde_json::Value>(can).ok()) else {
            return Self::default();
        };
        let roles = value.as_object_mut().and_then(|fields| fields.remove("roles"));
        Self { capabilities: Some(value), roles: roles.and_then(|roles| serde_json::from_value(roles).ok()) }
    }
}
