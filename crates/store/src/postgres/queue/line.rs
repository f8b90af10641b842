//! Spreads concurrent claims of one node on one queue. Without it, they would read the same runs, and only one claim would
//! get them. So one claim searches at a time, and each starts after the position of the previous one. That also
//! avoids the index entries of runs claimed earlier, which a search from the beginning reads until the table is
//! vacuumed. It is not used for guarded jobs (with a limit on runs in progress, or a concurrency key): their runs start
//! in order, so a claim on them searches from the beginning.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::claims::{BEGINNING, Place};
use crate::CLAIM_PAGE_MIN;
use everytick_domain::{
    ids::{RunId, TenantId},
    time::{DbTime, Span},
};
use tokio::sync::{Mutex as Turns, MutexGuard};

/// For this long after a search from the beginning, other searches continue at the last position. A run that arrives
/// meanwhile and belongs before that position waits up to this long.
const LOOKED: Span = Span::millis(200);
/// For this long after a claim met a guarded job, claims search from the beginning.
const ORDERED: Span = Span::seconds(1);
/// A claim that waits longer than this for its turn searches from the beginning.
const TURN_PATIENCE: Duration = Duration::from_millis(250);
/// The number of lines in memory. Beyond it all are dropped, which costs each queue one search from the beginning.
const LINES_MAX: usize = 1_000;

/// The lines of a node, one per queue.
#[derive(Default)]
pub(in super::super) struct Lines(Mutex<HashMap<(TenantId, String), Arc<Line>>>);

/// The line of one queue. Claims in progress keep a reference to it.
#[derive(Default)]
pub(super) struct Line {
    seen: Turns<Option<Seen>>,
    /// Runs that earlier claims are about to take: others see them as waiting until those commit.
    wanted: Mutex<HashSet<RunId>>,
    /// When a claim last met a guarded job.
    ordered: Mutex<Option<DbTime>>,
}

struct Seen {
    until: Place,
    /// When a claim last searched from the beginning.
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
    /// Waits for the turn to search for `wanted` runs. `None` after too long a wait, and for a lone claim of a few runs:
    /// for that one the order matters more than the cost.
    pub(super) async fn turn(self: &Arc<Self>, wanted: usize) -> Option<Turn<'_>> {
        // The map has one reference, and the caller has one.
        let alone = Arc::strong_count(self) <= 2;
        if alone && wanted < CLAIM_PAGE_MIN {
            return None;
        }
        let seen = tokio::time::timeout(TURN_PATIENCE, self.seen.lock()).await.ok()?;
        Some(Turn { line: self, seen })
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, HashSet<RunId>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of one claim: no other claim of the line searches meanwhile.
pub(super) struct Turn<'l> {
    line: &'l Arc<Line>,
    seen: MutexGuard<'l, Option<Seen>>,
}

impl Turn<'_> {
    /// The start position, if another claim has searched recently.
    pub(super) fn behind(&self, now: DbTime) -> Option<Place> {
        self.seen.as_ref().filter(|seen| lately(seen.since, LOOKED, now)).map(|seen| seen.until)
    }

    /// Whether jobs in this queue need their runs in order.
    pub(super) fn is_ordered(&self, now: DbTime) -> bool {
        let ordered = *self.line.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        ordered.is_some_and(|since| lately(since, ORDERED, now))
    }

    /// The runs that other claims are about to take.
    pub(super) fn wanted(&self) -> HashSet<RunId> {
        self.line.wanted().clone()
    }

    /// Ends the turn. This claim is about to take `runs`. The next one starts after `until`, which this one reached
    /// from `from`.
    pub(super) fn done(mut self, from: Place, until: Place, now: DbTime, runs: HashSet<RunId>) -> Wanted {
        match self.seen.as_mut() {
            Some(seen) if from != BEGINNING => seen.until = until,
            _ => *self.seen = Some(Seen { until, since: now }),
        }
        self.line.wanted().extend(&runs);
        Wanted { line: self.line.clone(), runs }
    }
}

/// Whether `since` is less than `span` ago; false if the clock was set back.
fn lately(since: DbTime, span: Span, now: DbTime) -> bool {
    since <= now && now < since.plus(span)
}

/// Runs that a claim is about to take, until it commits or rolls back.
pub(super) struct Wanted {
    line: Arc<Line>,
    runs: HashSet<RunId>,
}

impl Wanted {
    /// Notes that a guarded job was among them.
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
    use uuid::Uuid;

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
    async fn a_lone_claim_of_a_few_runs_searches_from_the_beginning() {
        let (lines, line) = lines();
        assert!(line.turn(CLAIM_PAGE_MIN - 1).await.is_none());
        assert!(line.turn(CLAIM_PAGE_MIN).await.is_some());
        let _other = lines.at(TenantId::from_raw(1), "reports");
        assert!(line.turn(1).await.is_some());
    }

    #[tokio::test]
    async fn the_next_claim_searches_behind_the_one_before_for_200_ms() {
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
        assert_eq!(turn.wanted(), HashSet::from([run(3)]), "the first claim released its runs");
        assert_eq!(turn.behind(NOW.plus(LOOKED)), None, "the time counts from the last search from the beginning");
        assert_eq!(turn.behind(NOW.minus(Span::millis(1))), None, "a clock that was set back");
    }

    #[tokio::test]
    async fn the_order_counts_for_one_second() {
        let (_lines, line) = lines();
        let turn = line.turn(100).await.expect("a turn");
        assert!(!turn.is_ordered(NOW));
        turn.done(BEGINNING, THERE, NOW, HashSet::new()).came_upon_order(NOW);
        let turn = line.turn(100).await.expect("a turn");
        assert!(turn.is_ordered(NOW) && !turn.is_ordered(NOW.plus(ORDERED)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_does_not_wait_long_for_its_turn() {
        let (_lines, line) = lines();
        let turn = line.turn(100).await;
        assert!(line.turn(100).await.is_none());
        drop(turn);
        assert!(line.turn(100).await.is_some());
    }

    #[test]
    fn the_number_of_lines_is_bounded() {
        let lines = Lines::default();
        for n in 0..LINES_MAX * 2 + 1 {
            lines.at(TenantId::from_raw(1), &n.to_string());
        }
        assert!(lines.0.lock().expect("lines").len() <= LINES_MAX);
    }
}
