//! Every named mistake is found: a simulator that cannot see them would prove nothing.

use everytick_domain::mutant::Mutant;

use super::world::play;

const SEEDS_MAX: u64 = 1_000;

#[test]
fn every_mutant_is_found() {
    let found = std::sync::Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let Some(mutant) = Mutant::ALL.get(n) else { return };
                    let caught = (0..SEEDS_MAX).find_map(|seed| {
                        let played = play(seed, Some(*mutant));
                        played.violations.into_iter().next().map(|violation| (seed, violation))
                    });
                    match &caught {
                        Some((seed, violation)) => println!("{mutant:?}: seed {seed}: {violation}"),
                        None => println!("{mutant:?}: NOT FOUND in {SEEDS_MAX} seeds"),
                    }
                    found.lock().unwrap().push((*mutant, caught.is_some()));
                }
            });
        }
    });
    let missed: Vec<_> = found.into_inner().unwrap().into_iter().filter(|(_, caught)| !caught).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
