//! Workers that claim from queues: they send heartbeats, delay, crash, pause, lose answers and report late.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everytick_domain::{ids::TenantId, time::Span};
use everytick_engine::commands::{Report, Work};
use everytick_store::{ClaimBeat, WorkerClaim};

use super::{random::Random, target::Delivery, world::World};

pub const QUEUES: [&str; 2] = ["q1", "q2"];
/// How many workers each queue has.
pub const PER_QUEUE: u64 = 2;
const BEAT: Duration = Duration::from_secs(10);

pub async fn run(world: Arc<World>, queue: &'static str, n: u64, random: Random) {
    loop {
        // The life of one process.
        let life = live(world.clone(), queue, n, random.fork(1));
        let lasts = random.millis(1_000, 40_000).min(world.until_calm());
        if world.until_calm().is_zero() {
            life.await;
            return;
        }
        // The work of the process ends with the process.
        let _ = tokio::time::timeout(lasts, life).await;
        tokio::time::sleep(random.millis(0, 3_000)).await;
    }
}

async fn live(world: Arc<World>, queue: &'static str, n: u64, random: Random) {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let commands = world.commands(&random);
        let wait = if random.chance(200) { random.millis(100, 2_000) } else { Duration::ZERO };
        let limit = 1 + random.below(4) as usize;
        let claim = commands.claim_work(TenantId::DEFAULT, queue.into(), format!("{queue}-{n}"), limit, wait);
        let mut idle = random.millis(20, 1_500);
        if let Ok(Work::Claims(found)) = claim.await {
            if !found.claims.is_empty() {
                idle = random.millis(20, 300);
            }
            for claim in found.claims {
                tasks.spawn(work(world.clone(), claim, random.fork(2)));
            }
        }
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(idle).await;
    }
}

/// One attempt, recorded like a delivery of a target.
async fn work(world: Arc<World>, claim: WorkerClaim, random: Random) {
    let open = Delivery::begin(&world.history, &world.clock, |clock, after| Delivery {
        run: claim.run.id,
        job: claim.run.job,
        attempt: claim.run.attempt,
        fence: claim.run.fence,
        scheduled_at: claim.run.scheduled_at,
        clock,
        after,
        ended: false,
    });
    let calm = world.calm.load(Ordering::SeqCst);
    let (takes, beats) = match random.below(100) {
        0..65 => (random.millis(1, 60), true),
        65..80 => (random.millis(500, 4_000), true),
        80..88 if !calm => (random.millis(5_000, 45_000), true),
        // Paused for longer than its lease; then it reports as if nothing had happened.
        88..96 if !calm => (random.millis(25_000, 45_000), false),
        _ => (random.millis(1, 300), true),
    };
    if !beating(&world, &claim, &random, takes, beats).await {
        return;
    }
    let succeeded = random.chance(800);
    let report = Report {
        fence: claim.run.fence,
        succeeded,
        output: None,
        error: (!succeeded).then(|| "no".to_owned()),
        retry: random.chance(900),
    };
    // Without an answer, the worker retries.
    for _ in 0..4 {
        let commands = world.commands(&random);
        if commands.report_result(TenantId::DEFAULT, claim.run.id, report.clone()).await.is_ok() {
            break;
        }
        tokio::time::sleep(random.millis(10, 500)).await;
    }
    drop(open);
}

/// Works for `takes`. Returns `false` if a heartbeat finds the run cancelled or the claim stale.
async fn beating(world: &World, claim: &WorkerClaim, random: &Random, takes: Duration, beats: bool) -> bool {
    let mut left = takes;
    while beats && left > BEAT {
        tokio::time::sleep(BEAT).await;
        left -= BEAT;
        let commands = world.commands(random);
        let beat = commands.beat(TenantId::DEFAULT, claim.run.id, claim.run.fence).await;
        if matches!(beat, Ok(ClaimBeat::Cancelled | ClaimBeat::Stale)) {
            return false;
        }
    }
    tokio::time::sleep(left).await;
    true
}

/// Longer or shorter than a lease, so that claims both expire and time out.
pub fn timeout(random: &Random) -> Span {
    *random.pick(&[Span::seconds(6), Span::seconds(60)])
}
