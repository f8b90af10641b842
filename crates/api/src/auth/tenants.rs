//! The names of tenants. Credentials of users name their tenants; the name is looked up when the credential is used.

use everytick_domain::ids::TenantId;

/// The only tenant of this release.
const DEFAULT: &str = "default";

/// The tenant with this name.
pub(crate) fn named(name: &str) -> Option<TenantId> {
    (name == DEFAULT).then_some(TenantId::DEFAULT)
}

pub(crate) fn name_of(tenant: TenantId) -> String {
    if tenant == TenantId::DEFAULT { DEFAULT.to_owned() } else { tenant.raw().to_string() }
}
