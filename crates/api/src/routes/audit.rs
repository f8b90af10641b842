//! The audit trail.

use axum::Json;
use everytick_engine::types::{AuditFilter, AuditResult};

use super::{Shared, State};
use crate::{
    error::Result,
    paging,
    params::Params,
    prefix,
    wire::audit::{AuditEntry, AuditPage},
};

/// List changes, newest first
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    tag = "audit",
    params(
        ("actor" = Option<String>, Query, description = "Only changes by this actor"),
        ("action" = Option<String>, Query, description = "Only this action", example = "pause"),
        ("result" = Option<String>, Query, description = "Only changes with this result: `ok` or `denied`", pattern = "^(ok|denied)$"),
        ("subject" = Option<String>, Query, description = "Only changes of this object: the name of a job, queue or calendar, or an id or the beginning of an id"),
        ("from" = Option<String>, Query, format = DateTime, description = "At or after this instant"),
        ("to" = Option<String>, Query, format = DateTime, description = "Before this instant"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of the audit trail", body = AuditPage))
)]
pub(crate) async fn list_audit(State(api): Shared, mut params: Params) -> Result<Json<AuditPage>> {
    let (from, to) = params.period();
    let mut filter = AuditFilter {
        actor: params.one("actor"),
        action: params.one("action"),
        result: params.one("result"),
        subjects: Vec::new(),
        from,
        to,
    };
    if let Some(other) =
        filter.result.as_ref().filter(|result| AuditResult::ALL.iter().all(|one| one.word() != *result))
    {
        params.refuse("result", format!("{other:?} is not a result; write \"ok\" or \"denied\""));
    }
    let subject = params.one("subject");
    let (limit, before) = paging::read::<i64>(&mut params, api.tenant());
    params.finish()?;
    if let Some(subject) = subject {
        filter.subjects = prefix::audit_subjects(&api, &subject).await?;
    }
    let page = api.queries().audit(api.tenant(), &filter, before, limit).await?;
    let items = page.items.into_iter().map(AuditEntry::from).collect();
    Ok(Json(AuditPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}
