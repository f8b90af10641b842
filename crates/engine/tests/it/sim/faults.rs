//! What becomes of statements: most go well; some are slow, fail, lose their answer, or land after their sender gave up.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use everytick_domain::{ids::RunId, time::DbTime};
use everytick_sim::{Call, Fate, Faults, Point, Row};

use super::{random::Random, world::Scene};

/// Longer than a statement may take: its sender will have given up when it lands.
const ABANDONED: (u64, u64) = (5_500, 9_000);
/// And so that it lands before a fence that is raised late.
const ABANDONED_JUST: (u64, u64) = (5_050, 7_000);
const SLOW: (u64, u64) = (500, 4_000);

/// How a node is cut off from the database.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// It is told at once that nothing can be done.
    Refused,
    /// What it says is not heard.
    Silent,
    /// What it says is heard and done; it hears nothing.
    Deaf,
}

/// A node's way to the database; clones are the same way.
#[derive(Clone, Default)]
pub struct Link(Arc<Mutex<Option<Cut>>>);

impl Link {
    pub fn set(&self, cut: Option<Cut>) {
        *self.0.lock().unwrap() = cut;
    }
}

pub struct SeededFaults {
    random: Random,
    calm: Arc<AtomicBool>,
    /// Where this process has its long delays: random faults alone find some mistakes once in hundreds of histories.
    delayed: Point,
    link: Link,
}

/// The named delay points: statements that are overtaken, or abandoned in flight, such as a raise by an edit.
const DELAY_POINTS: [Point; 7] =
    [Point::Record, Point::Range, Point::Raise, Point::Edit, Point::Settle, Point::Claim, Point::RaiseFence];
/// And those of a cluster: a release overtaken by what is recorded after it, a reading older than a change of hands, a
/// fence raised late after a statement was abandoned.
const CLUSTER_POINTS: [Point; 4] = [Point::Release, Point::Acquire, Point::Load, Point::RaiseFence];

impl SeededFaults {
    pub fn new(random: Random, scene: Scene, calm: Arc<AtomicBool>, link: Link) -> Self {
        let points = if scene.shared() && random.chance(400) { &CLUSTER_POINTS[..] } else { &DELAY_POINTS[..] };
        let delayed = scene.aim.unwrap_or(*random.pick(points));
        Self { random, calm, delayed, link }
    }

    fn slow(&self) -> Duration {
        self.random.millis(SLOW.0, SLOW.1)
    }

    fn just(&self) -> Duration {
        self.random.millis(ABANDONED_JUST.0, ABANDONED_JUST.1)
    }

    fn abandoned(&self) -> Duration {
        self.random.millis(ABANDONED.0, ABANDONED.1)
    }
}

/// For how long a run's row is locked by another session, and of how many runs one is.
const LOCKED_MILLIS: i64 = 2_000;
const LOCKED_OF: u128 = 40;

/// For how long a row cannot be decoded, and of how many jobs or runs one is.
const DAMAGED_MILLIS: i64 = 5_000;
const DAMAGED_OF: u128 = 60;

impl Faults for SeededFaults {
    /// By the row and the time alone, as locks are.
    fn damages(&self, row: Row, now: DbTime) -> bool {
        let key = match row {
            Row::Job(job) => job.uuid().as_u128(),
            Row::Run(run) => run.uuid().as_u128(),
        };
        let window = u128::from((now.millis() / DAMAGED_MILLIS).unsigned_abs());
        !self.calm.load(Ordering::SeqCst) && (key ^ window.wrapping_mul(0x9E37_79B9)).is_multiple_of(DAMAGED_OF)
    }

    /// By the run and the time alone: these draw no random numbers, so that they change no other fault.
    fn locks(&self, run: RunId, now: DbTime) -> bool {
        let window = u128::from((now.millis() / LOCKED_MILLIS).unsigned_abs());
        !self.calm.load(Ordering::SeqCst) && (run.uuid().as_u128() ^ window).is_multiple_of(LOCKED_OF)
    }

    fn call(&self, point: Point) -> Option<Call> {
        let short = |random: &Random| Duration::from_micros(random.below(4_000));
        // Half of the answers come back at once: a sleep costs the simulator as much as the call.
        let back = if self.random.chance(500) { short(&self.random) } else { Duration::ZERO };
        let travel = short(&self.random);
        let well = Call { travel, fate: Fate::Done, back };
        if self.calm.load(Ordering::SeqCst) {
            return Some(well);
        }
        match *self.link.0.lock().unwrap() {
            None => {}
            Some(Cut::Refused) => return Some(Call { fate: Fate::FailedBefore, ..well }),
            Some(Cut::Silent) => return Some(Call { travel: self.abandoned(), fate: Fate::FailedBefore, ..well }),
            Some(Cut::Deaf) => return Some(Call { back: self.abandoned(), ..well }),
        }
        let roll = self.random.below(1_000);
        let aimed = point == self.delayed;
        let slow = || Some(Call { travel: self.slow(), ..well });
        match (self.delayed, point) {
            // These are few: where they are aimed at, most of them are slow.
            (Point::Range, Point::Range) | (Point::RaiseFence, Point::RaiseFence) if roll >= 300 => return slow(),
            (Point::Release, Point::Release) | (Point::Acquire, Point::Acquire) if roll >= 600 => {
                return Some(Call { travel: self.abandoned(), ..well });
            }
            (Point::Release, Point::Release) | (Point::Acquire, Point::Acquire) if roll >= 300 => return slow(),
            (_, Point::Advance) if roll >= 900 => return slow(),
            (Point::Load, Point::Load) if roll >= 850 => return Some(Call { back: self.slow(), ..well }),
            // What makes it necessary to raise the fence, most often the claim of one of several late runs, and the slow
            // hand-back of what landed before it was raised.
            (Point::RaiseFence, Point::Claim) if roll >= 750 => return Some(Call { travel: self.just(), ..well }),
            (Point::RaiseFence, Point::Record) if roll >= 960 => return Some(Call { travel: self.just(), ..well }),
            (Point::RaiseFence, Point::Settle) if roll >= 400 => return slow(),
            _ => {}
        }
        Some(match roll {
            0..8 => Call { fate: Fate::FailedBefore, ..well },
            8..16 => Call { fate: Fate::ReplyLost, ..well },
            16..22 => Call { travel: self.abandoned(), ..well },
            22..26 => Call { travel: self.abandoned(), fate: Fate::FailedBefore, ..well },
            26..60 => Call { travel: self.random.millis(5, 1_500), ..well },
            60..80 => Call { back: self.random.millis(5, 1_500), ..well },
            80..160 if aimed => Call { travel: self.slow(), ..well },
            160..200 if aimed => Call { back: self.slow(), ..well },
            200..215 if aimed => Call { fate: Fate::ReplyLost, ..well },
            215..230 if aimed => Call { travel: self.abandoned(), ..well },
            _ => well,
        })
    }
}
