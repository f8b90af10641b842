//! The operator's rules for webhooks, with a live listener that must not be called.

use everytick_domain::target::{HttpTarget, Outcome, Retry, TargetSpec};
use everytick_targets::{AddressPolicy, Discard, EgressPolicy, Target, TargetSettings, refused_receiver};
use tokio_util::sync::CancellationToken;

use crate::support::{Receiver, dispatch, http, started};

fn loopback() -> AddressPolicy {
    AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()])
}

async fn send(settings: &TargetSettings, target: HttpTarget) -> Outcome {
    let targets = started(settings.clone());
    targets.deliver(&dispatch(TargetSpec::Http(target)), &Discard, &CancellationToken::new()).await
}

#[tokio::test]
async fn a_receiver_that_the_operator_refuses_is_not_called() {
    let mut receiver = Receiver::with_status(200).await;
    let address = receiver.address;
    let allowed = TargetSettings { addresses: loopback(), ..TargetSettings::default() };
    assert!(matches!(send(&allowed, http(receiver.url())).await, Outcome::Succeeded { .. }));
    receiver.only();
    let egress = |change: fn(&mut EgressPolicy)| {
        let mut egress = EgressPolicy::default();
        change(&mut egress);
        TargetSettings { egress, ..allowed.clone() }
    };
    let denied = TargetSettings {
        addresses: loopback().denying(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]),
        ..TargetSettings::default()
    };
    for (settings, expected) in [
        (denied, "deny_ranges"),
        (egress(|egress| egress.https_only = true), "https_only"),
        (egress(|egress| egress.ports = vec!["443".parse().unwrap()]), "a port that the operator does not allow"),
        (egress(|egress| egress.hosts = vec!["*.example.org".parse().unwrap()]), "not a host that the operator allows"),
    ] {
        let outcome = send(&settings, http(receiver.url())).await;
        let Outcome::Failed { error, retry: Retry::Never, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains(expected), "{error}");
        // The definition gets the same error.
        let found = refused_receiver(&TargetSpec::Http(http(receiver.url())), &settings);
        assert_eq!((found.len(), found[0].field.as_str()), (1, "target.http.url"));
        assert!(found[0].message.contains(expected), "{}", found[0]);
        // A name is resolved only at delivery.
        let outcome = send(&settings, http(format!("http://localhost:{}/hook", address.port()))).await;
        assert!(matches!(outcome, Outcome::Failed { retry: Retry::Never, .. }), "{outcome:?}");
    }
    assert!(receiver.seen().is_empty());
    assert!(refused_receiver(&TargetSpec::Http(http(receiver.url())), &allowed).is_empty());
}

#[tokio::test]
async fn hosts_of_the_list_are_called() {
    let mut receiver = Receiver::with_status(200).await;
    let egress = EgressPolicy { hosts: vec!["127.0.0.1".parse().unwrap()], ..EgressPolicy::default() };
    let settings = TargetSettings { addresses: loopback(), egress, ..TargetSettings::default() };
    assert!(matches!(send(&settings, http(receiver.url())).await, Outcome::Succeeded { .. }));
    receiver.only();
}
