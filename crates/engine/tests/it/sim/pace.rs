//! I14: late runs start no faster than the jobs tick in normal times.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use everytick_domain::recovery::Rate;
use everytick_sim::{Db, Entry};

use super::{checker::Definitions, target::Delivery};

/// An interval may have more late starts than its length allows, as if it were this much longer: budget was saved
/// before it, or runs were claimed before a pause and sent after it.
const SAVED_SECONDS: f64 = 2.0;

/// Checks the rate of late runs in virtual time, because the database clock is set back and forth. Every definition that a job
/// ever had counts as ticking, so the limit is higher than that of any node.
pub fn check(db: &Db, jobs: &Definitions<'_>, deliveries: &[Delivery], nodes: usize, found: &mut Vec<String>) {
    let an_hour: u64 = jobs
        .values()
        .map(|definitions| {
            let ticks = definitions.iter().map(|definition| {
                let since = definition.job.updated_at;
                let hour = everytick_domain::time::Span::hours(1);
                definition.job.schedule.as_ref().map_or(0, |schedule| schedule.count(since, since.plus(hour)))
            });
            ticks.max().unwrap_or(0)
        })
        .sum();
    // Each node has its own rate, which is never below the minimum.
    let rate = Rate::of_ticks(an_hour).per_second() * nodes as f64;
    let late: BTreeSet<_> = db
        .journal()
        .iter()
        .filter_map(|entry| match entry {
            // Workers set their own pace.
            Entry::Claimed { run, attempt, late: true, by, .. } if !by.uuid().is_nil() => Some((*run, *attempt)),
            _ => None,
        })
        .collect();
    let mut starts: BTreeMap<Duration, usize> = BTreeMap::new();
    for delivery in deliveries.iter().filter(|delivery| late.contains(&(delivery.run, delivery.attempt))) {
        *starts.entry(delivery.after).or_default() += 1;
    }
    for from in starts.keys() {
        let mut started = 0;
        for (to, count) in starts.range(from..) {
            started += count;
            let most = rate * ((*to - *from).as_secs_f64() + SAVED_SECONDS) + 1.0;
            if started as f64 > most {
                found.push(format!("I14: {started} late runs began from {from:?} to {to:?}, at most {most:.1} may"));
                return;
            }
        }
    }
}
