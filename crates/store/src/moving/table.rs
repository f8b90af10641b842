//! The tables and columns to copy, and their order. Cursors come last: no node schedules a job without a cursor, so a
//! half-copied target stays idle.

use everytick_domain::ids::RunId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::sqlite::job_row;

/// The PostgreSQL type of a value. SQLite has integers, texts and blobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Id,
    Long,
    Word,
    Short,
    Flag,
    Text,
    Bytes,
}

/// A column of a batch, as an array for `unnest`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Column {
    Id(Vec<Option<Uuid>>),
    Long(Vec<Option<i64>>),
    Word(Vec<Option<i32>>),
    Short(Vec<Option<i16>>),
    Flag(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Column {
    pub(crate) const fn new(kind: Kind) -> Self {
        match kind {
            Kind::Id => Self::Id(Vec::new()),
            Kind::Long => Self::Long(Vec::new()),
            Kind::Word => Self::Word(Vec::new()),
            Kind::Short => Self::Short(Vec::new()),
            Kind::Flag => Self::Flag(Vec::new()),
            Kind::Text => Self::Text(Vec::new()),
            Kind::Bytes => Self::Bytes(Vec::new()),
        }
    }

    /// The last row's value, as part of a position.
    pub(crate) fn last(&self) -> Option<Value> {
        match self {
            Self::Id(ids) => ids.last().copied().flatten().map(Value::Id),
            Self::Long(numbers) => numbers.last().copied().flatten().map(Value::Number),
            Self::Word(numbers) => numbers.last().copied().flatten().map(|number| Value::Number(number.into())),
            Self::Short(numbers) => numbers.last().copied().flatten().map(|number| Value::Number(number.into())),
            Self::Text(texts) => texts.last().cloned().flatten().map(Value::Text),
            Self::Flag(_) | Self::Bytes(_) => None,
        }
    }

    pub(crate) fn ids(&self) -> &[Option<Uuid>] {
        if let Self::Id(ids) = self { ids } else { &[] }
    }
    pub(crate) fn texts(&self) -> &[Option<String>] {
        if let Self::Text(texts) = self { texts } else { &[] }
    }
    pub(crate) fn shorts(&self) -> &[Option<i16>] {
        if let Self::Short(numbers) = self { numbers } else { &[] }
    }
}

/// One value of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Value {
    Id(Uuid),
    Number(i64),
    Text(String),
}

/// The key of the last copied row. The target stores it as JSON.
pub(crate) type Place = Vec<Value>;

#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In the order of the part's columns.
    pub columns: Vec<Column>,
    pub rows: usize,
    pub last: Option<Place>,
    /// Whether no row follows.
    pub is_last: bool,
}

/// Which rows of a table belong to a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rows {
    All,
    /// Runs from before the first day table.
    BeforeTheDays,
    OfTheDays,
}

/// A table, or some rows of a table that are copied to a different table.
#[derive(Debug)]
pub(crate) struct Part {
    /// The table in the target, and the name in the recorded progress.
    pub name: &'static str,
    /// The table in the source, and its name for users.
    pub table: &'static str,
    pub rows: Rows,
    /// The key columns come first.
    pub columns: &'static [(&'static str, Kind)],
    pub key: usize,
}

impl Part {
    /// The position before every key.
    pub(crate) fn start(&self, days_from: RunId) -> Place {
        let first = |(_, kind): &(&str, Kind)| match kind {
            Kind::Id if self.rows == Rows::OfTheDays => Value::Id(days_from.uuid()),
            Kind::Id => Value::Id(Uuid::nil()),
            Kind::Long | Kind::Word | Kind::Short | Kind::Flag => Value::Number(i64::MIN),
            Kind::Text | Kind::Bytes => Value::Text(String::new()),
        };
        self.columns[..self.key].iter().map(first).collect()
    }

    /// The SQLite statement that reads up to ?1 rows after the key, which begins with ?2, in order of the key.
    pub(crate) fn read(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let (columns, key, table) = (names.join(", "), names[..self.key].join(", "), self.table);
        let after: Vec<String> = (2..).take(self.key).map(|number| format!("?{number}")).collect();
        let bound = if self.is_bounded() { format!(" and {key} < ?{}", 2 + self.key) } else { String::new() };
        format!("select {columns} from {table} where ({key}) > ({}){bound} order by {key} limit ?1", after.join(", "))
    }

    /// Whether it ends at the first day. Its statement then takes that bound as a parameter.
    pub(crate) fn is_bounded(&self) -> bool {
        self.rows == Rows::BeforeTheDays
    }

    pub(crate) fn column<'a>(&self, batch: &'a Batch, name: &str) -> Option<&'a Column> {
        let index = self.columns.iter().position(|(column, _)| *column == name)?;
        batch.columns.get(index)
    }
}

const fn part(name: &'static str, key: usize, columns: &'static [(&'static str, Kind)]) -> Part {
    Part { name, table: name, rows: Rows::All, columns, key }
}

/// Runs, which PostgreSQL has in two tables.
const fn runs(name: &'static str, rows: Rows) -> Part {
    Part { table: "runs", rows, ..part(name, 1, RUN) }
}

use Kind::{Bytes, Flag, Id, Long, Short, Text, Word};

const RUN: &[(&str, Kind)] = &[
    ("id", Id),
    ("tenant", Word),
    ("cause", Short),
    ("state", Short),
    ("job", Id),
    ("scheduled_at", Long),
    ("due_at", Long),
    ("fence", Long),
    ("started_at", Long),
    ("finished_at", Long),
    ("attempt", Word),
    ("lost", Word),
    ("skip_reason", Short),
    ("late", Flag),
    ("force", Flag),
    ("incarnation", Id),
    ("node", Text),
    ("error", Text),
    ("output", Text),
    ("payload", Text),
    ("worker", Text),
    ("flow", Id),
];

pub(crate) const PARTS: [Part; 30] = [
    part(
        "tenants",
        1,
        &[
            ("id", Word),
            ("name", Text),
            ("jobs", Long),
            ("state", Text),
            ("work", Text),
            ("quotas", Text),
            ("own_quotas", Text),
            ("egress", Text),
            ("own_egress", Text),
            ("shell", Flag),
            ("created_at", Long),
            ("suspended_at", Long),
        ],
    ),
    part("tenant_jobs", 2, &[("tenant", Word), ("job", Id)]),
    runs("last_runs", Rows::BeforeTheDays),
    runs("runs", Rows::OfTheDays),
    part(
        "attempts",
        2,
        &[
            ("run", Id),
            ("attempt", Word),
            ("fence", Long),
            ("node", Text),
            ("started_at", Long),
            ("finished_at", Long),
            ("outcome", Text),
            ("error", Text),
            ("output", Text),
            ("worker", Text),
        ],
    ),
    part("failures", 2, &[("tenant", Word), ("run", Id), ("job", Id), ("error_hash", Long)]),
    part(
        "skip_ranges",
        1,
        &[
            ("id", Id),
            ("tenant", Word),
            ("job", Id),
            ("from_tick", Long),
            ("to_tick", Long),
            ("count", Long),
            ("reason", Short),
            ("recorded_at", Long),
        ],
    ),
    part(
        "requests",
        2,
        &[
            ("tenant", Word),
            ("key", Text),
            ("fingerprint", Bytes),
            ("kind", Text),
            ("subject", Id),
            ("created_at", Long),
        ],
    ),
    part(
        "audit",
        1,
        &[
            ("id", Long),
            ("tenant", Word),
            ("at", Long),
            ("actor", Text),
            ("action", Text),
            ("subject", Text),
            ("detail", Text),
            ("actor_kind", Text),
            ("token_id", Id),
            ("ip", Text),
            ("request_id", Text),
            ("result", Text),
        ],
    ),
    part(
        "waiting",
        1,
        &[
            ("run", Id),
            ("job", Id),
            ("tenant", Word),
            ("priority", Short),
            ("due_at", Long),
            ("late", Flag),
            ("force", Flag),
            ("attempts", Word),
            ("queue", Text),
            ("rank", Long),
            ("key", Text),
        ],
    ),
    part(
        "worker_claims",
        1,
        &[
            ("run", Id),
            ("job", Id),
            ("tenant", Word),
            ("queue", Text),
            ("worker", Text),
            ("fence", Long),
            ("until", Long),
            ("timeout_at", Long),
            ("key", Text),
            ("log", Text),
            ("previous", Flag),
        ],
    ),
    part(
        "queues",
        2,
        &[
            ("tenant", Word),
            ("name", Text),
            ("concurrency", Word),
            ("rate_count", Word),
            ("rate_ms", Long),
            ("spent_until", Long),
        ],
    ),
    part("queue_asks", 2, &[("tenant", Word), ("queue", Text), ("asked_at", Long), ("worker", Text)]),
    part(
        "backfills",
        1,
        &[
            ("id", Id),
            ("tenant", Word),
            ("job", Id),
            ("from_at", Long),
            ("to_at", Long),
            ("newest_first", Flag),
            ("rate_count", Word),
            ("rate_ms", Long),
            ("spent_until", Long),
            ("payload", Text),
            ("total", Word),
            ("position", Word),
            ("succeeded", Word),
            ("failed", Word),
            ("cancelled", Word),
            ("state", Short),
            ("active", Flag),
            ("created_at", Long),
            ("created_by", Text),
            ("finished_at", Long),
            ("note", Text),
            ("ticks", Bytes),
        ],
    ),
    part("backfill_runs", 1, &[("run", Id), ("backfill", Id)]),
    part(
        "tokens",
        1,
        &[
            ("id", Id),
            ("hash", Bytes),
            ("tenant", Word),
            ("name", Text),
            ("prefix", Text),
            ("role", Text),
            ("scope", Text),
            ("allowed_ips", Text),
            ("created_at", Long),
            ("created_by", Text),
            ("expires_at", Long),
            ("last_used_at", Long),
            ("last_used_ip", Text),
            ("revoked_at", Long),
            ("rotated_from", Id),
        ],
    ),
    part("settings", 1, &[("name", Text), ("value", Text)]),
    part(
        "secrets",
        2,
        &[
            ("tenant", Word),
            ("name", Text),
            ("version", Long),
            ("hosts", Text),
            ("kinds", Text),
            ("description", Text),
            ("created_at", Long),
            ("created_by", Text),
            ("updated_at", Long),
            ("updated_by", Text),
            ("previous_until", Long),
        ],
    ),
    part(
        "secret_versions",
        3,
        &[
            ("tenant", Word),
            ("name", Text),
            ("version", Long),
            ("key_id", Text),
            ("wrapped_key", Bytes),
            ("nonce", Bytes),
            ("ciphertext", Bytes),
        ],
    ),
    part("secret_jobs", 3, &[("tenant", Word), ("secret", Text), ("job", Id)]),
    part("keys", 1, &[("id", Text), ("check_value", Bytes), ("created_at", Long)]),
    part("jobs", 1, job_row::COLUMNS),
    part(
        "calendars",
        2,
        &[
            ("tenant", Word),
            ("name", Text),
            ("version", Long),
            ("created_at", Long),
            ("created_by", Text),
            ("updated_at", Long),
        ],
    ),
    part(
        "calendar_versions",
        3,
        &[("tenant", Word), ("name", Text), ("version", Long), ("valid_from", Long), ("spec", Text)],
    ),
    part("calendar_jobs", 3, &[("tenant", Word), ("calendar", Text), ("job", Id)]),
    part("job_parents", 2, &[("child", Id), ("parent", Id), ("tenant", Word), ("when_ended", Short)]),
    part(
        "flows",
        1,
        &[
            ("id", Id),
            ("tenant", Word),
            ("opened_at", Long),
            ("scheduled_at", Long),
            ("rerun_of", Id),
            ("cancelled_at", Long),
            ("graph", Text),
        ],
    ),
    part("flow_steps", 1, &[("run", Id), ("flow", Id), ("tenant", Word)]),
    part("epochs", 1, &[("job", Id), ("tenant", Word), ("epoch", Long), ("queue", Text)]),
    part("cursors", 1, &[("job", Id), ("tenant", Word), ("next_tick", Long)]),
];

/// The statement that counts the rows of every table, by its name for users. It scans all of them.
pub(crate) fn count(table: fn(&Part) -> &'static str) -> String {
    let count = |part: &Part| format!("select '{}' as name, count(*) as count from {}", part.table, table(part));
    let mut counts: Vec<String> = PARTS.iter().map(count).collect();
    // The two parts of the source's runs.
    counts.dedup();
    counts.join(" union all ")
}
