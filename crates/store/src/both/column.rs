//! The values of a batch: `batch!` turns each value of a row into an element of an array (PostgreSQL) or of a JSON array
//! (SQLite).

use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};

use super::rows::{self, Id, Text};

pub(super) trait Column {
    type Element;
    fn element(self) -> Self::Element;
}

macro_rules! columns {
    ($($Value:ty => $Element:ty, |$value:pat_param| $element:expr;)+) => {
        $(impl Column for $Value {
            type Element = $Element;
            fn element(self) -> $Element {
                let $value = self;
                $element
            }
        })+
    };
}

columns! {
    RunId => Id, |run| rows::id(run.uuid());
    JobId => Id, |job| rows::id(job.uuid());
    DbTime => i64, |at| at.millis();
    i64 => i64, |number| number;
    i32 => i32, |number| number;
    i16 => i16, |number| number;
    u32 => i32, |number| i32::try_from(number).unwrap_or(i32::MAX);
    String => String, |text| text;
}

impl<'a> Column for &'a String {
    type Element = Text<'a>;
    fn element(self) -> Text<'a> {
        rows::text(self)
    }
}
