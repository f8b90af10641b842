//! The simulator finds every mutant. If it did not, its other results would prove nothing.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use everytick_domain::mutant::Mutant;
use everytick_sim::Point;

use super::world::{Scene, simulate};

/// Some mutants need a rare chain of faults. The search ends with the first seed that shows the mutant.
const SEEDS_MAX: u64 = 3_000;

/// The progress of the search for one mutant.
struct Search {
    mutant: Mutant,
    next: AtomicU64,
    found: Mutex<Option<(u64, String)>>,
}

impl Search {
    fn seed(&self) -> Option<u64> {
        if self.found.lock().unwrap().is_some() {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::SeqCst)).filter(|seed| *seed < SEEDS_MAX)
    }

    fn simulate(&self, seed: u64) {
        if let Some(violation) = simulate(scene(self.mutant, seed), Some(self.mutant)).violations.into_iter().next() {
            let mut found = self.found.lock().unwrap();
            if found.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                *found = Some((seed, violation));
            }
        }
    }
}

/// The scene in which to search for a mutant. If a mutant is detected only after a rare chain of faults, the scene makes such
/// faults common.
fn scene(mutant: Mutant, seed: u64) -> Scene {
    let scene = Scene::of(seed);
    let aim = match mutant {
        Mutant::LateRateUnbounded => return Scene { plain: true, ..scene },
        Mutant::OldestTickRuns => return Scene::patient(seed),
        Mutant::ReadWhileUnsure => Point::RaiseFence,
        Mutant::ReleaseForgotten => Point::Release,
        Mutant::TakeOverUnfenced | Mutant::ReleasedDuringStatement => Point::Record,
        _ => return scene,
    };
    Scene { aim: Some(aim), ..scene }
}

/// `EVERYTICK_SIM_MUTANT` names a single mutant to search for.
#[test]
fn every_mutant_is_found() {
    let named = std::env::var("EVERYTICK_SIM_MUTANT").ok();
    // Simulated targets accept nothing: `tests/it/accepted.rs` finds this mutant.
    let simulated = |mutant: &Mutant| *mutant != Mutant::AcceptedStaysWithNode;
    let wanted = |mutant: &Mutant| named.as_ref().is_none_or(|named| *named == format!("{mutant:?}"));
    let searches: Vec<_> = Mutant::ALL
        .into_iter()
        .filter(wanted)
        .filter(simulated)
        .map(|mutant| Search { mutant, next: AtomicU64::new(0), found: Mutex::default() })
        .collect();
    // All threads search for the same mutant. Otherwise one thread would search alone for a mutant that is hard to find.
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                for search in &searches {
                    while let Some(seed) = search.seed() {
                        search.simulate(seed);
                    }
                }
            });
        }
    });
    let mut missed = Vec::new();
    for Search { mutant, found, .. } in searches {
        match found.into_inner().unwrap() {
            Some((seed, violation)) => println!("{mutant:?}: seed {seed}: {violation}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds: {missed:?}");
}
