//! Shared by the soak and chaos tests: the machine's clock, a seeded random generator, and the path of the binary.

#![allow(dead_code, reason = "each rig uses a part of it")]

use std::{
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use everytick_domain::splitmix::SplitMix64;
use serde_json::Value;

/// Milliseconds of the machine's clock, which is also the database clock.
#[expect(clippy::disallowed_methods, reason = "a test from outside has only the real clock")]
pub(crate) fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

pub(crate) async fn sleep_until_ms(at: i64) {
    sleep_ms(at - now_ms()).await;
}

pub(crate) async fn sleep_ms(ms: i64) {
    tokio::time::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
}

pub(crate) fn rfc3339(ms: i64) -> String {
    everytick_domain::time::DbTime::from_millis(ms).to_string()
}

/// Parses an instant in an answer of the API.
pub(crate) fn instant(value: &Value) -> anyhow::Result<i64> {
    let text = value.as_str().context("no instant in the answer")?;
    Ok(text.parse::<everytick_domain::time::DbTime>().map_err(anyhow::Error::msg)?.millis())
}

/// Creates jobs through the batch API, one per line. Fails unless all are created.
pub(crate) async fn create_jobs(request: reqwest::RequestBuilder, lines: String) -> anyhow::Result<()> {
    let sent = lines.lines().count();
    let answer = request
        .header("content-type", "application/x-ndjson")
        .body(lines)
        .send()
        .await?
        .error_for_status()?
        .text()
        .await?;
    let refused = answer.lines().find(|line| !line.contains("\"status\":201"));
    anyhow::ensure!(refused.is_none(), "refused: {}", refused.unwrap_or_default());
    anyhow::ensure!(answer.lines().count() == sent, "not all lines were answered");
    Ok(())
}

/// The server binary; it and this rig are built with the same profile.
pub(crate) fn binary() -> anyhow::Result<PathBuf> {
    let mut path = std::env::current_exe()?;
    path.pop();
    path.pop();
    Ok(path.join("everytick"))
}

/// Seeded random numbers.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) const fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.below((high - low + 1).unsigned_abs())).unwrap_or(0)
    }
}
