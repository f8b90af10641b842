//! Sections of `everytick.toml` that give users a role without a token: `[proxy_auth]` and `[[client_cert]]`. They have no flags: a
//! list of rules belongs into a file.

use axum::http::HeaderName;
use everytick_api::{AlternativeName, CertGrant, ProxyAuth, Trusted};
use everytick_domain::{
    access::{GrantRule, NamedGrant, Pattern, RULES_MAX, Role, Scope},
    invalid::Invalid,
};
use ipnet::IpNet;
use serde::Deserialize;

const USER_HEADER: &str = "remote-user";
const GROUPS_HEADER: &str = "remote-groups";
/// The word for the Unix sockets in `trusted`.
const UNIX: &str = "unix";
/// Headers with a meaning of their own.
const RESERVED: [&str; 10] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "forwarded",
    "host",
    "origin",
    "transfer-encoding",
    "x-forwarded-for",
];

/// A role in a tenant.
struct GrantKeys {
    tenant: Option<String>,
    role: String,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    read_only: bool,
}

impl GrantKeys {
    fn read(self) -> Result<NamedGrant, Invalid> {
        let role = self.role.parse::<Role>().map_err(|message| Invalid::new("role", message))?;
        let patterns =
            |queues: Vec<String>| queues.into_iter().map(TryInto::try_into).collect::<Result<Vec<Pattern>, String>>();
        let queues = self.queues.map(patterns).transpose();
        let queues = queues.map_err(|message: String| Invalid::new("queues", message))?;
        let scope = Scope { queues, job_prefix: self.job_prefix, read_only: self.read_only };
        let grant = NamedGrant { tenant: self.tenant, role, scope };
        grant.check().map(|()| grant)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupGrantKeys {
    group: String,
    tenant: Option<String>,
    role: String,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    #[serde(default)]
    read_only: bool,
}

impl GroupGrantKeys {
    fn read(self) -> Result<GrantRule, Invalid> {
        let Self { group, tenant, role, queues, job_prefix, read_only } = self;
        let grant = GrantKeys { tenant, role, queues, job_prefix, read_only }.read()?;
        let rule = GrantRule { group, grant };
        rule.check().map(|()| rule)
    }
}

/// Reads rules; an error begins with the name of the list, if it has one, and the position of the rule.
fn rules<K, R>(keys: Vec<K>, list: &str, read: impl Fn(K) -> Result<R, Invalid>) -> Result<Vec<R>, String> {
    if !(1..=RULES_MAX).contains(&keys.len()) {
        return Err(format!("{list}{} rules; write 1 to {RULES_MAX}", keys.len()));
    }
    let numbered = (1..).zip(keys);
    numbered.map(|(n, keys)| read(keys).map_err(|wrong| format!("{list}rule {n}: {wrong}"))).collect()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyAuthKeys {
    #[serde(default)]
    trusted: Vec<String>,
    #[serde(default = "user_header")]
    user_header: String,
    #[serde(default = "groups_header")]
    groups_header: String,
    #[serde(default)]
    grants: Vec<GroupGrantKeys>,
}

fn user_header() -> String {
    USER_HEADER.to_owned()
}

fn groups_header() -> String {
    GROUPS_HEADER.to_owned()
}

impl ProxyAuthKeys {
    pub(super) fn read(self) -> Result<ProxyAuth, String> {
        let trusted = trusted(&self.trusted)?;
        let header = |key: &str, name: &str| {
            let name = name.to_ascii_lowercase();
            let is_own = name.starts_with("everytick") || name.starts_with("sec-") || RESERVED.contains(&name.as_str());
            let parsed = name.parse::<HeaderName>().ok().filter(|_| !is_own);
            parsed.ok_or_else(|| {
                format!(
                    "{key}: {name:?} is not accepted; write the name of a header of its own, such as \"{USER_HEADER}\""
                )
            })
        };
        let (user, groups) = (header("user_header", &self.user_header)?, header("groups_header", &self.groups_header)?);
        if user == groups {
            return Err(format!("groups_header: {groups} is also the user_header; write another name"));
        }
        let grants = rules(self.grants, "grants: ", GroupGrantKeys::read)?;
        Ok(ProxyAuth { trusted, user_header: user, groups_header: groups, grants })
    }
}

fn trusted(texts: &[String]) -> Result<Trusted, String> {
    let mut trusted = Trusted::default();
    for text in texts {
        if text == UNIX {
            trusted.unix = true;
            continue;
        }
        let network = text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<std::net::IpAddr>().ok()?.into()));
        match network {
            Some(network) if network.prefix_len() == 0 => {
                return Err(format!(
                    "trusted: {text} is every address, so every client could name its user; write the proxy's address"
                ));
            }
            Some(network) => trusted.networks.push(network.trunc()),
            None => {
                return Err(format!(
                    "trusted: {text:?} is not a network; write one such as \"10.0.0.5/32\", or \"{UNIX}\""
                ));
            }
        }
    }
    if trusted == Trusted::default() {
        return Err(format!(
            "trusted is missing or empty; write the addresses of the proxies, such as [\"10.0.0.5/32\"], or [\"{UNIX}\"]"
        ));
    }
    Ok(trusted)
}

/// A certificate and its role.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientCertKeys {
    san: String,
    tenant: Option<String>,
    role: String,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    #[serde(default)]
    read_only: bool,
}

/// The grants of client certificates.
pub(crate) fn cert_grants(keys: Vec<ClientCertKeys>) -> Result<Vec<CertGrant>, String> {
    rules(keys, "", |keys: ClientCertKeys| {
        let ClientCertKeys { san, tenant, role, queues, job_prefix, read_only } = keys;
        let grant = GrantKeys { tenant, role, queues, job_prefix, read_only }.read()?;
        let san = san.parse::<AlternativeName>().map_err(|message: String| Invalid::new("san", message))?;
        Ok(CertGrant { san, grant })
    })
}
