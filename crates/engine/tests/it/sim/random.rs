//! Random numbers that depend only on a seed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_engine::commands::Entropy;

/// SplitMix64; clones share the stream.
#[derive(Clone)]
pub struct Random(Arc<Mutex<u64>>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }
    /// A separate stream, so that the numbers that one part draws do not change those of another part.
    pub fn fork(&self, salt: u64) -> Self {
        Self::new(self.next() ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
