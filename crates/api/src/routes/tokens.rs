//! API tokens, and what the caller itself may do.

use axum::{Json, response::Response};
use everytick_domain::{
    access::{OVERLAP_DEFAULT, Permission, check_overlap},
    ids::TokenId,
};
use everytick_engine::types::{StoreError, TokenRecord};

use super::{Shared, State, created};
use crate::{
    auth::Call,
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{Params, TokenPath},
    wire::{
        Problem,
        token::{Me, NewToken, RevokedToken, RotateRequest, Token, TokenPage, TokenRequest},
    },
};

/// Show who the caller is, and what it may do
#[utoipa::path(
    get,
    path = "/api/v1/me",
    tag = "tokens",
    responses((status = 200, description = "The caller", body = Me))
)]
pub(crate) async fn get_me(State(api): Shared, params: Params) -> Result<Json<Me>> {
    params.finish()?;
    Ok(Json(Me::of(&api.caller)))
}

/// Create a token
///
/// Only this answer contains the token. A token is never stronger than its creator. While the API is open, the first
/// token closes it: from then on every request needs a token.
#[utoipa::path(
    post,
    path = "/api/v1/tokens",
    tag = "tokens",
    request_body(content = TokenRequest),
    responses(
        (status = 201, description = "The token, with its secret text", body = NewToken, headers(("Location" = String, description = "Path of the token"))),
        (status = 409, description = "A valid token has the name, the quota is reached, or a node of an earlier release is alive", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_token(State(api): Shared, params: Params, body: JsonBody) -> Result<Response> {
    params.finish()?;
    let request = body.read::<TokenRequest>()?;
    let new = request.read(api.tenant(), api.auth.lifetimes).map_err(ApiError::Invalid)?;
    let (token, record) = api.commands.access().create(&api.actor(), &api.caller.creator(), new).await?;
    Ok(created(&format!("/api/v1/tokens/{}", record.id), NewToken::of(&token, &record, api.caller.tenant_name())))
}

/// List tokens, the oldest first
///
/// Leaves out revoked tokens, and tokens that the caller could not have created.
#[utoipa::path(
    get,
    path = "/api/v1/tokens",
    tag = "tokens",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of tokens", body = TokenPage))
)]
pub(crate) async fn list_tokens(State(api): Shared, mut params: Params) -> Result<Json<TokenPage>> {
    let (limit, after) = paging::read::<TokenId>(&mut params, api.tenant());
    params.finish()?;
    let access = api.commands.access();
    let page = access.list(Some(api.tenant()), after, limit).await?;
    // Tokens of no tenant come before those of the tenant. They are few.
    let mut items =
        if after.is_none() { access.list(None, None, INSTANCE_TOKENS_MAX).await?.items } else { Vec::new() };
    items.extend(page.items);
    let items = items
        .iter()
        .filter(|token| api.caller.manages(&token.grant))
        .map(|token| Token::of(token, api.caller.tenant_name()))
        .collect();
    Ok(Json(TokenPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

const INSTANCE_TOKENS_MAX: usize = 100;

/// Read a token
#[utoipa::path(
    get,
    path = "/api/v1/tokens/{id}",
    tag = "tokens",
    params(("id" = String, Path, format = Uuid, description = "The token's id")),
    responses(
        (status = 200, description = "The token, without its secret text", body = Token),
        (status = 404, description = "No such token", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_token(State(api): Shared, TokenPath(id): TokenPath, params: Params) -> Result<Json<Token>> {
    params.finish()?;
    Ok(Json(Token::of(&managed(&api, id).await?, api.caller.tenant_name())))
}

/// Revoke a token
///
/// Also ends the tokens that were made from it by rotation. Takes effect on all nodes within 5 s.
#[utoipa::path(
    delete,
    path = "/api/v1/tokens/{id}",
    tag = "tokens",
    params(("id" = String, Path, format = Uuid, description = "The token's id")),
    responses(
        (status = 200, description = "The revoked token, and the others that ended with it", body = RevokedToken),
        (status = 404, description = "No such token", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke_token(
    State(api): Shared,
    TokenPath(id): TokenPath,
    params: Params,
) -> Result<Json<RevokedToken>> {
    params.finish()?;
    let owner = managed(&api, id).await?.grant.tenant;
    let ended = api.commands.access().revoke(&api.actor(), owner, id).await?;
    Ok(Json(RevokedToken::of(&ended, api.caller.tenant_name()).ok_or(ApiError::Internal)?))
}

/// Replace a token by a new one with the same name, role and scope
///
/// The old token expires after `overlap`. Every caller may rotate its own token. A token can be rotated only once. The
/// new token can be rotated after 1 min. At most 3 tokens of one series of rotations are valid at a time.
#[utoipa::path(
    post,
    path = "/api/v1/tokens/{id}/rotate",
    tag = "tokens",
    params(("id" = String, Path, format = Uuid, description = "The token's id")),
    request_body(content = Option<RotateRequest>),
    responses(
        (status = 201, description = "The new token, with its secret text", body = NewToken, headers(("Location" = String, description = "Path of the token"))),
        (status = 404, description = "No such token", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The token has expired, was rotated already, or was made by a rotation less than 1 min ago; or the quota is reached", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rotate_token(
    State(api): Shared,
    TokenPath(id): TokenPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let overlap = body.read_or_default::<RotateRequest>()?.overlap.unwrap_or(OVERLAP_DEFAULT);
    check_overlap(overlap).map_err(|wrong| ApiError::Invalid(vec![wrong]))?;
    let owner = match api.caller.own_token().filter(|own| own.id == id) {
        Some(own) => own.grant.tenant,
        None if api.may(Permission::Manage) => managed(&api, id).await?.grant.tenant,
        None => return Err(ApiError::NotPermitted(Permission::Manage)),
    };
    let (token, record) = api.commands.access().rotate(&api.actor(), owner, id, overlap).await?;
    Ok(created(&format!("/api/v1/tokens/{}", record.id), NewToken::of(&token, &record, api.caller.tenant_name())))
}

/// A token that the caller may manage. The token belongs to the caller's tenant, and is not stronger than the caller.
async fn managed(api: &Call, id: TokenId) -> Result<TokenRecord> {
    let access = api.commands.access();
    let found = match access.get(Some(api.tenant()), id).await {
        Err(StoreError::NotFound(_)) => access.get(None, id).await,
        found => found,
    };
    let token = found?;
    if api.caller.manages(&token.grant) { Ok(token) } else { Err(ApiError::NotFound("token")) }
}
