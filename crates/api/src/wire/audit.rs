//! The audit trail as the API answers it.

use everytick_domain::time::DbTime;
use everytick_engine::types::AuditRecord;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One change. Its row is written in the transaction that made the change.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntry {
    id: i64,
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    #[schema(example = "local")]
    actor: String,
    #[schema(example = "pause")]
    action: String,
    /// The changed object.
    subject: String,
    /// Further facts, depending on the action.
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
    /// Cursor of the next page; `null` on the last page. A page searches a limited number of rows, so it can have fewer items than
    /// `limit`, even none, and still have a cursor.
    pub(crate) next_cursor: Option<String>,
}
