//! Documents of the operator are sent under the rules of webhooks.

use everytick_targets::{EgressPolicy, Target, TargetSettings};

use crate::support::{Receiver, started, targets};

const NDJSON: &str = "application/x-ndjson";

#[tokio::test]
async fn a_document_is_sent_and_confirmed_by_2xx() {
    for (status, is_ok) in [(200, true), (202, true), (302, false), (401, false), (500, false)] {
        let mut receiver = Receiver::with_status(status).await;
        let url = format!("{}?token=t0ken", receiver.url()).parse().unwrap();
        let done = targets().post(&url, NDJSON, b"{}\n".to_vec()).await;
        assert_eq!(done.is_ok(), is_ok, "{done:?}");
        if let Err(error) = done {
            assert!(error.contains(&status.to_string()) && !error.contains("t0ken"), "{error}");
        }
        let seen = receiver.only();
        assert_eq!((seen.header("content-type"), seen.body.as_str()), (Some(NDJSON), "{}\n"));
    }
}

#[tokio::test]
async fn a_document_goes_only_where_webhooks_may_go() {
    let mut receiver = Receiver::with_status(200).await;
    let port = receiver.address.port();
    let own = targets();
    own.forbid(vec![receiver.address]);
    let https = EgressPolicy { https_only: true, ..EgressPolicy::default() };
    let strict = started(TargetSettings { egress: https, ..TargetSettings::default() });
    let default = started(TargetSettings::default());
    for (targets, host, expected) in [
        (&default, "127.0.0.1", "127.0.0.1"),
        (&default, "localhost", "cannot deliver"),
        (&own, "127.0.0.1", "is the API of a node"),
        (&own, "localhost", "is the API of a node"),
        (&strict, "127.0.0.1", "https_only"),
    ] {
        let url = format!("http://{host}:{port}/?token=t0ken").parse().unwrap();
        let error = targets.post(&url, NDJSON, Vec::new()).await.unwrap_err();
        assert!(error.contains(expected) && !error.contains("t0ken"), "{host}: {error}");
    }
    assert!(receiver.seen().is_empty());
}
