//! Random numbers that depend only on a seed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::splitmix::SplitMix64;
use everytick_engine::commands::Entropy;

/// Clones share the stream.
#[derive(Clone)]
pub struct Random(Arc<Mutex<SplitMix64>>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SplitMix64::new(seed))))
    }
    /// A separate stream, so that the numbers that one part draws do not change those of another part.
    pub fn fork(&self, salt: u64) -> Self {
        Self::new(self.next() ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    pub fn next(&self) -> u64 {
        self.0.lock().unwrap().draw()
    }
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }
    pub fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
    pub fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

impl Entropy for Random {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
    }
}
