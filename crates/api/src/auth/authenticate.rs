//! Authenticates the caller of a request by its `Authorization` header. A wrong credential is an error, also while the
//! API is open.
//!
//! ```text
//! Authorization: Bearer etk_…   checked by its checksum, then in the cache, then in the store
//!                Bearer etr_…   checked by a keyed hash over the claim, without the store
//! no header                     a local caller, if the API is open
//! ```
//!
//! Wrong tokens never cause the refusal of a valid token, even if both come from one address, such as that of a proxy.
//! So the server looks up every token whose checksum is right. Two limits protect the database: one query at a time
//! looks up the waiting tokens, and tokens from an address with too many failures share at most one query per 20 ms.

use std::{net::IpAddr, time::Duration};

use axum::{
    RequestExt as _,
    extract::{Path, Request},
    http::{HeaderMap, HeaderName, header},
};
use everytick_domain::{
    access::{Role, RunKey, Token, is_run_token},
    ids::TenantId,
    job::check_name,
};
use everytick_engine::{Lookup, types::StoreError};
use ipnet::IpNet;

use super::{
    caller::{Caller, Rights},
    limits::{Limiter, Rate, now},
};
use crate::{
    Api,
    error::{ApiError, Result},
};

/// The tenant in which an instance token acts.
const TENANT: HeaderName = HeaderName::from_static("everytick-tenant");
/// Maximum number of bytes of a credential. A longer one cannot be a credential of this server.
const CREDENTIAL_BYTES_MAX: usize = 256;

/// Whether requests need a credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuthMode {
    /// Requests need a credential once one was configured.
    #[default]
    Auto,
    Required,
    /// Requests never need a credential. Allowed only for listeners that other hosts cannot reach.
    Open,
}

/// The limits of requests by caller, on this node.
#[derive(Debug)]
pub(super) struct Limits {
    failures: Limiter<IpAddr>,
    requests: Limiter<[u8; 32]>,
    /// Requests of all callers of one tenant.
    tenants: Limiter<TenantId>,
    reports: Limiter<[u8; 32]>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            failures: Limiter::new(Rate::one_per(Duration::from_secs(6), 10)),
            requests: Limiter::new(Rate::per_second(50, 200)),
            tenants: Limiter::new(Rate::per_second(500, 1_000)),
            reports: Limiter::new(Rate::per_second(500, 1_000)),
        }
    }
}

/// The routes that a worker needs to keep its claims. They have their own limit, so that other requests with the same
/// token do not make the worker lose its claims.
const REPORTS: [&str; 6] = [
    "/api/v1/runs/{id}/heartbeat",
    "/api/v1/runs/{id}/log",
    "/api/v1/runs/{id}/settle",
    "/api/v1/runs/{id}/release",
    "/api/v1/queues/{queue}/settle",
    "/api/v1/queues/{queue}/claim",
];

impl Limits {
    /// Refuses a caller that sends too many requests.
    pub(super) fn check(&self, caller: &Caller, route: &str) -> Result<()> {
        let Rights::Token { hash, .. } = &caller.rights else { return Ok(()) };
        let reports = REPORTS.contains(&route);
        let limiter = if reports { &self.reports } else { &self.requests };
        let taken = limiter.take(*hash.as_bytes(), now());
        taken.map_err(|wait| ApiError::TooFast("this token sends too many requests".to_owned(), wait))?;
        let Some(tenant) = caller.acts_in().filter(|_| !reports) else { return Ok(()) };
        let taken = self.tenants.take(tenant, now());
        taken.map_err(|wait| ApiError::TooFast("the callers of this tenant send too many requests".to_owned(), wait))
    }

    /// Counts a failed authentication.
    fn fail(&self, ip: IpAddr) -> ApiError {
        match self.failures.take(limited(ip), now()) {
            Ok(()) => ApiError::Unauthenticated,
            Err(wait) => {
                let message = "a wrong credential, and too many failed authentications from this address".to_owned();
                ApiError::TooFast(message, wait)
            }
        }
    }

    /// A token that this node does not know is probably a guess if it comes from an address that has failed too often.
    fn lookup(&self, ip: IpAddr) -> Lookup {
        if self.failures.wait(&limited(ip), now()).is_zero() { Lookup::Prompt } else { Lookup::Paced }
    }
}

/// The address by which failures are counted. For IPv6 it is the /64 network, which usually belongs to one customer.
fn limited(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            let [a, b, c, d, ..] = ip.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        ip => ip,
    }
}

/// Returns the caller of a request.
pub(super) async fn authenticate(
    api: &Api,
    limits: &Limits,
    request: &mut Request,
    ip: IpAddr,
    id: &str,
) -> Result<Caller> {
    let Some(credential) = bearer(request.headers(), limits, ip)? else {
        if !is_open(api).await? {
            return Err(ApiError::Unauthenticated);
        }
        refuse_tenant(request.headers())?;
        return Ok(Caller::local(api.auth.mode, ip, id.to_owned()));
    };
    if is_run_token(&credential) {
        refuse_tenant(request.headers())?;
        return run_caller(api.auth.run_key.as_ref(), &credential, request, ip, id)
            .await
            .ok_or_else(|| limits.fail(ip));
    }
    let Ok(token) = Token::parse(&credential) else { return Err(limits.fail(ip)) };
    let (hash, access) = (token.hash(), api.commands.access());
    let lookup = if access.knows(&hash) { Lookup::Prompt } else { limits.lookup(ip) };
    let found = access.find(&hash, lookup).await?.filter(|found| allows_ip(&found.token.allowed_ips, ip));
    let Some(found) = found else { return Err(limits.fail(ip)) };
    access.note_use(&hash, ip.to_canonical().to_string());
    let tenant = chosen_tenant(api, request.headers(), found.token.grant.role).await?;
    Ok(Caller::token(&found, tenant, ip, id.to_owned()))
}

/// Whether requests without a credential are served.
pub(super) async fn is_open(api: &Api) -> Result<bool, StoreError> {
    Ok(match api.auth.mode {
        AuthMode::Open => true,
        AuthMode::Required => false,
        AuthMode::Auto => !api.commands.access().is_required().await?,
    })
}

/// The credential of the header `Authorization`; `None` if there is no such header.
fn bearer(headers: &HeaderMap, limits: &Limits, ip: IpAddr) -> Result<Option<String>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let split = text.and_then(|text| text.split_once(' '));
    let credential = split.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, text)| text.trim());
    match credential.filter(|text| !text.is_empty() && text.len() <= CREDENTIAL_BYTES_MAX) {
        Some(credential) => Ok(Some(credential.to_owned())),
        None => Err(limits.fail(ip)),
    }
}

/// The claim that a run token names, if the path names the same run.
async fn run_caller(
    key: Option<&RunKey>,
    credential: &str,
    request: &mut Request,
    ip: IpAddr,
    id: &str,
) -> Option<Caller> {
    let Path(params) = request.extract_parts::<Path<Vec<(String, String)>>>().await.ok()?;
    let (_, run) = params.into_iter().find(|(name, _)| name == "id")?;
    let claim = key?.check(credential, run.parse().ok()?)?;
    Some(Caller::run(claim, ip, id.to_owned()))
}

fn allows_ip(networks: &[String], ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    networks.is_empty() || networks.iter().any(|text| text.parse().is_ok_and(|network: IpNet| network.contains(&ip)))
}

/// The tenant that the header names, for an instance token. Only the role `instance` may choose a tenant.
async fn chosen_tenant(api: &Api, headers: &HeaderMap, role: Role) -> Result<Option<TenantId>> {
    let Some(name) = headers.get(&TENANT) else { return Ok(None) };
    if role != Role::Instance {
        return Err(tenant_refused());
    }
    let name = name.to_str().ok().filter(|name| check_name(name).is_ok()).ok_or(ApiError::NotFound("tenant"))?;
    Ok(Some(api.commands.tenants().named(name).await?.id))
}

fn refuse_tenant(headers: &HeaderMap) -> Result<()> {
    if headers.contains_key(&TENANT) { Err(tenant_refused()) } else { Ok(()) }
}

fn tenant_refused() -> ApiError {
    ApiError::Forbidden("only an instance token may choose a tenant; remove the header everytick-tenant".to_owned())
}
