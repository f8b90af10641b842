//! A fuzz test for the stable toolchain: mutates a corpus with a seeded generator for `EVERYTICK_FUZZ_SECONDS` seconds.

use std::time::{Duration, Instant};

use everytick_domain::splitmix::SplitMix64;

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
    let mut random = SplitMix64::new(1);
    while Instant::now() < until {
        let mut text = CORPUS[pick(&mut random, CORPUS.len())].to_owned();
        for _ in 0..pick(&mut random, 4) {
            mutate(&mut text, &mut random);
        }
        // Mostly present years, and sometimes the limits of time.
        let after = match pick(&mut random, 20) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 253_402_207_190_000,
            _ => random.below(5_000_000_000_000).cast_signed(),
        };
        let began = Instant::now();
        exercise(&text, ZONES[pick(&mut random, ZONES.len())], after);
        // This detects a hang, not slowness: even a busy machine needs less time for an expression.
        assert!(began.elapsed() < HANG, "{text:?} took {:?}", began.elapsed());
    }
}

fn mutate(text: &mut String, random: &mut SplitMix64) {
    let mut letters: Vec<char> = text.chars().collect();
    let at = pick(random, letters.len() + 1);
    match pick(random, 4) {
        0 if at < letters.len() => {
            letters.remove(at);
        }
        1 if at < letters.len() => {
            letters.splice(at..=at, PIECES[pick(random, PIECES.len())].chars());
        }
        2 => {
            let other: Vec<char> = CORPUS[pick(random, CORPUS.len())].chars().collect();
            let cut = pick(random, other.len() + 1);
            letters.truncate(at);
            letters.extend_from_slice(&other[cut..]);
        }
        _ => {
            letters.splice(at..at, PIECES[pick(random, PIECES.len())].chars());
        }
    }
    *text = letters.into_iter().collect();
}

fn pick(random: &mut SplitMix64, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).unwrap()
}
