//! Compiled expressions, shared by all schedules that say the same: jobs by the thousand are registered and loaded with few
//! different ones, each read several times on its way in. A pure function's answers, so nobody sees whether one is here.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use super::{Fold, Gap, search::Cron};

/// Beyond this they are forgotten, all at once: where every job has an expression of its own, to keep them gains nothing.
const COMPILED_MAX: usize = 4_096;

static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Cron>>>> = LazyLock::new(Mutex::default);

pub(super) fn find(resolved: &str, timezone: &str, gap: Gap, fold: Fold) -> Option<Arc<Cron>> {
    compiled().get(&key(resolved, timezone, gap, fold)).map(Arc::clone)
}

pub(super) fn keep(resolved: &str, timezone: &str, cron: &Arc<Cron>) {
    let mut compiled = compiled();
    if compiled.len() >= COMPILED_MAX {
        compiled.clear();
    }
    compiled.insert(key(resolved, timezone, cron.gap, cron.fold), Arc::clone(cron));
}

fn compiled() -> MutexGuard<'static, HashMap<String, Arc<Cron>>> {
    COMPILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No expression holds a line's end, and no zone's name either.
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
        schedule::{Schedule, ScheduleSpec},
        time::DbTime,
    };

    /// In 2026 clocks in Paris skip 02:30 on 29 March and have it twice on 25 October.
    #[test]
    fn what_differs_in_one_word_is_not_shared() {
        let ticks = |cron: &str, zone: &str, gap, fold| {
            let timing = ScheduleSpec::cron(cron, Some(zone), gap, fold, "j").unwrap();
            let schedule = Schedule::compile(&timing.into()).unwrap();
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
    fn no_more_are_kept_than_there_is_room_for() {
        for n in 0..COMPILED_MAX + 10 {
            let (minute, hour, day) = (n % 60, n / 60 % 24, n / 1_440 % 28 + 1);
            let timing =
                ScheduleSpec::cron(&format!("{minute} {hour} {day} * *"), None, Gap::Shift, Fold::First, "j").unwrap();
            Schedule::compile(&timing.into()).unwrap();
        }
        assert!(compiled().len() <= COMPILED_MAX);
    }
}
