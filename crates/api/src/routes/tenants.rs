//! Tenants: managed by the operator of the installation, and narrowed by their own admins.

use axum::{Json, response::Response};
use everytick_engine::types::TenantRef;

use super::{Shared, State, created};
use crate::{
    body::JsonBody,
    error::{ApiError, Result},
    paging,
    params::{Params, TenantPath},
    wire::{
        Problem,
        tenant::{OwnTenantPatch, SuspendRequest, Tenant, TenantDefinition, TenantPage, TenantPatch},
    },
};

/// List tenants, by name
#[utoipa::path(
    get,
    path = "/api/v1/tenants",
    tag = "tenants",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page", pattern = "^[A-Za-z0-9_-]+$"),
    ),
    responses((status = 200, description = "A page of tenants", body = TenantPage))
)]
pub(crate) async fn list_tenants(State(api): Shared, mut params: Params) -> Result<Json<TenantPage>> {
    let (limit, after) = paging::read::<String>(&mut params, api.tenant());
    params.finish()?;
    let page = api.commands.tenants().list(after.as_deref(), limit).await?;
    let items = page.items.iter().map(Tenant::from).collect();
    Ok(Json(TenantPage { items, next_cursor: page.next.map(|next| paging::cursor(&next, api.tenant())) }))
}

/// Create a tenant
///
/// Tenants see nothing of each other. An instance token acts inside a tenant with the header `everytick-tenant: NAME`; so it
/// creates the tenant's first token.
#[utoipa::path(
    post,
    path = "/api/v1/tenants",
    tag = "tenants",
    request_body(content = TenantDefinition),
    responses(
        (status = 201, description = "The tenant was created", body = Tenant, headers(("Location" = String, description = "Path of the tenant"))),
        (status = 409, description = "The name is taken, or a node of an earlier release is alive", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create_tenant(State(api): Shared, params: Params, body: JsonBody) -> Result<Response> {
    params.finish()?;
    let new = body.read::<TenantDefinition>()?.read().map_err(ApiError::Invalid)?;
    let made = api.commands.tenants().create(&api.actor(), new).await?;
    Ok(created(&format!("/api/v1/tenants/{}", made.name), Tenant::from(&made)))
}

/// Read a tenant
#[utoipa::path(
    get,
    path = "/api/v1/tenants/{name}",
    tag = "tenants",
    params(("name" = String, Path, description = "The tenant's name")),
    responses(
        (status = 200, description = "The tenant", body = Tenant),
        (status = 404, description = "No such tenant", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get_tenant(
    State(api): Shared,
    TenantPath(name): TenantPath,
    params: Params,
) -> Result<Json<Tenant>> {
    params.finish()?;
    Ok(Json(Tenant::from(api.commands.tenants().read_now(&TenantRef::Name(name)).await?.as_ref())))
}

/// Change the quotas, the rules for webhooks, or the permission to run commands of a tenant
#[utoipa::path(
    patch,
    path = "/api/v1/tenants/{name}",
    tag = "tenants",
    params(("name" = String, Path, description = "The tenant's name")),
    request_body(content = TenantPatch),
    responses(
        (status = 200, description = "The tenant", body = Tenant),
        (status = 404, description = "No such tenant", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The tenant is being deleted", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn update_tenant(
    State(api): Shared,
    TenantPath(name): TenantPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<Tenant>> {
    params.finish()?;
    let change = body.read::<TenantPatch>()?.read().map_err(ApiError::Invalid)?;
    let changed = api.commands.tenants().update(&api.actor(), &TenantRef::Name(name), change).await?;
    Ok(Json(Tenant::from(&changed)))
}

/// Delete a suspended tenant
///
/// Its tokens end at once. Its rows are removed in the background; its audit trail stays until its retention ends. Without
/// `force`, only a tenant that has been suspended for 7 days. The tenant `default` cannot be deleted.
#[utoipa::path(
    delete,
    path = "/api/v1/tenants/{name}",
    tag = "tenants",
    params(
        ("name" = String, Path, description = "The tenant's name"),
        ("force" = Option<bool>, Query, description = "Delete it although it was suspended less than 7 days ago"),
    ),
    responses(
        (status = 200, description = "The tenant, which is being deleted", body = Tenant),
        (status = 404, description = "No such tenant", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The tenant is not suspended, or not long enough", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete_tenant(
    State(api): Shared,
    TenantPath(name): TenantPath,
    mut params: Params,
) -> Result<Json<Tenant>> {
    let force = params.flag("force").unwrap_or(false);
    params.finish()?;
    let deleted = api.commands.tenants().delete(&api.actor(), &TenantRef::Name(name), force).await?;
    Ok(Json(Tenant::from(&deleted)))
}

/// Suspend a tenant
///
/// Its requests and new claims are answered 403 `tenant-suspended` within 5 s on every node; reports on claims that exist are
/// still accepted. Its jobs are paused in the background, with the note `tenant suspended`.
#[utoipa::path(
    post,
    path = "/api/v1/tenants/{name}/suspend",
    tag = "tenants",
    params(("name" = String, Path, description = "The tenant's name")),
    request_body(content = Option<SuspendRequest>),
    responses(
        (status = 200, description = "The suspended tenant", body = Tenant),
        (status = 404, description = "No such tenant", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The tenant is being deleted", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn suspend_tenant(
    State(api): Shared,
    TenantPath(name): TenantPath,
    params: Params,
    body: JsonBody,
) -> Result<Json<Tenant>> {
    params.finish()?;
    let cancel = body.read_or_default::<SuspendRequest>()?.cancel.unwrap_or(false);
    let suspended = api.commands.tenants().suspend(&api.actor(), &TenantRef::Name(name), cancel).await?;
    Ok(Json(Tenant::from(&suspended)))
}

/// End the suspension of a tenant
///
/// The jobs that the suspension paused are resumed in the background. Jobs that were paused before stay paused.
#[utoipa::path(
    post,
    path = "/api/v1/tenants/{name}/resume",
    tag = "tenants",
    params(("name" = String, Path, description = "The tenant's name")),
    responses(
        (status = 200, description = "The tenant", body = Tenant),
        (status = 404, description = "No such tenant", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The tenant is being deleted", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume_tenant(
    State(api): Shared,
    TenantPath(name): TenantPath,
    params: Params,
) -> Result<Json<Tenant>> {
    params.finish()?;
    let resumed = api.commands.tenants().resume(&api.actor(), &TenantRef::Name(name)).await?;
    Ok(Json(Tenant::from(&resumed)))
}

/// Lower the quotas of the caller's tenant, or narrow its rules for webhooks
///
/// These limits apply beside those that the operator of the installation sets, so they cannot exceed them.
#[utoipa::path(
    patch,
    path = "/api/v1/tenant",
    tag = "tenants",
    request_body(content = OwnTenantPatch),
    responses((status = 200, description = "The tenant", body = Tenant))
)]
pub(crate) async fn narrow_tenant(State(api): Shared, params: Params, body: JsonBody) -> Result<Json<Tenant>> {
    params.finish()?;
    let change = body.read::<OwnTenantPatch>()?.read().map_err(ApiError::Invalid)?;
    let changed = api.commands.tenants().update(&api.actor(), &TenantRef::Id(api.tenant()), change).await?;
    Ok(Json(Tenant::from(&changed)))
}
