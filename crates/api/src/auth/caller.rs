//! An authenticated caller, and what it may do.

use std::{net::IpAddr, sync::Arc};

use everytick_domain::{
    access::{Grant, Permission, Role, RunClaim, Scope, TokenHash},
    ids::TenantId,
    time::DbTime,
};
use everytick_engine::{
    Credential,
    types::{Actor, ActorKind, Creator, TenantRecord, TokenRecord},
};

use super::AuthMode;

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(super) actor: Actor,
    pub(super) tenant: TenantId,
    /// The tenant as it was when the request came; `None` for an instance token outside of tenants.
    pub(super) within: Option<Arc<TenantRecord>>,
    pub(super) rights: Rights,
}

#[derive(Clone, Debug)]
pub(super) enum Rights {
    /// The API is open: callers on this machine may do everything.
    All {
        /// Whether the flag `--auth open` opens the API. Otherwise the API is open until the first credential exists.
        by_flag: bool,
    },
    Token {
        /// What the caller may do in this request.
        grant: Grant,
        /// The grant of the token itself. It differs if an instance token acts inside a tenant.
        own: Grant,
        hash: TokenHash,
        token: Box<TokenRecord>,
        /// A lower bound of the time on the database clock.
        now: DbTime,
    },
    /// The receiver of a delivery, which may work on that claim.
    Run(RunClaim),
}

static NO_LIMITS: Scope = Scope { queues: None, job_prefix: None, read_only: false };

impl Caller {
    /// A program on this machine, while the API is open.
    pub(super) fn local(mode: AuthMode, ip: IpAddr, request: String) -> Self {
        let actor = Actor { ip: Some(ip), request: Some(request), ..Actor::local("local") };
        Self { actor, tenant: TenantId::DEFAULT, within: None, rights: Rights::All { by_flag: mode == AuthMode::Open } }
    }

    pub(super) fn run(claim: RunClaim, ip: IpAddr, request: String) -> Self {
        let name = format!("run:{}", claim.run);
        let actor = Actor { name, kind: ActorKind::Token, token: None, ip: Some(ip), request: Some(request) };
        Self { actor, tenant: claim.tenant, within: None, rights: Rights::Run(claim) }
    }

    /// A caller with a token. `chosen` is the tenant in which an instance token acts.
    pub(super) fn token(found: &Credential, chosen: Option<TenantId>, ip: IpAddr, request: String) -> Self {
        let (token, now) = (found.token.as_ref().clone(), found.now);
        let name = format!("token:{}", token.name);
        let (ip, request) = (Some(ip), Some(request));
        let actor = Actor { name, kind: ActorKind::Token, token: Some(token.id), ip, request };
        let own = token.grant.clone();
        let grant = match chosen {
            Some(tenant) => Grant { tenant: Some(tenant), role: Role::Admin, scope: own.scope.clone() },
            None => own.clone(),
        };
        let tenant = grant.tenant.unwrap_or(TenantId::DEFAULT);
        let rights = Rights::Token { grant, own, hash: token.hash, token: Box::new(token), now };
        Self { actor, tenant, within: None, rights }
    }

    /// The tenant in which the caller acts; `None` for an instance token outside of tenants.
    pub(super) fn acts_in(&self) -> Option<TenantId> {
        match &self.rights {
            Rights::Token { grant, .. } => grant.tenant,
            Rights::All { .. } | Rights::Run(_) => Some(self.tenant),
        }
    }

    /// The name of that tenant.
    pub(crate) fn tenant_name(&self) -> Option<&str> {
        self.within.as_ref().map(|tenant| tenant.name.as_str())
    }

    pub(crate) fn may(&self, permission: Permission) -> bool {
        match &self.rights {
            Rights::All { .. } => true,
            Rights::Token { grant, .. } => grant.allows(permission),
            Rights::Run(_) => matches!(permission, Permission::Public | Permission::Work),
        }
    }

    /// The limits of the credential within its tenant.
    pub(crate) fn scope(&self) -> &Scope {
        match &self.rights {
            Rights::All { .. } | Rights::Run(_) => &NO_LIMITS,
            Rights::Token { grant, .. } => &grant.scope,
        }
    }

    /// The authority under which this caller creates tokens.
    pub(crate) fn creator(&self) -> Creator {
        match &self.rights {
            Rights::Token { own, .. } => Creator::Grant(own.clone()),
            Rights::All { by_flag: true } => Creator::Open,
            // This node may not know of the first credential yet, so the store checks that no credential exists.
            Rights::All { by_flag: false } | Rights::Run(_) => Creator::First,
        }
    }

    /// The hash of the request's token.
    pub(super) fn own_hash(&self) -> Option<&TokenHash> {
        match &self.rights {
            Rights::Token { hash, .. } => Some(hash),
            Rights::All { .. } | Rights::Run(_) => None,
        }
    }

    /// The token of the request.
    pub(crate) fn own_token(&self) -> Option<&TokenRecord> {
        match &self.rights {
            Rights::Token { token, .. } => Some(token),
            Rights::All { .. } | Rights::Run(_) => None,
        }
    }

    /// What the caller may do in this request; `None` while the API is open.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match &self.rights {
            Rights::Token { grant, .. } => Some(grant),
            Rights::All { .. } | Rights::Run(_) => None,
        }
    }

    /// The claim that the caller's run token permits to work on.
    pub(super) fn claim(&self) -> Option<RunClaim> {
        match &self.rights {
            Rights::Run(claim) => Some(*claim),
            Rights::All { .. } | Rights::Token { .. } => None,
        }
    }

    /// A lower bound of the time on the database clock, for a caller with a token.
    pub(super) fn now(&self) -> Option<DbTime> {
        match &self.rights {
            Rights::Token { now, .. } => Some(*now),
            Rights::All { .. } | Rights::Run(_) => None,
        }
    }

    pub(crate) fn actor_name(&self) -> &str {
        &self.actor.name
    }

    /// Whether the caller may manage credentials with this grant: those that it could create itself.
    pub(crate) fn manages(&self, other: &Grant) -> bool {
        match &self.rights {
            Rights::All { .. } => true,
            Rights::Token { own, .. } => own.may_create(other),
            Rights::Run(_) => false,
        }
    }
}
