//! Sessions of browsers: the caller's own, and those of the tenant.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json,
    extract::FromRequestParts,
    http::{header, request::Parts},
    response::{IntoResponse, Response},
};
use everytick_domain::{access::Role, ids::SessionId};
use everytick_engine::types::{SessionEnd, SessionRecord, StoreError};

use super::{Shared, State};
use crate::{
    Api,
    auth::{Call, cookie, resolve, tenants},
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{Params, SessionPath},
    wire::{
        Problem,
        session::{Session, SessionPage, TenantChoice},
        token::Me,
    },
};

/// Log out: end the caller's session
#[utoipa::path(
    delete,
    path = "/api/v1/me",
    tag = "sessions",
    responses(
        (status = 200, description = "The ended session. The answer removes the cookie", body = Session),
        (status = 409, description = "The caller has no session", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn end_me(State(api): Shared, secure: Secure, params: Params) -> Result<Response> {
    params.finish()?;
    let id = own_id(&api)?;
    let ended = api.commands.access().end_session(api.tenant(), &api.actor(), id, SessionEnd::Logout).await?;
    let mut response = Json(shown(&api, &ended)).into_response();
    response.headers_mut().extend(cookie::end(secure.0).map(|cookie| (header::SET_COOKIE, cookie)));
    Ok(response)
}

/// Choose the tenant in which the caller's session acts from now on
#[utoipa::path(
    post,
    path = "/api/v1/me/tenant",
    tag = "sessions",
    request_body(content = TenantChoice),
    responses(
        (status = 200, description = "The caller in this tenant", body = Me),
        (status = 404, description = "No such tenant, or the session has no grant for it", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The caller has no session", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn choose_tenant(State(api): Shared, params: Params, body: JsonBody) -> Result<Json<Me>> {
    params.finish()?;
    let TenantChoice { tenant } = body.read()?;
    let id = own_id(&api)?;
    let own = api.caller.own_session().ok_or(ApiError::Internal)?;
    let grants = &own.record.grants;
    // An instance token acts in each tenant; see `Caller::token`.
    let is_granted =
        grants.iter().any(|grant| grant.role == Role::Instance || grant.tenant.as_deref() == Some(&*tenant));
    if !is_granted || tenants::named(&tenant).is_none() {
        return Err(ApiError::NotFound("tenant"));
    }
    api.commands.access().choose_tenant(id, Some(&tenant)).await?;
    let caller = api.caller.in_tenant(&tenant).ok_or(ApiError::NotFound("tenant"))?;
    Ok(Json(Me::of(&caller)))
}

fn own_id(api: &Call) -> Result<SessionId> {
    let none = || ApiError::conflict("", "the caller has no session; a browser gets one at /auth/login");
    api.caller.own_session().map(|session| session.record.id).ok_or_else(none)
}

/// List sessions, the oldest login first
///
/// Leaves out sessions whose grants the caller could not have created.
#[utoipa::path(
    get,
    path = "/api/v1/sessions",
    tag = "sessions",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of sessions", body = SessionPage))
)]
pub(crate) async fn list_sessions(State(api): Shared, mut params: Params) -> Result<Json<SessionPage>> {
    let (limit, after) = paging::read::<SessionId>(&mut params);
    params.finish()?;
    let page = api.commands.access().list_sessions(after, limit).await?;
    let items = page.items.iter().filter(|session| manages(&api, session)).map(|one| shown(&api, one)).collect();
    Ok(Json(SessionPage { items, next_cursor: page.next.as_ref().map(paging::cursor) }))
}

/// End a session
///
/// Takes effect on all nodes within 5 s.
#[utoipa::path(
    delete,
    path = "/api/v1/sessions/{id}",
    tag = "sessions",
    params(("id" = String, Path, format = Uuid, description = "The session's id")),
    responses(
        (status = 200, description = "The ended session", body = Session),
        (status = 404, description = "No such session", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn end_session(
    State(api): Shared,
    SessionPath(id): SessionPath,
    params: Params,
) -> Result<Json<Session>> {
    params.finish()?;
    let access = api.commands.access();
    let session = access.get_session(id).await?;
    if !manages(&api, &session) {
        return Err(StoreError::NotFound("session").into());
    }
    let ended = access.end_session(api.tenant(), &api.actor(), id, SessionEnd::Revoked).await?;
    Ok(Json(shown(&api, &ended)))
}

/// Whether the caller could have created one of the session's grants.
fn manages(api: &Call, session: &SessionRecord) -> bool {
    session.grants.iter().any(|grant| resolve(grant).is_some_and(|grant| api.caller.manages(&grant)))
}

/// The session as the caller sees it: its own one whole, another one without the grants of other tenants.
fn shown(api: &Call, session: &SessionRecord) -> Session {
    let is_own = api.caller.own_session().is_some_and(|own| own.record.id == session.id);
    let sees = |grant: &_| is_own || resolve(grant).is_some_and(|grant| api.caller.manages(&grant));
    Session::of(session, sees, is_own)
}

/// Whether the browser uses https.
pub(crate) struct Secure(bool);

impl FromRequestParts<Arc<Api>> for Secure {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Infallible> {
        Ok(Self(cookie::is_secure(&parts.headers, &parts.extensions, &api.hosts)))
    }
}
