//! Many histories without a violation, and each the same every time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::world::play;

/// `EVERYTICK_SIM_SEEDS` sets how many; `EVERYTICK_SIM_SEED` plays one alone.
fn seeds() -> std::ops::Range<u64> {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match read("EVERYTICK_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..read("EVERYTICK_SIM_SEEDS").unwrap_or(1_000),
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the figure is printed, not asserted")]
fn no_history_breaks_an_invariant() {
    let begun = std::time::Instant::now();
    let (seeds, next) = (seeds(), AtomicU64::new(0));
    let (ticks, deliveries) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let broken = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = seeds.start + next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end {
                        return;
                    }
                    let played = play(seed, None);
                    ticks.fetch_add(played.ticks, Ordering::SeqCst);
                    deliveries.fetch_add(played.deliveries, Ordering::SeqCst);
                    if !played.violations.is_empty() {
                        broken.lock().unwrap().push((seed, played.violations));
                    }
                }
            });
        }
    });
    println!(
        "simulated {} seeds x 120 s: {} ticks, {} deliveries in {:.1} s",
        seeds.end - seeds.start,
        ticks.into_inner(),
        deliveries.into_inner(),
        begun.elapsed().as_secs_f64()
    );
    let mut broken = broken.into_inner().unwrap();
    broken.sort_by_key(|(seed, _)| *seed);
    for (seed, violations) in broken.iter().take(5) {
        println!("seed {seed}: {} violations, such as {:#?}", violations.len(), &violations[..violations.len().min(4)]);
    }
    assert!(broken.is_empty(), "{} of the seeds broke an invariant; play one with EVERYTICK_SIM_SEED=N", broken.len());
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..5 {
        assert_eq!(play(seed, None).trace, play(seed, None).trace, "seed {seed}");
    }
    assert_ne!(play(0, None).trace, play(1, None).trace);
}
