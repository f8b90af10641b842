//! A queue in the API, and its texts in CLI and documents.

use everytick_domain::{
    invalid::Invalid,
    target::{QueueTarget, TargetKind},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::kind::{Flag, KindInfo, WireForm, no_details};

pub(super) const INFO: KindInfo = KindInfo {
    kind: TargetKind::Queue,
    example: r#"{"name": "emails"}"#,
    reference: "`name`; runs wait until a worker claims them; see [Write a worker](../how-to/workers.md)",
    flags: &[Flag::new(
        "queue",
        "NAME",
        &["name"],
        "Put runs into this queue, from which workers claim them; see `everytick worker`",
    )
    .choosing()],
    summary,
    details: no_details,
};

fn summary(shown: &Value) -> Option<String> {
    Some(format!("queue {}", shown["name"].as_str()?))
}

/// A queue from which workers claim the runs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QueueTarget, example = json!({"name": "emails"}))]
pub struct Wire {
    /// Same rules as for the name of a job.
    #[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", example = "emails")]
    name: String,
}

impl WireForm for Wire {
    type Spec = QueueTarget;

    fn read(self, _: Option<&QueueTarget>, _: &mut Vec<Invalid>) -> Option<QueueTarget> {
        Some(QueueTarget { name: self.name })
    }

    fn show(spec: &QueueTarget) -> Self {
        Self { name: spec.name.clone() }
    }
}
