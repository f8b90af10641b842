//! Contradictions in a definition: each field is valid alone, but together they do not do what the author expects.
//!
//! | contradiction | in a new definition | already in the stored definition |
//! |---|---|---|
//! | `late_after` above `grace` | error: `grace` would have no effect | warning |
//! | `{{ secret.NAME }}` where a reference to a secret may be | error: the text would be sent unchanged | warning |
//! | a payload for a GET webhook | error: the payload would not be sent | warning |
//! | jitter above the period of `every` | error: runs would start in another order than their ticks | warning |
//! | jitter above the shortest interval of a cron expression | warning: the other intervals may be longer | warning |
//!
//! Only requests that define a job check this. A stored job with a contradiction is loaded, runs, and accepts edits of its other
//! fields.

use super::JobSpec;
use crate::{
    invalid::Invalid,
    schedule::{Schedule, Timing},
    secret::{PAYLOAD_FIELD, Place, misspelled},
    target::{HttpMethod, TargetSpec},
};

/// How many ticks of a cron expression are compared with the jitter. The search is slow, and for a warning it may miss a rare
/// interval.
const TICKS_COMPARED_MAX: usize = 100;

/// The contradictions in a definition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contradictions {
    /// Reasons to refuse the definition.
    pub errors: Vec<Invalid>,
    /// Shown in the answer to the request that defines the job.
    pub warnings: Vec<Invalid>,
}

impl JobSpec {
    /// The contradictions in this definition. `old` is the definition that it replaces.
    #[must_use]
    pub fn contradictions(&self, old: Option<&Self>) -> Contradictions {
        let mut found = Contradictions::default();
        for check in [
            Self::late_after_above_grace,
            Self::payload_of_a_get,
            Self::jitter_above_period,
            Self::misspelled_reference,
        ] {
            let Some(wrong) = check(self) else { continue };
            let stored = old.and_then(check).is_some_and(|stored| stored == wrong);
            if stored { found.warnings.push(wrong) } else { found.errors.push(wrong) }
        }
        found.warnings.extend(self.jitter_above_cron_interval());
        found.warnings.extend(self.max_per_key_without_key());
        found
    }

    fn late_after_above_grace(&self) -> Option<Invalid> {
        let (late_after, grace) = (self.misfire.late_after, self.misfire.grace?);
        let shorter = if grace.is_zero() { String::new() } else { format!("late_after to at most {grace}, or ") };
        let message = format!(
            "{late_after} is longer than grace ({grace}), so a tick older than grace would still fire; set {shorter}grace to at \
             least {late_after}"
        );
        (late_after > grace).then(|| Invalid::new("misfire.late_after", message))
    }

    fn payload_of_a_get(&self) -> Option<Invalid> {
        let TargetSpec::Http(http) = &self.target else { return None };
        self.payload.as_ref().filter(|payload| http.method == HttpMethod::Get && *payload != "null")?;
        let message = "is not sent with the method GET; use POST, or remove the payload";
        Some(Invalid::new("payload", message))
    }

    /// A text that would be sent unchanged, although it is probably meant as a reference to a secret.
    fn misspelled_reference(&self) -> Option<Invalid> {
        let (mut found, kind) = (None, self.target.kind());
        self.target.texts(&mut |text| {
            if found.is_none() && text.place != Place::Nowhere {
                let wrong = misspelled(text.text);
                found = wrong.map(|why| Invalid::new(format!("target.{kind}.{}", text.path()), why));
            }
        });
        let payload = self.payload.as_deref().filter(|_| self.payload_secrets);
        found.or_else(|| payload.and_then(misspelled).map(|why| Invalid::new(PAYLOAD_FIELD, why)))
    }

    fn jitter_above_period(&self) -> Option<Invalid> {
        let spec = self.schedule.as_ref()?;
        let (Timing::Every { every }, jitter) = (&spec.timing, spec.jitter?) else { return None };
        let message = || {
            format!(
                "{jitter} is longer than the period ({every}), so runs could start in another order than their ticks; use at \
                 most {every}"
            )
        };
        (jitter > *every).then(|| Invalid::new("schedule.jitter", message()))
    }

    fn jitter_above_cron_interval(&self) -> Option<Invalid> {
        let spec = self.schedule.as_ref().filter(|spec| matches!(spec.timing, Timing::Cron { .. }))?;
        let jitter = spec.jitter?;
        let shortest = Schedule::compile(spec).ok()?.shortest_interval_of(TICKS_COMPARED_MAX)?;
        let message = || {
            format!(
                "{jitter} is longer than the shortest time between two ticks ({shortest}), so runs could start in another order \
                 than their ticks; use at most {shortest}"
            )
        };
        (jitter > shortest).then(|| Invalid::new("schedule.jitter", message()))
    }

    fn max_per_key_without_key(&self) -> Option<Invalid> {
        let message = || {
            format!(
                "{} has no effect without concurrency_key; set that field, such as to \"payload.customer\"",
                self.max_per_key
            )
        };
        (self.max_per_key != 1 && self.concurrency_key.is_none()).then(|| Invalid::new("max_per_key", message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::tests::spec,
        schedule::{Fold, Gap, ScheduleSpec},
        target::HttpTarget,
        time::{DbTime, Span},
    };

    /// The fields of the errors and of the warnings.
    fn fields(job: &JobSpec, old: Option<&JobSpec>) -> (Vec<String>, Vec<String>) {
        let names = |found: Vec<Invalid>| found.into_iter().map(|invalid| invalid.field).collect();
        let Contradictions { errors, warnings } = job.contradictions(old);
        (names(errors), names(warnings))
    }

    fn late(late_after: u64, grace: Option<u64>) -> JobSpec {
        let mut spec = spec(Span::hours(1));
        (spec.misfire.late_after, spec.misfire.grace) = (Span::seconds(late_after), grace.map(Span::seconds));
        spec
    }

    fn webhook(method: HttpMethod, payload: Option<&str>) -> JobSpec {
        let mut spec = spec(Span::hours(1));
        spec.target = TargetSpec::Http(HttpTarget { method, ..HttpTarget::post("https://h/".to_owned()) });
        spec.payload = payload.map(ToOwned::to_owned);
        spec
    }

    fn with_header(value: &str) -> JobSpec {
        let mut job = webhook(HttpMethod::Post, None);
        let TargetSpec::Http(http) = &mut job.target else { unreachable!() };
        http.headers = [("x-key".to_owned(), value.to_owned())].into();
        job
    }

    fn jittered(timing: Timing, jitter: Span) -> JobSpec {
        let mut job = spec(Span::hours(1));
        job.schedule = Some(ScheduleSpec { jitter: Some(jitter), ..timing.into() });
        job
    }

    fn every(seconds: u64, jitter: u64) -> JobSpec {
        jittered(Timing::Every { every: Span::seconds(seconds) }, Span::seconds(jitter))
    }

    fn cron(text: &str, jitter: Span) -> JobSpec {
        jittered(ScheduleSpec::cron(text, None, Gap::Shift, Fold::First, "").unwrap(), jitter)
    }

    #[test]
    fn a_contradiction_is_an_error_in_a_new_definition_and_a_warning_if_it_is_stored_already() {
        for (job, field) in [
            (late(120, Some(60)), "misfire.late_after"),
            (late(1, Some(0)), "misfire.late_after"),
            (webhook(HttpMethod::Get, Some("{}")), "payload"),
            (every(60, 61), "schedule.jitter"),
            (with_header("Bearer {{ secret.api }}"), "target.http.headers.x-key"),
            (JobSpec { payload_secrets: true, ..webhook(HttpMethod::Post, Some(r#""{{ Secrets.api }}""#)) }, "payload"),
        ] {
            let field = vec![field.to_owned()];
            assert_eq!(fields(&job, None), (field.clone(), vec![]));
            let mut edited = job.clone();
            edited.description = "edited".to_owned();
            edited.misfire.max_runs += 1;
            assert_eq!(fields(&edited, Some(&job)), (vec![], field));
        }
    }

    #[test]
    fn an_edit_that_adds_or_changes_a_contradiction_is_an_error() {
        let get = webhook(HttpMethod::Get, Some("{}"));
        for (new, old) in [
            (late(120, Some(60)), late(120, None)),
            (late(120, Some(60)), late(120, Some(50))),
            (get.clone(), webhook(HttpMethod::Post, Some("{}"))),
            (get, webhook(HttpMethod::Get, None)),
            (every(60, 61), every(61, 61)),
            (every(60, 61), cron("* * * * *", Span::seconds(61))),
        ] {
            let (errors, warnings) = fields(&new, Some(&old));
            assert_eq!((errors.len(), warnings.len()), (1, 0), "{new:?}");
        }
    }

    #[test]
    fn jitter_above_the_shortest_interval_of_a_cron_expression_is_a_warning() {
        for (text, jitter, message) in [
            ("0 9,10 * * *", Span::hours(2), "2h is longer than the shortest time between two ticks (1h)"),
            ("* * * * *", Span::seconds(61), "use at most 1m"),
        ] {
            let found = cron(text, jitter).contradictions(None);
            assert!(found.errors.is_empty(), "{found:?}");
            assert!(found.warnings[0].message.contains(message), "{found:?}");
        }
    }

    #[test]
    fn max_per_key_without_a_key_is_a_warning() {
        let mut job = spec(Span::hours(1));
        job.max_per_key = 5;
        assert_eq!(fields(&job, None), (vec![], vec!["max_per_key".to_owned()]));
        assert_eq!(fields(&job, Some(&job)), (vec![], vec!["max_per_key".to_owned()]));
        job.max_per_key = 1;
        assert_eq!(fields(&job, None), (vec![], vec![]));
    }

    #[test]
    fn a_message_names_both_values_and_both_remedies() {
        let message = |job: JobSpec| job.contradictions(None).errors.remove(0).to_string();
        assert_eq!(
            message(late(120, Some(60))),
            "misfire.late_after: 2m is longer than grace (1m), so a tick older than grace would still fire; set late_after to \
             at most 1m, or grace to at least 2m"
        );
        assert!(message(late(60, Some(0))).ends_with("would still fire; set grace to at least 1m"));
    }

    #[test]
    fn definitions_without_a_contradiction_have_no_errors_and_no_warnings() {
        for job in [
            late(60, Some(60)),
            late(60, None),
            webhook(HttpMethod::Get, None),
            webhook(HttpMethod::Get, Some("null")),
            webhook(HttpMethod::Post, Some("{}")),
            every(60, 60),
            cron("0 9,10 * * *", Span::hours(1)),
            cron("0 0 29 2 *", Span::days(500)),
            jittered(Timing::At { at: DbTime::EPOCH }, Span::hours(9)),
        ] {
            assert_eq!(job.contradictions(None), Contradictions::default(), "{job:?}");
        }
    }
}
