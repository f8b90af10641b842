//! The audit trail: pages of it, newest first, and exports, oldest first.

use std::{io, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use everytick_engine::types::{AuditFilter, AuditResult};
use futures::stream;

use super::{Shared, State};
use crate::{
    auth::Call,
    error::{ApiError, Result},
    in_flight::Charge,
    paging,
    params::Params,
    prefix,
    wire::{
        Problem,
        audit::{AuditEntry, AuditPage, lines},
    },
};

const NDJSON: &str = "application/x-ndjson";
/// Rows that an export reads at once. A read also ends at 4 MiB of details.
const ROWS_PER_READ: usize = 500;

/// List changes, newest first; or export them, oldest first
///
/// With `format=ndjson`, the answer has every row above `after`, one JSON object per line, in the order of their ids. A later
/// export that begins after the last id misses no row: an export ends before rows that are not committed yet.
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    tag = "audit",
    params(
        ("actor" = Option<String>, Query, description = "Only changes by this actor"),
        ("action" = Option<String>, Query, description = "Only this action", example = "pause"),
        ("result" = Option<String>, Query, description = "Only changes with this result: `ok`, `denied` or `failed`", pattern = "^(ok|denied|failed)$"),
        ("subject" = Option<String>, Query, description = "Only changes of this object: the name of a job, queue or calendar, or an id or the beginning of an id"),
        ("from" = Option<String>, Query, format = DateTime, description = "At or after this instant"),
        ("to" = Option<String>, Query, format = DateTime, description = "Before this instant"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
        ("format" = Option<String>, Query, description = "`ndjson`: export the trail. Only `after` can be added", pattern = "^(json|ndjson)$"),
        ("after" = Option<u64>, Query, description = "Export the rows with ids above this one"),
    ),
    responses(
        (status = 200, description = "A page of the audit trail, or an export", content((AuditPage = "application/json"), (AuditEntry = "application/x-ndjson"))),
        (status = 409, description = "`after` is above the last id: the database was restored from a backup", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list_audit(State(api): Shared, mut params: Params) -> Result<Response> {
    match params.one("format").as_deref() {
        Some("ndjson") => return export(api, params).await,
        None | Some("json") => {}
        Some(other) => params.refuse("format", format!("{other:?} is not a format; write \"json\" or \"ndjson\"")),
    }
    list(&api, params).await.map(IntoResponse::into_response)
}

async fn list(api: &Call, mut params: Params) -> Result<Json<AuditPage>> {
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
        params.refuse("result", format!("{other:?} is not a result; write \"ok\", \"denied\" or \"failed\""));
    }
    let subject = params.one("subject");
    let (limit, before) = paging::read::<i64>(&mut params);
    if params.one("after").is_some() {
        params.refuse("after", "is only for exports; add format=ndjson".to_owned());
    }
    params.finish()?;
    if let Some(subject) = subject {
        filter.subjects = prefix::audit_subjects(api, &subject).await?;
    }
    let page = api.queries().audit(api.tenant(), &filter, before, limit).await?;
    let items = page.items.into_iter().map(AuditEntry::from).collect();
    Ok(Json(AuditPage { items, next_cursor: page.next.as_ref().map(paging::cursor) }))
}

/// Streams the rows. Memory: one read at a time, counted as in flight. An error in the middle breaks the connection, so that the
/// client does not take a part of the export for all of it.
async fn export(api: Arc<Call>, mut params: Params) -> Result<Response> {
    let after = params.number("after", 0..=i64::MAX.unsigned_abs() as usize, 0);
    for filter in ["actor", "action", "result", "subject", "from", "to", "limit", "cursor"] {
        if params.one(filter).is_some() {
            params.refuse(filter, "cannot be combined with format=ndjson; filter the lines of the export".to_owned());
        }
    }
    params.finish()?;
    api.in_flight.check()?;
    let through = api.queries().audit_settled().await?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    if after > through {
        let why = "the database was restored from a backup or replaced; begin with a lower id";
        return Err(ApiError::conflict("after", format!("{after} is above the last id, {through}: {why}")));
    }
    let rows = stream::try_unfold(Export { api, after: Some(after), through, _charge: None }, Export::next);
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))], Body::from_stream(rows)).into_response())
}

/// The rest of an export.
struct Export {
    api: Arc<Call>,
    /// `None` when everything was read.
    after: Option<i64>,
    through: i64,
    /// The memory of the last lines.
    _charge: Option<Charge>,
}

impl Export {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        self._charge = None;
        while let Some(after) = self.after {
            if !self.api.is_admitted().await.map_err(io::Error::other)? {
                return Err(io::Error::other("the credential of the caller has ended"));
            }
            let read = self.api.queries().export_audit(self.api.tenant(), after, self.through, ROWS_PER_READ);
            let page = read.await.map_err(io::Error::other)?;
            self.after = page.next;
            if !page.items.is_empty() {
                let text = Bytes::from(lines(page.items));
                self._charge = Some(self.api.in_flight.count(text.len()));
                return Ok(Some((text, self)));
            }
        }
        Ok(None)
    }
}
