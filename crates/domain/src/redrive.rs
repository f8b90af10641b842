//! Redriving failed runs: each gets one new run for the same instant.

use crate::{
    invalid::Invalid,
    time::{DbTime, Span},
};

/// How many failed runs one request redrives.
pub const REDRIVE_RUNS_MAX: usize = 1_000;
pub const REDRIVE_RUNS_DEFAULT: usize = 100;
/// The maximum age of the failed runs of a request. A lookup of claims reads a job's runs from the oldest claimed one on, so
/// an old claimed run makes it slow. Older runs are rerun one by one, as new runs with today's ids.
pub const REDRIVE_BACK_MAX: Span = Span::days(7);

/// The errors of a redrive request at `now`.
#[must_use]
pub fn problems(from: DbTime, to: Option<DbTime>, limit: usize, now: DbTime) -> Vec<Invalid> {
    let mut found = Vec::new();
    if from < now.minus(REDRIVE_BACK_MAX) {
        let message = format!(
            "{from} is more than {REDRIVE_BACK_MAX} before {now}, the database time; rerun older runs one by one"
        );
        found.push(Invalid::new("from", message));
    }
    if let Some(to) = to.filter(|to| *to <= from) {
        found.push(Invalid::new("to", format!("{to} is not after from ({from}); the period ends before to")));
    }
    if !(1..=REDRIVE_RUNS_MAX).contains(&limit) {
        found.push(Invalid::new("limit", format!("{limit} is out of range; it must be 1 to {REDRIVE_RUNS_MAX}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_checks_age_order_and_limit() {
        let now = DbTime::EPOCH.plus(Span::days(100));
        let back = |days| now.minus(Span::days(days));
        let cases: [(DbTime, Option<DbTime>, usize, &[&str]); 6] = [
            (back(7), None, 1, &[]),
            (back(2), Some(back(1)), REDRIVE_RUNS_MAX, &[]),
            (back(8), None, 1, &["from"]),
            (back(1), Some(back(1)), 1, &["to"]),
            (back(1), None, 0, &["limit"]),
            (back(8), Some(back(9)), REDRIVE_RUNS_MAX + 1, &["from", "to", "limit"]),
        ];
        for (from, to, limit, wrong) in cases {
            let found = problems(from, to, limit, now);
            let fields: Vec<_> = found.iter().map(|invalid| invalid.field.as_str()).collect();
            assert_eq!(fields, wrong, "{from} {to:?} {limit}");
        }
    }
}
