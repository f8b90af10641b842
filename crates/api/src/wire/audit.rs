//! The audit trail, as the API returns it.

use everytick_domain::{ids::TokenId, time::DbTime};
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
    /// How the actor was authenticated: `local` (the API was open), `token`, `user`, `proxy`, `cert`, `node`, or `anonymous` (no valid credential).
    #[schema(example = "token")]
    actor_kind: String,
    /// The id of the token that the actor used.
    #[schema(value_type = Option<String>, format = Uuid)]
    token_id: Option<TokenId>,
    /// The address that the request came from.
    ip: Option<String>,
    /// The id of the request. Its answer had this id in the header `everytick-request-id`.
    request_id: Option<String>,
    #[schema(example = "pause")]
    action: String,
    /// The changed object.
    subject: String,
    /// `ok`; `denied` for a request that was refused because of its credential; `failed` for a change of tokens or secrets that was
    /// refused for another reason.
    #[schema(example = "ok")]
    result: String,
    /// Further facts, depending on the action.
    #[schema(value_type = Value)]
    detail: Box<RawValue>,
}

impl From<AuditRecord> for AuditEntry {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { id, at, actor, actor_kind, token, ip, request, action, subject, result, detail } = record;
        // Stores write JSON.
        let detail = RawValue::from_string(detail).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self { id, at, actor, actor_kind, token_id: token, ip, request_id: request, action, subject, result, detail }
    }
}

/// The rows as JSON objects, one per line.
#[must_use]
pub fn lines(rows: Vec<AuditRecord>) -> Vec<u8> {
    let mut text = Vec::new();
    for row in rows {
        // Writing JSON to memory does not fail.
        let _ = serde_json::to_writer(&mut text, &AuditEntry::from(row));
        text.push(b'\n');
    }
    text
}

/// A page of the audit trail, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    pub(crate) items: Vec<AuditEntry>,
    /// Cursor of the next page; `null` on the last page. A page searches a limited number of rows, so it can have fewer items than
    /// `limit`, even none, and still have a cursor.
    pub(crate) next_cursor: Option<String>,
}
