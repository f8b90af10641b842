//! The audit trail, as people read it.

use everytick_domain::time::DbTime;
use everytick_engine::store::AuditRecord;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One change, written in the transaction that made it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntry {
    id: i64,
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    #[schema(example = "local")]
    actor: String,
    #[schema(example = "pause")]
    action: String,
    /// What it was done to.
    subject: String,
    /// What more is known of it; depends on the action.
    #[schema(value_type = Value)]
    detail: Box<RawValue>,
}

impl From<AuditRecord> for AuditEntry {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { id, at, actor, action, subject, detail } = record;
        // Stores write JSON.
        let detail = RawValue::from_string(detail).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self { id, at, actor, action, subject, detail }
    }
}

/// A page of the audit trail, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    pub(crate) items: Vec<AuditEntry>,
    /// Where the next page begins; `null` on the last one.
    pub(crate) next_cursor: Option<String>,
}
