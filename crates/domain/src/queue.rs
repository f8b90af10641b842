//! Pull queues: the order in which workers claim waiting runs, which runs may start now, and the limits of a queue. The store
//! reads the rows under its locks, calls `choose`, and commits the result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{
    ids::{JobId, RunId},
    invalid::Invalid,
    job::{JobSpec, PRIORITY_MAX, check_name},
    mutant::Mutant,
    time::{DbTime, Span},
};

/// The waiting time after which a run gains one priority step.
pub const AGE_STEP: Span = Span::minutes(1);
/// A worker that sends no heartbeat for this long loses its claim.
pub const CLAIM_LEASE: Span = Span::seconds(30);
/// How often a worker should send a heartbeat.
pub const CLAIM_BEAT: Span = Span::seconds(10);
/// How often a node writes that a worker has asked for a queue. Requests in between are not noted.
pub const ASKED_NOTED_EVERY: Span = Span::seconds(5);
/// Maximum number of runs in one claim.
pub const CLAIM_RUNS_MAX: usize = 100;
/// Maximum number of settlements in one batch of a worker.
pub const SETTLES_MAX: usize = 1_000;
/// How much of a worker's log is kept while the run is in progress.
pub const LOG_BYTES_MAX: usize = 64 * 1024;
pub const WORKER_BYTES_MAX: usize = 128;
pub const QUEUE_CONCURRENCY_MAX: u32 = 100_000;
pub const QUEUE_RATE_MAX: u32 = 1_000_000;
pub const QUEUE_RATE_PER_MAX: Span = Span::days(1);
pub const KEY_EXPRESSION_BYTES_MAX: usize = 256;
/// A longer key value is stored as its hash.
pub const KEY_BYTES_MAX: usize = 128;

/// The head start of a run in its queue, in milliseconds. The rank of a run is the instant at which it began to wait, minus
/// this lead. The lowest rank is claimed first. Ranks do not change over time, yet a run gains one priority step per
/// [`AGE_STEP`] that it waits, so no run starves. A late run (chosen by catch-up) ranks behind every on-time run that has
/// waited as long.
#[must_use]
pub fn lead(priority: u8, late: bool) -> i64 {
    let steps = i64::from(priority) - if late { i64::from(PRIORITY_MAX) + 1 } else { 0 };
    steps * i64::try_from(AGE_STEP.as_millis()).unwrap_or(i64::MAX)
}

/// A due run that waits in a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub run: RunId,
    pub job: JobId,
    /// Triggered with `force`: starts even if its job's limit is reached.
    pub force: bool,
    /// More than 0 means that the run is already in progress.
    pub attempts: u32,
    /// The value of its concurrency key.
    pub key: Option<String>,
}

/// The runs of one job that are in progress, and its limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobLoad {
    pub max: Option<u32>,
    pub max_per_key: u32,
    /// Claimed runs, each with its concurrency key.
    pub claimed: BTreeMap<RunId, Option<String>>,
    /// Runs that wait between two attempts. They are in progress too.
    pub between: BTreeSet<RunId>,
}

impl JobLoad {
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        Self { max: spec.in_progress_max(), max_per_key: spec.max_per_key, ..Self::default() }
    }

    /// Whether the limits of the job let the candidate start. Among runs between two attempts, a run counts only runs with a
    /// lower id. Otherwise these runs could block each other forever after the limit of the job was lowered.
    fn admits(&self, candidate: &Candidate) -> bool {
        let before = |run: &&RunId| **run != candidate.run && (candidate.attempts == 0 || **run < candidate.run);
        let claimed = self.claimed.keys().filter(|run| **run != candidate.run).count();
        let in_progress = claimed + self.between.iter().filter(before).count();
        let below_max = candidate.force || self.max.is_none_or(|max| in_progress < max as usize);
        below_max && candidate.key.as_ref().is_none_or(|key| self.of_key(key) < self.max_per_key as usize)
    }

    fn of_key(&self, key: &str) -> usize {
        self.claimed.values().filter(|of| of.as_deref() == Some(key)).count()
    }

    /// Whether no further run may start, except forced runs and runs already in progress.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.max.is_some_and(|max| self.claimed.len() + self.between.len() >= max as usize)
    }

    /// The keys whose limit is reached.
    #[must_use]
    pub fn full_keys(&self) -> BTreeSet<&str> {
        let keys = self.claimed.values().flatten().map(String::as_str);
        keys.filter(|key| self.of_key(key) >= self.max_per_key as usize).collect()
    }
}

/// Chooses up to `max` candidates in their order and adds them to `loads`. A job without a load is not limited.
pub fn choose(candidates: &[Candidate], loads: &mut BTreeMap<JobId, JobLoad>, max: usize) -> Vec<RunId> {
    let mut chosen = Vec::new();
    for candidate in candidates {
        if chosen.len() >= max {
            break;
        }
        let Some(load) = loads.get_mut(&candidate.job) else {
            chosen.push(candidate.run);
            continue;
        };
        if load.admits(candidate) || Mutant::QueueClaimUnchecked.is_on() {
            load.between.remove(&candidate.run);
            load.claimed.insert(candidate.run, candidate.key.clone());
            chosen.push(candidate.run);
        }
    }
    chosen
}

/// The limits that an operator sets on a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueLimits {
    /// How many runs may be claimed at once.
    pub concurrency: Option<u32>,
    /// How many runs may be claimed per period.
    pub rate: Option<Rate>,
}

impl QueueLimits {
    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        if let Some(concurrency) = self.concurrency.filter(|n| !(1..=QUEUE_CONCURRENCY_MAX).contains(n)) {
            let message = format!("{concurrency} is out of range; it must be 1 to {QUEUE_CONCURRENCY_MAX}");
            found.push(Invalid::new("concurrency", message));
        }
        found
    }

    /// How many of `wanted` runs may be claimed now, while `claimed` runs are claimed already.
    #[must_use]
    pub fn claimable(&self, wanted: usize, claimed: usize, spent_until: i64, now: DbTime) -> usize {
        let slots = self.concurrency.map_or(usize::MAX, |max| (max as usize).saturating_sub(claimed));
        let pace = self.rate.map_or(usize::MAX, |rate| rate.admits(spent_until, now) as usize);
        wanted.min(slots).min(pace)
    }
}

/// A rate limit such as `100/1m`. Bursts up to `count` are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub count: u32,
    pub per: Span,
}

impl Rate {
    fn each_us(self) -> i64 {
        (self.per_us() / i64::from(self.count)).max(1)
    }
    fn per_us(self) -> i64 {
        i64::try_from(self.per.as_millis()).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000)
    }

    /// How many more runs are admitted. `spent_until` (microseconds) is the time up to which earlier runs have used the
    /// rate.
    #[must_use]
    pub fn admits(self, spent_until: i64, now: DbTime) -> u32 {
        let now = now.millis().saturating_mul(1_000);
        let free = now.saturating_add(self.per_us()).saturating_sub(spent_until.max(now));
        u32::try_from((free / self.each_us()).max(0)).unwrap_or(u32::MAX).min(self.count)
    }

    /// The first instant at which a run is admitted.
    #[must_use]
    pub fn admits_from(self, spent_until: i64) -> DbTime {
        let micros = spent_until.saturating_add(self.each_us()).saturating_sub(self.per_us());
        DbTime::from_millis(micros.div_euclid(1_000).saturating_add(i64::from(micros.rem_euclid(1_000) > 0)))
    }

    /// The new `spent_until` (microseconds) after `count` runs were admitted.
    #[must_use]
    pub fn spend(self, spent_until: i64, now: DbTime, count: usize) -> i64 {
        let from = spent_until.max(now.millis().saturating_mul(1_000));
        from.saturating_add(self.each_us().saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a rate; write a number up to {QUEUE_RATE_MAX}, a slash and a duration up to \
                 {QUEUE_RATE_PER_MAX}, such as 100/1m"
            )
        };
        let (count, per) = text.split_once('/').ok_or_else(wrong)?;
        let count: u32 = count.trim().parse().map_err(|_| wrong())?;
        let per: Span = per.trim().parse().map_err(|_| wrong())?;
        if !(1..=QUEUE_RATE_MAX).contains(&count) || per.is_zero() || per > QUEUE_RATE_PER_MAX {
            return Err(wrong());
        }
        Ok(Self { count, per })
    }
}

/// Names the field that contains a run's concurrency key: in the run's payload or among the job's labels.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyExpression(String);

impl KeyExpression {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of a run with this payload. `None` if the field is missing or is not a string, number or boolean.
    #[must_use]
    pub fn value(&self, spec: &JobSpec, payload: Option<&str>) -> Option<String> {
        let text = match self.0.split_once('.')? {
            ("labels", name) => spec.labels.get(name)?.clone(),
            (_, path) => {
                let payload: serde_json::Value = serde_json::from_str(payload?).ok()?;
                match path.split('.').try_fold(&payload, |value, name| value.get(name))? {
                    serde_json::Value::String(text) => text.clone(),
                    value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => value.to_string(),
                    _ => return None,
                }
            }
        };
        if text.len() > KEY_BYTES_MAX || text.contains('\0') {
            return Some(blake3::hash(text.as_bytes()).to_hex().to_string());
        }
        Some(text)
    }
}

impl TryFrom<String> for KeyExpression {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let path = text.strip_prefix("payload.").map(|path| path.split('.').all(|name| !name.is_empty()));
        let label = text.strip_prefix("labels.").map(|name| !name.is_empty());
        if text.len() <= KEY_EXPRESSION_BYTES_MAX && path.or(label) == Some(true) {
            return Ok(Self(text));
        }
        let shown: String = text.chars().take(KEY_EXPRESSION_BYTES_MAX).collect();
        Err(format!(
            "{shown:?} does not name a field; write payload.customer or labels.team, in up to {KEY_EXPRESSION_BYTES_MAX} bytes"
        ))
    }
}

impl From<KeyExpression> for String {
    fn from(expression: KeyExpression) -> Self {
        expression.0
    }
}

/// Queue names follow the rules of job names.
pub fn check_queue(name: &str) -> Result<(), String> {
    check_name(name)
}

/// Checks the name that a worker gives itself: any text of limited length.
pub fn check_worker(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > WORKER_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(format!(
            "is not the name of a worker; write 1 to {WORKER_BYTES_MAX} bytes without control characters"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::Cause,
        plan::tests::{job, spec},
    };

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }
    fn run(n: i64) -> RunId {
        RunId::of(JobId::from_uuid(uuid::Uuid::from_u128(1)), Cause::Tick(s(n)))
    }
    fn candidate(n: i64) -> Candidate {
        let job = JobId::from_uuid(uuid::Uuid::from_u128(1));
        Candidate { run: run(n), job, force: false, attempts: 0, key: None }
    }
    fn chosen(candidates: &[Candidate], load: JobLoad, max: usize) -> Vec<RunId> {
        choose(candidates, &mut BTreeMap::from([(candidates[0].job, load)]), max)
    }

    #[test]
    fn higher_priority_goes_first_and_each_age_step_counts_as_one_priority() {
        let rank = |priority, since: i64, late| since * 1_000 - lead(priority, late);
        let ranks = [
            ("the higher priority, if due together", rank(9, 100, false), rank(8, 100, false)),
            ("the older of one priority", rank(5, 100, false), rank(5, 101, false)),
            ("the higher priority that waited 30 s less", rank(6, 130, false), rank(5, 100, false)),
            ("the lower priority that waited more than one step longer", rank(5, 100, false), rank(6, 161, false)),
            ("priority 0 after more than nine steps", rank(0, 0, false), rank(9, 541, false)),
            ("the lowest on-time priority before the highest late one", rank(0, 100, false), rank(9, 100, true)),
            ("a late run after more than ten steps", rank(5, 0, true), rank(5, 601, false)),
        ];
        for (which, first, second) in ranks {
            assert!(first < second, "{which}");
        }
    }

    #[test]
    fn a_claim_does_not_exceed_the_limit_of_the_job() {
        let three = [candidate(1), candidate(2), candidate(3)];
        let one = || JobLoad { max: Some(1), ..JobLoad::default() };
        assert_eq!(chosen(&three, one(), 9), [run(1)]);
        assert_eq!(chosen(&three, JobLoad { max: Some(2), ..one() }, 9), [run(1), run(2)]);
        assert_eq!(chosen(&three, JobLoad { max: None, ..one() }, 2), [run(1), run(2)]);
        assert!(chosen(&three, JobLoad { claimed: [(run(9), None)].into(), ..one() }, 9).is_empty());
        assert!(chosen(&three, JobLoad { between: [run(9)].into(), ..one() }, 9).is_empty());
        let forced = [Candidate { force: true, ..candidate(2) }];
        assert_eq!(chosen(&forced, JobLoad { claimed: [(run(9), None)].into(), ..one() }, 9), [run(2)]);
    }

    #[test]
    fn a_retry_counts_as_in_progress_and_the_lower_id_goes_first() {
        let one = || JobLoad { max: Some(1), between: [run(1), run(2)].into(), ..JobLoad::default() };
        let retry = |n| Candidate { attempts: 1, ..candidate(n) };
        assert_eq!(chosen(&[retry(2), retry(1), candidate(3)], one(), 9), [run(1)]);
    }

    #[test]
    fn a_claim_does_not_exceed_the_limit_per_key() {
        let of = |n, key: &str| Candidate { key: Some(key.into()), ..candidate(n) };
        let all = [of(1, "a"), of(2, "a"), of(3, "b"), candidate(4), of(5, "a")];
        let load = |max_per_key| JobLoad { max_per_key, ..JobLoad::default() };
        assert_eq!(chosen(&all, load(1), 9), [run(1), run(3), run(4)]);
        assert_eq!(chosen(&all, load(2), 9), [run(1), run(2), run(3), run(4)]);
        let mut loads = BTreeMap::from([(all[0].job, load(1))]);
        choose(&all, &mut loads, 9);
        let load = &loads[&all[0].job];
        assert_eq!(load.full_keys().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(!load.is_full());
    }

    #[test]
    fn a_rate_admits_a_burst_and_then_one_by_one() {
        let rate: Rate = "60/1m".parse().unwrap();
        assert_eq!(rate.admits(0, s(1_000)), 60);
        let spent = rate.spend(0, s(1_000), 60);
        assert_eq!(rate.admits(spent, s(1_000)), 0);
        assert_eq!(rate.admits(spent, s(1_001)), 1);
        assert_eq!(rate.admits_from(spent), s(1_001));
        assert_eq!(rate.admits(spent, s(1_030)), 30);
        assert_eq!(rate.admits(spent, s(9_000)), 60, "unused capacity is not saved");
        assert_eq!(rate.to_string(), "60/1m");
        for wrong in ["", "60", "0/1m", "60/0s", "-1/1m", "60/2d", "2000000/1s", "x/1m", "1/x"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_queue_admits_runs_within_its_concurrency_and_rate() {
        let limits = QueueLimits { concurrency: Some(5), rate: Some(Rate { count: 3, per: Span::seconds(1) }) };
        assert_eq!(limits.claimable(9, 0, 0, s(100)), 3);
        assert_eq!(limits.claimable(9, 4, 0, s(100)), 1);
        assert_eq!(limits.claimable(9, 7, 0, s(100)), 0);
        assert_eq!(QueueLimits::default().claimable(9, 7, 0, s(100)), 9);
    }

    #[test]
    fn a_key_is_a_field_of_the_payload_or_a_label() {
        let mut spec = (*job(spec(Span::seconds(1))).spec).clone();
        spec.labels.insert("team.x".into(), "billing".into());
        let value =
            |text: &str, payload: Option<&str>| KeyExpression::try_from(text.to_owned()).unwrap().value(&spec, payload);
        let payload = Some(r#"{"customer":"acme","n":{"id":7},"list":[1]}"#);
        assert_eq!(value("payload.customer", payload).as_deref(), Some("acme"));
        assert_eq!(value("payload.n.id", payload).as_deref(), Some("7"));
        assert_eq!(value("labels.team.x", None).as_deref(), Some("billing"));
        for none in ["payload.missing", "payload.list", "payload.n", "labels.missing"] {
            assert_eq!(value(none, payload), None, "{none}");
        }
        let long = format!(r#"{{"customer":"{}"}}"#, "x".repeat(500));
        assert_eq!(value("payload.customer", Some(&long)).unwrap().len(), 64);
        for wrong in ["", "payload", "payload.", "payload..a", "labels.", "customer", "Payload.a"] {
            assert!(KeyExpression::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
