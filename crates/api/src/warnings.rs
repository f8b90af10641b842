//! Warnings about a definition that is accepted. The answer lists them as `warnings`.

use std::net::IpAddr;

use everytick_domain::job::JobSpec;
use everytick_engine::types::{Cluster, NodeRecord};
use everytick_targets::{AddressPolicy, Capabilities, Needs, Refused, needs};

use crate::{auth::Call, wire::FieldError};

/// The warnings about `spec`, which replaces `old`.
pub(crate) async fn of(call: &Call, spec: &JobSpec, old: Option<&JobSpec>) -> Vec<FieldError> {
    let cluster = if not_public(spec).is_some() { call.queries().cluster().await.ok() } else { None };
    list(call, spec, old, cluster.as_ref())
}

/// The warnings about each of several new definitions. Reads the nodes at most once.
pub(crate) async fn of_new(call: &Call, specs: &[JobSpec]) -> Vec<Vec<FieldError>> {
    let any = specs.iter().any(|spec| not_public(spec).is_some());
    let cluster = if any { call.queries().cluster().await.ok() } else { None };
    specs.iter().map(|spec| list(call, spec, None, cluster.as_ref())).collect()
}

fn list(call: &Call, spec: &JobSpec, old: Option<&JobSpec>, cluster: Option<&Cluster>) -> Vec<FieldError> {
    let found = spec.contradictions(old).warnings;
    let unreachable = cluster.and_then(|cluster| unreachable(spec, cluster, &call.targets.addresses));
    found.iter().map(FieldError::from).chain(unreachable).collect()
}

/// The warning about a webhook to an address that no live node may call. It is no error, because the operator can start such a
/// node later. `own` applies while no node that delivers is live: this node may still be joining.
fn unreachable(spec: &JobSpec, cluster: &Cluster, own: &AddressPolicy) -> Option<FieldError> {
    let (address, refused) = not_public(spec)?;
    let delivers = |node: &&NodeRecord| node.until > cluster.now && node.may_own;
    let mut nodes = cluster.nodes.iter().filter(delivers).peekable();
    let reachable = match nodes.peek() {
        Some(_) => nodes.any(|node| may_call(node, address)),
        None => own.check(address).is_ok(),
    };
    let message = format!("no node may call this address: {refused}");
    (!reachable).then(|| FieldError::new("target.http.url", &message))
}

/// A node of a release that does not publish its capabilities may be able to call the address.
fn may_call(node: &NodeRecord, address: IpAddr) -> bool {
    node.can.as_deref().and_then(Capabilities::read).is_none_or(|can| can.meets(Needs::Address(address)))
}

/// The address in the URL, if it is not a public one, and why it is refused by default.
fn not_public(spec: &JobSpec) -> Option<(IpAddr, Refused)> {
    let Some(Needs::Address(address)) = needs(&spec.target) else { return None };
    Some((address, AddressPolicy::default().check(address).err()?))
}
