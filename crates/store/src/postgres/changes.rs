//! Reads which jobs have changed. A commit may become visible after one with a higher number, so recent changes are
//! read again. Changes that the last complete long read already returned are left out. Without this, all jobs of a bulk
//! registration would be returned every 5 s for a minute.

use std::sync::{Mutex, PoisonError};

use everytick_domain::{ids::Epoch, partition::PartitionSet};
use sqlx::{Row as _, postgres::PgRow};

use super::{Failed, PostgresStore, rows};
use crate::{ChangeMark, ChangedJob, Changes, Result};

/// Each read goes back 2 s, and one read in 5 s goes back 60 s. No commit becomes visible later than 60 s, and few
/// later than 2 s.
const OVERLAP_MS: i64 = 2_000;
const LONG_OVERLAP_MS: i64 = 60_000;
const LONG_OVERLAP_EVERY_MS: i64 = 5_000;
/// `seq` has this many numbers per millisecond, in steps of two. An odd mark means that more changes could be read at
/// once.
const SEQ_PER_MS: i64 = 2_097_152;
const DOING: &str = "read changed jobs";

/// What a reader that continues from mark to mark has read. A read from any other mark starts from scratch.
#[derive(Default)]
pub(super) struct Looked(Mutex<Option<Look>>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Look {
    mark: ChangeMark,
    partitions: PartitionSet,
    /// All changes of transactions before this one were returned, or are older than a minute.
    returned: Option<String>,
    /// The new value of `returned`, once the long read in progress is complete.
    returning: Option<String>,
}

impl Looked {
    /// The last read, if this one continues it.
    fn before(&self, since: ChangeMark, partitions: &PartitionSet) -> Option<Look> {
        let look = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        look.filter(|look| look.mark == since && look.partitions == *partitions)
    }

    fn after(&self, look: Option<Look>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = look;
    }
}

/// The state after a read from `since` to `mark` that follows `before`. `over`: all transactions before it have ended;
/// set only for a read that goes back a minute.
fn next(
    before: Option<Look>,
    since: ChangeMark,
    partitions: &PartitionSet,
    over: Option<String>,
    mark: ChangeMark,
) -> Option<Look> {
    // With an unchanged mark, a lost answer could not be distinguished from a received one.
    if mark == since {
        return None;
    }
    let (returned, returning) = before.map_or((None, None), |before| (before.returned, before.returning));
    let begins = since.0 & 1 == 0;
    let returning = if begins { over } else { returning };
    let ends = mark.0 & 1 == 0;
    let (returned, returning) = if ends { (returning.or(returned), None) } else { (returned, returning) };
    Some(Look { mark, partitions: *partitions, returned, returning })
}

pub(super) async fn changes(
    store: &PostgresStore,
    partitions: &PartitionSet,
    since: ChangeMark,
    limit: usize,
) -> Result<Changes> {
    let mut read = store.read(DOING).await?;
    if limit == 0 {
        let mark = read.scalar(query!("horizon/present_mark")).await?;
        return Ok(Changes { jobs: Vec::new(), mark: ChangeMark(mark), more: false });
    }
    let (now, over): (i64, String) = read.fetch_one_as(query!("horizon/look_now")).await?;
    let reached = since.0 & !1;
    let overlap = if since.0 & 1 == 1 { 0 } else { overlap_ms(reached, now) };
    let from = reached.saturating_sub(overlap * SEQ_PER_MS).max(0);
    let before = store.looked.before(since, partitions);
    let mut found = read
        .fetch_all(query!(
            "horizon/changes",
            from,
            rows::limit(limit.saturating_add(1)),
            rows::partition_filter(partitions),
            before.as_ref().and_then(|look| look.returned.clone())
        ))
        .await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let changed = |row: &PgRow| {
        let job = ChangedJob {
            id: rows::job_id(row, "job")?,
            epoch: Epoch::from_raw(row.try_get("epoch")?),
            cursor: rows::time(row, "next_tick")?,
        };
        Ok((job, row.try_get::<i64, _>("seq")?))
    };
    let changed: Vec<_> = found.iter().map(changed).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)?;
    let last = changed.last().map_or(reached, |(_, seq)| *seq);
    let mark = ChangeMark(if more {
        last | 1
    } else {
        // Without new changes the mark still advances, so that changes older than the overlap are not read again. It
        // also follows a clock that was set back.
        let found = changed.last().map_or(0, |(_, seq)| *seq);
        found.max(now.saturating_mul(SEQ_PER_MS)) & !1
    });
    store.looked.after(next(before, since, partitions, (overlap == LONG_OVERLAP_MS).then_some(over), mark));
    Ok(Changes { jobs: changed.into_iter().map(|(job, _)| job).collect(), mark, more })
}

/// How far back a read from the mark `reached` begins: 60 s if it is the first in its 5 s interval.
const fn overlap_ms(reached: i64, now: i64) -> i64 {
    let long = (reached / SEQ_PER_MS) / LONG_OVERLAP_EVERY_MS != now / LONG_OVERLAP_EVERY_MS;
    if long { LONG_OVERLAP_MS } else { OVERLAP_MS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(before: Option<Look>, since: i64, over: Option<&str>, mark: i64) -> Option<Look> {
        next(before, ChangeMark(since), &PartitionSet::all(4), over.map(str::to_owned), ChangeMark(mark))
    }

    fn returned(look: &Option<Look>) -> Option<&str> {
        look.as_ref().and_then(|look| look.returned.as_deref())
    }

    #[test]
    fn changes_returned_by_a_long_read_are_left_out_until_the_next_long_read() {
        let short = look(None, 2, None, 4);
        assert_eq!(returned(&short), None, "it went back only 2 s");
        let long = look(short, 4, Some("100"), 6);
        assert_eq!(returned(&long), Some("100"));
        let short = look(long, 6, None, 8);
        assert_eq!(returned(&short), Some("100"));
        assert_eq!(returned(&look(short, 8, Some("200"), 10)), Some("200"));
    }

    #[test]
    fn a_long_read_counts_only_after_its_last_page() {
        let first = look(look(None, 2, Some("100"), 4), 4, Some("200"), 7);
        assert_eq!(returned(&first), Some("100"));
        let second = look(first, 7, None, 9);
        assert_eq!(returned(&second), Some("100"));
        assert_eq!(returned(&look(second, 9, None, 10)), Some("200"), "the value of the first page");
        assert_eq!(returned(&look(None, 9, None, 10)), None, "the first page is unknown");
    }

    #[test]
    fn a_read_from_another_mark_returns_all_changes() {
        let looked = Looked::default();
        looked.after(look(None, 2, Some("100"), 4));
        let all = PartitionSet::all(4);
        assert!(looked.before(ChangeMark(4), &all).is_some());
        assert!(looked.before(ChangeMark(2), &all).is_none(), "the answer was lost");
        assert!(looked.before(ChangeMark(4), &PartitionSet::all(5)).is_none(), "the new one was never read");
        assert_eq!(look(None, 4, Some("100"), 4), None, "an unchanged mark is not stored");
    }

    #[test]
    fn the_first_read_in_five_seconds_goes_back_a_minute() {
        for (reached, now, overlap) in [
            (10_000, 10_200, OVERLAP_MS),
            (14_799, 14_999, OVERLAP_MS),
            (14_999, 15_000, LONG_OVERLAP_MS),
            (3_000, 90_000, LONG_OVERLAP_MS),
            (90_000, 3_000, LONG_OVERLAP_MS),
        ] {
            assert_eq!(overlap_ms(reached * SEQ_PER_MS, now), overlap, "from {reached} at {now}");
        }
    }
}
