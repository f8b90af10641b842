//! Which grants a user gets, by rules of the operator: a rule gives the members of a group a role in a tenant.

use super::{NamedGrant, Role};
use crate::invalid::Invalid;

/// Maximum number of rules of one kind.
pub const RULES_MAX: usize = 1_000;
const NAME_CHARS_MAX: usize = 200;

/// Members of the group, or owners of the name, have this grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantRule {
    pub group: String,
    pub grant: NamedGrant,
}

impl GrantRule {
    pub fn check(&self) -> Result<(), Invalid> {
        check_rule_name("group", &self.group)?;
        self.grant.check()
    }
}

/// Checks the text to which a rule compares a name: it is not empty, short, and has no control characters.
pub fn check_rule_name(field: &str, text: &str) -> Result<(), Invalid> {
    let is_sound = !text.is_empty() && text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control);
    let message = || format!("write 1 to {NAME_CHARS_MAX} characters without control characters");
    if is_sound { Ok(()) } else { Err(Invalid::new(field, message())) }
}

impl NamedGrant {
    /// Checks that tenant and scope fit the role.
    pub fn check(&self) -> Result<(), Invalid> {
        match (self.role, &self.tenant) {
            (Role::Instance, Some(tenant)) => {
                let message = format!("{tenant:?} is named, but the role instance belongs to no tenant; leave it out");
                return Err(Invalid::new("tenant", message));
            }
            (Role::Instance, None) => {}
            (_, None) => return Err(Invalid::new("tenant", "is missing; write its name, such as \"default\"")),
            (_, Some(tenant)) => check_rule_name("tenant", tenant)?,
        }
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

/// The grants of a member of these groups, one for each tenant: that with the highest role, and of several with this
/// role, that of the first rule. In the order of the rules.
#[must_use]
pub fn grants_of(rules: &[GrantRule], groups: &[String]) -> Vec<NamedGrant> {
    let mut found: Vec<&NamedGrant> = Vec::new();
    for GrantRule { group, grant } in rules {
        if !groups.contains(group) {
            continue;
        }
        match found.iter_mut().find(|other| other.tenant == grant.tenant) {
            None => found.push(grant),
            Some(other) if rank(grant.role) > rank(other.role) => *other = grant,
            Some(_) => {}
        }
    }
    found.into_iter().cloned().collect()
}

/// A worker may less than every role that reads jobs.
const fn rank(role: Role) -> u8 {
    match role {
        Role::Worker => 0,
        Role::Viewer => 1,
        Role::Operator => 2,
        Role::Editor => 3,
        Role::Admin => 4,
        Role::Instance => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Scope;

    fn grant(tenant: &str, role: Role) -> NamedGrant {
        NamedGrant { tenant: Some(tenant.to_owned()), role, scope: Scope::default() }
    }

    fn rule(group: &str, tenant: &str, role: Role) -> GrantRule {
        GrantRule { group: group.to_owned(), grant: grant(tenant, role) }
    }

    fn groups(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_highest_role_of_each_tenant_counts() {
        let rules = [
            rule("all", "a", Role::Viewer),
            rule("ops", "a", Role::Operator),
            rule("dev", "a", Role::Editor),
            rule("bots", "a", Role::Worker),
            rule("ops", "b", Role::Admin),
        ];
        for (of, expected) in [
            (&["all"][..], vec![grant("a", Role::Viewer)]),
            (&["ops", "all"], vec![grant("a", Role::Operator), grant("b", Role::Admin)]),
            (&["all", "dev", "ops"], vec![grant("a", Role::Editor), grant("b", Role::Admin)]),
            (&["bots", "all"], vec![grant("a", Role::Viewer)]),
            (&["bots"], vec![grant("a", Role::Worker)]),
            (&["op", "OPS", "ops "], vec![]),
            (&[], vec![]),
        ] {
            assert_eq!(grants_of(&rules, &groups(of)), expected, "{of:?}");
        }
    }

    #[test]
    fn of_two_rules_with_one_role_the_first_counts() {
        let scope = Scope { job_prefix: Some("etl-".to_owned()), ..Scope::default() };
        let narrow =
            GrantRule { grant: NamedGrant { scope, ..grant("a", Role::Editor) }, ..rule("x", "a", Role::Editor) };
        let rules = [narrow.clone(), rule("y", "a", Role::Editor)];
        assert_eq!(grants_of(&rules, &groups(&["y", "x"])), [narrow.grant]);
    }

    #[test]
    fn a_rule_that_cannot_be_meant_is_refused_with_its_field() {
        let named = |tenant: Option<&str>, role| GrantRule {
            grant: NamedGrant { tenant: tenant.map(str::to_owned), ..grant("a", role) },
            ..rule("ops", "a", role)
        };
        let prefixed = |role| {
            let queues = Some(vec!["*".to_owned().try_into().unwrap()]);
            let scope = Scope { queues, job_prefix: Some("x".to_owned()), ..Scope::default() };
            GrantRule { grant: NamedGrant { scope, ..grant("a", role) }, ..rule("ops", "a", role) }
        };
        for (wrong, field) in [
            (rule("", "a", Role::Viewer), "group"),
            (rule("a\nb", "a", Role::Viewer), "group"),
            (rule(&"a".repeat(201), "a", Role::Viewer), "group"),
            (named(None, Role::Admin), "tenant"),
            (named(Some(""), Role::Admin), "tenant"),
            (named(Some("a"), Role::Instance), "tenant"),
            (rule("ops", "a", Role::Worker), "queues"),
            (prefixed(Role::Worker), "job_prefix"),
        ] {
            assert_eq!(wrong.check().unwrap_err().field, field, "{wrong:?}");
        }
        for right in [rule("ops", "a", Role::Admin), named(None, Role::Instance), prefixed(Role::Editor)] {
            assert_eq!(right.check(), Ok(()));
        }
    }
}
