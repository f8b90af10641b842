//! Webhooks to host names, with a test name server that does not answer for one zone.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use everytick_domain::{target::Outcome, time::Span};
use everytick_targets::{AddressPolicy, Discard, Dispatch, Target as _, TargetSettings, Targets};
use tokio::{net::UdpSocket, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::support::{Receiver, post, started, within};

/// Answers 127.0.0.1 for every name except those under `dead.test`. Counts the queries.
async fn name_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (address, queries) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = queries.clone();
    tokio::spawn(async move {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            count.fetch_add(1, Ordering::SeqCst);
            if let Some(answer) = answer(&packet[..length]) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
    (address, queries)
}

/// A query has 12 bytes of header, the name as labels, and 4 bytes of type and class.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut name) = (12, String::new());
    while question[at] != 0 {
        let length = usize::from(question[at]);
        name += &format!("{}.", String::from_utf8_lossy(&question[at + 1..=at + length]).to_lowercase());
        at += length + 1;
    }
    if name.ends_with("dead.test.") {
        return None;
    }
    let is_a = question[at + 1..at + 3] == [0, 1];
    let mut answer = question[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(&question[12..at + 5]);
    if is_a {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

/// A name server that rebinds: for every name it answers with the allowed address, with the other one, or with both, as the number
/// of the query has it.
async fn rebinding(allowed: Ipv4Addr, other: Ipv4Addr) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut packet, mut queries) = ([0; 512], 0_usize);
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let addresses: &[Ipv4Addr] = match queries % 4 {
                0 => &[allowed],
                1 => &[other],
                2 => &[allowed, other],
                _ => &[other, allowed],
            };
            if let Some(mut answer) = answer(&packet[..length]).filter(|answer| answer[7] == 1) {
                queries += 1;
                answer.truncate(answer.len() - 16);
                answer[7] = u8::try_from(addresses.len()).unwrap();
                for address in addresses {
                    // Valid for no time.
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                    answer.extend(address.octets());
                }
                let _ = socket.send_to(&answer, from).await;
            } else if let Some(answer) = answer(&packet[..length]) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_changes_its_address_never_leads_to_a_refused_one() {
    const NAMES: usize = 1_000;
    let (allowed, other) = (Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
    let mut receiver = Receiver::with_status(200).await;
    // A listener on the refused address, at the same port.
    let victim = tokio::net::TcpListener::bind((other, receiver.address.port())).await.unwrap();
    let addresses = AddressPolicy::new(vec!["127.0.0.1/32".parse().unwrap()]);
    let targets = Arc::new(targets_with(addresses, rebinding(allowed, other).await));
    let (mut delivered, mut refused) = (0, 0);
    for first in (0..NAMES).step_by(4) {
        let mut together = JoinSet::new();
        for n in first..first + 4 {
            let (targets, dispatch) = (targets.clone(), to(&format!("n{n}.z{n}.rebind.test"), &receiver));
            together.spawn(async move { deliver(&targets, &dispatch).await });
        }
        for outcome in together.join_all().await {
            match outcome {
                Outcome::Succeeded { .. } => delivered += 1,
                Outcome::NotHere { address, .. } => {
                    assert_eq!(address, Some(other.into()));
                    refused += 1;
                }
                // The machine is too busy to answer a lookup in time.
                Outcome::Unsent | Outcome::Failed { .. } => {}
                unexpected => panic!("{unexpected:?}"),
            }
        }
    }
    assert_eq!(receiver.seen().len(), delivered);
    assert!(delivered > 100 && refused > 50, "{delivered} delivered, {refused} refused");
    let called = tokio::time::timeout(std::time::Duration::from_millis(10), victim.accept()).await;
    assert!(called.is_err(), "the refused address was called: {called:?}");
}

fn targets_with(addresses: AddressPolicy, server: SocketAddr) -> Targets {
    started(TargetSettings { addresses, dns_servers: vec![server], ..TargetSettings::default() })
}

/// Targets that query a test name server, and the number of its queries.
async fn targets_and_queries() -> (Arc<Targets>, Arc<AtomicUsize>) {
    let (server, queries) = name_server().await;
    let loopback = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    (Arc::new(targets_with(loopback, server)), queries)
}

fn to(host: &str, receiver: &Receiver) -> Dispatch {
    Dispatch { timeout: Span::seconds(15), ..post(receiver.url().replace("127.0.0.1", host)) }
}

async fn deliver(targets: &Targets, dispatch: &Dispatch) -> Outcome {
    targets.deliver(dispatch, &Discard, &CancellationToken::new()).await
}

/// With one limit of 16 lookups of 2 s, the lookups of the dead zone would take 37 s, and the other lookups would wait for
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unanswered_zone_does_not_delay_other_webhooks() {
    let ((targets, _), receiver) = (targets_and_queries().await, Receiver::with_status(200).await);
    let mut dead = JoinSet::new();
    for n in 0..300 {
        let (targets, dispatch) = (targets.clone(), to(&format!("n{n}.dead.test"), &receiver));
        dead.spawn(async move { deliver(&targets, &dispatch).await });
    }
    tokio::task::yield_now().await;
    for n in 0..20 {
        let outcome = deliver(&targets, &to(&format!("n{n}.live.test"), &receiver)).await;
        assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
    }
    for outcome in within("the end of all", dead.join_all()).await {
        // A run whose lookup gets no permit in time is released unsent.
        let unresolved = matches!(&outcome, Outcome::Failed { error, .. } if error.contains("could not resolve"));
        assert!(unresolved || outcome == Outcome::Unsent, "{outcome:?}");
    }
}

#[tokio::test]
async fn lookups_are_cached_between_deliveries() {
    let ((targets, queries), receiver) = (targets_and_queries().await, Receiver::with_status(200).await);
    for _ in 0..20 {
        let outcome = deliver(&targets, &to("hook.live.test", &receiver)).await;
        assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
    }
    assert!(queries.load(Ordering::SeqCst) <= 4, "one A and one AAAA query, each repeated at most once");
}

#[tokio::test]
async fn localhost_needs_no_name_server() {
    let receiver = Receiver::with_status(200).await;
    let loopback = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
    let closed: SocketAddr = ([127, 0, 0, 1], 9).into();
    let targets = targets_with(loopback, closed);
    let outcome = deliver(&targets, &to("localhost", &receiver)).await;
    assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
    let refused = targets_with(AddressPolicy::default(), closed);
    let Outcome::NotHere { error, .. } = deliver(&refused, &to("localhost", &receiver)).await else {
        panic!("refused")
    };
    assert!(error.contains("--allow-webhook-range"), "{error}");
}
