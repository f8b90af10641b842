//! The only public serde types: what goes in and out over HTTP. A definition that came in is turned into a domain value
//! with every complaint collected, each under the path that its author wrote.

pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod job;
pub(crate) mod merge;
pub(crate) mod node;
pub(crate) mod problem;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod target;

use everytick_domain::{invalid::Invalid, time::Span};

pub(crate) use problem::{FieldError, Problem};

/// How a duration is written, for the document: `90s`, `15m`, `1h30m`, `7d`.
pub(crate) const SPAN: &str = "^(?=.)([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$";
pub(crate) const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$";

/// Collects what is wrong with one object while it is read.
#[derive(Default)]
pub(crate) struct Complaints(Vec<Invalid>);

impl Complaints {
    pub(crate) fn add(&mut self, field: &str, message: impl Into<String>) {
        self.0.push(Invalid::new(field, message));
    }
    pub(crate) fn extend(&mut self, found: impl IntoIterator<Item = Invalid>) {
        self.0.extend(found);
    }
    /// The value, or nothing and a complaint.
    pub(crate) fn keep<T>(&mut self, field: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.add(field, message)).ok()
    }
    pub(crate) fn span(&mut self, field: &str, text: Option<&str>) -> Option<Span> {
        self.keep(field, text?.parse())
    }
    /// A number that the domain keeps in a narrower type.
    pub(crate) fn number<T: TryFrom<i64>>(&mut self, field: &str, number: Option<i64>, min: i64, max: i64) -> Option<T> {
        let number = number?;
        match T::try_from(number) {
            Ok(narrow) if (min..=max).contains(&number) => Some(narrow),
            _ => {
                self.add(field, format!("{number} is out of range; {min} to {max} are right"));
                None
            }
        }
    }
    /// Text that every store can keep.
    pub(crate) fn no_nul(&mut self, field: &str, text: &str) {
        if text.contains('\0') {
            self.add(field, "contains a NUL character, which cannot be kept");
        }
    }
    pub(crate) fn end<T>(self, value: Option<T>) -> Result<T, Vec<Invalid>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}
