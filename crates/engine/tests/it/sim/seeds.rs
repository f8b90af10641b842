//! Simulates many histories without a violation, and checks that each is reproducible.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::world::{Scene, simulate, trace};

/// `EVERYTICK_SIM_SEEDS` sets how many; `EVERYTICK_SIM_SEED` simulates a single one.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let read = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match read("EVERYTICK_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..read("EVERYTICK_SIM_SEEDS").unwrap_or(count),
    }
}

#[test]
fn no_history_breaks_an_invariant() {
    check_seeds("of one node and of three", seeds(1_000), Scene::of);
}

#[test]
fn the_newest_of_several_due_ticks_runs() {
    check_seeds("in which no tick is late", seeds(100), Scene::patient);
}

#[test]
fn every_tick_is_recorded_once_even_if_each_node_believes_that_it_owns_everything() {
    check_seeds("of three nodes that each believe that they own everything", seeds(100), Scene::ownership_ignored);
}

#[expect(clippy::disallowed_methods, reason = "the figure is printed, not asserted")]
fn check_seeds(which: &str, seeds: std::ops::Range<u64>, scene: impl Fn(u64) -> Scene + Sync) {
    let begun = std::time::Instant::now();
    let next = AtomicU64::new(0);
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
                    let checked = simulate(scene(seed), None);
                    ticks.fetch_add(checked.ticks, Ordering::SeqCst);
                    deliveries.fetch_add(checked.deliveries, Ordering::SeqCst);
                    if !checked.violations.is_empty() {
                        broken.lock().unwrap().push((seed, checked.violations));
                    }
                }
            });
        }
    });
    println!(
        "simulated {} seeds x 120 s {which}: {} ticks, {} deliveries in {:.1} s",
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
    let seeds: Vec<_> = broken.iter().map(|(seed, _)| seed).collect();
    assert!(broken.is_empty(), "an invariant was broken; repeat one seed with EVERYTICK_SIM_SEED=N: {seeds:?}");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..6 {
        assert_eq!(trace(Scene::of(seed)), trace(Scene::of(seed)), "seed {seed}");
    }
    assert_ne!(trace(Scene::of(0)), trace(Scene::of(2)));
}
