//! Parses any text as a cron expression: `cargo +nightly fuzz run cron_parser -- -dict=fuzz/cron.dict`.
//! On stable, the test `no_text_panics_or_hangs` of the domain runs the same check with its own corpus.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/domain/tests/it/exercise.rs"]
mod exercise;

const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Africa/Cairo",
    "America/Santiago",
];

// The input is 8 bytes of instant, 1 byte that selects the time zone, and the text. The instant is limited to the years that
// ticks can have. One selection in nine takes the zone from the text.
fuzz_target!(|data: &[u8]| {
    let Some((&[a, b, c, d, e, f, g, h, choice], text)) = data.split_first_chunk() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let after_ms = i64::from_le_bytes([a, b, c, d, e, f, g, h]).rem_euclid(260_000_000_000_000);
    let zone = ZONES.get(usize::from(choice % 9)).copied().unwrap_or_else(|| text.rsplit(' ').next().unwrap_or(text));
    exercise::exercise(text, zone, after_ms);
});
