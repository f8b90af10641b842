//! Workers who ask one queue at once would look at the same runs, and all but one find theirs taken. So those of a node stand in
//! line: each looks behind what the one before has seen. That also spares them the index entries of runs that were taken
//! before, through which a look from the beginning goes until the table is vacuumed. It is not for jobs whose other runs count:
//! their runs start in order, so whoever takes one looks from the beginning.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use everytick_domain::{
    ids::{RunId, TenantId},
    time::{DbTime, Span},
};
use tokio::sync::{Mutex as Turns, MutexGuard};
use uuid::Uuid;

use crate::CLAIM_PAGE_MIN;

/// Where a look begins: behind this rank and run.
pub(super) type Place = (i64, Uuid);
pub(super) const BEGINNING: Place = (i64::MIN, Uuid::nil());

/// So long after a look from the beginning others look from where the last one ended: what came meanwhile with a higher rank
/// waits as long.
const LOOKED: Span = Span::millis(200);
/// So long after somebody has come upon a job whose other runs count nobody stands in line.
const ORDERED: Span = Span::seconds(1);
/// Whoever has not had a turn by then looks from the beginning.
const TURN_PATIENCE: Duration = Duration::from_millis(250);
/// Lines that are kept. When there are more, all are forgotten, which costs each queue one look from the beginning.
const LINES_MAX: usize = 1_000;

/// The lines at the queues of a node.
#[derive(Default)]
pub(in super::super) struct Lines(Mutex<HashMap<(TenantId, String), Arc<Line>>>);

/// The line at one queue. Whoever claims has it meanwhile.
#[derive(Default)]
pub(super) struct Line {
    seen: Turns<Option<Seen>>,
    /// What those who had their turn are about to take: others still see it waiting until they commit.
    wanted: Mutex<HashSet<RunId>>,
    /// When somebody last came upon a job whose other runs count.
    ordered: Mutex<Option<DbTime>>,
}

struct Seen {
    until: Place,
    /// When somebody last looked from the beginning.
    since: DbTime,
}

impl Lines {
    pub(super) fn at(&self, tenant: TenantId, queue: &str) -> Arc<Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES_MAX {
            lines.clear();
        }
        lines.entry((tenant, queue.to_owned())).or_default().clone()
    }
}

impl Line {
    /// Waits for the turn to look for `room` runs. None for whoever had to wait for too long, and for one who asks alone for a
    /// few: the order matters more to it than the work.
    pub(super) async fn turn(self: &Arc<Self>, room: usize) -> Option<Turn<'_>> {
        // One is kept, and one is the caller's.
        let alone = Arc::strong_count(self) <= 2;
        if alone && room < CLAIM_PAGE_MIN {
            return None;
        }
        let seen = tokio::time::timeout(TURN_PATIENCE, self.seen.lock()).await.ok()?;
        Some(Turn { line: self, seen })
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, HashSet<RunId>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody else in the line looks meanwhile.
pub(super) struct Turn<'l> {
    line: &'l Arc<Line>,
    seen: MutexGuard<'l, Option<Seen>>,
}

impl Turn<'_> {
    /// Where to look from, if others have looked lately.
    pub(super) fn behind(&self, now: DbTime) -> Option<Place> {
        self.seen.as_ref().filter(|seen| lately(seen.since, LOOKED, now)).map(|seen| seen.until)
    }

    /// Whether the order counts here.
    pub(super) fn is_ordered(&self, now: DbTime) -> bool {
        let ordered = *self.line.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        ordered.is_some_and(|since| lately(since, ORDERED, now))
    }

    /// What others are about to take.
    pub(super) fn wanted(&self) -> HashSet<RunId> {
        self.line.wanted().clone()
    }

    /// This one wants `runs`. The next one looks behind `until`, where this one has come to from the beginning or from where it
    /// was told to.
    pub(super) fn done(mut self, from: Place, until: Place, now: DbTime, runs: HashSet<RunId>) -> Wanted {
        match self.seen.as_mut() {
            Some(seen) if from != BEGINNING => seen.until = until,
            _ => *self.seen = Some(Seen { until, since: now }),
        }
        self.line.wanted().extend(&runs);
        Wanted { line: self.line.clone(), runs }
    }
}

/// Not so long ago; a clock that was set back says no.
fn lately(since: DbTime, span: Span, now: DbTime) -> bool {
    since <= now && now < since.plus(span)
}

/// What somebody is about to take, until that is committed or given up.
pub(super) struct Wanted {
    line: Arc<Line>,
    runs: HashSet<RunId>,
}

impl Wanted {
    /// Among them were runs of a job whose other runs count.
    pub(super) fn came_upon_order(&self, now: DbTime) {
        *self.line.ordered.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.line.wanted().retain(|run| !self.runs.contains(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: DbTime = DbTime::from_millis(1_000_000);
    const THERE: Place = (7, Uuid::nil());

    fn run(n: u128) -> RunId {
        RunId::from_uuid(Uuid::from_u128(n))
    }

    fn lines() -> (Lines, Arc<Line>) {
        let lines = Lines::default();
        let line = lines.at(TenantId::from_raw(1), "reports");
        (lines, line)
    }

    #[tokio::test]
    async fn who_asks_alone_for_a_few_looks_from_the_beginning() {
        let (lines, line) = lines();
        assert!(line.turn(CLAIM_PAGE_MIN - 1).await.is_none());
        assert!(line.turn(CLAIM_PAGE_MIN).await.is_some());
        let _other = lines.at(TenantId::from_raw(1), "reports");
        assert!(line.turn(1).await.is_some());
    }

    #[tokio::test]
    async fn the_next_looks_behind_the_one_before_for_a_while() {
        let (_lines, line) = lines();
        let turn = line.turn(100).await.expect("a turn");
        assert_eq!(turn.behind(NOW), None);
        let wanted = turn.done(BEGINNING, THERE, NOW, HashSet::from([run(1), run(2)]));
        let turn = line.turn(100).await.expect("a turn");
        let later = NOW.plus(Span::millis(199));
        assert_eq!(turn.behind(later), Some(THERE));
        assert_eq!(turn.wanted(), HashSet::from([run(1), run(2)]));
        let _more = turn.done(THERE, (8, Uuid::nil()), later, HashSet::from([run(3)]));
        drop(wanted);
        let turn = line.turn(100).await.expect("a turn");
        assert_eq!(turn.behind(later), Some((8, Uuid::nil())));
        assert_eq!(turn.wanted(), HashSet::from([run(3)]), "the others were taken");
        assert_eq!(turn.behind(NOW.plus(LOOKED)), None, "the last look from the beginning counts");
        assert_eq!(turn.behind(NOW.minus(Span::millis(1))), None, "a clock that was set back");
    }

    #[tokio::test]
    async fn the_order_counts_for_a_while() {
        let (_lines, line) = lines();
        let turn = line.turn(100).await.expect("a turn");
        assert!(!turn.is_ordered(NOW));
        turn.done(BEGINNING, THERE, NOW, HashSet::new()).came_upon_order(NOW);
        let turn = line.turn(100).await.expect("a turn");
        assert!(turn.is_ordered(NOW) && !turn.is_ordered(NOW.plus(ORDERED)));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long_for_a_turn() {
        let (_lines, line) = lines();
        let held = line.turn(100).await;
        assert!(line.turn(100).await.is_none());
        drop(held);
        assert!(line.turn(100).await.is_some());
    }

    #[test]
    fn lines_do_not_pile_up() {
        let lines = Lines::default();
        for n in 0..LINES_MAX * 2 + 1 {
            lines.at(TenantId::from_raw(1), &n.to_string());
        }
        assert!(lines.0.lock().expect("lines").len() <= LINES_MAX);
    }
}
