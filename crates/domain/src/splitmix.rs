//! SplitMix64: the seeded random numbers of all tests, test rigs and measurements. The same seed gives the same sequence. The
//! product draws its random numbers from the operating system, through an argument.

#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `limit`; 0 if the limit is 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.draw() % if limit == 0 { 1 } else { limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation (Vigna). Seeds in bug reports depend on them.
    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(
            [random.draw(), random.draw(), random.draw()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
