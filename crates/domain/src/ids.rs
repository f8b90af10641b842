//! Ids and counters, each its own type. A run's id is a function of its job and cause (I5), so a repeat is the same run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::DbTime;

/// The tenant that owns a row. It is part of every key and row, so it is narrow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TenantId(i32);

impl TenantId {
    /// The tenant of an installation without other tenants.
    pub const DEFAULT: Self = Self(1);

    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }
}

/// A job's permanent id (UUIDv7). A job recreated under a deleted name gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobId(Uuid);

impl JobId {
    #[must_use]
    pub fn new(at: DbTime, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(at.millis().unsigned_abs(), &random).into_uuid())
    }
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
    /// The virtual partition, one of `count`. It hashes the whole id, because a caller may choose ids whose bytes are not
    /// random.
    #[must_use]
    pub fn partition(self, count: u16) -> u16 {
        let hash = blake3::hash(self.0.as_bytes());
        let [a, b, ..] = *hash.as_bytes();
        u16::from_be_bytes([a, b]) % count.max(1)
    }
}

/// The id of a request to the API. The log lines and audit rows of the request contain it. UUIDv7, so ids sort by time.
#[must_use]
pub fn request_id(at: DbTime, random: [u8; 10]) -> String {
    uuid::Builder::from_unix_timestamp_millis(at.millis().unsigned_abs(), &random).into_uuid().to_string()
}

/// A backfill: one request for runs of past ticks. UUIDv7, so backfills list in creation order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BackfillId(Uuid);

impl BackfillId {
    #[must_use]
    pub fn new(at: DbTime, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(at.millis().unsigned_abs(), &random).into_uuid())
    }
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

/// The id of an API token, as shown in lists and audit rows and accepted by commands. It is not the secret. UUIDv7, so tokens
/// list in creation order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TokenId(Uuid);

impl TokenId {
    #[must_use]
    pub fn new(at: DbTime, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(at.millis().unsigned_abs(), &random).into_uuid())
    }
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

/// The id of a session, as shown in lists and audit rows and accepted by commands. It is not the secret. UUIDv7, so sessions
/// list in the order of their logins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SessionId(Uuid);

impl SessionId {
    #[must_use]
    pub fn new(at: DbTime, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(at.millis().unsigned_abs(), &random).into_uuid())
    }
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

/// A run. UUIDv8: 48 bits of time in milliseconds (see [`Cause`]) for index locality, then a hash of job and cause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunId(Uuid);

/// What started a run. Together with the job it identifies the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause<'a> {
    /// The schedule named this instant.
    Tick(DbTime),
    /// A user or program triggered the job at this instant, under this key.
    Request { at: DbTime, key: &'a [u8] },
    /// A backfill covers this tick. Each backfill of a tick makes its own run, distinct from the tick's own run. `at` is an
    /// instant of the backfill, not of the tick: see [`crate::backfill::Origin::run`].
    Backfill { at: DbTime, backfill: BackfillId, tick: DbTime },
    /// A parent ended in this flow. The id is derived from the flow and not from one parent, so the run is the same
    /// whichever parent ends last.
    Parent { flow: RunId },
    /// A range of skipped ticks, recorded as one row under its first tick. Its id never equals a tick's id.
    Range { from: DbTime },
}

impl RunId {
    #[must_use]
    pub fn of(job: JobId, cause: Cause<'_>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(job.0.as_bytes());
        let at = match cause {
            Cause::Tick(at) => {
                hasher.update(b"tick").update(&at.millis().to_be_bytes());
                at
            }
            Cause::Request { at, key } => {
                hasher.update(b"request").update(key);
                at
            }
            Cause::Backfill { at, backfill, tick } => {
                hasher.update(b"backfill").update(backfill.0.as_bytes()).update(&tick.millis().to_be_bytes());
                at
            }
            Cause::Parent { flow } => {
                hasher.update(b"parent").update(flow.0.as_bytes());
                flow.time()
            }
            Cause::Range { from } => {
                hasher.update(b"range").update(&from.millis().to_be_bytes());
                from
            }
        };
        let mut bytes = [0; 16];
        bytes[6..].copy_from_slice(&hasher.finalize().as_bytes()[..10]);
        bytes[..6].copy_from_slice(&at.millis().max(0).to_be_bytes()[2..]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The run that redrives a failed run. The id is a function of the failed run's id, so redriving twice makes one run. It
    /// has the same instant, and its cause is a request whose key contains the failed run's id.
    #[must_use]
    pub fn redriven(job: JobId, failed: Self) -> Self {
        let key = [b"redrive:".as_slice(), failed.0.as_bytes()].concat();
        Self::of(job, Cause::Request { at: failed.time(), key: &key })
    }

    /// The smallest id that a run at or after this instant can have: a bound for scans by time.
    #[must_use]
    pub fn floor(at: DbTime) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&at.millis().max(0).to_be_bytes()[2..]);
        Self(Uuid::from_bytes(bytes))
    }

    /// The instant in the id's prefix: for example the tick, or the instant of the request.
    #[must_use]
    pub fn time(self) -> DbTime {
        let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
        DbTime::from_millis(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

/// One process start of a node. Claims belong to it, so a restarted node never mistakes old claims for its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation(Uuid);

impl Incarnation {
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

macro_rules! uuid_text {
    ($($name:ident: $what:literal),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                Uuid::try_parse(text).map(Self).map_err(|_| format!("{text:?} is not the id of a {}", $what))
            }
        }
    )*};
}
uuid_text!(JobId: "job", RunId: "run", BackfillId: "backfill", TokenId: "token", SessionId: "session", Incarnation: "node's incarnation");

/// The beginning of an id, as users may write it instead of the whole id. It names all ids of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdPrefix {
    low: Uuid,
    high: Uuid,
}

impl IdPrefix {
    /// A shorter prefix would match the ids of more than one minute.
    pub const DIGITS_MIN: usize = 8;
    const DIGITS_MAX: usize = 32;

    /// The lowest id with this prefix.
    #[must_use]
    pub const fn low(self) -> Uuid {
        self.low
    }
    /// The highest id with this prefix.
    #[must_use]
    pub const fn high(self) -> Uuid {
        self.high
    }
    #[must_use]
    pub fn contains(self, id: Uuid) -> bool {
        (self.low..=self.high).contains(&id)
    }
}

impl FromStr for IdPrefix {
    type Err = String;

    /// Reads hexadecimal digits, with or without the hyphens of an id.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let filled = |with: &str| {
            let id = format!("{digits}{}", with.repeat(Self::DIGITS_MAX.checked_sub(digits.len())?));
            u128::from_str_radix(&id, 16).ok().filter(|_| id.bytes().all(|digit| digit.is_ascii_hexdigit()))
        };
        let (Some(low), Some(high)) = (filled("0"), filled("f")) else {
            return Err(format!("{text:?} is neither an id nor the beginning of one, such as 01a1e327-d180-8de1"));
        };
        if digits.len() < Self::DIGITS_MIN {
            return Err(format!(
                "{text:?} is too short to find an id; write at least {} digits of it, such as 01a1e327",
                Self::DIGITS_MIN
            ));
        }
        Ok(Self { low: Uuid::from_u128(low), high: Uuid::from_u128(high) })
    }
}

macro_rules! counter {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(i64);
        impl $name {
            #[must_use]
            pub const fn from_raw(raw: i64) -> Self {
                Self(raw)
            }
            #[must_use]
            pub const fn raw(self) -> i64 {
                self.0
            }
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
counter!(
    /// Version of a job's plan. Every edit, pause, resume, delete and skip range raises it; ticks planned under an older epoch
    /// are not recorded.
    Epoch,
    /// Version of a job's definition, as shown to users in `ETag` and `If-Match`.
    Version,
    /// Numbers a claim or a lease. It only increases, also across a database promotion (I9).
    Fence
);

/// The number after `old`. It exceeds `old` and every number made before `now`, so that a number lost in a database promotion
/// is not used again.
fn raised(old: i64, now: DbTime) -> i64 {
    (old + 1).max(now.millis().saturating_mul(1_000))
}

impl Fence {
    /// The next fence. It exceeds every earlier one, including those lost in a promotion.
    #[must_use]
    pub fn raised(self, now: DbTime) -> Self {
        Self(raised(self.0, now))
    }
}

impl Epoch {
    /// The next epoch. It differs from every earlier one, including those lost in a promotion. So a node that knows the epoch
    /// of a lost edit still notices the next edit.
    #[must_use]
    pub fn raised(self, now: DbTime) -> Self {
        Self(raised(self.0, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(n: u128) -> JobId {
        JobId::from_uuid(Uuid::from_u128(n))
    }

    #[test]
    fn a_run_id_is_a_function_of_job_and_cause() {
        let tick = Cause::Tick(DbTime::from_millis(1_000));
        assert_eq!(RunId::of(job(1), tick), RunId::of(job(1), tick));
        assert_ne!(RunId::of(job(1), tick), RunId::of(job(2), tick));
        assert_ne!(RunId::of(job(1), tick), RunId::of(job(1), Cause::Tick(DbTime::from_millis(1_001))));
        assert_ne!(RunId::of(job(1), tick), RunId::of(job(1), Cause::Range { from: DbTime::from_millis(1_000) }));
    }

    /// The id is public: receivers deduplicate by it, and stored rows have it. It must never change.
    #[test]
    fn the_id_of_a_known_tick_never_changes() {
        let id = RunId::of(job(7), Cause::Tick("2026-11-16T07:00:00Z".parse().unwrap()));
        assert_eq!(id.to_string(), KNOWN);
        assert_eq!(id.uuid().get_version_num(), 8);
    }
    const KNOWN: &str = "01a1e327-d180-8de1-92e3-d388a74d8fe4";

    #[test]
    fn redriving_a_failed_run_always_makes_the_same_run_at_the_same_instant() {
        let at = DbTime::from_millis(1_760_000_000_000);
        let failed = RunId::of(job(1), Cause::Tick(at));
        let again = RunId::redriven(job(1), failed);
        assert_eq!(again, RunId::redriven(job(1), failed));
        assert_eq!(again.time(), at);
        assert_ne!(again, failed);
        assert_ne!(RunId::redriven(job(1), again), again, "a redriven run that failed gets another id");
    }

    #[test]
    fn a_backfilled_run_differs_from_the_ticks_own_run_and_from_other_backfills() {
        let tick = DbTime::from_millis(1_760_000_000_000);
        let of = |n| {
            let backfill = BackfillId::from_uuid(Uuid::from_u128(n));
            RunId::of(job(1), Cause::Backfill { at: tick, backfill, tick })
        };
        assert_eq!((of(1), of(1).time()), (of(1), tick));
        assert_ne!(of(1), of(2));
        assert_ne!(of(1), RunId::of(job(1), Cause::Tick(tick)));
        assert_eq!(of(1).to_string(), KNOWN_BACKFILLED, "the id is public and must never change");
    }
    const KNOWN_BACKFILLED: &str = "0199c82c-c000-87a7-a32e-01dab5eac4a6";
    #[test]
    fn a_child_has_one_run_per_flow() {
        let at = DbTime::from_millis(1_760_000_000_000);
        let root = |n| RunId::of(job(n), Cause::Tick(at));
        let child = |n| RunId::of(job(9), Cause::Parent { flow: root(n) });
        assert_eq!(child(1), child(1));
        assert_ne!(child(1), child(2));
        assert_eq!(child(1).time(), at);
    }

    #[test]
    fn ids_sort_by_time_and_contain_it() {
        let (early, late) = (DbTime::from_millis(1_760_000_000_000), DbTime::from_millis(1_760_000_000_001));
        for n in 0..50 {
            let (a, b) = (RunId::of(job(n), Cause::Tick(early)), RunId::of(job(n + 1), Cause::Tick(late)));
            assert!(a < b);
            assert_eq!(a.time(), early);
            assert!(RunId::floor(early) <= a && a < RunId::floor(late));
        }
    }

    #[test]
    fn a_prefix_contains_exactly_the_ids_that_begin_with_it() {
        let id: Uuid = KNOWN.parse().unwrap();
        for length in [8, 9, 11, 18, 19, 24, 35, 36] {
            let prefix: IdPrefix = KNOWN[..length].parse().unwrap();
            assert!(prefix.contains(id), "{length}");
            assert_eq!(KNOWN[..length].replace('-', "").parse(), Ok(prefix), "{length}");
            assert!(prefix.low().to_string().starts_with(&KNOWN[..length]), "{length}");
            assert!(prefix.high().to_string().starts_with(&KNOWN[..length]), "{length}");
        }
        assert!(!"01a1e328".parse::<IdPrefix>().unwrap().contains(id));
        assert!("01a1e32".parse::<IdPrefix>().unwrap_err().contains("at least 8 digits"));
        for text in ["", "nightly", "01a1e327x", "+1a1e327", &format!("{KNOWN}0"), "٠١٢٣٤٥٦٧"] {
            assert!(text.parse::<IdPrefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn fences_only_increase() {
        let now = DbTime::from_millis(5);
        assert_eq!(Fence::from_raw(1).raised(now), Fence::from_raw(5_000));
        assert_eq!(Fence::from_raw(9_000).raised(now), Fence::from_raw(9_001));
    }
}
