//! Driving failed runs again: each gets one new run in its place, which stands for the same instant.

use crate::{
    invalid::Invalid,
    time::{DbTime, Span},
};

/// How many failed runs one request drives again.
pub const REDRIVE_RUNS_MAX: usize = 1_000;
pub const REDRIVE_RUNS_DEFAULT: usize = 100;
/// How far back they may lie. Whoever looks for claims reads a job's runs from the oldest claimed one on, so an old run that
/// is claimed makes that long. Older ones are run again one by one, as new runs of today.
pub const REDRIVE_BACK_MAX: Span = Span::days(7);

/// What is wrong with such a request at `now`, each field named.
#[must_use]
pub fn problems(since: DbTime, until: Option<DbTime>, limit: usize, now: DbTime) -> Vec<Invalid> {
    let mut found = Vec::new();
    if since < now.minus(REDRIVE_BACK_MAX) {
        let message = format!(
            "{since} lies more than {REDRIVE_BACK_MAX} back: it is {now} on the database's clock; rerun older runs one by one"
        );
        found.push(Invalid::new("since", message));
    }
    if let Some(until) = until.filter(|until| *until < since) {
        found.push(Invalid::new("until", format!("{until} lies before since, which is {since}")));
    }
    if !(1..=REDRIVE_RUNS_MAX).contains(&limit) {
        found.push(Invalid::new("limit", format!("{limit} is out of range; 1 to {REDRIVE_RUNS_MAX} are right")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redrive_is_bounded_in_age_order_and_number() {
        let now = DbTime::EPOCH.plus(Span::days(100));
        let back = |days| now.minus(Span::days(days));
        let cases: [(DbTime, Option<DbTime>, usize, &[&str]); 6] = [
            (back(7), None, 1, &[]),
            (back(1), Some(back(1)), REDRIVE_RUNS_MAX, &[]),
            (back(8), None, 1, &["since"]),
            (back(1), Some(back(2)), 1, &["until"]),
            (back(1), None, 0, &["limit"]),
            (back(8), Some(back(9)), REDRIVE_RUNS_MAX + 1, &["since", "until", "limit"]),
        ];
        for (since, until, limit, wrong) in cases {
            let found = problems(since, until, limit, now);
            let fields: Vec<_> = found.iter().map(|invalid| invalid.field.as_str()).collect();
            assert_eq!(fields, wrong, "{since} {until:?} {limit}");
        }
    }
}
