//! One history: a database, nodes that crash and pause, users who edit, targets that misbehave, a clock that jumps.

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
    time::DbTime,
};
use everytick_engine::{Hints, commands::Commands, live::LiveLogs};
use everytick_sim::{Point, SimStore};
use everytick_store::{Limits, WallClock};

use super::{
    actor,
    checker::{self, Checked},
    faults::{Link, SeededFaults},
    node::Node,
    operator,
    random::Random,
    target::History,
    worker,
};

/// How long one history lasts, and how long it is free of faults at the end (more than two leases).
pub const LASTS: Duration = Duration::from_secs(120);
pub const CALM: Duration = Duration::from_secs(40);
/// 2026-11-15T00:00:00Z plus 250 ms, because ticks are at whole seconds.
const BEGIN: i64 = 1_794_700_800_250;
/// Partitions of a shared store. Few, so that each has jobs.
const PARTITIONS: u16 = 8;
const NODES: usize = 3;

/// What is simulated: a seed, and the nodes that take part.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub seed: u64,
    pub nodes: usize,
    /// Every node believes that it owns every partition.
    pub ownership_ignored: bool,
    /// No workers, and only the overlap policies `skip` and `allow`. So more late runs are subject to the rate limit.
    pub plain: bool,
    /// No tick is late for a minute, and the clock is not set. So after an outage, several ticks of a job are on time.
    pub patient: bool,
    /// The point at which all processes have their long delays. `None`: each process has its own.
    pub aim: Option<Point>,
}

impl Scene {
    /// Alternates between a cluster and a single node.
    pub fn of(seed: u64) -> Self {
        let nodes = if seed.is_multiple_of(2) { NODES } else { 1 };
        Self { seed, nodes, ownership_ignored: false, plain: seed % 4 >= 2, patient: false, aim: None }
    }
    pub fn ownership_ignored(seed: u64) -> Self {
        Self { nodes: NODES, ownership_ignored: true, ..Self::of(seed) }
    }
    pub fn patient(seed: u64) -> Self {
        Self { patient: true, ..Self::of(seed) }
    }
    pub fn shared(self) -> bool {
        self.nodes > 1
    }
}

/// The database clock: virtual time plus the offset by which it was set.
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
    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
    pub fn jump(&self, millis: i64) {
        self.peak.fetch_max(self.now().millis(), Ordering::SeqCst);
        self.offset.fetch_add(millis, Ordering::SeqCst);
    }
    /// The highest time that the clock showed before it was set back.
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
    pub scene: Scene,
    pub random: Random,
    pub clock: Arc<SimClock>,
    pub db: SimStore,
    pub history: History,
    pub calm: Arc<AtomicBool>,
    /// One for each node, and in a cluster one more for a process that only serves the API.
    commands: Mutex<Vec<Commands>>,
    incarnations: AtomicU64,
}

impl World {
    fn new(scene: Scene, random: &Random) -> Self {
        let clock = Arc::new(SimClock::new());
        let db = if scene.shared() {
            SimStore::shared(clock.clone(), Limits::default(), PARTITIONS)
        } else {
            SimStore::new(clock.clone(), Limits::default())
        };
        let calm = Arc::new(AtomicBool::new(false));
        let processes = if scene.shared() { scene.nodes + 1 } else { 1 };
        let world = Self {
            scene,
            random: random.fork(3),
            clock,
            db,
            history: History::default(),
            calm,
            commands: Mutex::default(),
            incarnations: AtomicU64::new(0),
        };
        let process = |_| world.commands_of_process(random.fork(1), Hints::default());
        let commands = (0..processes).map(process).collect();
        *world.commands.lock().unwrap() = commands;
        world
    }

    /// The commands of one process, with its own connection to the database.
    fn commands_of_process(&self, random: Random, hints: Hints) -> Commands {
        let entropy = Arc::new(random.fork(2));
        let faults = SeededFaults::new(random, self.scene, self.calm.clone(), Link::default());
        Commands::new(Arc::new(self.db.connect(Arc::new(faults))), hints, entropy, LiveLogs::default())
    }

    /// From now on, users reach the new process of this node.
    pub fn open(&self, node: usize, hints: Hints) {
        let commands = self.commands_of_process(self.random.fork(9), hints);
        self.commands.lock().unwrap()[node] = commands;
    }

    /// The commands of a random process.
    pub fn commands(&self, random: &Random) -> Commands {
        random.pick(&self.commands.lock().unwrap()).clone()
    }

    pub fn incarnation(&self) -> Incarnation {
        let n = self.incarnations.fetch_add(1, Ordering::SeqCst);
        Incarnation::from_uuid(uuid::Uuid::from_u128(u128::from(n) + 1))
    }

    pub fn elapsed(&self) -> Duration {
        self.clock.started.elapsed()
    }

    /// How long faults may still last.
    pub fn until_calm(&self) -> Duration {
        (LASTS - CALM).saturating_sub(self.elapsed())
    }
}

/// Simulates a scene from start to end, and checks it.
pub fn simulate(scene: Scene, mutant: Option<Mutant>) -> Checked {
    run(scene, mutant, checker::check)
}

/// A hash of everything that happened in a scene.
pub fn trace(scene: Scene) -> String {
    run(scene, None, checker::trace)
}

/// Simulates a scene, and returns what `check` finds in the world at the end.
fn run<T>(scene: Scene, mutant: Option<Mutant>, check: impl FnOnce(&World) -> T) -> T {
    mutant::set(mutant);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let checked = runtime.block_on(async {
        let random = Random::new(scene.seed);
        let world = Arc::new(World::new(scene, &random));
        let nodes: Arc<[Node]> = (0..scene.nodes).map(|n| Node::new(world.clone(), n)).collect();
        let mut tasks = vec![
            tokio::spawn(actor::run(world.clone(), random.fork(4))),
            tokio::spawn(operator::of_all(world.clone(), nodes.clone(), random.fork(5))),
        ];
        for n in 0..scene.nodes {
            tasks.push(tokio::spawn(operator::of_one(world.clone(), nodes.clone(), n, random.fork(6))));
        }
        for queue in worker::QUEUES.into_iter().filter(|_| !scene.plain) {
            for n in 0..worker::PER_QUEUE {
                tasks.push(tokio::spawn(worker::run(world.clone(), queue, n, random.fork(10 + n))));
            }
        }
        tokio::time::sleep(LASTS).await;
        for task in tasks {
            task.abort();
        }
        let checked = check(&world);
        for node in nodes.iter() {
            node.kill();
        }
        checked
    });
    mutant::set(None);
    checked
}
