//! The stream of the audit trail: every row reaches the receiver, whatever fails.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::target::Outcome;
use everytick_engine::{AuditSink, Settings};
use everytick_store::{AuditRecord, AuditStore as _, TokenStore as _, conformance::TENANT};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use crate::harness::Harness;

#[derive(Default)]
struct Nothing;

#[async_trait::async_trait]
impl Target for Nothing {
    async fn deliver(&self, _: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        Outcome::Succeeded { output: None }
    }
}

/// Remembers each batch, and answers as the test defines.
#[derive(Debug, Default)]
struct Receiver {
    batches: Mutex<Vec<Vec<i64>>>,
    /// Fails this many times, after it has stored the rows.
    fails: Mutex<u32>,
    hangs: Mutex<bool>,
}

impl Receiver {
    fn ids(&self) -> Vec<i64> {
        self.batches.lock().unwrap().concat()
    }
}

#[async_trait::async_trait]
impl AuditSink for Receiver {
    async fn send(&self, rows: Vec<AuditRecord>) -> Result<(), String> {
        self.batches.lock().unwrap().push(rows.iter().map(|row| row.id).collect());
        if *self.hangs.lock().unwrap() {
            std::future::pending::<()>().await;
        }
        let mut fails = self.fails.lock().unwrap();
        if *fails == 0 {
            return Ok(());
        }
        *fails -= 1;
        Err("503".to_owned())
    }
}

fn settings(node: &str, receiver: &Arc<Receiver>) -> Settings {
    let sink: Arc<dyn AuditSink> = receiver.clone();
    Settings { node: node.to_owned(), audit_sink: Some(sink), ..Settings::default() }
}

async fn write(harness: &Harness<Nothing>, rows: usize) {
    for _ in 0..rows {
        let actor = everytick_store::Actor::local("b");
        harness.store.note_denied(TENANT, &actor, "denied", "GET /", "{}").await.unwrap();
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn every_row_is_sent_in_order_and_again_until_it_is_confirmed() {
    let harness = Harness::<Nothing>::new().await;
    let receiver = Arc::new(Receiver::default());
    *receiver.fails.lock().unwrap() = 2;
    // More than one batch. The harness has created a job.
    write(&harness, 1_100).await;
    let engine = harness.start_with(harness.store.clone(), 1, settings("local", &receiver)).await;
    seconds(30).await;
    let sizes: Vec<usize> = receiver.batches.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [500, 500, 500, 500, 101], "the first batch is sent until it is confirmed");
    assert_eq!(receiver.ids()[1_000..], (1..=1_101).collect::<Vec<i64>>());
    assert_eq!(harness.store.audit_sent().await.unwrap(), 1_101);
    write(&harness, 1).await;
    seconds(3).await;
    assert_eq!(receiver.ids().last(), Some(&1_102));
    engine.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_continues_where_the_last_one_was_confirmed() {
    let harness = Harness::<Nothing>::shared().await;
    let (first, second) = (Arc::new(Receiver::default()), Arc::new(Receiver::default()));
    let a = harness.start_with(harness.store.clone(), 1, settings("a", &first)).await;
    let b = harness.start_with(harness.store.clone(), 2, settings("b", &second)).await;
    write(&harness, 5).await;
    seconds(10).await;
    assert_eq!((first.ids(), second.ids()), ((1..=6).collect(), vec![]), "only the leader sends");
    // The leader sends two rows, and stops before it has stored that they were confirmed.
    *first.hangs.lock().unwrap() = true;
    write(&harness, 2).await;
    seconds(5).await;
    a.stop(Duration::from_secs(1)).await;
    write(&harness, 1).await;
    seconds(40).await;
    assert_eq!(first.ids().last(), Some(&8));
    assert_eq!(second.ids(), [7, 8, 9], "what was not confirmed is sent again");
    b.stop(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_delays_no_run() {
    let harness = Harness::<Nothing>::new().await;
    let receiver = Arc::new(Receiver::default());
    *receiver.hangs.lock().unwrap() = true;
    let engine = harness.start_with(harness.store.clone(), 1, settings("local", &receiver)).await;
    seconds(100).await;
    assert!(receiver.batches.lock().unwrap().len() > 1, "a send without an answer is repeated");
    let run = harness.trigger(1).await;
    assert_eq!(harness.run(run).await.state, everytick_domain::run::State::Succeeded);
    assert_eq!(engine.ready(), Ok(()));
    engine.stop(Duration::from_secs(5)).await;
}
