//! `http`: delivers runs to a webhook.

mod certified;
mod connect;
mod deliver;
mod dns;
mod informational;
mod own;
mod post;
mod spec;
mod validate;

use async_trait::async_trait;
use everytick_domain::{
    invalid::Invalid,
    secret::only_reference,
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
use crate::{Dispatch, Kind, KindInfo, LiveOutput, Needs, Refused, TargetError, TargetSettings, mask};

#[async_trait]
impl Kind for Http {
    type Spec = HttpTarget;

    const INFO: KindInfo = spec::INFO;

    fn validate(spec: &HttpTarget) -> Vec<Invalid> {
        validate::validate(spec)
    }

    fn refused_receiver(spec: &HttpTarget, settings: &TargetSettings) -> Vec<Invalid> {
        let Ok(url) = validate::read_url(spec) else { return Vec::new() };
        let denied = match Self::needs(spec) {
            Some(Needs::Address(address)) => settings.addresses.check(address).err().filter(Refused::is_denied),
            _ => None,
        };
        let refused = settings.egress.check(&url).err().or_else(|| denied.map(|refused| refused.to_string()));
        refused.map(|why| Invalid::new("url", why)).into_iter().collect()
    }

    fn inline_secrets(spec: &mut HttpTarget, each: &mut dyn FnMut(&str, &mut String)) {
        if let Some(secret) = spec.secret.as_mut().filter(|secret| only_reference(secret).is_none()) {
            each("secret", secret);
        }
        mask::each_inline("headers", &mut spec.headers, each);
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
        Self::new(settings)
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
