//! Checks whether another node delivers a target that the settings of this node do not permit. If a living node
//! delivers it, the definition is accepted.

use everytick_domain::{invalid::Invalid, target::TargetSpec};
use everytick_engine::types::{Cluster, NodeRecord};
use everytick_targets::{Capabilities, needs, not_permitted};

use crate::{auth::Call, wire::job::JobDefinition};

/// How many nodes an error names.
const NAMED_MAX: usize = 5;

/// The living nodes that run jobs, if a definition needs one of them.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// A node of a release that does not publish its capabilities may deliver everything.
    nodes: Vec<(String, Option<Capabilities>)>,
    /// This node is the only living one.
    is_alone: bool,
}

impl Elsewhere {
    /// Reads the nodes if this node does not deliver the definition's kind of target.
    pub(crate) async fn of(call: &Call, definition: &JobDefinition) -> Self {
        let not_here = not_permitted(&call.targets);
        let needed = definition.kinds().iter().any(|given| not_here.iter().any(|kind| kind.word() == *given));
        if needed { Self::read(call).await } else { Self::default() }
    }

    /// Reads the nodes if there is a kind of target that this node does not deliver.
    pub(crate) async fn of_any(call: &Call) -> Self {
        if not_permitted(&call.targets).is_empty() { Self::default() } else { Self::read(call).await }
    }

    async fn read(call: &Call) -> Self {
        match call.queries().cluster().await {
            Ok(cluster) => Self::in_cluster(&cluster),
            Err(error) => {
                tracing::warn!(%error, "could not read the nodes; a definition is judged by the settings of this node");
                Self::default()
            }
        }
    }

    fn in_cluster(cluster: &Cluster) -> Self {
        let lives = |node: &&NodeRecord| node.until > cluster.now;
        let delivers = cluster.nodes.iter().filter(lives).filter(|node| node.may_own);
        let nodes = delivers.map(|node| (node.name.clone(), node.can.as_deref().and_then(Capabilities::read)));
        Self { nodes: nodes.collect(), is_alone: cluster.nodes.iter().filter(lives).count() <= 1 }
    }

    /// The errors about a target that this node does not deliver. None, if another node delivers it.
    pub(crate) fn judge(&self, spec: &TargetSpec, forbidden: Vec<Invalid>) -> Vec<Invalid> {
        let can = |node: &(String, Option<Capabilities>)| match (&node.1, needs(spec)) {
            (Some(can), Some(needs)) => can.meets(needs),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if self.nodes.iter().any(can) {
            return Vec::new();
        }
        let others = self.others();
        forbidden.into_iter().map(|wrong| Invalid::new(wrong.field, format!("{}{others}", wrong.message))).collect()
    }

    /// Which nodes lack the capability.
    fn others(&self) -> String {
        let mut names: Vec<&str> = self.nodes.iter().map(|(name, _)| name.as_str()).take(NAMED_MAX).collect();
        if self.nodes.len() > NAMED_MAX {
            names.push("...");
        }
        match (self.is_alone, names.as_slice()) {
            (true, _) => String::new(),
            (false, []) => "; no living node runs jobs".to_owned(),
            (false, names) => format!("; the living nodes that run jobs do not have it: {}", names.join(", ")),
        }
    }
}
