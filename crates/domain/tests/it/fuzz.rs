//! A fuzz test for the stable toolchain: mutates a corpus with a seeded generator for `EVERYTICK_FUZZ_SECONDS` seconds.

use std::time::{Duration, Instant};

use crate::exercise::exercise;

const SECONDS_DEFAULT: u64 = 2;
const HANG: Duration = Duration::from_secs(30);

const CORPUS: [&str; 32] = [
    "* * * * *",
    "*/15 9-17 * * MON-FRI",
    "0 0 29 2 *",
    "0 0 L * FRI",
    "0 0 15W * *",
    "0 17 LW 3 *",
    "0 0 * * FRI#L",
    "0 0 * * 7L",
    "0 0 13 * +FRI",
    "0 0 1 * ?",
    "*/10 * * * * *",
    "0 0 0 1 1 * 2030,2032",
    "0 0 0 29 2 * 2096-2104/4",
    "0 0 0 1 1 * 9999",
    "@hourly",
    "@every 90s",
    "CRON_TZ=UTC 0 2 * * *",
    "TZ=Europe/London @daily",
    "H H(1-5) * * *",
    "H/15 H(0-5)/2 H * H",
    "0,30 2 * * *",
    "59 23 31 12 *",
    "30 1 * * 0#5",
    "0-10/30 * * * *",
    "1,,2 * * * *",
    "99999999999 * * * *",
    "-1 * * * *",
    "*/0 * * * *",
    "0 0 30 2 *",
    "0 0 31 JAN-DEC/3 SUN-SAT",
    "0 0 29 2 +MON",
    "٣ * * * *",
];

const ZONES: [&str; 10] = [
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Africa/Cairo",
    "America/Santiago",
    "EST",
    "Nowhere/None",
];

const PIECES: [&str; 30] = [
    "*", "/", "-", ",", " ", "?", "L", "W", "#", "+", "H", "(", ")", "@", "0", "1", "5", "7", "31", "59", "60", "2028",
    "MON", "JAN", "SUN", "é", "\t", "=", "99999", "*/7",
];

#[test]
#[allow(clippy::disallowed_methods)] // the fuzzer runs for a fixed time, not for a fixed count
fn no_text_panics_or_hangs() {
    let seconds = std::env::var("EVERYTICK_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT));
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    while Instant::now() < until {
        let mut text = CORPUS[random.below(CORPUS.len())].to_owned();
        for _ in 0..random.below(4) {
            mutate(&mut text, &mut random);
        }
        // Mostly present years, and sometimes the limits of time.
        let after = match random.below(20) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 253_402_207_190_000,
            _ => random.next().rem_euclid(5_000_000_000_000),
        };
        let began = Instant::now();
        exercise(&text, ZONES[random.below(ZONES.len())], after);
        // This detects a hang, not slowness: even a busy machine needs less time for an expression.
        assert!(began.elapsed() < HANG, "{text:?} took {:?}", began.elapsed());
    }
}

fn mutate(text: &mut String, random: &mut Random) {
    let mut letters: Vec<char> = text.chars().collect();
    let place = random.below(letters.len() + 1);
    match random.below(4) {
        0 if place < letters.len() => {
            letters.remove(place);
        }
        1 if place < letters.len() => {
            letters.splice(place..=place, PIECES[random.below(PIECES.len())].chars());
        }
        2 => {
            let other: Vec<char> = CORPUS[random.below(CORPUS.len())].chars().collect();
            let cut = random.below(other.len() + 1);
            letters.truncate(place);
            letters.extend_from_slice(&other[cut..]);
        }
        _ => {
            letters.splice(place..place, PIECES[random.below(PIECES.len())].chars());
        }
    }
    *text = letters.into_iter().collect();
}

/// xorshift64*: deterministic, so every test run is the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D).cast_signed()
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next().unsigned_abs() % limit as u64).unwrap()
    }
}
