//! What becomes of statements: most go well; some are slow, fail, lose their answer, or land after their sender gave up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use everytick_store::sim::{Call, Fate, Faults, Point};

use super::random::Random;

/// Longer than a statement may take: its sender will have given up when it lands.
const ABANDONED: (u64, u64) = (5_500, 9_000);

pub struct SeededFaults {
    random: Random,
    calm: Arc<AtomicBool>,
    /// Where this history aims its long delays: random faults alone find some mistakes once in hundreds of histories.
    delayed: Point,
}

/// The named delay points.
const DELAY_POINTS: [Point; 6] = [Point::Record, Point::Range, Point::Raise, Point::Edit, Point::Settle, Point::Claim];

impl SeededFaults {
    pub fn new(random: Random, calm: Arc<AtomicBool>) -> Self {
        let delayed = *random.pick(&DELAY_POINTS);
        Self { random, calm, delayed }
    }
}

impl Faults for SeededFaults {
    fn call(&self, point: Point) -> Option<Call> {
        let short = |random: &Random| Duration::from_micros(random.below(4_000));
        let (travel, back) = (short(&self.random), short(&self.random));
        let well = Call { travel, fate: Fate::Done, back };
        if self.calm.load(Ordering::SeqCst) {
            return Some(well);
        }
        let roll = self.random.below(1_000);
        let aimed = point == self.delayed;
        // Ranges are few: where they are aimed at, most of them are slow.
        if aimed && point == Point::Range && roll >= 300 {
            return Some(Call { travel: self.random.millis(500, 4_000), ..well });
        }
        Some(match roll {
            0..8 => Call { fate: Fate::FailedBefore, ..well },
            8..16 => Call { fate: Fate::ReplyLost, ..well },
            16..22 => Call { travel: self.random.millis(ABANDONED.0, ABANDONED.1), ..well },
            22..26 => Call { travel: self.random.millis(ABANDONED.0, ABANDONED.1), fate: Fate::FailedBefore, ..well },
            26..60 => Call { travel: self.random.millis(5, 1_500), ..well },
            60..80 => Call { back: self.random.millis(5, 1_500), ..well },
            80..160 if aimed => Call { travel: self.random.millis(500, 4_000), ..well },
            160..200 if aimed => Call { back: self.random.millis(500, 4_000), ..well },
            200..215 if aimed => Call { fate: Fate::ReplyLost, ..well },
            215..230 if aimed => Call { travel: self.random.millis(ABANDONED.0, ABANDONED.1), ..well },
            _ => well,
        })
    }
}
