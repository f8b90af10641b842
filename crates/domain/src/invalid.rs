//! A validation error of one input field. The message names the value and what would be right.

use std::fmt;

/// One error in one field. `field` is the path as the user writes it, such as `schedule.cron`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// Prefixes the field with its parent: `cron` becomes `schedule.cron`.
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
