//! Access control: roles, permissions, scopes and tokens, as pure rules. The API authenticates a caller, then checks
//! here whether the caller has the permission that its request needs. The store keeps only hashes of tokens.
//!
//! | file | rule |
//! |---|---|
//! | `permission` | which role has which permission: the matrix |
//! | `scope` | the part of its tenant that a credential may access: queues, job names, reads only |
//! | `token` | the text of a token, its checksum and its hash |
//! | `lifetime` | how long a token is valid |
//! | `rotation` | which token may be replaced by a new one, and what a revocation ends |
//! | `rules` | which grants the members of a group have |
//! | `run_token` | the proof that a receiver may settle one claim |
//! | `session` | the secret of a browser's session, how long it lasts, and what it grants |

mod lifetime;
mod permission;
mod rotation;
mod rules;
mod run_token;
mod scope;
mod session;
mod token;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{ids::TenantId, invalid::Invalid};

pub use lifetime::{
    EXPIRES_SOON, LIFETIME_DEFAULT, LIFETIME_MAX_DEFAULT, Lifetime, LifetimePolicy, OVERLAP_DEFAULT, OVERLAP_MAX,
    check_overlap,
};
pub use permission::Permission;
pub use rotation::{CHAIN_VALID_MAX, ROTATED_AGAIN_AFTER, Rotation, Rotations};
pub use rules::{GrantRule, RULES_MAX, check_rule_name, grants_of};
pub use run_token::{RunClaim, RunKey, is_run_token};
pub use scope::{PATTERNS_MAX, Pattern, Scope};
pub use session::{
    NamedGrant, SESSION_IDLE_MAX, SESSION_LIFETIME, SESSIONS_PER_USER_MAX, SessionHash, SessionSecret, session_is_live,
};
pub use token::{BadToken, TOKEN_PREFIX_CHARS, Token, TokenHash};

/// What a credential allows. Roles of a tenant are ordered: each has the permissions of the roles before it, except `worker`, which
/// only works on runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads jobs and runs.
    Viewer,
    /// Also pauses, triggers and cancels.
    Operator,
    /// Also creates and edits jobs.
    Editor,
    /// Also manages tokens and secrets of its tenant.
    Admin,
    /// Claims and settles runs of some queues.
    Worker,
    /// Manages tenants and the installation. Belongs to no tenant.
    Instance,
}

impl Role {
    pub const ALL: [Self; 6] = [Self::Viewer, Self::Operator, Self::Editor, Self::Admin, Self::Worker, Self::Instance];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Editor => "editor",
            Self::Admin => "admin",
            Self::Worker => "worker",
            Self::Instance => "instance",
        }
    }

    /// Whether a caller with this role may create a credential with the role `other`.
    #[must_use]
    pub const fn may_grant(self, other: Self) -> bool {
        match self {
            Self::Instance => true,
            Self::Admin => !matches!(other, Self::Instance),
            Self::Viewer | Self::Operator | Self::Editor | Self::Worker => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a role; write one of {names}"))
    }
}

/// What an authenticated caller may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// `None` for the role `instance`, which belongs to no tenant.
    pub tenant: Option<TenantId>,
    pub role: Role,
    pub scope: Scope,
}

impl Grant {
    /// Full access to one tenant.
    #[must_use]
    pub fn admin(tenant: TenantId) -> Self {
        Self { tenant: Some(tenant), role: Role::Admin, scope: Scope::default() }
    }

    /// Whether the grant includes a permission. A read-only scope keeps only permissions that read.
    #[must_use]
    pub fn allows(&self, permission: Permission) -> bool {
        permission.granted_to(self.role) && (permission.only_reads() || !self.scope.read_only)
    }

    /// Whether a caller with this grant may create a credential with the grant `other`: a credential is never stronger
    /// than its creator.
    #[must_use]
    pub fn may_create(&self, other: &Self) -> bool {
        self.check_create(other).is_ok()
    }

    /// The same as `may_create`. The error names the field of `other` that exceeds this grant.
    pub fn check_create(&self, other: &Self) -> Result<(), Invalid> {
        let stronger = |field: &str, message: String| Err(Invalid::new(field, message));
        if self.role != Role::Instance && self.tenant != other.tenant {
            return stronger("role", "a credential of another tenant cannot be created".to_owned());
        }
        if !self.role.may_grant(other.role) {
            return stronger("role", format!("a caller with role {} cannot create role {}", self.role, other.role));
        }
        if !self.scope.contains(&other.scope) {
            return stronger("scope", "is wider than the scope of the caller".to_owned());
        }
        Ok(())
    }

    /// Checks that this can be the grant of the first token, which closes the API: its owner must be able to create all
    /// further tokens.
    pub fn check_first(&self) -> Result<(), Invalid> {
        let closes = "the first token closes the API, and further tokens are created with it";
        if !self.role.may_grant(Role::Admin) {
            let message =
                format!("{closes}, which the role {} may not do; create one with the role admin first", self.role);
            return Err(Invalid::new("role", message));
        }
        if self.tenant.is_some_and(|tenant| tenant != TenantId::DEFAULT) {
            return Err(Invalid::new("tenant", format!("{closes}; create it in the tenant default")));
        }
        let limited = match &self.scope {
            Scope { read_only: true, .. } => "read_only",
            Scope { job_prefix: Some(_), .. } => "job_prefix",
            Scope { queues: Some(_), .. } => "queues",
            Scope { .. } => return Ok(()),
        };
        Err(Invalid::new(limited, format!("{closes}; create one without a limit first")))
    }

    /// Checks that the scope fits the role.
    pub fn check(&self) -> Result<(), Invalid> {
        self.scope.check()?;
        if self.role == Role::Worker && self.scope.queues.is_none() {
            return Err(Invalid::new("queues", "a worker needs queues; write names or prefixes, such as [\"mail-*\"]"));
        }
        if self.role == Role::Worker && self.scope.job_prefix.is_some() {
            return Err(Invalid::new("job_prefix", "a worker is limited by its queues; leave job_prefix out"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(tenant: i32, role: Role) -> Grant {
        let tenant = (role != Role::Instance).then(|| TenantId::from_raw(tenant));
        Grant { tenant, role, scope: Scope::default() }
    }

    #[test]
    fn each_role_reads_back_from_its_name() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        let error = "root".parse::<Role>().unwrap_err();
        assert!(error.contains("\"root\"") && error.contains("viewer, operator"), "{error}");
    }

    #[test]
    fn a_credential_is_never_stronger_than_its_creator() {
        let (admin, instance) = (grant(1, Role::Admin), grant(1, Role::Instance));
        for role in Role::ALL {
            assert_eq!(admin.may_create(&grant(1, role)), role != Role::Instance, "{role}");
            assert!(!admin.may_create(&grant(2, role)), "{role} of another tenant");
            assert!(instance.may_create(&grant(2, role)), "{role}");
            for weak in [Role::Viewer, Role::Operator, Role::Editor, Role::Worker] {
                assert!(!grant(1, weak).may_create(&grant(1, role)), "{weak} creates {role}");
            }
        }
    }

    #[test]
    fn a_scope_limits_what_its_owner_may_create() {
        let scope = Scope { job_prefix: Some("etl-".to_owned()), ..Scope::default() };
        let limited = Grant { scope: scope.clone(), ..grant(1, Role::Admin) };
        assert!(!limited.may_create(&grant(1, Role::Viewer)));
        assert!(limited.may_create(&Grant { scope, ..grant(1, Role::Viewer) }));
    }

    #[test]
    fn the_refusal_to_create_names_the_field() {
        let admin = grant(1, Role::Admin);
        let read_only = Grant { scope: Scope { read_only: true, ..Scope::default() }, ..admin.clone() };
        assert_eq!(admin.check_create(&grant(1, Role::Instance)).unwrap_err().field, "role");
        assert_eq!(read_only.check_create(&admin).unwrap_err().field, "scope");
    }

    #[test]
    fn the_first_token_can_create_all_further_ones() {
        for role in Role::ALL {
            let refused = grant(1, role).check_first().err();
            let may = matches!(role, Role::Admin | Role::Instance);
            assert_eq!(refused.is_none(), may, "{role}");
            if let Some(refused) = refused {
                assert!(refused.field == "role" && refused.message.contains("the role admin first"), "{refused}");
            }
        }
        assert_eq!(grant(2, Role::Admin).check_first().unwrap_err().field, "tenant");
        let limited = |scope| Grant { scope, ..grant(1, Role::Admin) }.check_first().unwrap_err().field;
        assert_eq!(limited(Scope { read_only: true, ..Scope::default() }), "read_only");
        assert_eq!(limited(Scope { job_prefix: Some("etl-".to_owned()), ..Scope::default() }), "job_prefix");
        assert_eq!(limited(Scope { queues: Some(Vec::new()), ..Scope::default() }), "queues");
    }

    #[test]
    fn a_worker_needs_queues() {
        assert_eq!(grant(1, Role::Worker).check().unwrap_err().field, "queues");
        assert!(grant(1, Role::Viewer).check().is_ok());
    }

    #[test]
    fn a_read_only_grant_keeps_only_permissions_that_read() {
        let scope = Scope { read_only: true, ..Scope::default() };
        let reads = Grant { scope, ..grant(1, Role::Admin) };
        assert!(reads.allows(Permission::Read) && reads.allows(Permission::Cluster));
        for writes in [Permission::Control, Permission::Write, Permission::Manage, Permission::Work] {
            assert!(!reads.allows(writes), "{}", writes.name());
        }
    }
}
