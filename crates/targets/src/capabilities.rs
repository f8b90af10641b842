//! What a node's settings allow it to deliver, as published in its lease row, and what a delivery needs from a node.

use std::{fmt, net::IpAddr};

use everytick_domain::target::TargetSpec;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::Host;

use crate::{AddressPolicy, http::validate::read_url};

/// What a delivery needs and not every node provides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// `--enable-shell`.
    Shell,
    /// Access to this address, which may need `--allow-webhook-range`.
    Address(IpAddr),
}

/// What a job with this target needs, as far as its definition shows. A host name shows nothing before it is resolved.
#[must_use]
pub fn needs(target: &TargetSpec) -> Option<Needs> {
    match target {
        TargetSpec::Shell(_) => Some(Needs::Shell),
        TargetSpec::Queue(_) => None,
        TargetSpec::Http(to) => match read_url(to).ok()?.host()? {
            Host::Ipv4(address) => Some(Needs::Address(address.into())),
            Host::Ipv6(address) => Some(Needs::Address(address.into())),
            Host::Domain(_) => None,
        },
    }
}

/// What a node can deliver beyond webhooks to public addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    pub shell: bool,
    pub addresses: AddressPolicy,
}

/// The published form, as JSON. Later releases may add fields; a release ignores fields that it does not know.
#[derive(Serialize, Deserialize)]
struct Published {
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    webhook_ranges: Vec<IpNet>,
}

impl Capabilities {
    #[must_use]
    pub fn new(shell: bool, webhook_ranges: Vec<IpNet>) -> Self {
        Self { shell, addresses: AddressPolicy::new(webhook_ranges) }
    }

    /// Of a node that delivers everything; for tests.
    #[must_use]
    pub fn all() -> Self {
        Self::new(true, vec![IpNet::V4(Default::default()), IpNet::V6(Default::default())])
    }

    #[must_use]
    pub fn meets(&self, needs: Needs) -> bool {
        match needs {
            Needs::Shell => self.shell,
            Needs::Address(address) => self.addresses.check(address).is_ok(),
        }
    }

    #[must_use]
    pub fn publish(&self) -> String {
        let mut webhook_ranges = self.addresses.allowed().to_vec();
        // The order of the flags has no meaning.
        webhook_ranges.sort_unstable();
        webhook_ranges.dedup();
        // Cannot fail: booleans and ranges always serialize.
        serde_json::to_string(&Published { shell: self.shell, webhook_ranges }).unwrap_or_default()
    }

    /// `None` for text that this release cannot parse.
    #[must_use]
    pub fn read(published: &str) -> Option<Self> {
        let Published { shell, webhook_ranges } = serde_json::from_str(published).ok()?;
        Some(Self::new(shell, webhook_ranges))
    }
}

/// For people: `shell, 10.0.0.0/8`, or `public webhooks only`.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shell = self.shell.then(|| "shell".to_owned());
        let words: Vec<_> = shell.into_iter().chain(self.addresses.allowed().iter().map(ToString::to_string)).collect();
        f.write_str(if words.is_empty() { "public webhooks only" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::target::{Command, HttpMethod, HttpTarget, ShellTarget};

    use super::*;

    fn http(url: &str) -> TargetSpec {
        let (method, headers) = (HttpMethod::Post, Default::default());
        TargetSpec::Http(HttpTarget { url: url.into(), method, headers, secret: None })
    }

    #[test]
    fn needs_are_known_from_the_definition_unless_it_has_a_host_name() {
        let command = Command::Argv(vec!["true".into()]);
        let shell = TargetSpec::Shell(ShellTarget { command, env: Default::default(), workdir: None });
        assert_eq!(needs(&shell), Some(Needs::Shell));
        for (url, address) in
            [("http://10.1.2.3/x", "10.1.2.3"), ("http://[::1]:80/", "::1"), ("http://0x7f.1/", "127.0.0.1")]
        {
            assert_eq!(needs(&http(url)), Some(Needs::Address(address.parse().unwrap())), "{url}");
        }
        assert_eq!(needs(&http("https://example.org/")), None);
    }

    #[test]
    fn a_node_meets_what_its_flags_allow() {
        let private = Needs::Address("10.1.2.3".parse().unwrap());
        let public = Needs::Address("8.8.8.8".parse().unwrap());
        let none = Capabilities::default();
        assert!(none.meets(public) && !none.meets(private) && !none.meets(Needs::Shell));
        let some = Capabilities::new(true, vec!["10.0.0.0/8".parse().unwrap()]);
        assert!(some.meets(private) && some.meets(Needs::Shell));
        let all = Capabilities::all();
        assert!(all.meets(private) && all.meets(Needs::Address("::1".parse().unwrap())) && all.meets(Needs::Shell));
    }

    #[test]
    fn published_capabilities_are_read_back_and_unknown_fields_are_ignored() {
        let some = Capabilities::new(true, vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        assert_eq!(some.publish(), r#"{"shell":true,"webhook_ranges":["10.0.0.0/8","::1/128"]}"#);
        assert_eq!(Capabilities::read(&some.publish()), Some(some));
        assert_eq!(Capabilities::read(r#"{"kafka":["c1"]}"#), Some(Capabilities::default()));
        assert_eq!(Capabilities::read("shell"), None);
    }

    #[test]
    fn capabilities_are_displayed_as_short_text() {
        assert_eq!(Capabilities::default().to_string(), "public webhooks only");
        assert_eq!(Capabilities::new(true, vec!["10.0.0.0/8".parse().unwrap()]).to_string(), "shell, 10.0.0.0/8");
    }
}
