//! Any text as a cron expression: `cargo +nightly fuzz run cron_parser -- -dict=fuzz/cron.dict`. The same check runs on stable, over a corpus of its
//! own, as the domain's test `no_text_panics_or_hangs`.
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

// Eight bytes of instant, one that chooses the zone, and the text. The instant keeps to the years that ticks have; one choice
// in nine takes the zone, too, from the text.
fuzz_target!(|data: &[u8]| {
    let Some((&[a, b, c, d, e, f, g, h, choice], text)) = data.split_first_chunk() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let after_ms = i64::from_le_bytes([a, b, c, d, e, f, g, h]).rem_euclid(260_000_000_000_000);
    let zone = ZONES.get(usize::from(choice % 9)).copied().unwrap_or_else(|| text.rsplit(' ').next().unwrap_or(text));
    exercise::exercise(text, zone, after_ms);
});
