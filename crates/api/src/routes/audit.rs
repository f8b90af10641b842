//! The audit trail.

use axum::Json;

use super::{Shared, State};
use crate::{
    error::Result,
    paging,
    params::Params,
    wire::audit::{AuditEntry, AuditPage},
};

/// List changes, newest first
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    tag = "audit",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of the audit trail", body = AuditPage))
)]
pub(crate) async fn list_audit(State(api): Shared, mut params: Params) -> Result<Json<AuditPage>> {
    let (limit, before) = paging::asked::<i64>(&mut params);
    params.finish()?;
    let page = api.queries().audit(api.tenant(), before, limit).await?;
    let items = page.items.into_iter().map(AuditEntry::from).collect();
    Ok(Json(AuditPage { items, next_cursor: page.next.as_ref().map(paging::cursor) }))
}
