//! A webhook receiver that records every request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Router, http::HeaderMap, routing::post};

use crate::now_ms;

#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) run: String,
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) scheduled_at: i64,
    pub(crate) arrived_at: i64,
}

#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<Delivery>>>);

impl Sink {
    /// Listens on a free port until this process ends; returns its URL.
    pub(crate) async fn start() -> anyhow::Result<(Self, String)> {
        let sink = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let recorder = sink.clone();
        let hook = post(move |headers: HeaderMap| {
            recorder.record(&headers);
            async { "ok" }
        });
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", hook)).await });
        Ok((sink, url))
    }

    fn record(&self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let scheduled_at = text("everytick-scheduled-at").parse().map_or(0, everytick_domain::time::DbTime::millis);
        let delivery = Delivery {
            run: text("everytick-run"),
            job: text("everytick-job"),
            attempt: text("everytick-attempt").parse().unwrap_or(0),
            scheduled_at,
            arrived_at: now_ms(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(delivery);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn all(&self) -> Vec<Delivery> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How many deliveries repeat an attempt that was delivered before.
pub(crate) fn repeated(deliveries: &[Delivery]) -> u64 {
    let mut seen: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for delivery in deliveries {
        *seen.entry((&delivery.run, delivery.attempt)).or_default() += 1;
    }
    seen.values().map(|times| times - 1).sum()
}

pub(crate) fn early(deliveries: &[Delivery]) -> u64 {
    deliveries.iter().filter(|delivery| delivery.arrived_at < delivery.scheduled_at).count() as u64
}

/// Lag from tick to arrival: p50, p99 and maximum, in milliseconds.
pub(crate) fn lag(deliveries: &[Delivery]) -> (i64, i64, i64) {
    let mut lags: Vec<_> = deliveries.iter().map(|delivery| delivery.arrived_at - delivery.scheduled_at).collect();
    lags.sort_unstable();
    let at = |share: usize| lags.get(lags.len().saturating_sub(1) * share / 100).copied().unwrap_or(0);
    (at(50), at(99), at(100))
}
