//! Checks whether the loops of this node work. If a loop hangs, or work is due and its loop does not do it, the process ends,
//! and its supervisor starts a new one. `/readyz` gets the reasons why the node is not ready from here.
//!
//! - A loop marks its passes with [`pass`]; `Shared::call` marks each answer of the store. Both are **steps**. A loop hangs if
//!   it is inside a pass and makes no step for `Settings::pass_max`. An unreachable database is not a hang: a failed call is a
//!   step.
//! - The node is stuck if a tick is due, or an ended run is not settled, and the loop for it makes no step for [`IDLE_MAX`].
//! - Time is counted in checks, one a second, not by the clock. A process that is paused (SIGSTOP, a sleeping laptop) makes no
//!   checks, so it does not end when it resumes.
//!
//! A loop that panics needs none of this: `Engine` notices at once.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use everytick_domain::{mutant::LoopFault, time::DbTime};

use crate::{
    clock::MonoTime,
    memory::Memory,
    settings::{CHECK_EVERY, FAILING_MAX, IDLE_MAX, LOAD_WAIT_MAX, SLOTS_BUSY_MAX},
    shared::Shared,
};

/// Loops whose failures make the node not ready, and the work of each.
const NEEDED: [(&str, &str); 3] = [(TICK, "recording ticks"), (CLAIM, "claiming runs"), (LOAD, "loading jobs")];
pub(crate) const TICK: &str = "tick";
pub(crate) const CLAIM: &str = "claim";
pub(crate) const LOAD: &str = "load";
pub(crate) const SETTLE: &str = "settle";

tokio::task_local! {
    /// The loop that this task runs. A pass outside a loop has none.
    static CURRENT: Arc<Watched>;
}

/// The state of one loop.
#[derive(Debug)]
pub(crate) struct Watched {
    name: &'static str,
    in_pass: AtomicBool,
    /// How many calls in progress have their own timeout or wait for another loop. The other loop is watched itself.
    untimed: AtomicU32,
    steps: AtomicU64,
    /// Whether the store has answered in this pass, and whether a call has failed.
    answered: AtomicBool,
    failed: AtomicBool,
    /// Shared by loops of the same name: if one fails to record, the other may succeed.
    failing: Arc<Mutex<Failing>>,
}

/// Failures since the last successful pass.
#[derive(Clone, Copy, Debug, Default)]
struct Failing {
    first_and_last: Option<(MonoTime, MonoTime)>,
}

impl Failing {
    fn failed(&mut self, now: MonoTime, forgotten_after: Duration) {
        let first = match self.first_and_last {
            Some((first, last)) if now.since(last) < forgotten_after => first,
            _ => now,
        };
        self.first_and_last = Some((first, now));
    }

    /// How long the failures have lasted. `None` if the last failure is old: without work, a loop makes no call that
    /// could succeed and end the failures.
    fn lasts(self, now: MonoTime, forgotten_after: Duration) -> Option<Duration> {
        let (first, last) = self.first_and_last?;
        (now.since(last) < forgotten_after).then(|| now.since(first))
    }
}

impl Watched {
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn failing(&self) -> MutexGuard<'_, Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pass in progress. Dropping it ends the pass.
#[derive(Debug)]
pub(crate) struct Pass(Option<Arc<Watched>>);

/// Begins a pass of the loop that this task runs.
pub(crate) fn pass() -> Pass {
    let current = CURRENT.try_with(Arc::clone).ok();
    if let Some(current) = &current {
        current.answered.store(false, Ordering::Relaxed);
        current.failed.store(false, Ordering::Relaxed);
        current.step();
        current.in_pass.store(true, Ordering::Relaxed);
        assert!(!LoopFault::Panic(current.name).is_on(), "made to panic by a test");
    }
    Pass(current)
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(current) = &self.0 else { return };
        current.in_pass.store(false, Ordering::Relaxed);
        current.step();
        if current.answered.load(Ordering::Relaxed) && !current.failed.load(Ordering::Relaxed) {
            *current.failing() = Failing::default();
        }
    }
}

/// Notes that the store has answered the loop that this task runs.
pub(crate) fn answered() {
    let _ = CURRENT.try_with(|current| {
        current.answered.store(true, Ordering::Relaxed);
        current.step();
    });
}

/// Notes that a call of the loop that this task runs has failed.
pub(crate) fn failed(statement_timeout: Duration) {
    let _ = CURRENT.try_with(|current| {
        current.failed.store(true, Ordering::Relaxed);
        current.step();
        current.failing().failed(MonoTime::now(), forgotten_after(statement_timeout));
    });
}

/// After this long without a further failure, earlier failures no longer count. A loop that keeps failing fails more often,
/// because each call ends within its timeout.
fn forgotten_after(statement_timeout: Duration) -> Duration {
    FAILING_MAX + statement_timeout * 2
}

/// Waits without counting the wait as a hang of this loop: for a call that has its own timeout, or for a lock that another loop
/// may have.
pub(crate) async fn untimed<T>(wait: impl Future<Output = T>) -> T {
    struct Untimed(Option<Arc<Watched>>);
    impl Drop for Untimed {
        fn drop(&mut self) {
            if let Some(current) = &self.0 {
                current.step();
                current.untimed.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    let current = CURRENT.try_with(Arc::clone).ok();
    if let Some(current) = &current {
        current.untimed.fetch_add(1, Ordering::Relaxed);
    }
    let _untimed = Untimed(current);
    wait.await
}

/// All loops of a node, and the findings of the last checks.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    loops: Mutex<Vec<Arc<Watched>>>,
    checks: AtomicU64,
    /// For how many consecutive checks all slots have been busy.
    busy: AtomicU64,
    /// How many jobs and partitions have waited too long to be loaded.
    unloaded: AtomicU64,
}

impl Pulse {
    fn loops(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a loop that starts.
    pub(crate) fn watch(&self, name: &'static str) -> Arc<Watched> {
        let mut loops = self.loops();
        let failing = loops.iter().find(|other| other.name == name).map(|other| other.failing.clone());
        let watched = Arc::new(Watched {
            name,
            in_pass: AtomicBool::new(false),
            untimed: AtomicU32::new(0),
            steps: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            failing: failing.unwrap_or_default(),
        });
        loops.push(watched.clone());
        watched
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.loops().iter().map(|watched| watched.name).collect()
    }

    /// How many checks were made. The number increases while the runtime works.
    pub(crate) fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    /// The reasons that these checks have found why the node is not ready.
    pub(crate) fn reasons(&self, now: MonoTime, statement_timeout: Duration, slots: usize) -> Vec<String> {
        let mut reasons = Vec::new();
        let loops = self.loops();
        for (name, what) in NEEDED {
            let lasts = loops.iter().find(|watched| watched.name == name).and_then(|watched| {
                let failing = *watched.failing();
                failing.lasts(now, forgotten_after(statement_timeout))
            });
            if let Some(lasts) = lasts.filter(|lasts| *lasts >= FAILING_MAX) {
                reasons.push(format!("{what} has failed for {} s", lasts.as_secs()));
            }
        }
        let busy = CHECK_EVERY.as_secs() * self.busy.load(Ordering::Relaxed);
        if busy >= SLOTS_BUSY_MAX.as_secs() {
            reasons.push(format!("all {slots} slots have been busy for {busy} s"));
        }
        let unloaded = self.unloaded.load(Ordering::Relaxed);
        if unloaded > 0 {
            reasons.push(format!(
                "{unloaded} jobs or partitions have waited to be loaded for {} s or longer",
                LOAD_WAIT_MAX.as_secs()
            ));
        }
        reasons
    }
}

/// Runs the task of a loop and notes its steps in `watched`.
pub(crate) async fn watched(watched: Arc<Watched>, task: impl Future<Output = ()>) {
    let name = watched.name;
    CURRENT
        .scope(watched, async {
            if LoopFault::Hang(name).is_on() {
                let _pass = pass();
                std::future::pending::<()>().await;
            }
            task.await;
        })
        .await;
}

/// Checks once a second, until the node has stopped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut seen = Seen::default();
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        let _pass = pass();
        check(&shared, &mut seen);
    }
}

/// The findings of earlier checks. Durations are numbers of consecutive checks.
#[derive(Debug, Default)]
struct Seen {
    /// For each loop: its steps so far, and for how long they have not changed.
    loops: Vec<(u64, u64)>,
    /// For how long ended runs have waited and the settle loop has made no step.
    settle_idle: u64,
    /// For how long a tick has been due and the tick loop has made no step.
    tick_idle: u64,
    /// For how long new partitions have waited to be loaded.
    partitions_unloaded: u64,
}

/// The work that is due according to memory.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    ended: usize,
    tick_due: bool,
}

const fn checks(time: Duration) -> u64 {
    time.as_secs() / CHECK_EVERY.as_secs()
}

fn check(shared: &Shared, seen: &mut Seen) {
    shared.pulse.checks.fetch_add(1, Ordering::Relaxed);
    // A stopping node lets its loops end, and the stop has its own timeout.
    if shared.stopping() {
        return;
    }
    let (now, slots) = (shared.clock.now(), shared.parts.settings.slots);
    let work = {
        let mut memory = shared.memory();
        let busy = if memory.slots_free(slots) == 0 { shared.pulse.busy.load(Ordering::Relaxed) + 1 } else { 0 };
        shared.pulse.busy.store(busy, Ordering::Relaxed);
        shared.pulse.unloaded.store(seen.unloaded(&mut memory), Ordering::Relaxed);
        Work { ended: memory.ended(), tick_due: memory.next_timer().is_some_and(|at| overdue(at, now)) }
    };
    let stuck = seen.stuck(&shared.pulse.loops(), work, shared.parts.settings.pass_max());
    if let Some(reason) = stuck {
        shared.break_down(reason);
    }
}

fn overdue(at: DbTime, now: DbTime) -> bool {
    Duration::from(now.since(at)) >= IDLE_MAX
}

impl Seen {
    /// Why the node cannot continue, if it is stuck.
    fn stuck(&mut self, loops: &[Arc<Watched>], work: Work, pass_max: Duration) -> Option<String> {
        self.loops.resize(loops.len(), (0, 0));
        let (mut settles, mut ticks) = (false, false);
        let mut hangs = None;
        for (watched, (steps, still)) in loops.iter().zip(&mut self.loops) {
            let now = watched.steps.load(Ordering::Relaxed);
            let moved = now != *steps;
            settles |= moved && watched.name == SETTLE;
            ticks |= moved && watched.name == TICK;
            let untimed = watched.untimed.load(Ordering::Relaxed) > 0;
            let works = watched.in_pass.load(Ordering::Relaxed) && !untimed;
            *still = if works && !moved { *still + 1 } else { 0 };
            *steps = now;
            if *still >= checks(pass_max) {
                hangs = Some(format!("the loop {:?} hangs: no step within {pass_max:?}", watched.name));
            }
        }
        let count = |so_far: u64, idle: bool| if idle { so_far + 1 } else { 0 };
        self.settle_idle = count(self.settle_idle, work.ended > 0 && !settles);
        self.tick_idle = count(self.tick_idle, work.tick_due && !ticks);
        let limit = checks(IDLE_MAX);
        hangs
            .or_else(|| {
                (self.settle_idle >= limit)
                    .then(|| format!("{} runs have ended and nothing was settled within {IDLE_MAX:?}", work.ended))
            })
            .or_else(|| {
                (self.tick_idle >= limit)
                    .then(|| format!("ticks are due and no recording was started within {IDLE_MAX:?}"))
            })
    }

    /// How many jobs or new partitions have waited too long to be loaded.
    fn unloaded(&mut self, memory: &mut Memory) -> u64 {
        let new = memory.new_partitions().0.len();
        self.partitions_unloaded = if new > 0 { self.partitions_unloaded + 1 } else { 0 };
        let limit = checks(LOAD_WAIT_MAX);
        let jobs = memory.count_overdue_loads(limit);
        let partitions = if self.partitions_unloaded >= limit { new } else { 0 };
        (jobs + partitions) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS_MAX: Duration = Duration::from_secs(70);

    /// Calls `before`, then checks, up to `times` times. Returns the number of the first check that found something, and its
    /// reason.
    fn checked(pulse: &Pulse, work: Work, times: u64, mut before: impl FnMut()) -> Option<(u64, String)> {
        let mut seen = Seen::default();
        (1..=times).find_map(|n| {
            before();
            Some((n, seen.stuck(&pulse.loops(), work, PASS_MAX)?))
        })
    }

    fn in_pass(watched: &Watched) {
        watched.in_pass.store(true, Ordering::Relaxed);
    }

    #[test]
    fn a_pass_without_a_step_hangs_and_a_pass_with_failing_calls_does_not() {
        let pulse = Pulse::default();
        let watched = pulse.watch("renew");
        assert_eq!(checked(&pulse, Work::default(), 1_000, || {}), None, "the loop waits for its timer");
        in_pass(&watched);
        let (n, reason) = checked(&pulse, Work::default(), 1_000, || {}).unwrap();
        assert_eq!(n, 70);
        assert!(reason.contains("\"renew\" hangs"), "{reason}");
        assert_eq!(checked(&pulse, Work::default(), 1_000, || watched.step()), None, "each failed call is a step");
        watched.untimed.store(1, Ordering::Relaxed);
        assert_eq!(checked(&pulse, Work::default(), 1_000, || {}), None, "the loop waits for another loop");
    }

    #[test]
    fn a_node_that_does_not_settle_ended_runs_or_record_due_ticks_is_stuck() {
        let pulse = Pulse::default();
        let (settle, tick) = (pulse.watch(SETTLE), pulse.watch(TICK));
        let ended = Work { ended: 3, tick_due: false };
        let (n, reason) = checked(&pulse, ended, 1_000, || tick.step()).unwrap();
        assert_eq!((n, reason.as_str()), (60, "3 runs have ended and nothing was settled within 60s"));
        assert_eq!(checked(&pulse, ended, 1_000, || settle.step()), None);
        let due = Work { ended: 0, tick_due: true };
        assert!(checked(&pulse, due, 1_000, || settle.step()).unwrap().1.contains("ticks are due"));
        assert_eq!(checked(&pulse, due, 1_000, || tick.step()), None);
    }

    #[test]
    fn a_job_that_waits_30_seconds_to_be_loaded_is_counted_and_a_loaded_job_is_not() {
        use everytick_domain::ids::{Epoch, JobId};
        use everytick_store::{
            ChangedJob,
            conformance::{TENANT, job_id, s},
        };
        let (mut memory, mut seen) = (Memory::default(), Seen::default());
        let (slow, quick): (JobId, JobId) = (job_id(TENANT, "slow"), job_id(TENANT, "quick"));
        let changed = |id| ChangedJob { id, epoch: Epoch::from_raw(1), cursor: Some(s(1)) };
        memory.note_change(&changed(slow), s(60));
        for n in 0..=40 {
            memory.note_change(&changed(quick), s(60));
            assert_eq!(seen.unloaded(&mut memory), u64::from(n >= 30), "check {n}");
            memory.loaded(&[(quick, 0)], Vec::new(), memory.partition_generation());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_over_15_seconds_are_a_reason_until_a_pass_succeeds_or_the_failures_stop() {
        let pulse = Pulse::default();
        let (first, second) = (pulse.watch(TICK), pulse.watch(TICK));
        let timeout = Duration::from_secs(5);
        let reasons = || pulse.reasons(MonoTime::now(), timeout, 10);
        let fail = || {
            CURRENT.sync_scope(first.clone(), || {
                let _pass = pass();
                failed(timeout);
            })
        };
        for _ in 0..15 {
            fail();
            assert_eq!(reasons(), Vec::<String>::new());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(reasons(), ["recording ticks has failed for 15 s"]);
        CURRENT.sync_scope(second.clone(), || drop(pass()));
        assert_eq!(reasons().len(), 1, "a pass without an answer of the store is not a success");
        CURRENT.sync_scope(second, || {
            let _pass = pass();
            answered();
        });
        assert_eq!(reasons(), Vec::<String>::new());
        for _ in 0..20 {
            fail();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(reasons().len(), 1);
        tokio::time::advance(FAILING_MAX + timeout * 2).await;
        assert_eq!(reasons(), Vec::<String>::new(), "the failures have stopped");
    }
}
