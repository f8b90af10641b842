//! What a node's settings allow it to deliver, as published in its lease row, and what a delivery needs from a node.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use everytick_domain::target::TargetKind;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::AddressPolicy;

/// What a delivery needs from a node, if not every node provides it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Needs {
    /// A node that delivers this kind of target, such as one with `--enable-shell`.
    Kind(TargetKind),
    /// Access to this address, which may need `--allow-webhook-range`.
    Address(IpAddr),
}

/// What a node can deliver beyond webhooks to public addresses and queues.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// The kinds that the node delivers and other nodes may not deliver.
    pub kinds: BTreeSet<TargetKind>,
    pub addresses: AddressPolicy,
}

/// The published form, as JSON. Later releases may add fields; a release ignores fields that it does not know.
#[derive(Serialize, Deserialize)]
struct Published {
    /// The kind `shell` has a field of its own and is not in `kinds`: the first release knows only this kind and reads
    /// only this field.
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    webhook_ranges: Vec<IpNet>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<String>,
    /// The roles of the node, which only the list of nodes shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
}

impl Capabilities {
    #[must_use]
    pub fn new(kinds: &[TargetKind], webhook_ranges: Vec<IpNet>) -> Self {
        Self { kinds: kinds.iter().copied().collect(), addresses: AddressPolicy::new(webhook_ranges) }
    }

    /// The capabilities of a node that delivers everything; for tests.
    #[must_use]
    pub fn all() -> Self {
        Self::new(TargetKind::ALL, vec![IpNet::V4(Default::default()), IpNet::V6(Default::default())])
    }

    #[must_use]
    pub fn meets(&self, needs: Needs) -> bool {
        match needs {
            Needs::Kind(kind) => self.kinds.contains(&kind),
            Needs::Address(address) => self.addresses.check(address).is_ok(),
        }
    }

    #[must_use]
    pub fn publish(&self) -> String {
        self.publish_with(&[])
    }

    /// The published form of a node with these roles.
    #[must_use]
    pub fn publish_with(&self, roles: &[&str]) -> String {
        let mut webhook_ranges = self.addresses.allowed().to_vec();
        // Sorted, so that two nodes with the same flags in a different order publish the same text.
        webhook_ranges.sort_unstable();
        webhook_ranges.dedup();
        let shell = self.kinds.contains(&TargetKind::Shell);
        let others = self.kinds.iter().filter(|kind| **kind != TargetKind::Shell);
        let kinds = others.map(|kind| kind.word().to_owned()).collect();
        // Cannot fail: booleans, ranges and names always serialize.
        let roles = roles.iter().map(|role| (*role).to_owned()).collect();
        serde_json::to_string(&Published { shell, webhook_ranges, kinds, roles }).unwrap_or_default()
    }

    /// `None` for text that this release cannot parse.
    #[must_use]
    pub fn read(published: &str) -> Option<Self> {
        let Published { shell, webhook_ranges, kinds, roles: _ } = serde_json::from_str(published).ok()?;
        let named = kinds.iter().filter_map(|word| TargetKind::from_word(word));
        let kinds = named.chain(shell.then_some(TargetKind::Shell)).collect();
        Some(Self { kinds, addresses: AddressPolicy::new(webhook_ranges) })
    }
}

/// As text for operators: `shell, 10.0.0.0/8`, or `public webhooks only`.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds.iter().map(|kind| kind.word().to_owned());
        let words: Vec<_> = kinds.chain(self.addresses.allowed().iter().map(ToString::to_string)).collect();
        f.write_str(if words.is_empty() { "public webhooks only" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::target::{Command, HttpTarget, ShellTarget, TargetSpec};

    use super::*;
    use crate::needs;

    const SHELL: Needs = Needs::Kind(TargetKind::Shell);

    fn http(url: &str) -> TargetSpec {
        TargetSpec::Http(HttpTarget::post(url.into()))
    }

    #[test]
    fn needs_are_known_from_the_definition_unless_it_has_a_host_name() {
        let command = Command::Argv(vec!["true".into()]);
        let shell = TargetSpec::Shell(ShellTarget { command, env: Default::default(), workdir: None });
        assert_eq!(needs(&shell), Some(SHELL));
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
        assert!(none.meets(public) && !none.meets(private) && !none.meets(SHELL));
        let some = Capabilities::new(&[TargetKind::Shell], vec!["10.0.0.0/8".parse().unwrap()]);
        assert!(some.meets(private) && some.meets(SHELL));
        let all = Capabilities::all();
        assert!(all.meets(private) && all.meets(Needs::Address("::1".parse().unwrap())) && all.meets(SHELL));
    }

    #[test]
    fn published_capabilities_are_read_back_and_unknown_fields_are_ignored() {
        let some =
            Capabilities::new(&[TargetKind::Shell], vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        assert_eq!(some.publish(), r#"{"shell":true,"webhook_ranges":["10.0.0.0/8","::1/128"]}"#);
        assert_eq!(Capabilities::read(&some.publish()), Some(some));
        assert_eq!(Capabilities::read(r#"{"kafka":["c1"]}"#), Some(Capabilities::default()));
        let unknown = r#"{"shell":true,"webhook_ranges":[],"kinds":["later","queue"]}"#;
        let known = Capabilities::new(&[TargetKind::Shell, TargetKind::Queue], vec![]);
        assert_eq!(Capabilities::read(unknown), Some(known.clone()));
        assert_eq!(Capabilities::read(&known.publish()), Some(known));
        assert_eq!(Capabilities::read("shell"), None);
    }

    #[test]
    fn capabilities_are_displayed_as_short_text() {
        assert_eq!(Capabilities::default().to_string(), "public webhooks only");
        assert_eq!(
            Capabilities::new(&[TargetKind::Shell], vec!["10.0.0.0/8".parse().unwrap()]).to_string(),
            "shell, 10.0.0.0/8"
        );
    }
}
