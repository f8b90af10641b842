//! Delivers runs: a [`Dispatch`] goes in, an [`Outcome`] comes out. Targets do not access the store. The engine decides on
//! retries.
//!
//! Each kind of target has a folder: its form in the API and its CLI flags (`spec`), its checks (`validate`) and its delivery
//! (`deliver`). `for_each_target_kind!` of the domain lists the kinds.

mod address;
mod capabilities;
mod dispatch;
mod egress;
pub mod http;
mod kind;
mod mask;
pub mod object;
pub mod queue;
mod reference;
mod secrets;
pub mod shell;
mod tail;
mod tenant;

use std::net::SocketAddr;

use async_trait::async_trait;
use everytick_domain::{
    for_each_target_kind,
    invalid::Invalid,
    target::{Outcome, Retry, TargetKind, TargetSpec},
};
use tokio_util::sync::CancellationToken;

pub use self::{
    address::{AddressPolicy, Refused},
    capabilities::{Capabilities, Needs},
    dispatch::{Discard, Dispatch, LiveOutput, Stream},
    egress::{EgressPolicy, EgressProxy, Ports},
    http::{OwnAddresses, OwnApi, RESPONSE_BYTES_MAX, RETRY_AFTER_MAX},
    kind::{Flag, FlagValue, Kind, KindInfo, WireForm},
    mask::MASK,
    reference::{by_kind, listed, reference_table},
    secrets::{SecretValue, Secrets},
    shell::{ShellSettings, TERM_GRACE, end_orphans},
    tail::OUTPUT_TAIL_BYTES_MAX,
    tenant::{EGRESS_ENTRIES_MAX, TenantEgress, TenantRules},
};

/// A way to execute runs.
#[async_trait]
pub trait Target: Send + Sync {
    /// Delivers once. Never panics. Returns at the dispatch's timeout at the latest, or soon after `cancel`; a command may use its
    /// grace period between TERM and KILL in addition.
    async fn deliver(&self, dispatch: &Dispatch, live: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome;

    /// What the node's settings allow it to deliver. A delivery that they do not allow ends as [`Outcome::NotHere`].
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    /// Sets the API addresses of the cluster's nodes. No webhook is sent there from now on.
    fn forbid(&self, _: Vec<SocketAddr>) {}
}

/// The operator's settings that targets read.
#[derive(Clone, Debug, Default)]
pub struct TargetSettings {
    /// The addresses that webhooks may use.
    pub addresses: AddressPolicy,
    /// The hosts, ports and schemes that webhooks may use.
    pub egress: EgressPolicy,
    /// Calls every webhook through this proxy. It resolves the names, so only literal addresses are checked.
    pub proxy: Option<EgressProxy>,
    /// The name servers for webhooks; if empty, the servers of the system.
    pub dns_servers: Vec<SocketAddr>,
    /// `None` unless the operator enabled commands.
    pub shell: Option<ShellSettings>,
    /// Refuse definitions with new credentials that are not references to secrets.
    pub refuse_inline_secrets: bool,
}

macro_rules! define {
    ($($variant:ident($spec:ident) $name:ident,)*) => {
        /// All targets of a node. Chooses by the kind of the dispatch's target.
        #[derive(Debug)]
        pub struct Targets {
            $($name: $name::$variant,)*
        }

        /// What CLI, API and documents show of each kind, in the order of [`TargetKind::ALL`].
        pub const KINDS: &[KindInfo] = &[$(<$name::$variant as Kind>::INFO,)*];

        impl Targets {
            pub fn start(settings: &TargetSettings) -> Result<Self, TargetError> {
                Ok(Self { $($name: $name::$variant::start(settings)?,)* })
            }

            /// The kinds that this node delivers and other nodes may not deliver.
            fn kinds(&self) -> impl Iterator<Item = TargetKind> {
                [$(self.$name.meets_need().then_some(TargetKind::$variant),)*].into_iter().flatten()
            }

            async fn choose(&self, dispatch: &Dispatch, live: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome {
                match &dispatch.target {
                    $(TargetSpec::$variant(spec) => self.$name.deliver(dispatch, spec, live, cancel).await,)*
                }
            }
        }

        /// The example of each kind as it is stored.
        #[must_use]
        pub fn examples() -> Vec<TargetSpec> {
            let read = [$(example::<$name::Wire>(<$name::$variant as Kind>::INFO).map(TargetSpec::$variant),)*];
            read.into_iter().flatten().collect()
        }

        /// All errors of `spec`, by field; empty when it can be delivered.
        #[must_use]
        pub fn validate(spec: &TargetSpec) -> Vec<Invalid> {
            let found = match spec { $(TargetSpec::$variant(spec) => $name::$variant::validate(spec),)* };
            under_target(spec, found)
        }

        /// Why the operator of a node with these settings does not permit `spec`, by field.
        #[must_use]
        pub fn forbidden(spec: &TargetSpec, settings: &TargetSettings) -> Vec<Invalid> {
            let found = match spec { $(TargetSpec::$variant(spec) => $name::$variant::forbidden(spec, settings),)* };
            under_target(spec, found)
        }

        /// Why no node may send to the receiver of `spec`, by field. Names are resolved at delivery, so only literal addresses
        /// are checked.
        #[must_use]
        pub fn refused_receiver(spec: &TargetSpec, settings: &TargetSettings) -> Vec<Invalid> {
            let found = match spec { $(TargetSpec::$variant(spec) => $name::$variant::refused_receiver(spec, settings),)* };
            under_target(spec, found)
        }

        /// Calls `each` with the field below the target, and the value, of every credential that `spec` contains as a value, instead of
        /// a reference to a secret. `each` may replace the value.
        pub fn inline_secrets(spec: &mut TargetSpec, each: &mut dyn FnMut(&str, &mut String)) {
            match spec { $(TargetSpec::$variant(spec) => $name::$variant::inline_secrets(spec, each),)* }
        }

        /// What a delivery to this target needs that not every node provides; `None` if its definition does not show such a
        /// need.
        #[must_use]
        pub fn needs(spec: &TargetSpec) -> Option<Needs> {
            match spec { $(TargetSpec::$variant(spec) => $name::$variant::needs(spec),)* }
        }
    };
}
for_each_target_kind!(define);

/// The kinds of target that a node with these settings does not deliver.
#[must_use]
pub fn not_permitted(settings: &TargetSettings) -> Vec<TargetKind> {
    let forbidden = examples().into_iter().filter(|spec| !forbidden(spec, settings).is_empty());
    forbidden.filter_map(|spec| TargetKind::from_word(spec.kind())).collect()
}

fn example<W: WireForm>(info: KindInfo) -> Option<W::Spec> {
    serde_json::from_str::<W>(info.example).ok()?.read(None, &mut Vec::new())
}

/// Names the fields of the errors as fields of the job: `url` becomes `target.http.url`.
fn under_target(spec: &TargetSpec, found: Vec<Invalid>) -> Vec<Invalid> {
    found.into_iter().map(|invalid| invalid.under(spec.kind()).under("target")).collect()
}

#[async_trait]
impl Target for Targets {
    async fn deliver(&self, dispatch: &Dispatch, live: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome {
        self.choose(dispatch, live, cancel).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kinds: self.kinds().collect(), addresses: self.http.policy() }
    }

    fn forbid(&self, addresses: Vec<SocketAddr>) {
        self.http.forbid(addresses);
    }
}

/// A failure that a retry would only repeat.
fn permanent_failure(error: impl Into<String>) -> Outcome {
    Outcome::Failed { error: error.into(), output: None, retry: Retry::Never }
}

#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("could not set up the webhook client")]
    Client { source: reqwest::Error },
}
