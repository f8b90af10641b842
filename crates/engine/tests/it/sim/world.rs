//! One history: a database, a node that crashes and pauses, people who edit, targets that misbehave, a clock that jumps.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use everytick_domain::{
    ids::Incarnation,
    mutant::{self, Mutant},
    time::{DbTime, Span},
};
use everytick_engine::{Engine, Hints, Parts, Settings, commands::Commands, live::LiveLogs};
use everytick_store::{Limits, WallClock, sim::SimStore};

use super::{
    actor, checker,
    faults::SeededFaults,
    node::Process,
    random::Random,
    target::{History, SimTarget},
};

/// How long one history lasts, and how much of it is free of faults at the end (more than two leases).
pub const LASTS: Duration = Duration::from_secs(120);
pub const CALM: Duration = Duration::from_secs(40);
/// 2026-11-15T00:00:00Z and a bit: ticks lie at whole seconds.
const BEGIN: i64 = 1_794_700_800_250;

/// The database's clock: virtual time, plus what it was set forward or back.
pub struct SimClock {
    started: tokio::time::Instant,
    offset: AtomicI64,
    peak: AtomicI64,
}

impl SimClock {
    #[expect(clippy::disallowed_methods, reason = "virtual time")]
    fn new() -> Self {
        Self { started: tokio::time::Instant::now(), offset: AtomicI64::new(0), peak: AtomicI64::new(0) }
    }
    /// Virtual time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
    fn jump(&self, millis: i64) {
        self.peak.fetch_max(self.now().millis(), Ordering::SeqCst);
        self.offset.fetch_add(millis, Ordering::SeqCst);
    }
    /// The latest it ever was before it was set back.
    pub fn peak(&self) -> DbTime {
        DbTime::from_millis(self.peak.load(Ordering::SeqCst))
    }
}

impl WallClock for SimClock {
    fn now(&self) -> DbTime {
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap();
        DbTime::from_millis(BEGIN + elapsed + self.offset.load(Ordering::SeqCst))
    }
}

pub struct World {
    pub random: Random,
    pub clock: Arc<SimClock>,
    pub db: SimStore,
    pub history: History,
    pub calm: Arc<AtomicBool>,
    pub commands: Mutex<Commands>,
    incarnations: AtomicU64,
}

/// What came of one history.
pub struct Played {
    pub violations: Vec<String>,
    pub trace: String,
    pub ticks: usize,
    pub deliveries: usize,
}

/// Plays the history of a seed from beginning to end.
pub fn play(seed: u64, mistake: Option<Mutant>) -> Played {
    mutant::set(mistake);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let played = runtime.block_on(history(seed));
    mutant::set(None);
    played
}

async fn history(seed: u64) -> Played {
    let random = Random::new(seed);
    let clock = Arc::new(SimClock::new());
    let db = SimStore::new(clock.clone(), Limits::default());
    let calm = Arc::new(AtomicBool::new(false));
    let people = db.connect(Arc::new(SeededFaults::new(random.fork(1), calm.clone())));
    let commands = Commands::new(Arc::new(people), Hints::default(), Arc::new(random.fork(2)), LiveLogs::default());
    let world = Arc::new(World {
        random: random.fork(3),
        clock,
        db,
        history: History::default(),
        calm,
        commands: Mutex::new(commands),
        incarnations: AtomicU64::new(0),
    });
    let people = tokio::spawn(actor::run(world.clone(), random.fork(4)));
    let operator = tokio::spawn(operate(world.clone(), random.fork(5)));
    tokio::time::sleep(LASTS).await;
    people.abort();
    operator.abort();
    checker::check(&world)
}

/// Starts the node, and does to it what operators dread.
async fn operate(world: Arc<World>, random: Random) {
    let mut process = start(&world).await;
    while !world.calm.load(Ordering::SeqCst) {
        tokio::time::sleep(random.millis(500, 15_000)).await;
        if elapsed(&world) > LASTS - CALM {
            break;
        }
        match random.below(10) {
            0..4 => {
                process.kill();
                let down = if random.chance(300) { random.millis(8_000, 35_000) } else { random.millis(0, 4_000) };
                tokio::time::sleep(down.min((LASTS - CALM).saturating_sub(elapsed(&world)))).await;
                process = start(&world).await;
            }
            4..6 => {
                process.pause();
                tokio::time::sleep(random.millis(100, 20_000)).await;
                process.resume();
            }
            6 => world.clock.jump(random.below(60_000) as i64),
            7 => world.clock.jump(-(random.below(6_000) as i64)),
            _ => {}
        }
    }
    world.calm.store(true, Ordering::SeqCst);
    std::future::pending().await
}

pub fn elapsed(world: &World) -> Duration {
    world.clock.started.elapsed()
}

/// One process start. It tries until it has joined.
async fn start(world: &Arc<World>) -> Process {
    let process = Process::default();
    let hints = Hints::default();
    let incarnation = world.incarnations.fetch_add(1, Ordering::SeqCst);
    let store = Arc::new(world.db.connect(Arc::new(SeededFaults::new(world.random.fork(6), world.calm.clone()))));
    let entropy = Arc::new(world.random.fork(7));
    let target = SimTarget { random: world.random.fork(8), clock: world.clock.clone(), history: world.history.clone() };
    let parts = Parts {
        store: store.clone(),
        target: Arc::new(target),
        hints: hints.clone(),
        live: LiveLogs::default(),
        entropy: entropy.clone(),
        spawn: Arc::new(process.clone()),
        wall: world.clock.clone(),
        settings: Settings { node: "n1".into(), lease: Span::seconds(15), slots: 12, ..Settings::default() },
    };
    let people = world.db.connect(Arc::new(SeededFaults::new(world.random.fork(9), world.calm.clone())));
    *world.commands.lock().unwrap() = Commands::new(Arc::new(people), hints, entropy, LiveLogs::default());
    let id = Incarnation::from_uuid(uuid::Uuid::from_u128(u128::from(incarnation) + 1));
    while Engine::start(parts.clone(), id).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    process
}
