//! Users who show a client certificate. The TLS listener has verified it before; a rule of the operator gives its owner a role.
//!
//! A certificate that no rule names is no credential: it only allows the connection, and the next credential decides.

use std::{net::IpAddr, str::FromStr};

use everytick_domain::access::{GrantRule, NamedGrant, check_rule_name, grants_of};

use super::caller::{Caller, Person};
use crate::{
    error::{ApiError, Result},
    server::ClientCertificate,
};

/// A subject alternative name, with its kind: `URI:spiffe://example.org/worker`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlternativeName(String);

/// The owner of a certificate with this name has this grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertGrant {
    pub san: AlternativeName,
    pub grant: NamedGrant,
}

const KINDS: [&str; 4] = ["URI:", "DNS:", "IP:", "email:"];
const DNS: &str = "DNS:";

impl FromStr for AlternativeName {
    type Err = String;

    /// Reads a name with or without its kind. Names of different kinds never match.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        check_rule_name("san", text).map_err(|wrong| wrong.message)?;
        let with_kind = match KINDS.iter().find(|kind| text.starts_with(**kind)) {
            Some(_) => text.to_owned(),
            None if text.contains("://") => format!("URI:{text}"),
            None if text.contains('@') => format!("email:{text}"),
            None if text.parse::<IpAddr>().is_ok() => format!("IP:{text}"),
            None => format!("{DNS}{text}"),
        };
        if with_kind.contains('*') {
            return Err(format!(
                "{text:?} has a wildcard; write the whole name, such as \"spiffe://example.org/worker\""
            ));
        }
        Ok(Self(normal(&with_kind)))
    }
}

/// Names of hosts have no case.
fn normal(name: &str) -> String {
    match name.strip_prefix(DNS) {
        Some(host) => format!("{DNS}{}", host.to_ascii_lowercase()),
        None => name.to_owned(),
    }
}

/// The caller that a certificate identifies; `None` if no rule names it.
pub(super) fn caller(
    rules: &[CertGrant],
    certificate: &ClientCertificate,
    ip: IpAddr,
    id: &str,
) -> Result<Option<Caller>> {
    let names: Vec<String> = certificate.alternative_names().iter().map(|name| normal(name)).collect();
    let of_rule = |rule: &CertGrant| GrantRule { group: rule.san.0.clone(), grant: rule.grant.clone() };
    let rules: Vec<GrantRule> = rules.iter().filter(|rule| names.contains(&rule.san.0)).map(of_rule).collect();
    if rules.is_empty() {
        return Ok(None);
    }
    // A certificate may have no subject, if it has alternative names.
    let subject = Some(certificate.subject()).filter(|subject| !subject.is_empty());
    let user = subject.or(names.first().map(String::as_str)).unwrap_or_default();
    let caller = Caller::person(Person::Certificate, user, &grants_of(&rules, &names), ip, id.to_owned());
    caller.map(Some).ok_or_else(|| ApiError::Forbidden(format!("no tenant of the grants of {user:?} exists")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_kind_and_matches_only_names_of_its_kind() {
        for (text, expected) in [
            ("spiffe://example.org/worker", "URI:spiffe://example.org/worker"),
            ("URI:spiffe://example.org/worker", "URI:spiffe://example.org/worker"),
            ("worker-1.Example.org", "DNS:worker-1.example.org"),
            ("DNS:Worker-1", "DNS:worker-1"),
            ("10.0.0.5", "IP:10.0.0.5"),
            ("2001:db8::5", "IP:2001:db8::5"),
            ("ops@example.org", "email:ops@example.org"),
        ] {
            assert_eq!(text.parse(), Ok(AlternativeName(expected.to_owned())), "{text}");
        }
        for text in ["", "*.example.org", "spiffe://example.org/*", "a\nb"] {
            assert!(text.parse::<AlternativeName>().is_err(), "{text:?}");
        }
    }
}
