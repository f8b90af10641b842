//! Tokens in requests and answers.

use std::{fmt, net::IpAddr};

use everytick_domain::{
    access::{self, Grant, Lifetime, LifetimePolicy, Permission, Role, Scope},
    ids::{TenantId, TokenId},
    invalid::Invalid,
    time::{DbTime, Span},
};
use everytick_engine::{TokenRequest as Command, types::TokenRecord};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::Caller;

const NAME_CHARS_MAX: usize = 100;
const ALLOWED_IPS_MAX: usize = 100;
const NEVER: &str = "never";

/// A token to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// Names the token in lists and in the audit trail. No other valid token of the tenant has the name.
    #[schema(example = "ci", min_length = 1, max_length = 100)]
    name: String,
    /// `viewer`, `operator`, `editor`, `admin`, `worker` or `instance`.
    #[schema(example = "operator")]
    role: String,
    /// The queues whose runs it may claim, as names or as prefixes with `*`. Required for the role `worker`.
    #[schema(example = json!(["mail-*"]))]
    queues: Option<Vec<String>>,
    /// It sees and changes only jobs whose names begin with this.
    #[schema(example = "etl-")]
    job_prefix: Option<String>,
    /// It changes nothing.
    read_only: Option<bool>,
    /// A duration such as `90d`, which is the default, or `never` if the server allows it.
    #[schema(example = "90d")]
    expires: Option<String>,
    /// Networks from which the token is accepted, such as `10.0.0.0/8`. Absent: all.
    allowed_ips: Option<Vec<String>>,
}

impl TokenRequest {
    pub(crate) fn read(self, tenant: TenantId, policy: LifetimePolicy) -> Result<Command, Vec<Invalid>> {
        let mut wrong = Vec::new();
        let sound = |name: &str| !name.is_empty() && name.chars().all(|c| !c.is_control());
        if !sound(&self.name) || self.name.chars().count() > NAME_CHARS_MAX {
            wrong.push(Invalid::new("name", format!("write 1 to {NAME_CHARS_MAX} characters, such as \"ci\"")));
        }
        let role = self.role.parse::<Role>().map_err(|message| wrong.push(Invalid::new("role", message))).ok();
        let queues = self.queues.map(|queues| {
            let read =
                |text: String| text.try_into().map_err(|message| wrong.push(Invalid::new("queues", message))).ok();
            queues.into_iter().filter_map(read).collect()
        });
        let lifetime = lifetime(self.expires.as_deref()).and_then(|wanted| policy.lifetime(wanted));
        let lifetime = lifetime.map_err(|invalid| wrong.push(invalid)).ok();
        let allowed_ips = networks(self.allowed_ips.unwrap_or_default()).map_err(|invalid| wrong.push(invalid)).ok();
        let scope = Scope { queues, job_prefix: self.job_prefix, read_only: self.read_only.unwrap_or(false) };
        let (Some(role), Some(lifetime), Some(allowed_ips), true) = (role, lifetime, allowed_ips, wrong.is_empty())
        else {
            return Err(wrong);
        };
        let grant = Grant { tenant: (role != Role::Instance).then_some(tenant), role, scope };
        grant.check().map_err(|invalid| vec![invalid])?;
        Ok(Command { name: self.name, grant, allowed_ips, lifetime })
    }
}

fn lifetime(text: Option<&str>) -> Result<Option<Lifetime>, Invalid> {
    match text {
        None => Ok(None),
        Some(NEVER) => Ok(Some(Lifetime::Unlimited)),
        Some(text) => {
            let span = text.parse::<Span>();
            let span = span.map_err(|error| Invalid::new("expires", format!("{error}; or write \"{NEVER}\"")))?;
            Ok(Some(Lifetime::For(span)))
        }
    }
}

/// An address means the network of that address alone.
fn networks(texts: Vec<String>) -> Result<Vec<String>, Invalid> {
    if texts.len() > ALLOWED_IPS_MAX {
        return Err(Invalid::new("allowed_ips", format!("names {} networks; at most {ALLOWED_IPS_MAX}", texts.len())));
    }
    let read = |text: String| {
        let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let wrong =
            || Invalid::new("allowed_ips", format!("{text:?} is not a network; write one such as \"10.0.0.0/8\""));
        network.map(|network| network.trunc().to_string()).ok_or_else(wrong)
    };
    texts.into_iter().map(read).collect()
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateRequest {
    /// How long the old token stays valid: 0s to 7d, default 1d.
    #[schema(value_type = Option<String>, example = "24h")]
    pub(crate) overlap: Option<Span>,
}

/// A token, without its secret text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Token {
    #[schema(value_type = String, format = Uuid)]
    id: TokenId,
    #[schema(example = "ci")]
    name: String,
    /// The first characters of the token.
    #[schema(example = "etk_4kTx")]
    prefix: String,
    #[schema(value_type = String, example = "operator")]
    role: Role,
    /// The tenant; `null` for the role `instance`, which belongs to none.
    #[schema(example = "default")]
    tenant: Option<String>,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    read_only: bool,
    allowed_ips: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    created_by: String,
    /// `null`: never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<DbTime>,
    /// Written at most once a minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<DbTime>,
    last_used_ip: Option<String>,
    /// The token that this one replaces.
    #[schema(value_type = Option<String>, format = Uuid)]
    rotated_from: Option<TokenId>,
}

impl Token {
    /// `tenant` is the name of the caller's tenant. A caller sees only tokens of its tenant, and tokens of no tenant.
    pub(crate) fn of(record: &TokenRecord, tenant: Option<&str>) -> Self {
        let scope = &record.grant.scope;
        Self {
            id: record.id,
            name: record.name.clone(),
            prefix: record.prefix.clone(),
            role: record.grant.role,
            tenant: record.grant.tenant.and(tenant).map(ToOwned::to_owned),
            queues: queues(scope),
            job_prefix: scope.job_prefix.clone(),
            read_only: scope.read_only,
            allowed_ips: record.allowed_ips.clone(),
            created_at: record.created_at,
            created_by: record.created_by.clone(),
            expires_at: record.expires_at,
            last_used_at: record.last_used_at,
            last_used_ip: record.last_used_ip.clone(),
            rotated_from: record.rotated_from,
        }
    }
}

fn queues(scope: &Scope) -> Option<Vec<String>> {
    scope.queues.as_ref().map(|queues| queues.iter().map(ToString::to_string).collect())
}

/// A revoked token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RevokedToken {
    #[serde(flatten)]
    token: Token,
    /// The valid tokens that were made from it by rotation. They ended with it.
    also_revoked: Vec<Token>,
}

impl RevokedToken {
    /// The first token of `ended` is the one that the request named.
    pub(crate) fn of(ended: &[TokenRecord], tenant: Option<&str>) -> Option<Self> {
        let (token, others) = ended.split_first()?;
        let also_revoked = others.iter().map(|token| Token::of(token, tenant)).collect();
        Some(Self { token: Token::of(token, tenant), also_revoked })
    }
}

/// A new token. No other answer contains its secret text.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewToken {
    /// The secret text, for the header `Authorization: Bearer`.
    #[schema(example = "etk_4kTxWv0pQbN2rYc8LdZsHf6JmUa1Ge7XoKi9RtBn2A3fQd")]
    token: String,
    #[serde(flatten)]
    record: Token,
}

impl NewToken {
    pub(crate) fn of(token: &access::Token, record: &TokenRecord, tenant: Option<&str>) -> Self {
        Self { token: token.expose().to_owned(), record: Token::of(record, tenant) }
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("record", &self.record).finish_non_exhaustive()
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenPage {
    pub(crate) items: Vec<Token>,
    /// Cursor of the next page; `null` on the last page.
    pub(crate) next_cursor: Option<String>,
}

/// The caller, and what it may do.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// As in the audit trail.
    #[schema(example = "token:ci")]
    actor: String,
    /// The tenant in which the caller acts; `null` for an instance token outside of tenants.
    #[schema(example = "default")]
    tenant: Option<String>,
    /// `null` while the API is open: then every caller on this machine may do everything.
    #[schema(value_type = Option<String>, example = "operator")]
    role: Option<Role>,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    read_only: bool,
    /// What the caller may do.
    #[schema(example = json!(["self", "read", "cluster", "control"]))]
    permissions: Vec<&'static str>,
    token: Option<Token>,
}

impl Me {
    pub(crate) fn of(caller: &Caller) -> Self {
        let mut permissions: Vec<&'static str> = Vec::new();
        for permission in Permission::ALL.into_iter().filter(|one| *one != Permission::Public && caller.may(*one)) {
            if permissions.last() != Some(&permission.name()) {
                permissions.push(permission.name());
            }
        }
        let (scope, grant) = (caller.scope(), caller.grant());
        Self {
            actor: caller.actor_name().to_owned(),
            tenant: caller.tenant_name().map(ToOwned::to_owned),
            role: grant.map(|grant| grant.role),
            queues: queues(scope),
            job_prefix: scope.job_prefix.clone(),
            read_only: scope.read_only,
            permissions,
            token: caller.own_token().map(|token| Token::of(token, caller.tenant_name())),
        }
    }
}
