//! An authenticated caller, and what it may do.

use std::{net::IpAddr, sync::Arc};

use everytick_domain::{
    access::{Grant, NamedGrant, Permission, Role, RunClaim, Scope, SessionSecret, TokenHash},
    ids::TenantId,
    time::DbTime,
};
use everytick_engine::{
    Credential, Session,
    types::{Actor, ActorKind, Creator, SessionRecord, TokenRecord},
};

use super::{AuthMode, tenants};

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(super) actor: Actor,
    pub(super) tenant: TenantId,
    pub(super) rights: Rights,
    pub(super) session: Option<OwnSession>,
}

/// How a user without a token was authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Person {
    Proxy,
    Certificate,
}

impl Person {
    const fn kind(self) -> ActorKind {
        match self {
            Self::Proxy => ActorKind::Proxy,
            Self::Certificate => ActorKind::Certificate,
        }
    }
}

/// The session of a request, whose cookie is its credential.
#[derive(Clone, Debug)]
pub(crate) struct OwnSession {
    pub(super) secret: SessionSecret,
    pub(crate) record: Arc<SessionRecord>,
}

impl OwnSession {
    /// The token that each change in this session must carry.
    pub(crate) fn csrf(&self) -> String {
        self.secret.csrf()
    }
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
    /// A user without a token.
    User {
        grant: Grant,
        /// Identifies the user for the limit of requests.
        key: [u8; 32],
    },
    /// The receiver of a delivery, which may work on that claim.
    Run(RunClaim),
}

static NO_LIMITS: Scope = Scope { queues: None, job_prefix: None, read_only: false };

impl Caller {
    /// A program on this machine, while the API is open.
    pub(super) fn local(mode: AuthMode, ip: IpAddr, request: String) -> Self {
        let actor = Actor { ip: Some(ip), request: Some(request), ..Actor::local("local") };
        let rights = Rights::All { by_flag: mode == AuthMode::Open };
        Self { actor, tenant: TenantId::DEFAULT, rights, session: None }
    }

    pub(super) fn run(claim: RunClaim, ip: IpAddr, request: String) -> Self {
        let name = format!("run:{}", claim.run);
        let actor = Actor { name, kind: ActorKind::Token, token: None, ip: Some(ip), request: Some(request) };
        Self { actor, tenant: claim.tenant, rights: Rights::Run(claim), session: None }
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
        Self { actor, tenant, rights, session: None }
    }

    /// A caller with a session whose user has no token. `None` if no tenant of its grants exists.
    pub(super) fn user(session: &SessionRecord, ip: IpAddr, request: String) -> Option<Self> {
        let grant = chosen(&session.grants, session.tenant.as_deref())?;
        Some(Self::without_token(session.user.clone(), ActorKind::User, grant, ip, request))
    }

    /// A caller with these grants. `None` if no tenant of them exists.
    pub(super) fn person(
        person: Person,
        name: &str,
        grants: &[NamedGrant],
        ip: IpAddr,
        request: String,
    ) -> Option<Self> {
        let grant = chosen(grants, None)?;
        let name = format!("{}:{name}", person.kind().word());
        Some(Self::without_token(name, person.kind(), grant, ip, request))
    }

    fn without_token(name: String, kind: ActorKind, grant: Grant, ip: IpAddr, request: String) -> Self {
        let key = *blake3::hash(name.as_bytes()).as_bytes();
        let actor = Actor { name, kind, token: None, ip: Some(ip), request: Some(request) };
        let tenant = grant.tenant.unwrap_or(TenantId::DEFAULT);
        Self { actor, tenant, rights: Rights::User { grant, key }, session: None }
    }

    /// The same caller, whose credential is this session.
    pub(super) fn in_session(self, secret: SessionSecret, session: &Session) -> Self {
        Self { session: Some(OwnSession { secret, record: session.record.clone() }), ..self }
    }

    /// The same caller in another tenant, which its session has chosen.
    pub(crate) fn in_tenant(&self, name: &str) -> Option<Self> {
        let session = self.session.clone()?;
        let record = SessionRecord { tenant: Some(name.to_owned()), ..session.record.as_ref().clone() };
        let (ip, request) = (self.actor.ip?, self.actor.request.clone().unwrap_or_default());
        let caller = match &self.rights {
            Rights::Token { own, token, now, .. } => {
                let found = Credential { token: Arc::new(token.as_ref().clone()), now: *now };
                let tenant = if own.role == Role::Instance { Some(tenants::named(name)?) } else { None };
                Self::token(&found, tenant, ip, request)
            }
            _ => Self::user(&record, ip, request)?,
        };
        Some(Self { session: Some(OwnSession { record: Arc::new(record), ..session }), ..caller })
    }

    pub(crate) fn may(&self, permission: Permission) -> bool {
        match &self.rights {
            Rights::All { .. } => true,
            Rights::Token { grant, .. } | Rights::User { grant, .. } => grant.allows(permission),
            Rights::Run(_) => matches!(permission, Permission::Public | Permission::Work),
        }
    }

    /// The limits of the credential within its tenant.
    pub(crate) fn scope(&self) -> &Scope {
        match &self.rights {
            Rights::All { .. } | Rights::Run(_) => &NO_LIMITS,
            Rights::Token { grant, .. } | Rights::User { grant, .. } => &grant.scope,
        }
    }

    /// The authority under which this caller creates tokens.
    pub(crate) fn creator(&self) -> Creator {
        match &self.rights {
            Rights::Token { own, .. } => Creator::Grant(own.clone()),
            Rights::User { grant, .. } => Creator::Grant(grant.clone()),
            Rights::All { by_flag: true } => Creator::Open,
            // This node may not know of the first credential yet, so the store checks that no credential exists.
            Rights::All { by_flag: false } | Rights::Run(_) => Creator::First,
        }
    }

    /// The token of the request, or of the login of its session.
    pub(crate) fn token_used(&self) -> Option<&TokenRecord> {
        match &self.rights {
            Rights::Token { token, .. } => Some(token),
            Rights::All { .. } | Rights::User { .. } | Rights::Run(_) => None,
        }
    }

    /// The token of the request. A session has none: it ends soon, so it must not get the secret of a token that lives longer.
    pub(crate) fn own_token(&self) -> Option<&TokenRecord> {
        self.token_used().filter(|_| self.session.is_none())
    }

    pub(crate) fn own_session(&self) -> Option<&OwnSession> {
        self.session.as_ref()
    }

    /// What the caller may do in this request; `None` while the API is open.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match &self.rights {
            Rights::Token { grant, .. } | Rights::User { grant, .. } => Some(grant),
            Rights::All { .. } | Rights::Run(_) => None,
        }
    }

    /// The claim that the caller's run token permits to work on.
    pub(super) fn claim(&self) -> Option<RunClaim> {
        match &self.rights {
            Rights::Run(claim) => Some(*claim),
            Rights::All { .. } | Rights::Token { .. } | Rights::User { .. } => None,
        }
    }

    /// A lower bound of the time on the database clock, for a caller with a token.
    pub(super) fn now(&self) -> Option<DbTime> {
        match &self.rights {
            Rights::Token { now, .. } => Some(*now),
            Rights::All { .. } | Rights::User { .. } | Rights::Run(_) => None,
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
            Rights::User { grant, .. } => grant.may_create(other),
            Rights::Run(_) => false,
        }
    }
}

/// The grant for the chosen tenant, or without a choice the first one whose tenant exists. A chosen tenant that is gone gives no
/// grant: a request that is meant for one tenant must not act in another.
fn chosen(grants: &[NamedGrant], tenant: Option<&str>) -> Option<Grant> {
    let Some(tenant) = tenant else { return grants.iter().find_map(resolve) };
    if let Some(own) = grants.iter().find(|grant| grant.tenant.as_deref() == Some(tenant)) {
        return resolve(own);
    }
    let instance = grants.iter().find(|grant| grant.role == Role::Instance)?;
    Some(Grant { tenant: Some(tenants::named(tenant)?), role: Role::Admin, scope: instance.scope.clone() })
}

/// The grant with its tenant. `None` if no tenant has the name.
pub(crate) fn resolve(grant: &NamedGrant) -> Option<Grant> {
    let tenant = match &grant.tenant {
        Some(name) => Some(tenants::named(name)?),
        None => None,
    };
    Some(Grant { tenant, role: grant.role, scope: grant.scope.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grant_of_the_chosen_tenant_counts_or_the_first_whose_tenant_exists() {
        let grant = |tenant: &str, role| NamedGrant { tenant: Some(tenant.to_owned()), role, scope: Scope::default() };
        let both = [grant("gone", Role::Admin), grant("default", Role::Viewer)];
        for (choice, expected) in [
            (None, Some(Role::Viewer)),
            (Some("default"), Some(Role::Viewer)),
            (Some("gone"), None),
            (Some("other"), None),
        ] {
            assert_eq!(chosen(&both, choice).map(|grant| grant.role), expected, "{choice:?}");
        }
        let instance = [NamedGrant { tenant: None, role: Role::Instance, scope: Scope::default() }];
        let acting = chosen(&instance, Some("default")).unwrap();
        assert_eq!((acting.role, acting.tenant), (Role::Admin, Some(TenantId::DEFAULT)));
        assert_eq!(chosen(&instance, None).unwrap().role, Role::Instance);
        assert_eq!(chosen(&instance, Some("gone")), None);
    }
}
