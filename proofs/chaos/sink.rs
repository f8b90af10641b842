//! A webhook receiver that records every request and answers by the kind of the job.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use tokio::sync::mpsc;

use crate::{
    common::{now_ms, sleep_ms},
    history::Delivery,
    net::Net,
    oracle::Kind,
};

/// Longer than the period of the slow jobs.
const SLOW_MS: i64 = 2_500;
/// Long enough to probe with the old fence while the new claim is in progress.
const RETRIED_MS: i64 = 1_200;
/// Several periods of the greedy job, and shorter than its timeout.
const GREEDY_MS: i64 = 3_000;

/// A fence that a newer attempt has replaced.
pub(crate) struct ReplacedFence {
    pub(crate) run: String,
    pub(crate) fence: i64,
}

#[derive(Clone)]
pub(crate) struct Sink {
    seen: Arc<Mutex<Seen>>,
    replaced: mpsc::UnboundedSender<ReplacedFence>,
}

#[derive(Default)]
struct Seen {
    deliveries: Vec<Delivery>,
    fences: HashMap<String, i64>,
}

/// The kind as a segment of the sink's URL.
pub(crate) const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain | Kind::Single | Kind::Shot | Kind::Edited => "plain",
        Kind::Slow => "slow",
        Kind::Retried => "retried",
        Kind::Failing => "failing",
        Kind::Greedy => "greedy",
    }
}

impl Sink {
    /// Listens on a free port until this process ends. Returns its URL and a channel of replaced fences.
    pub(crate) async fn start(net: Net) -> anyhow::Result<(Self, String, mpsc::UnboundedReceiver<ReplacedFence>)> {
        let (replaced, receiver) = mpsc::unbounded_channel();
        let sink = Self { seen: Arc::default(), replaced };
        let listener = tokio::net::TcpListener::bind((net.sink_address(), 0)).await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let recorder = sink.clone();
        let hook = post(move |Path(kind): Path<String>, headers: HeaderMap| async move {
            let (index, attempt) = recorder.record(&headers);
            let status = answer(&kind, attempt).await;
            if let Some(delivery) = recorder.lock().deliveries.get_mut(index) {
                delivery.status = Some(status.as_u16());
            }
            status
        });
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook/{kind}", hook)).await });
        Ok((sink, url, receiver))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request. Returns its index and its attempt.
    fn record(&self, headers: &HeaderMap) -> (usize, u32) {
        let arrived_at = now_ms();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let delivery = Delivery {
            run: text("everytick-run"),
            job: text("everytick-job"),
            attempt: text("everytick-attempt").parse().unwrap_or(0),
            fence: text("everytick-fence").parse().unwrap_or(0),
            scheduled_at: text("everytick-scheduled-at").parse().map_or(0, everytick_domain::time::DbTime::millis),
            node: text("everytick-node"),
            arrived_at,
            status: None,
        };
        let (fence, attempt) = (delivery.fence, delivery.attempt);
        let mut seen = self.lock();
        let before = seen.fences.insert(delivery.run.clone(), fence);
        if let Some(before) = before.filter(|before| *before < fence) {
            let _ = self.replaced.send(ReplacedFence { run: delivery.run.clone(), fence: before });
        }
        seen.deliveries.push(delivery);
        (seen.deliveries.len() - 1, attempt)
    }

    pub(crate) fn all(&self) -> Vec<Delivery> {
        self.lock().deliveries.clone()
    }
}

async fn answer(kind: &str, attempt: u32) -> StatusCode {
    match kind {
        "slow" => {
            sleep_ms(SLOW_MS).await;
            StatusCode::OK
        }
        "greedy" => {
            sleep_ms(GREEDY_MS).await;
            StatusCode::OK
        }
        "retried" if attempt > 1 => {
            sleep_ms(RETRIED_MS).await;
            StatusCode::OK
        }
        "retried" | "failing" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    }
}
