//! One node, and the faults applied to it. A fault on a dead node does nothing, so two operators do not conflict.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{ids::Incarnation, mutant::Mutant, time::Span};
use everytick_engine::{Engine, Hints, Parts, Settings, Spawn as _, live::LiveLogs};
use everytick_targets::Capabilities;
use tokio::sync::oneshot;

use super::{
    faults::{Cut, Link, SeededFaults},
    process::Process,
    target::SimTarget,
    world::World,
};

pub struct Node {
    world: Arc<World>,
    n: usize,
    link: Link,
    life: Mutex<Option<Life>>,
    /// The incarnation of its last process.
    last: Mutex<Option<Incarnation>>,
}

/// One process of the node.
#[derive(Clone)]
struct Life {
    process: Process,
    /// Set once it has joined.
    engine: Arc<Mutex<Option<Arc<Engine>>>>,
}

impl Life {
    /// No simulated fault may make a loop hang or leave work undone: the process would end without need.
    fn assert_not_stuck(&self) {
        let reason = self.engine.lock().unwrap().as_ref().map(|engine| engine.broken_by()).unwrap_or_default();
        let stuck =
            ["hangs", "nothing was settled", "no recording was started"].iter().any(|word| reason.contains(word));
        assert!(!stuck, "{reason}");
    }
}

impl Node {
    pub fn new(world: Arc<World>, n: usize) -> Self {
        Self { world, n, link: Link::default(), life: Mutex::default(), last: Mutex::default() }
    }

    /// Starts a process. It retries until it has joined.
    pub fn start(&self) {
        let mut life = self.life.lock().unwrap();
        if life.is_some() {
            return;
        }
        let (process, hints) = (Process::default(), Hints::default());
        self.world.open(self.n, hints.clone());
        let (parts, incarnation) = (self.parts(&process, hints), self.incarnation());
        let engine = Arc::new(Mutex::new(None));
        let joined = engine.clone();
        process.spawn(Box::pin(async move {
            loop {
                match Engine::start(parts.clone(), incarnation).await {
                    Ok(engine) => break *joined.lock().unwrap() = Some(Arc::new(engine)),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        }));
        *life = Some(Life { process, engine });
    }

    fn incarnation(&self) -> Incarnation {
        let (fresh, mut last) = (self.world.incarnation(), self.last.lock().unwrap());
        let incarnation = last.filter(|_| Mutant::IncarnationReused.is_on()).unwrap_or(fresh);
        *last = Some(incarnation);
        incarnation
    }

    fn parts(&self, process: &Process, hints: Hints) -> Parts {
        let world = &self.world;
        let faults =
            Arc::new(SeededFaults::new(world.random.fork(6), world.scene, world.calm.clone(), self.link.clone()));
        let store =
            if world.scene.ownership_ignored { world.db.connect_lying(faults) } else { world.db.connect(faults) };
        let entropy = Arc::new(world.random.fork(7));
        let random = world.random.fork(8);
        // In some histories one node may not run shell commands and delegates its runs to the others.
        let unable = world.scene.shared() && world.scene.seed.is_multiple_of(8) && self.n == 0;
        let can = if unable { Capabilities::default() } else { Capabilities::all() };
        let settings =
            // A node that restarts after a crash replaces its last process at once.
            Settings {
                node: format!("n{}", self.n + 1),
                lease: Span::seconds(15),
                slots: 12,
                replace_node: true,
                ..Settings::default()
            };
        let often = Duration::from_millis(200);
        let settings =
            if world.scene.shared() { Settings { poll: often, claim_poll: often, ..settings } } else { settings };
        Parts {
            store: Arc::new(store),
            target: Arc::new(SimTarget { random, clock: world.clock.clone(), history: world.history.clone(), can }),
            hints,
            live: LiveLogs::default(),
            entropy,
            spawn: Arc::new(process.clone()),
            wall: world.clock.clone(),
            process_lives: |_| None,
            settings,
        }
    }

    fn life(&self) -> Option<Life> {
        self.life.lock().unwrap().clone()
    }

    /// Like `kill -9`.
    pub fn kill(&self) {
        let life = self.life.lock().unwrap().take();
        if let Some(life) = life {
            life.assert_not_stuck();
            life.process.kill();
        }
    }

    /// Like SIGSTOP and SIGCONT.
    pub fn pause(&self) {
        if let Some(life) = self.life() {
            life.process.pause();
        }
    }
    pub fn resume(&self) {
        if let Some(life) = self.life() {
            life.process.resume();
        }
    }

    /// Like SIGTERM, then SIGKILL if it has not ended in time.
    pub async fn stop(&self, drain: Duration, within: Duration) {
        let Some(life) = self.life() else { return };
        let engine = life.engine.lock().unwrap().clone();
        if let Some(engine) = engine {
            let (done, ended) = oneshot::channel();
            life.process.spawn(Box::pin(async move {
                engine.stop(drain).await;
                let _ = done.send(());
            }));
            let _ = tokio::time::timeout(within, ended).await;
        }
        self.kill();
    }

    /// Cuts its connection to the database, or restores it.
    pub fn cut(&self, cut: Option<Cut>) {
        self.link.set(cut);
    }

    /// Ends all faults of the node.
    pub fn heal(&self) {
        self.cut(None);
        self.resume();
        self.start();
    }
}
