//! Secrets: values that jobs refer to. They are written and never read back.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use everytick_domain::{
    ids::Version,
    invalid::Invalid,
    secret::{ROTATION_OVERLAP_DEFAULT, check_rotation_overlap},
};

use super::{Shared, State, created, tagged};
use crate::{
    auth::Call,
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{Params, SecretPath},
    version::IfMatch,
    wire::{
        IfMatchTag, Problem,
        secret::{RotatedSecret, Secret, SecretDefinition, SecretName, SecretPage, SecretRotation},
    },
};

/// List secrets, by name, without their values
#[utoipa::path(
    get,
    path = "/api/v1/secrets",
    tag = "secrets",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of secrets", body = SecretPage))
)]
pub(crate) async fn list_secrets(State(api): Shared, mut params: Params) -> Result<Json<SecretPage>> {
    let (limit, after) = paging::read::<String>(&mut params, api.tenant());
    params.finish()?;
    let page = api.queries().secrets(api.tenant(), after.as_deref(), limit).await?;
    let items = page.items.into_iter().map(Secret::from).collect();
    Ok(Json(SecretPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

/// Read a secret, without its value
#[utoipa::path(
    get,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(("name" = SecretName, Path, description = "The secret's name")),
    responses(
        (status = 200, description = "The secret", body = Secret, headers(("ETag" = String, description = "The secret's version in quotes"))),
        (status = 404, description = "No such secret", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_secret(State(api): Shared, SecretPath(name): SecretPath, params: Params) -> Result<Response> {
    params.finish()?;
    let (record, jobs) = api.queries().secret(api.tenant(), &name).await?;
    let version = record.version;
    let jobs = jobs.into_iter().filter(|job| api.scope().allows_job(job)).collect();
    Ok(tagged(version, Json(Secret::from(record).used_by(jobs)).into_response()))
}

/// Create a secret, or replace its value
///
/// The value is stored encrypted and never shown again. Jobs refer to it as `{{ secrets.NAME }}`; a delivery gets the value that is
/// current when its attempt begins.
#[utoipa::path(
    put,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(
        ("name" = SecretName, Path, description = "The secret's name"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    request_body(content = SecretDefinition),
    responses(
        (status = 200, description = "The secret with its new version", body = Secret, headers(("ETag" = String, description = "The secret's version in quotes"))),
        (status = 201, description = "The secret was created", body = Secret, headers(("ETag" = String, description = "The secret's version in quotes"), ("Location" = String, description = "Path of the secret"))),
        (status = 409, description = "The server has no key file, the quota is reached, or a node of an earlier release is alive", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the secret", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn put_secret(
    State(api): Shared,
    SecretPath(name): SecretPath,
    if_match: IfMatch,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let definition = body.read::<SecretDefinition>()?;
    let if_match = expected(&api, &name, &if_match).await?;
    let location = format!("/api/v1/secrets/{name}");
    let (ask, warnings) = definition.read(name, if_match).map_err(ApiError::Invalid)?;
    let put = api.commands.put_secret(api.tenant(), &api.actor(), ask).await?;
    let (version, made) = (put.secret.version, put.made);
    let secret = Secret::from(put.secret).with_warnings(warnings);
    let response = if made { created(&location, secret) } else { Json(secret).into_response() };
    Ok(tagged(version, response))
}

/// Delete a secret
///
/// A secret that jobs refer to is deleted only with `force=true`. Their attempts then fail until it is created again.
#[utoipa::path(
    delete,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(
        ("name" = SecretName, Path, description = "The secret's name"),
        ("force" = Option<bool>, Query, description = "Delete it although jobs refer to it"),
        ("If-Match" = Option<IfMatchTag>, Header, description = "The ETag of the version that the edit is based on"),
    ),
    responses(
        (status = 200, description = "The deleted secret", body = Secret),
        (status = 404, description = "No such secret", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Jobs refer to it; the error names them", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "`If-Match` does not contain the version of the secret", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete_secret(
    State(api): Shared,
    SecretPath(name): SecretPath,
    if_match: IfMatch,
    mut params: Params,
) -> Result<Json<Secret>> {
    let force = params.flag("force").unwrap_or(false);
    params.finish()?;
    let if_match = expected(&api, &name, &if_match).await?;
    let deleted = api.commands.delete_secret(api.tenant(), &api.actor(), &name, if_match, force).await?;
    Ok(Json(deleted.into()))
}

/// Replace a signing key by a random one
///
/// Only this answer has the new key. Until `overlap` has passed, `webhook-signature` has two signatures, that of the new key first,
/// so receivers can change the key meanwhile. Only a secret with a value `whsec_…` can be rotated.
#[utoipa::path(
    post,
    path = "/api/v1/secrets/{name}/rotate",
    tag = "secrets",
    params(("name" = SecretName, Path, description = "The secret's name")),
    request_body(content = Option<SecretRotation>),
    responses(
        (status = 200, description = "The new signing key", body = RotatedSecret, headers(("ETag" = String, description = "The secret's version in quotes"))),
        (status = 404, description = "No such secret", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The value is no signing key, the overlap of the last rotation has not passed, or the server has no key file", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn rotate_secret(
    State(api): Shared,
    SecretPath(name): SecretPath,
    params: Params,
    body: JsonBody,
) -> Result<Response> {
    params.finish()?;
    let overlap = body.read_or_default::<SecretRotation>()?.overlap.unwrap_or(ROTATION_OVERLAP_DEFAULT);
    check_rotation_overlap(overlap).map_err(|wrong| ApiError::Invalid(vec![Invalid::new("overlap", wrong)]))?;
    let (record, value) = api.commands.rotate_secret(api.tenant(), &api.actor(), &name, overlap).await?;
    Ok(tagged(record.version, Json(RotatedSecret::of(record, &value)).into_response()))
}

/// The version that `If-Match` requires. Reads the secret only if `If-Match` has several tags, or a tag that this server
/// never sent.
async fn expected(api: &Call, name: &str, if_match: &IfMatch) -> Result<Option<Version>> {
    Ok(match if_match {
        IfMatch::Any => None,
        IfMatch::OneOf(tags) => match tags.as_slice() {
            [Some(version)] => Some(*version),
            _ => {
                let (record, _) = api.queries().secret(api.tenant(), name).await?;
                if_match.check(record.version)?;
                Some(record.version)
            }
        },
    })
}
