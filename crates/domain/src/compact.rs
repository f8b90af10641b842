//! The compact stored form of a definition. It omits fields with default values, and the name, which is always stored
//! beside it. The compact form of a plain job has a seventh of the size of the full document. In an installation with
//! millions of jobs, most are plain. Reading it back gives the same definition.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{
    flow::DependsOn,
    job::{JobSpec, Misfire, Overlap, PRIORITY_DEFAULT},
    queue::KeyExpression,
    retry::{OnLost, RetryPolicy},
    schedule::{Fold, Gap, ScheduleSpec, Timing},
    target::{HttpMethod, HttpTarget, TargetSpec},
    time::Span,
};

/// The compact form. A new field may be added only if jobs that were stored without it keep their behaviour.
#[derive(Serialize, Deserialize)]
pub struct CompactSpec<'a> {
    /// A cron expression without `H` and its zone, if the schedule has nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<Cow<'a, ScheduleSpec>>,
    /// The URL of a plain POST target, without headers and unsigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, TargetSpec>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Cow<'a, BTreeMap<String, String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<Overlap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    misfire: Option<Misfire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_lost: Option<OnLost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    home_region: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency_key: Option<Cow<'a, KeyExpression>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_per_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depends_on: Option<Cow<'a, [DependsOn]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_secrets: Option<bool>,
}

impl std::fmt::Debug for CompactSpec<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactSpec").finish_non_exhaustive()
    }
}

impl<'a> CompactSpec<'a> {
    #[must_use]
    pub fn of(spec: &'a JobSpec) -> Self {
        // Every field is named, so that a new field does not compile until it is handled here.
        let JobSpec {
            name: _,
            description,
            labels,
            enabled,
            schedule,
            target,
            payload,
            overlap,
            max_concurrent,
            priority,
            misfire,
            retry,
            on_lost,
            timeout,
            home_region,
            concurrency_key,
            max_per_key,
            keep,
            depends_on,
            payload_secrets,
        } = spec;
        let (cron, every) = schedule.as_ref().map_or((None, None), plain_timing);
        let http = plain_http(target);
        Self {
            schedule: schedule.as_ref().filter(|_| cron.is_none() && every.is_none()).map(Cow::Borrowed),
            cron,
            every,
            target: http.is_none().then_some(Cow::Borrowed(target)),
            http: http.map(Cow::Borrowed),
            description: (!description.is_empty()).then_some(Cow::Borrowed(description)),
            labels: (!labels.is_empty()).then_some(Cow::Borrowed(labels)),
            enabled: (!enabled).then_some(false),
            payload: payload.as_deref().map(Cow::Borrowed),
            overlap: unless(*overlap, Overlap::default()),
            max_concurrent: *max_concurrent,
            priority: unless(*priority, PRIORITY_DEFAULT),
            misfire: unless(*misfire, Misfire::default()),
            // The defaults of the first release. Newer defaults are written out, so that nodes of that release read them too.
            retry: unless(*retry, target.retry_when_omitted()),
            on_lost: unless(*on_lost, OnLost::default()),
            timeout: unless(*timeout, target.timeout_default()),
            home_region: home_region.as_deref().map(Cow::Borrowed),
            concurrency_key: concurrency_key.as_ref().map(Cow::Borrowed),
            max_per_key: unless(*max_per_key, 1),
            keep: *keep,
            depends_on: (!depends_on.is_empty()).then_some(Cow::Borrowed(depends_on)),
            payload_secrets: unless(*payload_secrets, false),
        }
    }

    /// The full definition of the job `name`; `None` if the document has no target.
    #[must_use]
    pub fn expand(self, name: &str) -> Option<JobSpec> {
        let target = match (self.target, self.http) {
            (Some(target), _) => target.into_owned(),
            (None, Some(url)) => TargetSpec::Http(HttpTarget::post(url.into_owned())),
            (None, None) => return None,
        };
        let timing = match (self.cron, self.every) {
            (Some((cron, timezone)), _) => {
                let (cron, timezone) = (cron.into_owned(), timezone.into_owned());
                let (gap, fold) = (Gap::default(), Fold::default());
                Some(Timing::Cron { resolved: cron.clone(), cron, timezone, gap, fold })
            }
            (None, Some(every)) => Some(Timing::Every { every }),
            (None, None) => None,
        };
        Some(JobSpec {
            name: name.to_owned(),
            description: self.description.unwrap_or_default().into_owned(),
            labels: self.labels.map(Cow::into_owned).unwrap_or_default(),
            enabled: self.enabled.unwrap_or(true),
            schedule: self.schedule.map(Cow::into_owned).or(timing.map(Into::into)),
            payload: self.payload.map(Cow::into_owned),
            overlap: self.overlap.unwrap_or_default(),
            max_concurrent: self.max_concurrent,
            priority: self.priority.unwrap_or(PRIORITY_DEFAULT),
            misfire: self.misfire.unwrap_or_default(),
            retry: self.retry.unwrap_or_else(|| target.retry_when_omitted()),
            on_lost: self.on_lost.unwrap_or_default(),
            timeout: self.timeout.unwrap_or(target.timeout_default()),
            home_region: self.home_region.map(Cow::into_owned),
            concurrency_key: self.concurrency_key.map(Cow::into_owned),
            max_per_key: self.max_per_key.unwrap_or(1),
            keep: self.keep,
            depends_on: self.depends_on.map(Cow::into_owned).unwrap_or_default(),
            payload_secrets: self.payload_secrets.unwrap_or(false),
            target,
        })
    }
}

fn unless<T: PartialEq>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

type PlainTiming<'a> = (Option<(Cow<'a, str>, Cow<'a, str>)>, Option<Span>);

/// The timing, if the schedule consists only of an expression and a zone, or of a period.
fn plain_timing(schedule: &ScheduleSpec) -> PlainTiming<'_> {
    if *schedule != ScheduleSpec::from(schedule.timing.clone()) {
        return (None, None);
    }
    match &schedule.timing {
        Timing::Cron { cron, resolved, timezone, gap, fold }
            if cron == resolved && *gap == Gap::default() && *fold == Fold::default() =>
        {
            (Some((cron.into(), timezone.into())), None)
        }
        Timing::Every { every } => (None, Some(*every)),
        Timing::Cron { .. } | Timing::At { .. } => (None, None),
    }
}

/// The URL, if the target is a plain POST without headers and unsigned.
fn plain_http(target: &TargetSpec) -> Option<&str> {
    let TargetSpec::Http(http) = target else { return None };
    let HttpTarget { url, method, headers, secret, client_cert } = http;
    let has_secrets = secret.is_some() || client_cert.is_some();
    (*method == HttpMethod::Post && headers.is_empty() && !has_secrets).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::tests::spec, retry::Jitter, target::QueueTarget};

    fn write_and_read(spec: &JobSpec) -> (String, JobSpec) {
        let text = serde_json::to_string(&CompactSpec::of(spec)).unwrap();
        let read: CompactSpec<'_> = serde_json::from_str(&text).unwrap();
        (text.clone(), read.expand(&spec.name).unwrap())
    }

    fn plain() -> JobSpec {
        let target = TargetSpec::Http(HttpTarget::post("https://example.org/hook".into()));
        let timing =
            ScheduleSpec::cron("15 3 * * *", Some("Europe/Paris"), Gap::default(), Fold::default(), "j").unwrap();
        let (retry, timeout) = (target.retry_when_omitted(), target.timeout_default());
        let schedule = Some(timing.into());
        JobSpec { schedule, target, retry, timeout, ..spec(Span::seconds(10)) }
    }

    #[test]
    fn a_plain_job_is_stored_as_expression_zone_and_url() {
        let (text, read) = write_and_read(&plain());
        assert_eq!(text, r#"{"cron":["15 3 * * *","Europe/Paris"],"http":"https://example.org/hook"}"#);
        assert_eq!(read, plain());
    }

    type Change = Box<dyn Fn(&mut JobSpec)>;

    /// Stores each field in turn with a value other than its default, and reads it back.
    #[test]
    fn values_other_than_the_default_are_stored() {
        let cron = |cron: &str, gap, fold| {
            Some(ScheduleSpec::from(ScheduleSpec::cron(cron, Some("Europe/Paris"), gap, fold, "j").unwrap()))
        };
        let bounded = |change: fn(&mut ScheduleSpec)| {
            let mut schedule = ScheduleSpec::from(Timing::Every { every: Span::minutes(1) });
            change(&mut schedule);
            Some(schedule)
        };
        let at = crate::time::DbTime::from_millis(1_000);
        let http = |change: fn(&mut HttpTarget)| {
            let mut http = HttpTarget::post("https://example.org/".into());
            change(&mut http);
            TargetSpec::Http(http)
        };
        let changes: Vec<Change> = vec![
            Box::new(|spec| spec.name = "other".into()),
            Box::new(|spec| spec.description = "d".into()),
            Box::new(|spec| spec.labels = BTreeMap::from([("a".into(), "b".into())])),
            Box::new(|spec| spec.enabled = false),
            Box::new(|spec| spec.schedule = None),
            Box::new(move |spec| spec.schedule = cron("H 3 * * *", Gap::Shift, Fold::First)),
            Box::new(move |spec| spec.schedule = cron("0 3 * * *", Gap::Skip, Fold::First)),
            Box::new(move |spec| spec.schedule = cron("0 3 * * *", Gap::Shift, Fold::Both)),
            Box::new(move |spec| spec.schedule = Some(Timing::At { at }.into())),
            Box::new(move |spec| spec.schedule = bounded(|_| {})),
            Box::new(move |spec| spec.schedule = bounded(|schedule| schedule.jitter = Some(Span::seconds(3)))),
            Box::new(move |spec| spec.schedule = bounded(|schedule| schedule.exclude = vec!["holidays".into()])),
            Box::new(move |spec| spec.schedule = bounded(|schedule| schedule.ends_at = Some(crate::time::DbTime::MAX))),
            Box::new(move |spec| spec.target = http(|http| http.method = HttpMethod::Put)),
            Box::new(move |spec| spec.target = http(|http| http.secret = Some("whsec_x".into()))),
            Box::new(move |spec| spec.target = http(|http| _ = http.headers.insert("a".into(), "b".into()))),
            Box::new(|spec| spec.target = TargetSpec::Queue(QueueTarget { name: "q".into() })),
            Box::new(|spec| spec.payload = Some("null".into())),
            Box::new(|spec| spec.overlap = Overlap::Queue { limit: 3 }),
            Box::new(|spec| (spec.overlap, spec.max_concurrent) = (Overlap::Allow, Some(4))),
            Box::new(|spec| spec.priority = 0),
            Box::new(|spec| spec.misfire.grace = Some(Span::minutes(9))),
            Box::new(|spec| spec.retry = RetryPolicy::with_retries(0)),
            Box::new(|spec| spec.retry = RetryPolicy::with_retries(3)),
            Box::new(|spec| spec.on_lost = OnLost::Fail),
            Box::new(|spec| spec.timeout = Span::hours(1)),
            Box::new(|spec| spec.home_region = Some("eu".into())),
            Box::new(|spec| spec.concurrency_key = KeyExpression::try_from("payload.a".to_owned()).ok()),
            Box::new(|spec| spec.max_per_key = 2),
            Box::new(|spec| spec.keep = Some(Span::days(1))),
            Box::new(|spec| spec.payload_secrets = true),
            Box::new(move |spec| spec.target = http(|http| http.client_cert = Some("{{ secrets.c }}".into()))),
        ];
        for change in changes {
            let mut spec = plain();
            change(&mut spec);
            let (text, read) = write_and_read(&spec);
            assert_eq!(read, spec, "{text}");
        }
    }

    /// A definition of the first release keeps its defaults. A definition of today can be read by that release, except for the
    /// kind of jitter.
    #[test]
    fn changed_defaults_are_written_out_and_old_definitions_keep_theirs() {
        let old: CompactSpec<'_> = serde_json::from_str(r#"{"every":"1m","http":"https://example.org/"}"#).unwrap();
        let first = RetryPolicy {
            max_retries: 3,
            base_delay: Span::seconds(5),
            max_delay: Span::hours(1),
            jitter: Jitter::Full,
        };
        assert_eq!(old.expand("j").unwrap().retry, first);
        let target = plain().target;
        let today = JobSpec { retry: target.retry_default(), ..plain() };
        let (text, read) = write_and_read(&today);
        assert_eq!(read, today);
        let retry = r#""retry":{"max_retries":10,"base_delay":"5s","max_delay":"10m","jitter":"equal"}"#;
        assert!(text.contains(retry), "{text}");
    }

    /// Definitions that release 0.1 wrote, in both forms. Each is read back equal, and is written in the same form.
    #[test]
    fn definitions_of_release_0_1_are_read_back_equal() {
        for (full, compact) in [
            (
                r#"{"name":"a","description":"","labels":{},"enabled":true,"schedule":{"timing":{"kind":"cron","cron":"0 2 * * *","resolved":"0 2 * * *","timezone":"Europe/Paris","gap":"shift","fold":"first"}},"target":{"http":{"url":"https://example.org/hook","method":"POST","headers":{},"secret":null}},"payload":null,"overlap":"skip","max_concurrent":null,"priority":5,"misfire":{"late_after":"1m","grace":null,"catch_up":"latest","max_runs":10},"retry":{"max_retries":10,"base_delay":"5s","max_delay":"10m","jitter":"equal"},"on_lost":"retry","timeout":"30s","home_region":null,"concurrency_key":null,"max_per_key":1}"#,
                r#"{"cron":["0 2 * * *","Europe/Paris"],"http":"https://example.org/hook","retry":{"max_retries":10,"base_delay":"5s","max_delay":"10m","jitter":"equal"}}"#,
            ),
            (
                r#"{"name":"b","description":"","labels":{"team":"x"},"enabled":true,"schedule":{"timing":{"kind":"every","every":"5m"}},"target":{"shell":{"command":{"argv":["echo","hi"]},"env":{"A":"b"},"workdir":"/tmp"}},"payload":"{\"a\": 1}","overlap":"allow","max_concurrent":4,"priority":5,"misfire":{"late_after":"1m","grace":null,"catch_up":"latest","max_runs":10},"retry":{"max_retries":0,"base_delay":"5s","max_delay":"10m","jitter":"equal"},"on_lost":"retry","timeout":"1h","home_region":null,"concurrency_key":null,"max_per_key":1}"#,
                r#"{"every":"5m","target":{"shell":{"command":{"argv":["echo","hi"]},"env":{"A":"b"},"workdir":"/tmp"}},"labels":{"team":"x"},"payload":"{\"a\": 1}","overlap":"allow","max_concurrent":4,"retry":{"max_retries":0,"base_delay":"5s","max_delay":"10m","jitter":"equal"}}"#,
            ),
            (
                r#"{"name":"c","description":"","labels":{},"enabled":true,"schedule":null,"target":{"queue":{"name":"q"}},"payload":null,"overlap":"skip","max_concurrent":null,"priority":5,"misfire":{"late_after":"1m","grace":null,"catch_up":"latest","max_runs":10},"retry":{"max_retries":10,"base_delay":"5s","max_delay":"10m","jitter":"equal"},"on_lost":"retry","timeout":"1h","home_region":"eu","concurrency_key":"payload.a","max_per_key":2,"depends_on":[{"job":"a","when":"succeeded"}]}"#,
                r#"{"target":{"queue":{"name":"q"}},"retry":{"max_retries":10,"base_delay":"5s","max_delay":"10m","jitter":"equal"},"home_region":"eu","concurrency_key":"payload.a","max_per_key":2,"depends_on":[{"job":"a","when":"succeeded"}]}"#,
            ),
        ] {
            let spec: JobSpec = serde_json::from_str(full).unwrap();
            assert_eq!(serde_json::to_string(&spec).unwrap(), full);
            let (written, read) = write_and_read(&spec);
            assert_eq!((written.as_str(), &read), (compact, &spec));
        }
    }

    #[test]
    fn a_document_without_a_target_is_rejected() {
        let read: CompactSpec<'_> = serde_json::from_str("{}").unwrap();
        assert!(read.expand("j").is_none());
    }
}
