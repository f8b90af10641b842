//! `http`: delivers runs to a webhook.

mod deliver;
mod dns;
mod own;
mod spec;
mod validate;

use async_trait::async_trait;
use everytick_domain::{
    invalid::Invalid,
    target::{HttpTarget, Outcome},
};
use tokio_util::sync::CancellationToken;
use url::Host;

pub(crate) use self::deliver::is_out_of_descriptors;
pub use self::{
    deliver::{Http, RESPONSE_BYTES_MAX, RETRY_AFTER_MAX},
    own::{OwnAddresses, OwnApi},
    spec::Wire,
};
use crate::{Dispatch, Kind, KindInfo, LiveOutput, Needs, TargetError, TargetSettings};

#[async_trait]
impl Kind for Http {
    type Spec = HttpTarget;

    const INFO: KindInfo = spec::INFO;

    fn validate(spec: &HttpTarget) -> Vec<Invalid> {
        validate::validate(spec)
    }

    /// `None` for a host name: its address is not known before it is resolved.
    fn needs(spec: &HttpTarget) -> Option<Needs> {
        match validate::read_url(spec).ok()?.host()? {
            Host::Ipv4(address) => Some(Needs::Address(address.into())),
            Host::Ipv6(address) => Some(Needs::Address(address.into())),
            Host::Domain(_) => None,
        }
    }

    fn start(settings: &TargetSettings) -> Result<Self, TargetError> {
        Self::new(settings.addresses.clone(), &settings.dns_servers)
    }

    async fn deliver(
        &self,
        dispatch: &Dispatch,
        spec: &HttpTarget,
        _: &dyn LiveOutput,
        cancel: &CancellationToken,
    ) -> Outcome {
        self.send(dispatch, spec, cancel).await
    }
}
