//! Secrets in deliveries: what the receiver gets, and what the output and the error may not contain.

use std::collections::{BTreeMap, BTreeSet};

use axum::{body::Body, response::Response};
use everytick_domain::{
    ids::Version,
    target::{Command, HttpTarget, Outcome, Retry, ShellTarget, TargetSpec},
    time::DbTime,
};
use everytick_targets::{Dispatch, SecretValue, Secrets, Stream, Target};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::support::{LiveLines, Receiver, deliver, dispatch, http, targets};

const VALUE: &str = "hunter2+hunter2&\"x";

fn value(current: &str, previous: Option<&str>) -> SecretValue {
    let bytes = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
    SecretValue { version: Version::from_raw(2), current: bytes(current), previous: previous.map(bytes) }
}

/// The secret `api`. References in the payload may use it too.
fn secrets(api: SecretValue) -> Secrets {
    Secrets::new(BTreeMap::from([("api".to_owned(), api)]), BTreeSet::from(["api".to_owned()]))
}

fn with(target: HttpTarget, api: SecretValue) -> Dispatch {
    Dispatch { secrets: secrets(api), ..dispatch(TargetSpec::Http(target)) }
}

fn headers(value: &str) -> BTreeMap<String, String> {
    [("authorization".to_owned(), value.to_owned())].into()
}

#[tokio::test]
async fn a_receiver_gets_the_values_and_the_output_has_none() {
    let mut receiver = Receiver::answering(|| {
        let echo = format!("got {VALUE} and {}", VALUE.replace('"', "\\\""));
        Response::builder().status(500).body(Body::from(echo)).unwrap()
    })
    .await;
    let target = HttpTarget {
        headers: headers("Bearer {{ secrets.api }}"),
        ..http(receiver.url() + "?a={{ secrets.other }}".replace("other", "api").as_str() + "&b=1")
    };
    let payload = Some(r#"{"key":"{{ secrets.api }}","other":"{{ secrets.none }}"}"#.to_owned());
    let outcome = deliver(&Dispatch { payload, ..with(target, value(VALUE, None)) }).await;
    let seen = receiver.only();
    assert_eq!(seen.header("authorization"), Some(&*format!("Bearer {VALUE}")));
    assert_eq!(seen.uri.to_string(), "/hook?a=hunter2%2Bhunter2%26%22x&b=1");
    assert_eq!(seen.body, r#"{"key":"hunter2+hunter2&\"x","other":"{{ secrets.none }}"}"#);
    let Outcome::Failed { error, output, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(
        (error.as_str(), output.as_deref()),
        ("the receiver answered 500 Internal Server Error", Some("got ******** and ********"))
    );
}

/// The verifier checks the timestamp against the system clock.
#[expect(clippy::disallowed_methods, reason = "a receiver has no other clock")]
fn today() -> DbTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    DbTime::EPOCH.plus(since_epoch.into())
}

#[tokio::test]
async fn during_an_overlap_a_delivery_is_accepted_with_the_old_and_with_the_new_key() {
    let [new, old, other] = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "whsec_dGhpcyBpcyBub3QgdGhlIGtleSBhdCBhbGw=",
    ];
    let verifies = |key: &str, seen: &crate::support::Seen| {
        standardwebhooks::Webhook::new(key).unwrap().verify(seen.body.as_bytes(), &seen.headers).is_ok()
    };
    for (previous, signatures, old_is_valid) in [(Some(old), 2, true), (None, 1, false)] {
        let mut receiver = Receiver::with_status(200).await;
        let target = HttpTarget { secret: Some("{{ secrets.api }}".to_owned()), ..http(receiver.url()) };
        let sent = Dispatch { now: today(), ..with(target, value(new, previous)) };
        assert!(matches!(deliver(&sent).await, Outcome::Succeeded { .. }));
        let seen = receiver.only();
        let signature = seen.header("webhook-signature").unwrap();
        assert_eq!(signature.split(' ').filter(|one| one.starts_with("v1,")).count(), signatures, "{signature}");
        assert!(verifies(new, &seen) && verifies(old, &seen) == old_is_valid && !verifies(other, &seen));
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_sent_fails_without_being_repeated() {
    let mut receiver = Receiver::with_status(200).await;
    let secret = |text: &str| Some(text.to_owned());
    let url = receiver.url();
    for (target, value_of, expected) in [
        (HttpTarget { headers: headers("{{ secrets.api }}"), ..http(&url) }, "hunter2\nhunter2", "authorization"),
        (HttpTarget { headers: headers("{{ secrets.api }}"), ..http(&url) }, "hünter2", "authorization"),
        (HttpTarget { headers: headers("{{ secrets.none }}"), ..http(&url) }, VALUE, "\"none\" is not available"),
        (HttpTarget { secret: secret("{{ secrets.api }}"), ..http(&url) }, VALUE, "not a signing key"),
        (HttpTarget { client_cert: secret("{{ secrets.api }}"), ..http(&url) }, VALUE, "client certificate"),
    ] {
        let outcome = deliver(&with(target, value(value_of, None))).await;
        let Outcome::Failed { error, retry: Retry::Never, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains(expected) && !error.contains("nter2"), "{error}");
    }
    assert!(receiver.seen().is_empty());
}

#[tokio::test]
async fn a_command_gets_the_values_and_its_output_has_none() {
    // Each part is written alone, so that the value crosses chunks; stderr writes in between.
    let script =
        "printf 'a %.9s' \"$KEY\"; printf 'and %s' \"$KEY\" >&2; sleep 0.2; printf '%s b' \"${KEY#?????????}\"; cat";
    let target = ShellTarget {
        command: Command::Script(script.to_owned()),
        env: [("KEY".to_owned(), "{{ secrets.api }}".to_owned())].into(),
        workdir: None,
    };
    let sent = Dispatch {
        secrets: secrets(value("password-12345", None)),
        payload: Some(r#" "{{ secrets.api }}""#.to_owned()),
        ..dispatch(TargetSpec::Shell(target))
    };
    let live = LiveLines::default();
    let outcome = targets().deliver(&sent, &live, &CancellationToken::new()).await;
    assert_eq!(live.text(Stream::Stdout), r#"a ******** b "********""#);
    assert_eq!(live.text(Stream::Stderr), "and ********");
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    assert!(!output.contains("password") && !output.contains("12345"), "{output}");
}
