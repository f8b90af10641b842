//! The public serde types: request and response bodies. The form of a target is in its folder of the targets crate. Reading a
//! definition converts it to a domain value and collects every error, each under the field path that the client wrote.

/// Converts between a wire enum and a domain enum with the same variants.
macro_rules! same_words {
    ($($wire:ident = $domain:path { $($word:ident),* })*) => {$(
        impl From<$wire> for $domain {
            fn from(wire: $wire) -> Self {
                match wire { $($wire::$word => Self::$word),* }
            }
        }
        impl From<$domain> for $wire {
            fn from(domain: $domain) -> Self {
                match domain { $(<$domain>::$word => Self::$word),* }
            }
        }
    )*};
}

pub(crate) mod audit;
pub(crate) mod backfill;
pub(crate) mod batch;
pub(crate) mod calendar;
pub(crate) mod cluster;
pub(crate) mod depends;
pub(crate) mod explain;
pub(crate) mod flow;
pub(crate) mod job;
pub(crate) mod merge;
pub(crate) mod node;
pub(crate) mod problem;
pub(crate) mod queue;
pub(crate) mod redrive;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod secret;
pub(crate) mod target;
pub(crate) mod tenant;
pub(crate) mod token;

use everytick_domain::{invalid::Invalid, time::Span};
use utoipa::ToSchema;

pub(crate) use problem::{ERRORS_MAX, FieldError, Problem};

/// A length of time: `90s`, `15m`, `1h30m`, `7d`. Larger units first, each once.
#[derive(serde::Deserialize, ToSchema)]
#[schema(
    pattern = "^([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$",
    min_length = 2,
    example = "1h30m"
)]
#[expect(
    dead_code,
    reason = "only the OpenAPI document uses it; durations are parsed where their errors are collected"
)]
pub(crate) struct Duration(String);

/// Letters, digits, `-`, `_` and `.`; starts with a letter, a digit or `_`. Where a path names a job, its id is accepted too.
#[derive(serde::Deserialize, ToSchema)]
#[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", example = "nightly-report")]
#[expect(dead_code, reason = "only the OpenAPI document uses it")]
pub(crate) struct Name(String);

/// One ETag, several ETags, or `*`.
#[derive(ToSchema)]
#[schema(pattern = "^(\\*|(W/)?\"[0-9]{1,18}\"(, ?(W/)?\"[0-9]{1,18}\")*)$", example = "\"3\"")]
#[expect(dead_code, reason = "only the OpenAPI document uses it")]
pub(crate) struct IfMatchTag(String);

/// Identifies one request and its repeats.
#[derive(ToSchema)]
#[schema(pattern = "^[!-~]{1,255}$", example = "0c6ff1a4-5b0c-4b5e-9c55-3f6f5d1d7f10")]
#[expect(dead_code, reason = "only the OpenAPI document uses it")]
pub(crate) struct IdempotencyKey(String);

/// Collects the errors of one object while it is read.
#[derive(Default)]
pub(crate) struct FieldErrors(Vec<Invalid>);

impl FieldErrors {
    pub(crate) fn add(&mut self, field: &str, message: impl Into<String>) {
        self.0.push(Invalid::new(field, message));
    }
    pub(crate) fn extend(&mut self, found: impl IntoIterator<Item = Invalid>) {
        self.0.extend(found);
    }
    /// The value; or `None`, with the error recorded.
    pub(crate) fn ok<T>(&mut self, field: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.add(field, message)).ok()
    }
    pub(crate) fn span(&mut self, field: &str, text: Option<&str>) -> Option<Span> {
        self.ok(field, text?.parse())
    }
    /// A number that the domain stores in a narrower type.
    pub(crate) fn number<T: TryFrom<i64>>(
        &mut self,
        field: &str,
        number: Option<i64>,
        min: i64,
        max: i64,
    ) -> Option<T> {
        let number = number?;
        match T::try_from(number) {
            Ok(narrow) if (min..=max).contains(&number) => Some(narrow),
            _ => {
                self.add(field, format!("{number} is out of range; use {min} to {max}"));
                None
            }
        }
    }
    /// Refuses NUL characters, which PostgreSQL cannot store.
    pub(crate) fn no_nul(&mut self, field: &str, text: &str) {
        if text.contains('\0') {
            self.add(field, "contains a NUL character, which cannot be stored; remove it");
        }
    }
    pub(crate) fn end<T>(self, value: Option<T>) -> Result<T, Vec<Invalid>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}
