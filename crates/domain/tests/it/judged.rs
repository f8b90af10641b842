//! Cases from a file. Each has an expression, a zone, an instant, and the five expected ticks after the instant.

use crate::{cron, next};

const ROWS: &str = include_str!("../data/cron_cases_sample.tsv");

#[test]
fn every_case_of_the_file_gives_the_expected_ticks() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for row in ROWS.lines().skip(1) {
        let [expression, zone, reference, expected, rule] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not a row: {row:?}");
        };
        rows += 1;
        let got = match cron(expression, zone) {
            Err(invalid) if invalid.iter().any(|i| i.message.starts_with("never fires")) => "NONE".to_owned(),
            Err(_) => "ERROR".to_owned(),
            Ok(schedule) => match next(&schedule, reference, 5) {
                none if none.is_empty() => "NONE".to_owned(),
                some => some.join(","),
            },
        };
        if got != expected {
            wrong.push(format!(
                "{expression:?} {zone} after {reference} [{rule}]\n  expected {expected}\n  got      {got}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 60, "only {rows} rows were read");
}
