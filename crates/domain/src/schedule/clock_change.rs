//! The effects of clock changes on the times of a cron expression, as text. Each change is described once, at the first of
//! these that applies:
//!
//! - the tick whose local time comes twice, or the tick that moves out of a gap,
//! - the times that do not exist,
//! - the first tick after the change.

use crate::time::{DbTime, Span};

use super::{
    Schedule, When,
    date::{DAY, date_of},
    preview::Nonexistent,
    search::Cron,
    spec::{Fold, Gap},
    text::listed,
    zone::Stretch,
};

/// How many clock changes one note describes in full. Ticks of a sparse schedule can be years apart.
const CHANGES_SHOWN_MAX: usize = 3;

/// How many skipped times of one gap are listed one by one.
const TIMES_LISTED_MAX: usize = 3;

/// How many clock changes after the last tick of a schedule are searched for times that do not exist.
const CHANGES_AFTER_END_MAX: usize = 100;

/// Maximum number of nonexistent times in one preview.
const NONEXISTENT_MAX: usize = 1_000;

/// Which of the two occurrences of a local time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    First,
    Second,
}

impl Schedule {
    /// What a clock change does to the tick at this instant: it moved out of a gap, or its local time comes twice.
    #[must_use]
    pub fn clock_note(&self, tick: DbTime) -> Option<String> {
        match &self.when {
            When::Cron(cron) => {
                cron.tick_note(seconds(tick)).map(|(note, stretch)| format!("{note}; {}", change(&stretch)))
            }
            When::Every { .. } | When::At(_) => None,
        }
    }

    /// The note of the tick with the same local time as this instant, if that time comes twice and fires at the other pass only.
    #[must_use]
    pub fn other_pass(&self, at: DbTime) -> Option<(DbTime, String)> {
        let When::Cron(cron) = &self.when else { return None };
        let stretch = cron.zone.stretch_at(seconds(at));
        let civil = seconds(at) + stretch.offset;
        let (pass, _) = cron.pass_of(seconds(at), &stretch)?;
        let other = match pass {
            Pass::First => civil - stretch.after,
            Pass::Second => civil - stretch.before,
        };
        let other = instant(other);
        let is_tick = self.first_from(other) == Some(other) && self.first_from(at) != Some(at);
        is_tick.then(|| self.clock_note(other)).flatten().map(|note| (other, note))
    }

    /// The times of the schedule that do not exist because of the clock change at this instant, and do not fire.
    #[must_use]
    pub fn nonexistent_at(&self, change: DbTime) -> Option<Nonexistent> {
        match &self.when {
            When::Cron(cron) => {
                let stretch = cron.zone.stretch_at(seconds(change));
                (stretch.start == seconds(change)).then(|| cron.nonexistent(&stretch)).flatten()
            }
            When::Every { .. } | When::At(_) => None,
        }
    }
}

/// Walks over the clock changes of a zone together with the ticks of a schedule.
pub(super) struct Changes<'a> {
    cron: &'a Cron,
    /// The stretch of the last tick.
    stretch: Stretch,
    /// Changes up to this instant are described already.
    described: i64,
    /// All ticks lie within these bounds.
    bounds: (i64, i64),
    nonexistent: Vec<Nonexistent>,
}

impl<'a> Changes<'a> {
    /// Starts at `from`: describes also a change at this instant.
    pub(super) fn new(cron: &'a Cron, from: DbTime, (first, last): (DbTime, DbTime)) -> Self {
        let before = seconds(from.minus(Span::millis(1))).max(0);
        let bounds = (seconds(first), seconds(last));
        Self { cron, stretch: cron.zone.stretch_at(before), described: before, bounds, nonexistent: Vec::new() }
    }

    /// The note of the next tick.
    pub(super) fn note(&mut self, tick: DbTime) -> Option<String> {
        let tick = seconds(tick);
        let mut passed = Vec::new();
        while self.stretch.end <= tick {
            passed.extend(self.pass());
        }
        let mut words = Vec::new();
        if let Some((note, stretch)) = self.cron.tick_note(tick) {
            words.push(note);
            if stretch.start > self.described {
                passed.push(stretch);
            }
            passed.dedup();
        }
        if let Some(last) = passed.last() {
            self.described = last.start;
            words.push(changes(&passed, last));
        }
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Moves to the next stretch. Returns it if its change is not described yet.
    fn pass(&mut self) -> Option<Stretch> {
        let stretch = self.cron.zone.stretch_at(self.stretch.end);
        self.stretch = stretch;
        let (first, last) = self.bounds;
        let is_inside = (first..=last).contains(&stretch.start) && stretch.start > self.described;
        if is_inside
            && self.nonexistent.len() < NONEXISTENT_MAX
            && let Some(times) = self.cron.nonexistent(&stretch)
        {
            self.nonexistent.push(times);
            self.described = stretch.start;
        }
        (stretch.start > self.described).then_some(stretch)
    }

    /// The times that do not exist. If the schedule has no further tick, includes times after the last tick.
    pub(super) fn nonexistent(mut self, is_over: bool) -> Vec<Nonexistent> {
        for _ in 0..if is_over { CHANGES_AFTER_END_MAX } else { 0 } {
            let civil = self.stretch.end.saturating_add(self.stretch.offset.min(self.stretch.after));
            if self.stretch.end > self.bounds.1 || self.cron.pattern.first_from(civil).is_none() {
                break;
            }
            self.pass();
        }
        self.nonexistent
    }
}

impl Cron {
    /// The note of a tick that a clock change concerns, and the stretch that begins with the change.
    fn tick_note(&self, tick: i64) -> Option<(String, Stretch)> {
        let stretch = self.zone.stretch_at(tick);
        if stretch.start == tick && self.shifted_time(&stretch).is_some() {
            let at = clock(tick + stretch.offset);
            return Some((format!("{}, fires at {at}", self.absent_words(&stretch)), stretch));
        }
        let (pass, change) = self.pass_of(tick, &stretch)?;
        let fires = match (self.pattern.elapsed, self.fold, pass) {
            (false, Fold::First, _) => "fires at the first pass",
            (false, Fold::Last, _) => "fires at the second pass",
            (true, _, Pass::First) | (false, Fold::Both, Pass::First) => "fires at both passes; this is the first",
            (true, _, Pass::Second) | (false, Fold::Both, Pass::Second) => "fires at both passes; this is the second",
        };
        Some((format!("{} comes twice, {fires}", clock(tick + stretch.offset)), change))
    }

    /// The pass of a tick whose local time comes twice, and the stretch that begins with the change.
    fn pass_of(&self, tick: i64, stretch: &Stretch) -> Option<(Pass, Stretch)> {
        let civil = tick + stretch.offset;
        if stretch.after < stretch.offset && civil >= stretch.end.saturating_add(stretch.after) {
            return Some((Pass::First, self.zone.stretch_at(stretch.end)));
        }
        (civil < stretch.start.saturating_add(stretch.before)).then_some((Pass::Second, *stretch))
    }

    /// The times in the gap before this stretch, if they do not fire.
    fn nonexistent(&self, stretch: &Stretch) -> Option<Nonexistent> {
        let (from, until) = gap(stretch);
        if from >= until || self.shifted_time(stretch).is_some() {
            return None;
        }
        let first = self.pattern.first_from(from).filter(|time| *time < until)?;
        let is_elapsed = self.pattern.elapsed;
        // An expression that follows elapsed time and also has times right after the gap continues without a pause.
        if is_elapsed && self.pattern.first_from(until).is_some_and(|time| time < until.saturating_add(until - from)) {
            return None;
        }
        let chosen = if self.gap == Gap::Skip && !is_elapsed { " (gap: skip)" } else { "" };
        let verb = if self.pattern.count(from, until) == 1 { "does" } else { "do" };
        let note = format!("{}, {verb} not fire{chosen}; {}", self.absent_words(stretch), change(stretch));
        Some(Nonexistent { at: instant(stretch.start), local: format!("{}T{}", date(first), time(first)), note })
    }

    /// `02:30 does not exist`, for the times of the expression in the gap before this stretch.
    fn absent_words(&self, stretch: &Stretch) -> String {
        let (from, until) = gap(stretch);
        let times = std::iter::successors(self.pattern.first_from(from), |time| self.pattern.first_from(time + 1));
        let times: Vec<i64> = times.take_while(|time| *time < until).take(TIMES_LISTED_MAX).collect();
        let count = self.pattern.count(from, until);
        let day = match until - from {
            DAY.. => format!(" on {}", date(from)),
            _ => String::new(),
        };
        match times.as_slice() {
            [one] => format!("{}{day} does not exist", clock(*one)),
            [first, ..] if count > TIMES_LISTED_MAX as u64 => {
                format!("{} and {} more times{day} do not exist", clock(*first), count - 1)
            }
            times => {
                format!("{}{day} do not exist", listed(&times.iter().map(|time| clock(*time)).collect::<Vec<_>>()))
            }
        }
    }
}

/// The civil times that the change at the start of this stretch skips, `from..until`; empty unless clocks go forward.
const fn gap(stretch: &Stretch) -> (i64, i64) {
    (stretch.start.saturating_add(stretch.before), stretch.start.saturating_add(stretch.offset))
}

fn changes(passed: &[Stretch], last: &Stretch) -> String {
    match passed.len() {
        count if count <= CHANGES_SHOWN_MAX => passed.iter().map(change).collect::<Vec<_>>().join("; "),
        many => format!("{many} clock changes, the last of them: {}", change(last)),
    }
}

/// `clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00)`, with dates if a whole day is skipped.
fn change(stretch: &Stretch) -> String {
    let moved = Span::seconds((stretch.offset - stretch.before).unsigned_abs());
    let way = if stretch.offset > stretch.before { "forward" } else { "back" };
    let (from, to) = gap(stretch);
    let shown = |civil| if moved >= Span::days(1) { format!("{} {}", date(civil), clock(civil)) } else { clock(civil) };
    format!("clocks go {way} {moved} at {} ({} -> {})", instant(stretch.start), shown(from), shown(to))
}

/// The time of day of a civil second; seconds are shown only if they are not zero.
fn clock(civil: i64) -> String {
    let text = time(civil);
    text.strip_suffix(":00").map_or(text.clone(), ToOwned::to_owned)
}

fn time(civil: i64) -> String {
    let second = civil.rem_euclid(DAY);
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

fn date(civil: i64) -> String {
    let date = date_of(civil.div_euclid(DAY));
    format!("{:04}-{:02}-{:02}", date.year, date.month, date.day)
}

const fn seconds(at: DbTime) -> i64 {
    at.millis().div_euclid(1_000)
}

const fn instant(second: i64) -> DbTime {
    DbTime::from_millis(second.saturating_mul(1_000))
}
