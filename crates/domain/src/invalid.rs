//! What is wrong with an input: the field, and a sentence that names the value and what would be right.

use std::fmt;

/// One thing wrong with one field. `field` is the path a user wrote, such as `schedule.cron`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// The same complaint seen from one level up: `cron` becomes `schedule.cron`.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Self {
        self.field = if self.field.is_empty() { parent.to_owned() } else { format!("{parent}.{}", self.field) };
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.field, self.message) }
    }
}

impl std::error::Error for Invalid {}
