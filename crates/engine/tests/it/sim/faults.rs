//! The fate of statements: most succeed; some are slow, fail, lose their answer, or take effect after the sender gave up.

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

/// Longer than the statement timeout: the sender has given up when the statement takes effect.
const ABANDONED: (u64, u64) = (5_500, 9_000);
/// Only a little longer than the statement timeout: the statement takes effect before the fence, if the fence is raised
/// late.
const ABANDONED_JUST: (u64, u64) = (5_050, 7_000);
const SLOW: (u64, u64) = (500, 4_000);

/// How a node is cut off from the database.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Every statement fails at once.
    Refused,
    /// Statements do not reach the database.
    Silent,
    /// Statements are executed, but their answers are lost.
    Deaf,
}

/// The connection of a node to the database; all clones are the same connection.
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
    /// The point at which this process has its long delays. Random faults alone find some bugs only once in hundreds of
    /// histories.
    delayed: Point,
    link: Link,
}

/// The named delay points: statements that are overtaken (such as a raise by an edit) or abandoned in flight.
const DELAY_POINTS: [Point; 7] =
    [Point::Record, Point::Range, Point::Raise, Point::Edit, Point::Settle, Point::Claim, Point::RaiseFence];
/// Delay points of a cluster: a release overtaken by a later recording, a load older than a change of ownership, a fence raised
/// late after a statement was abandoned.
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

/// Another session locks the row of one run in `LOCKED_OF` for this time.
const LOCKED_MILLIS: i64 = 2_000;
const LOCKED_OF: u128 = 40;

/// One row in `DAMAGED_OF` cannot be decoded for this time.
const DAMAGED_MILLIS: i64 = 5_000;
const DAMAGED_OF: u128 = 60;

impl Faults for SeededFaults {
    /// Depends only on the row and the time, like `locks`.
    fn damages(&self, row: Row, now: DbTime) -> bool {
        let key = match row {
            Row::Job(job) => job.uuid().as_u128(),
            Row::Run(run) => run.uuid().as_u128(),
        };
        let window = u128::from((now.millis() / DAMAGED_MILLIS).unsigned_abs());
        !self.calm.load(Ordering::SeqCst) && (key ^ window.wrapping_mul(0x9E37_79B9)).is_multiple_of(DAMAGED_OF)
    }

    /// Depends only on the run and the time. It draws no random numbers, so it does not change other faults.
    fn locks(&self, run: RunId, now: DbTime) -> bool {
        let window = u128::from((now.millis() / LOCKED_MILLIS).unsigned_abs());
        !self.calm.load(Ordering::SeqCst) && (run.uuid().as_u128() ^ window).is_multiple_of(LOCKED_OF)
    }

    fn call(&self, point: Point) -> Option<Call> {
        let short = |random: &Random| Duration::from_micros(random.below(4_000));
        // Half of the answers come back at once: a sleep costs the simulator as much as the call.
        let back = if self.random.chance(500) { short(&self.random) } else { Duration::ZERO };
        let travel = short(&self.random);
        let normal = Call { travel, fate: Fate::Done, back };
        if self.calm.load(Ordering::SeqCst) {
            return Some(normal);
        }
        match *self.link.0.lock().unwrap() {
            None => {}
            Some(Cut::Refused) => return Some(Call { fate: Fate::FailedBefore, ..normal }),
            Some(Cut::Silent) => return Some(Call { travel: self.abandoned(), fate: Fate::FailedBefore, ..normal }),
            Some(Cut::Deaf) => return Some(Call { back: self.abandoned(), ..normal }),
        }
        let roll = self.random.below(1_000);
        let aimed = point == self.delayed;
        let slow = || Some(Call { travel: self.slow(), ..normal });
        match (self.delayed, point) {
            // These calls are rare, so most of them are slow when they are the delay point.
            (Point::Range, Point::Range) | (Point::RaiseFence, Point::RaiseFence) if roll >= 300 => return slow(),
            (Point::Release, Point::Release) | (Point::Acquire, Point::Acquire) if roll >= 600 => {
                return Some(Call { travel: self.abandoned(), ..normal });
            }
            (Point::Release, Point::Release) | (Point::Acquire, Point::Acquire) if roll >= 300 => return slow(),
            (_, Point::Advance) if roll >= 900 => return slow(),
            (Point::Load, Point::Load) if roll >= 850 => return Some(Call { back: self.slow(), ..normal }),
            // To aim at raising the fence, also delay statements that cause a raise, mostly claims of several late
            // runs, and the release of the runs that they claimed.
            (Point::RaiseFence, Point::Claim) if roll >= 750 => return Some(Call { travel: self.just(), ..normal }),
            (Point::RaiseFence, Point::Record) if roll >= 960 => return Some(Call { travel: self.just(), ..normal }),
            (Point::RaiseFence, Point::Settle) if roll >= 400 => return slow(),
            _ => {}
        }
        Some(match roll {
            0..8 => Call { fate: Fate::FailedBefore, ..normal },
            8..16 => Call { fate: Fate::ReplyLost, ..normal },
            16..22 => Call { travel: self.abandoned(), ..normal },
            22..26 => Call { travel: self.abandoned(), fate: Fate::FailedBefore, ..normal },
            26..60 => Call { travel: self.random.millis(5, 1_500), ..normal },
            60..80 => Call { back: self.random.millis(5, 1_500), ..normal },
            80..160 if aimed => Call { travel: self.slow(), ..normal },
            160..200 if aimed => Call { back: self.slow(), ..normal },
            200..215 if aimed => Call { fate: Fate::ReplyLost, ..normal },
            215..230 if aimed => Call { travel: self.abandoned(), ..normal },
            _ => normal,
        })
    }
}
