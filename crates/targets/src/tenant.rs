//! What the jobs of a tenant may do: run commands, and which hosts, ports and schemes their webhooks may call. The rules narrow
//! those of the operator's settings, which apply too. Pure.

use everytick_domain::{
    invalid::Invalid,
    secret::{Host, HostPattern},
    target::{TargetKind, TargetSpec},
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::egress::{HTTPS, Ports, listed};

/// Most hosts, and most ports, of one tenant's rules.
pub const EGRESS_ENTRIES_MAX: usize = 1_000;

/// Where the webhooks of a tenant may go. The default allows what the operator's settings allow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantEgress {
    /// The only hosts that webhooks may call: `api.example.org`, `*.example.org:8443`. Empty: every host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostPattern>,
    /// The only ports: `443`, `"8000-8999"`. Empty: every port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Ports>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub https_only: bool,
}

impl TenantEgress {
    /// As it is stored.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// All errors, by field.
    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let counts = [("hosts", self.hosts.len()), ("ports", self.ports.len())];
        let wrong = counts.into_iter().filter(|(_, count)| *count > EGRESS_ENTRIES_MAX);
        wrong
            .map(|(field, count)| {
                Invalid::new(field, format!("has {count} entries; at most {EGRESS_ENTRIES_MAX} are allowed"))
            })
            .collect()
    }

    /// Why no webhook may be sent to this URL. The message contains only its host and port.
    fn check(&self, url: &Url) -> Result<(), String> {
        let Some(host) = Host::of(url) else { return Err("has no host".to_owned()) };
        if self.https_only && url.scheme() != HTTPS {
            return Err(format!("{host} is not called by https, and the tenant allows only https (egress.https_only)"));
        }
        if !self.ports.is_empty() && !self.ports.iter().any(|ports| ports.contains(host.port())) {
            let allowed = listed(&self.ports);
            return Err(format!(
                "{host} has a port that the tenant does not allow (egress.ports); the ports are {allowed}"
            ));
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|pattern| pattern.matches(&host)) {
            let allowed = listed(&self.hosts);
            return Err(format!("{host} is not a host that the tenant allows (egress.hosts); the hosts are {allowed}"));
        }
        Ok(())
    }
}

/// The rules of one tenant. A webhook must pass both layers: that of the operator, and that of the tenant's admins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantRules {
    shell: bool,
    egress: [TenantEgress; 2],
}

impl TenantRules {
    /// The rules of a stored tenant.
    pub fn of(shell: bool, egress: [&str; 2]) -> Result<Self, String> {
        let read = |text: &str| {
            serde_json::from_str::<TenantEgress>(text)
                .map_err(|error| format!("the rules of the tenant cannot be read: {error}"))
        };
        Ok(Self { shell, egress: [read(egress[0])?, read(egress[1])?] })
    }

    /// Why the tenant may not have a job with this target, by field.
    #[must_use]
    pub fn refused(&self, spec: &TargetSpec) -> Vec<Invalid> {
        let refused = match spec {
            TargetSpec::Shell(_) if !self.shell => Some(Invalid::new(
                TargetKind::Shell.word(),
                "the tenant may not run commands; an operator of the installation can allow it with `everytick tenant update \
                 NAME --shell`",
            )),
            TargetSpec::Http(http) => Url::parse(&http.url).ok().and_then(|url| {
                let refused = self.egress.iter().find_map(|egress| egress.check(&url).err());
                refused.map(|why| Invalid::new("url", why).under(TargetKind::Http.word()))
            }),
            TargetSpec::Shell(_) | TargetSpec::Queue(_) => None,
        };
        refused.map(|wrong| wrong.under("target")).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::target::{Command, HttpTarget, ShellTarget};

    use super::*;

    fn http(url: &str) -> TargetSpec {
        TargetSpec::Http(HttpTarget::post(url.into()))
    }

    fn shell() -> TargetSpec {
        let command = Command::Argv(vec!["true".into()]);
        TargetSpec::Shell(ShellTarget { command, env: Default::default(), workdir: None })
    }

    fn refused(rules: &TenantRules, spec: &TargetSpec) -> String {
        rules.refused(spec).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_tenant_without_rules_may_call_everything_and_run_no_command() {
        let rules = TenantRules::of(false, ["{}", "{}"]).unwrap();
        assert_eq!(refused(&rules, &http("http://a.example:25/")), "");
        assert!(refused(&rules, &shell()).starts_with("target.shell: the tenant may not run commands"));
        assert_eq!(refused(&TenantRules::of(true, ["{}", "{}"]).unwrap(), &shell()), "");
    }

    #[test]
    fn a_webhook_must_pass_both_layers() {
        let operator = r#"{"hosts": ["*.example.org"], "https_only": true}"#;
        let own = r#"{"ports": [443, "8000-8999"], "hosts": ["api.example.org"]}"#;
        let rules = TenantRules::of(false, [operator, own]).unwrap();
        assert_eq!(refused(&rules, &http("https://api.example.org/x?token=1")), "");
        for (url, why) in [
            ("http://api.example.org/", "only https"),
            ("https://example.net/", "example.net:443 is not a host"),
            ("https://other.example.org/", "the hosts are api.example.org"),
            ("https://api.example.org:9000/", "the ports are 443, 8000-8999"),
            ("https://api.example.org@example.net/?token=hunter2", "is not a host"),
        ] {
            let told = refused(&rules, &http(url));
            assert!(told.starts_with("target.http.url: ") && told.contains(why), "{url}: {told}");
            assert!(!told.contains("hunter2"));
        }
    }

    #[test]
    fn stored_rules_read_back() {
        let text = r#"{"hosts":["*.example.org"],"ports":["443","8000-8999"],"https_only":true}"#;
        let rules: TenantEgress = serde_json::from_str(text).unwrap();
        assert_eq!(rules.to_text(), text);
        assert_eq!(TenantEgress::default().to_text(), "{}");
        assert!(TenantRules::of(true, ["{\"later\": 1}", "{}"]).is_err(), "rules of a later release are not ignored");
        let many = TenantEgress { ports: vec!["443".parse().unwrap(); EGRESS_ENTRIES_MAX + 1], ..rules };
        assert_eq!(many.problems()[0].field, "ports");
    }
}
