//! The section `[egress]` of `everytick.toml`: where webhooks may go. It has no flags: a list of rules belongs in a file.

use everytick_domain::secret::HostPattern;
use everytick_targets::{EgressPolicy, EgressProxy, Ports};
use ipnet::IpNet;
use serde::Deserialize;

use super::AddressRange;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EgressKeys {
    allow_ranges: Vec<AddressRange>,
    deny_ranges: Vec<AddressRange>,
    hosts: Vec<HostPattern>,
    ports: Option<Vec<Ports>>,
    https_only: bool,
    proxy: Option<String>,
    proxy_resolves: bool,
}

/// The rules for webhooks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Egress {
    /// Addresses that webhooks may call although they are not public, in addition to `--allow-webhook-range`.
    pub(crate) allow_ranges: Vec<IpNet>,
    /// Addresses that are never called.
    pub(crate) deny_ranges: Vec<IpNet>,
    pub(crate) policy: EgressPolicy,
    pub(crate) proxy: Option<EgressProxy>,
}

impl TryFrom<EgressKeys> for Egress {
    type Error = String;

    fn try_from(keys: EgressKeys) -> Result<Self, String> {
        let ranges = |given: Vec<AddressRange>| given.into_iter().map(|range| range.0).collect();
        let ports = keys.ports.unwrap_or_else(|| EgressPolicy::default().ports);
        let proxy = keys.proxy.map(|text| text.parse().map_err(|wrong| format!("proxy {wrong}"))).transpose()?;
        if proxy.is_none() && keys.proxy_resolves {
            return Err("proxy_resolves has no effect without proxy; write its URL".to_owned());
        }
        let proxy = proxy.map(|proxy: EgressProxy| proxy.resolving(keys.proxy_resolves));
        Ok(Self {
            allow_ranges: ranges(keys.allow_ranges),
            deny_ranges: ranges(keys.deny_ranges),
            policy: EgressPolicy { hosts: keys.hosts, ports, https_only: keys.https_only },
            proxy,
        })
    }
}
