//! Whole numbers on the command line.

use std::{fmt::Display, ops::RangeInclusive};

/// Reads a whole number. Refuses a text that is not a number or does not fit the type; the message has the range. Accepts a
/// number outside the range: the server checks it and lists it with the other errors.
pub(crate) fn whole<T: TryFrom<i64>>(range: RangeInclusive<i64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse::<i64>().ok().and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| refusal(text, &range))
    }
}

/// As [`whole`], but refuses a number outside the range.
pub(crate) fn within<T: TryFrom<i64>>(range: RangeInclusive<i64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse::<i64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| refusal(text, &range))
    }
}

fn refusal(text: &str, range: &RangeInclusive<i64>) -> String {
    let (min, max): (&dyn Display, _) = (range.start(), range.end());
    match *max {
        i64::MAX => format!("{text:?} is not a whole number from {min} on; write it like {min}"),
        max => format!("{text:?} is not a whole number from {min} to {max}; write one in this range"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_refused_with_the_value_and_the_range() {
        for text in ["high", "-1", "300", "1.5", "", "٣"] {
            let message = whole::<u8>(0..=9)(text).unwrap_err();
            assert!(message.contains(&format!("{text:?}")) && message.contains("from 0 to 9"), "{message}");
        }
        assert_eq!((whole::<u8>(0..=9)("99"), within::<u8>(0..=9)("9")), (Ok(99), Ok(9)));
        assert!(within::<u8>(0..=9)("99").is_err());
        assert!(within::<u64>(1..=i64::MAX)("0").unwrap_err().contains("from 1 on"));
    }
}
