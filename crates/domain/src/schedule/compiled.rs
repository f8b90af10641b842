//! A cache of compiled cron expressions. Thousands of jobs use few different expressions, and each expression is compiled
//! several times during registration. Compiling is a pure function, so the cache does not change results. The caller owns
//! it: this crate has no global state.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Fold, Gap, search::Cron};

/// When the cache has this many entries, it is cleared. If every job has its own expression, a cache gains nothing.
const COMPILED_MAX: usize = 4_096;

/// The compiled expressions by text, zone and options. Schedules with the same ones share the compiled form. A new
/// cache is cheap: code that seldom compiles an expression passes `&CronCache::default()`.
#[derive(Debug, Default)]
pub struct CronCache(Mutex<HashMap<String, Arc<Cron>>>);

impl CronCache {
    pub(super) fn find(&self, resolved: &str, timezone: &str, gap: Gap, fold: Fold) -> Option<Arc<Cron>> {
        self.lock().get(&key(resolved, timezone, gap, fold)).map(Arc::clone)
    }

    pub(super) fn insert(&self, resolved: &str, timezone: &str, cron: &Arc<Cron>) {
        let mut compiled = self.lock();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(key(resolved, timezone, cron.gap, cron.fold), Arc::clone(cron));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Cron>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The separator is a newline, which neither an expression nor a zone name contains.
fn key(resolved: &str, timezone: &str, gap: Gap, fold: Fold) -> String {
    let mut key = String::with_capacity(resolved.len() + timezone.len() + 4);
    for part in [resolved, "\n", timezone, "\n"] {
        key.push_str(part);
    }
    key.push(match gap {
        Gap::Shift => 's',
        Gap::Skip => 'k',
    });
    key.push(match fold {
        Fold::First => 'f',
        Fold::Last => 'l',
        Fold::Both => 'b',
    });
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        schedule::{Schedule, ScheduleSpec, When},
        time::DbTime,
    };

    /// In 2026, clocks in Paris skip 02:30 on 29 March and show it twice on 25 October.
    #[test]
    fn schedules_that_differ_in_any_part_are_not_shared() {
        let crons = CronCache::default();
        let ticks = |cron: &str, zone: &str, gap, fold| {
            let timing = ScheduleSpec::cron_with(cron, Some(zone), gap, fold, "j", &crons).unwrap();
            let schedule = Schedule::compile_with(&timing.into(), &crons).unwrap();
            let day = |text: &str| schedule.next_after(text.parse::<DbTime>().unwrap()).unwrap().to_string();
            (day("2026-03-28T12:00:00Z"), day("2026-10-25T00:45:00Z"))
        };
        for _ in 0..2 {
            let plain = ticks("30 2 * * *", "Europe/Paris", Gap::Shift, Fold::First);
            assert_eq!(plain, ("2026-03-29T01:00:00Z".to_owned(), "2026-10-26T01:30:00Z".to_owned()));
            assert_eq!(ticks("30 2 * * *", "Europe/Paris", Gap::Skip, Fold::First).0, "2026-03-30T00:30:00Z");
            assert_eq!(ticks("30 2 * * *", "Europe/Paris", Gap::Shift, Fold::Both).1, "2026-10-25T01:30:00Z");
            assert_eq!(ticks("30 2 * * *", "UTC", Gap::Shift, Fold::First).0, "2026-03-29T02:30:00Z");
            assert_eq!(ticks("31 2 * * *", "UTC", Gap::Shift, Fold::First).0, "2026-03-29T02:31:00Z");
        }
    }

    #[test]
    fn schedules_with_the_same_expression_share_its_compiled_form() {
        let crons = CronCache::default();
        let spec: ScheduleSpec =
            ScheduleSpec::cron_with("30 2 * * *", None, Gap::Shift, Fold::First, "j", &crons).unwrap().into();
        let cron = |crons| match Schedule::compile_with(&spec, crons).unwrap().when {
            When::Cron(cron) => cron,
            When::Every { .. } | When::At(_) => panic!("it is a cron expression"),
        };
        assert!(Arc::ptr_eq(&cron(&crons), &cron(&crons)));
        assert!(!Arc::ptr_eq(&cron(&crons), &cron(&CronCache::default())));
    }

    #[test]
    fn the_cache_does_not_exceed_its_limit() {
        let crons = CronCache::default();
        for n in 0..COMPILED_MAX + 10 {
            let (minute, hour, day) = (n % 60, n / 60 % 24, n / 1_440 % 28 + 1);
            let text = format!("{minute} {hour} {day} * *");
            let timing = ScheduleSpec::cron(&text, None, Gap::Shift, Fold::First, "j").unwrap();
            Schedule::compile_with(&timing.into(), &crons).unwrap();
        }
        assert_eq!(crons.lock().len(), 10);
    }
}
