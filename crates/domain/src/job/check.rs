//! The checks of a definition's fields. The schedule and the target check themselves.

use super::{
    CATCH_UP_RUNS_MAX, DESCRIPTION_BYTES_MAX, JobSpec, KEEP_MAX, LABEL_BYTES_MAX, LABELS_MAX, LATE_AFTER_MAX,
    MAX_CONCURRENT_MAX, NAME_BYTES_MAX, Overlap, PAYLOAD_BYTES_MAX, PRIORITY_MAX, QUEUE_LIMIT_MAX, TIMEOUT_MAX,
};
use crate::{flow, home, ids::JobId, invalid::Invalid, schedule::Timing, secret, time::Span};

impl JobSpec {
    /// All errors in the fields that this module checks.
    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let mut found = Found::default();
        self.check_texts(&mut found);
        self.check_concurrency(&mut found);
        self.check_times(&mut found);
        if let Some(region) = &self.home_region {
            found.result("home_region", home::check_region(region));
        }
        self.check_keep(&mut found);
        found.0.extend(flow::problems(self));
        found.0.extend(secret::uses(self).err().unwrap_or_default());
        found.0.extend(self.retry.problems().into_iter().map(|invalid| invalid.under("retry")));
        found.0
    }

    fn check_texts(&self, found: &mut Found) {
        found.result("name", check_name(&self.name));
        found.bytes("description", self.description.len(), DESCRIPTION_BYTES_MAX, "bytes");
        found.check(self.labels.len() <= LABELS_MAX, "labels", || {
            format!("has {} entries; at most {LABELS_MAX} are allowed", self.labels.len())
        });
        for (key, value) in &self.labels {
            let sound = !key.is_empty() && key.len() <= LABEL_BYTES_MAX && value.len() <= LABEL_BYTES_MAX;
            found.check(sound, "labels", || {
                format!("{key:?}: a key must have 1 to {LABEL_BYTES_MAX} bytes and a value at most {LABEL_BYTES_MAX}")
            });
        }
        if let Some(payload) = &self.payload {
            found.bytes("payload", payload.len(), PAYLOAD_BYTES_MAX, "(256 KiB)");
        }
    }

    fn check_concurrency(&self, found: &mut Found) {
        found.check(self.priority <= PRIORITY_MAX, "priority", || {
            format!("{} is out of range; it must be 0 (last) to {PRIORITY_MAX} (first)", self.priority)
        });
        if let Some(max) = self.max_concurrent {
            found.range("max_concurrent", max, MAX_CONCURRENT_MAX);
            found.check(self.overlap == Overlap::Allow || max == 1, "max_concurrent", || {
                let policy = self.overlap.word();
                format!("{max} needs overlap \"allow\"; under {policy:?} one run at a time is in progress")
            });
        }
        if let Overlap::Queue { limit } = self.overlap {
            found.range("queue_limit", limit, QUEUE_LIMIT_MAX);
        }
        found.range("max_per_key", self.max_per_key, MAX_CONCURRENT_MAX);
        found.check(self.concurrency_key.is_none() || self.target.queue().is_some(), "concurrency_key", || {
            "needs a queue target: the limit is enforced when a worker claims".to_owned()
        });
    }

    fn check_times(&self, found: &mut Found) {
        found.range("misfire.max_runs", self.misfire.max_runs, CATCH_UP_RUNS_MAX);
        found.span("misfire.late_after", self.misfire.late_after, LATE_AFTER_MAX);
        found.span("timeout", self.timeout, TIMEOUT_MAX);
    }

    fn check_keep(&self, found: &mut Found) {
        if let Some(keep) = self.keep {
            let once = matches!(self.schedule.as_ref().map(|schedule| &schedule.timing), Some(Timing::At { .. }));
            found.check(once, "keep", || {
                format!(
                    "{keep} needs a schedule with one instant (at); a job with more ticks is never deleted automatically"
                )
            });
            found.check(keep <= KEEP_MAX, "keep", || format!("{keep} is out of range; it must be at most {KEEP_MAX}"));
        }
    }
}

/// Collects the errors of a definition.
#[derive(Default)]
struct Found(Vec<Invalid>);

impl Found {
    fn check(&mut self, right: bool, field: &str, message: impl FnOnce() -> String) {
        if !right {
            self.0.push(Invalid::new(field, message()));
        }
    }

    fn result(&mut self, field: &str, checked: Result<(), String>) {
        self.0.extend(checked.err().map(|message| Invalid::new(field, message)));
    }

    fn bytes(&mut self, field: &str, size: usize, max: usize, unit: &str) {
        self.check(size <= max, field, || format!("is {size} bytes long; at most {max} {unit} are allowed"));
    }

    fn range(&mut self, field: &str, value: u32, max: u32) {
        self.check((1..=max).contains(&value), field, || format!("{value} is out of range; it must be 1 to {max}"));
    }

    fn span(&mut self, field: &str, span: Span, max: Span) {
        self.check(!span.is_zero() && span <= max, field, || {
            format!("{span} is out of range; it must be more than 0s and at most {max}")
        });
    }
}

/// Checks a job name. Names are typed on command lines and appear in URLs and headers, so only a few characters are allowed.
pub fn check_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(sound) || name.starts_with(['-', '.']) {
        return Err(format!(
            "{:?} is not a name; write 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 - _ . and begin with a letter, a digit or _",
            name.chars().take(NAME_BYTES_MAX).collect::<String>()
        ));
    }
    if name.parse::<JobId>().is_ok() {
        return Err(format!("{name:?} is a UUID, which could be a job's id; choose another name"));
    }
    Ok(())
}
