//! Requests with wrong tokens, to an API on the store of the measured node. They show what guesses cost the node.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use everytick_api::{Api, Auth, AuthMode, Batches, Hosts, InFlight, ServerLimits, Status};
use everytick_domain::{
    access::{LifetimePolicy, Token},
    schedule::EVERY_MIN,
    time::Span,
};
use everytick_engine::{
    Hints,
    commands::{Commands, Entropy},
    live::LiveLogs,
};
use everytick_targets::TargetSettings;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{database::Open, rig};
use crate::node::OsEntropy;

/// How many requests are in progress at once.
const AT_ONCE: u64 = 64;

/// The answers to wrong tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Answers {
    pub(super) unauthenticated: u64,
    pub(super) limited: u64,
}

struct Ready;

impl Status for Ready {
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
    fn node(&self) -> &'static str {
        "bench"
    }
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Serves the API until the runtime ends, and returns its URL. Every request needs a token.
pub(super) async fn serve(open: &Open) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let commands = Commands::new(open.api.clone(), Hints::default(), Arc::new(OsEntropy), LiveLogs::default());
    let api = Api {
        commands: commands.into(),
        metrics_text: Arc::new(String::new),
        status: Arc::new(Ready),
        targets: TargetSettings::default(),
        min_interval: EVERY_MIN,
        history: Span::days(90),
        auth: Auth::new(AuthMode::Required, LifetimePolicy::default(), None),
        batches: Batches::default(),
        in_flight: InFlight::default(),
        hosts: Hosts { ports: vec![address.port()], ..Hosts::default() },
    };
    let router = everytick_api::router(api);
    tokio::spawn(everytick_api::serve(
        vec![listener.into()],
        router,
        ServerLimits::default(),
        CancellationToken::new(),
    ));
    Ok(format!("http://{address}"))
}

/// Sends this many wrong tokens from one address, evenly within this time if the server answers in time. Their checksums are right,
/// so that the server cannot refuse them without a lookup.
pub(super) async fn send(server: &str, count: u64, within: Duration) -> anyhow::Result<Answers> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let (next, begun) = (Arc::new(AtomicU64::new(0)), rig::clock());
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE.min(count) {
        let (client, next, url) = (client.clone(), next.clone(), format!("{server}/api/v1/me"));
        tasks.spawn(async move {
            let mut answers = Answers::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, anyhow::Error>(answers);
                }
                let due = within.mul_f64(number as f64 / count as f64);
                tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
                match client.get(&url).bearer_auth(wrong_token()?).send().await?.status().as_u16() {
                    401 => answers.unauthenticated += 1,
                    429 => answers.limited += 1,
                    other => anyhow::bail!("a request with a wrong token got {other}"),
                }
            }
        });
    }
    let mut all = Answers::default();
    while let Some(done) = tasks.join_next().await {
        let done = done??;
        all.unauthenticated += done.unauthenticated;
        all.limited += done.limited;
    }
    Ok(all)
}

fn wrong_token() -> anyhow::Result<String> {
    let mut random = [0; 64];
    OsEntropy.fill(&mut random);
    Ok(Token::from_random(&random).context("too few random bytes")?.expose().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bench::database::BenchDatabase, config::DatabaseUrl};

    #[tokio::test]
    async fn wrong_tokens_are_refused_and_then_limited() {
        let dir = tempfile::tempdir().unwrap();
        let database = DatabaseUrl::Sqlite(dir.path().join("x"));
        let open = BenchDatabase::create(Some(database)).await.unwrap().open().await.unwrap();
        let server = serve(&open).await.unwrap();
        let answers = send(&server, 200, Duration::ZERO).await.unwrap();
        assert_eq!(answers.unauthenticated + answers.limited, 200);
        assert!(answers.unauthenticated >= 10 && answers.limited > 0, "{answers:?}");
    }
}
