//! Compares random expressions with croner, in UTC, where the two should agree.

use std::str::FromStr;

use croner::Cron;
use everytick_domain::{
    schedule::{Fold, Gap},
    time::DbTime,
};
use jiff::{Timestamp, tz::TimeZone};
use proptest::prelude::*;

use crate::{cron_with, oracle::expressions};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dates_and_times_agree_with_croner(
        random in prop_oneof![expressions(false), expressions(true)],
        from in 0..3_000_000_000_i64,
    ) {
        let text = random.text();
        let (Ok(theirs), Ok(ours)) = (Cron::from_str(&text), cron_with(&text, "UTC", Gap::Shift, Fold::First)) else {
            return Ok(());
        };
        let mut civil = TimeZone::UTC.to_datetime(Timestamp::from_second(from).unwrap());
        let mut tick = DbTime::from_millis(from * 1_000);
        for _ in 0..5 {
            civil = theirs.find_next_occurrence(&civil, false).unwrap();
            tick = ours.next_after(tick).unwrap();
            prop_assert_eq!(tick, DbTime::from(TimeZone::UTC.to_timestamp(civil).unwrap()), "{}", text);
        }
    }
}
