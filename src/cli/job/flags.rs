//! The flags that define a job, and the document that they produce.

use clap::Args;
use everytick_domain::{
    instant::{InstantText, Lean, LocalZone},
    time::Span,
};
use serde_json::Value;

use super::{
    after_flags::AfterFlags,
    document::{Document, payload},
    target_flags::{RemoveFlags, TargetFlags, pair},
};
use crate::{
    cli::{
        cron::{FoldWord, GapWord},
        number::whole,
    },
    failure::Failure,
    times::Times,
};

#[derive(Debug, Default, Args)]
pub(crate) struct JobFlags {
    /// Run by this cron expression; `everytick cron explain` describes one
    #[arg(long, value_name = "EXPR", group = "timing", allow_hyphen_values = true, help_heading = "When")]
    cron: Option<String>,
    /// Run at this interval: 15m means :00, :15, :30 and :45, or counts from --starts-at
    #[arg(long, value_name = "DURATION", group = "timing", help_heading = "When")]
    every: Option<Span>,
    /// Run once, at this time, such as '2026-11-16 07:00' or 'in 2h'
    #[arg(long, value_name = "TIME", group = "timing", allow_hyphen_values = true, help_heading = "When")]
    at: Option<InstantText>,
    /// Evaluate the cron expression, and read the times of flags, in this time zone, an IANA name [default: UTC for cron]
    #[arg(long, visible_alias = "timezone", value_name = "ZONE", help_heading = "When")]
    tz: Option<String>,
    /// When clocks go forward over a fixed time, fire after the change (shift) or not on that day (skip) [default: shift]
    #[arg(long, value_enum, value_name = "RULE", help_heading = "When", hide_possible_values = true)]
    gap: Option<GapWord>,
    /// When clocks go back and a fixed time occurs twice, fire at the first, the last or both [default: first]
    #[arg(long, value_enum, value_name = "RULE", help_heading = "When", hide_possible_values = true)]
    fold: Option<FoldWord>,
    /// Have no tick before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "When")]
    starts_at: Option<InstantText>,
    /// Have no tick after this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "When")]
    ends_at: Option<InstantText>,
    /// Delay each run by a part of this time, to spread the load
    #[arg(long, value_name = "DURATION", help_heading = "When")]
    jitter: Option<Span>,
    /// Skip ticks on the dates of this calendar; repeatable
    #[arg(long, value_name = "CALENDAR", help_heading = "When")]
    exclude: Vec<String>,

    #[command(flatten)]
    after: AfterFlags,

    #[command(flatten)]
    target: TargetFlags,
    /// Deliver this payload: JSON, or @file, or @- for stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, help_heading = "What")]
    payload: Option<String>,
    /// Fill in references to secrets, {{ secrets.NAME }}, in the payload
    #[arg(long, help_heading = "What")]
    payload_secrets: bool,

    /// Treat a tick or trigger while a run is open by this rule: skip, queue, cancel_previous or allow [default: skip]
    #[arg(long, value_name = "RULE", value_parser = ["skip", "queue", "cancel_previous", "allow"], hide_possible_values = true, help_heading = "How")]
    overlap: Option<String>,
    /// Under --overlap queue, let at most this many runs wait [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000), help_heading = "How")]
    queue_limit: Option<u32>,
    /// Under --overlap allow, let at most this many runs be in progress
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000), help_heading = "How")]
    max_concurrent: Option<u32>,
    /// In a queue, limit runs with an equal value of this field (payload.NAME or labels.NAME) to --max-per-key in progress
    #[arg(long, value_name = "FIELD", help_heading = "How")]
    concurrency_key: Option<String>,
    /// Let at most this many runs of one --concurrency-key value be in progress [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000), help_heading = "How")]
    max_per_key: Option<u32>,
    /// Set the priority, from 0 (last) to 9 (first) [default: 5]
    #[arg(long, value_name = "N", value_parser = whole::<u8>(0..=9), help_heading = "How")]
    priority: Option<u8>,
    /// Run the job on nodes of this region while one of them is alive [default: any region]
    #[arg(long, value_name = "REGION", help_heading = "How")]
    home_region: Option<String>,
    /// With --at, delete the job this long after its last run ended [default: never]
    #[arg(long, value_name = "DURATION", help_heading = "How")]
    keep: Option<Span>,
    #[arg(long, value_name = "DURATION", help_heading = "How", help = timeout_help())]
    timeout: Option<Span>,
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..=100), help_heading = "How", help = max_retries_help())]
    max_retries: Option<u32>,
    /// Wait between half of this and this before the first retry; each further retry doubles it [default: 5s]
    #[arg(long, value_name = "DURATION", help_heading = "How")]
    base_delay: Option<Span>,
    /// Wait at most this long before a retry [default: 10m]
    #[arg(long, value_name = "DURATION", help_heading = "How")]
    max_delay: Option<Span>,
    /// If the node or worker of a run is lost, retry or fail the run [default: retry]
    #[arg(long, value_name = "RULE", value_parser = ["retry", "fail"], hide_possible_values = true, help_heading = "How")]
    on_lost: Option<String>,
    /// Treat a tick recorded later than this as late: --catch-up decides about it [default: 1m]
    #[arg(long, value_name = "DURATION", help_heading = "How")]
    late_after: Option<Span>,
    /// Never fire a tick older than this [default: 1h, or one period if that is longer]
    #[arg(long, value_name = "DURATION", help_heading = "How")]
    grace: Option<Span>,
    /// Fire these late ticks: none, latest or all [default: latest]
    #[arg(long, value_name = "RULE", value_parser = ["none", "latest", "all"], hide_possible_values = true, help_heading = "How")]
    catch_up: Option<String>,
    /// Fire at most this many late ticks [default: 10]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1_000), help_heading = "How")]
    max_runs: Option<u32>,

    /// Set this label; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "About")]
    label: Vec<(String, String)>,
    /// Describe the purpose of the job
    #[arg(long, value_name = "TEXT", help_heading = "About")]
    description: Option<String>,
    /// Disable the job: it has no ticks until it is enabled
    #[arg(long, help_heading = "About")]
    disabled: bool,
}

/// Flags that only an update has. Most of them remove a field.
#[derive(Debug, Default, Args)]
pub(crate) struct UpdateFlags {
    /// Give the job this name
    #[arg(long, value_name = "NAME", help_heading = "About")]
    rename: Option<String>,
    /// Enable the job
    #[arg(long, conflicts_with = "disabled", help_heading = "About")]
    enabled: bool,
    /// Remove the schedule: the job then runs only when triggered or after other jobs
    #[arg(long, conflicts_with = "timing", help_heading = "When")]
    no_schedule: bool,
    /// Remove all parent jobs set with --after
    #[arg(long, conflicts_with = "after", help_heading = "When")]
    no_after: bool,
    /// Remove all calendars set with --exclude
    #[arg(long, conflicts_with = "exclude", help_heading = "When")]
    no_exclude: bool,
    /// Send the payload without filling in references to secrets
    #[arg(long, conflicts_with = "payload_secrets", help_heading = "What")]
    no_payload_secrets: bool,
    /// Remove the home region: nodes of any region may run the job
    #[arg(long, conflicts_with = "home_region", help_heading = "How")]
    no_home_region: bool,
    /// Remove the concurrency key
    #[arg(long, conflicts_with = "concurrency_key", help_heading = "How")]
    no_concurrency_key: bool,
    /// Remove this label; repeatable
    #[arg(long, value_name = "KEY", help_heading = "About")]
    remove_label: Vec<String>,
    #[command(flatten)]
    target: RemoveFlags,
}

impl JobFlags {
    pub(crate) fn instants(&self) -> [Option<&InstantText>; 3] {
        [&self.at, &self.starts_at, &self.ends_at].map(Option::as_ref)
    }

    /// Resolves the times: in the zone of `--tz`, else in `zone`, the zone that the job already has.
    pub(crate) fn resolve(mut self, times: Times, zone: Option<&str>) -> Result<Self, Failure> {
        let local = self.instants().into_iter().flatten().any(InstantText::needs_zone);
        if let Some(tz) = self.tz.as_ref().filter(|_| local) {
            LocalZone::named(tz).map_err(|wrong| Failure::usage(format!("--tz: {wrong}")))?;
        }
        let zone = self.tz.as_deref().or(zone);
        let texts = [("at", &mut self.at), ("starts-at", &mut self.starts_at), ("ends-at", &mut self.ends_at)];
        for (flag, slot) in texts {
            if let Some(text) = slot {
                *slot = Some(times.read(flag, text, Lean::Future, zone)?.into());
            }
        }
        // Only cron expressions have a zone. With --at or --every, --tz is only the zone of the times above.
        if self.at.is_some() || (self.every.is_some() && local) {
            self.tz = None;
        }
        Ok(self)
    }

    /// The definition of a new job, with only the fields whose flags are set.
    pub(crate) fn for_create(self) -> anyhow::Result<Document> {
        self.document()
    }

    /// The first flag that changes a schedule, if no flag sets one.
    pub(crate) fn without_schedule(&self) -> Option<&'static str> {
        if self.cron.is_some() || self.every.is_some() || self.at.is_some() {
            return None;
        }
        let given = [
            ("--tz", self.tz.is_some()),
            ("--gap", self.gap.is_some()),
            ("--fold", self.fold.is_some()),
            ("--starts-at", self.starts_at.is_some()),
            ("--ends-at", self.ends_at.is_some()),
            ("--jitter", self.jitter.is_some()),
            ("--exclude", !self.exclude.is_empty()),
        ];
        given.iter().find_map(|(flag, is_given)| is_given.then_some(*flag))
    }

    /// A merge patch (RFC 7396) for an update. A new kind of schedule or target replaces the old one, so the patch sets the
    /// fields of the other kinds to null.
    pub(crate) fn for_update(self, update: UpdateFlags) -> anyhow::Result<Document> {
        let (cron, every, at) = (self.cron.is_some(), self.every.is_some(), self.at.is_some());
        let target = self.target.clone();
        let policy = self.overlap.clone();
        let other_than = |word: &str| policy.as_deref().is_some_and(|policy| policy != word);
        let drops_max_concurrent = other_than("allow") && self.max_concurrent.is_none();
        let drops_queue_limit = other_than("queue") && self.queue_limit.is_none();
        let mut document = self.document()?;
        let replaced: &[&str] = match (cron, every, at) {
            (true, _, _) => &["every", "at"],
            (_, true, _) => &["cron", "timezone", "gap", "fold", "at"],
            (_, _, true) => &["cron", "timezone", "gap", "fold", "every", "starts_at", "ends_at"],
            _ => &[],
        };
        for field in replaced {
            document.set(&["schedule", field], Value::Null);
        }
        target.replace(&mut document);
        update.target.set(&mut document)?;
        if drops_max_concurrent {
            document.set(&["max_concurrent"], Value::Null);
        }
        if drops_queue_limit {
            document.set(&["queue_limit"], Value::Null);
        }
        if update.no_schedule {
            document.set(&["schedule"], Value::Null);
        }
        if update.no_after {
            document.set(&["depends_on"], Value::Null);
        }
        if update.no_exclude {
            document.set(&["schedule", "exclude"], Value::Null);
        }
        if update.no_concurrency_key {
            document.set(&["concurrency_key"], Value::Null);
        }
        if update.no_payload_secrets {
            document.set(&["payload_secrets"], Value::Bool(false));
        }
        if update.no_home_region {
            document.set(&["home_region"], Value::Null);
        }
        if update.enabled {
            document.set(&["enabled"], Value::Bool(true));
        }
        for key in &update.remove_label {
            document.set(&["labels", key], Value::Null);
        }
        document.set_some(&["name"], update.rename);
        Ok(document)
    }

    fn document(self) -> anyhow::Result<Document> {
        let text = |value: Option<Span>| value.map(|span| span.to_string());
        let instant = |value: Option<InstantText>| value.map(|at| at.to_string());
        let mut document =
            Document { payload: self.payload.as_deref().map(payload).transpose()?, ..Document::default() };

        document.set_some(&["schedule", "cron"], self.cron);
        document.set_some(&["schedule", "every"], text(self.every));
        document.set_some(&["schedule", "at"], instant(self.at));
        document.set_some(&["schedule", "timezone"], self.tz);
        document.set_some(&["schedule", "gap"], self.gap.map(GapWord::word));
        document.set_some(&["schedule", "fold"], self.fold.map(FoldWord::word));
        document.set_some(&["schedule", "starts_at"], instant(self.starts_at));
        document.set_some(&["schedule", "ends_at"], instant(self.ends_at));
        document.set_some(&["schedule", "jitter"], text(self.jitter));
        document.set_some(&["schedule", "exclude"], (!self.exclude.is_empty()).then_some(self.exclude));

        document.set_some(&["depends_on"], self.after.depends_on());

        self.target.set(&mut document)?;

        document.set_some(&["payload_secrets"], self.payload_secrets.then_some(true));
        document.set_some(&["overlap"], self.overlap);
        document.set_some(&["max_concurrent"], self.max_concurrent);
        document.set_some(&["queue_limit"], self.queue_limit);
        document.set_some(&["priority"], self.priority);
        document.set_some(&["concurrency_key"], self.concurrency_key);
        document.set_some(&["max_per_key"], self.max_per_key);
        document.set_some(&["home_region"], self.home_region);
        document.set_some(&["keep"], text(self.keep));
        document.set_some(&["timeout"], text(self.timeout));
        document.set_some(&["retry", "max_retries"], self.max_retries);
        document.set_some(&["retry", "base_delay"], text(self.base_delay));
        document.set_some(&["retry", "max_delay"], text(self.max_delay));
        document.set_some(&["on_lost"], self.on_lost);
        document.set_some(&["misfire", "late_after"], text(self.late_after));
        document.set_some(&["misfire", "grace"], text(self.grace));
        document.set_some(&["misfire", "catch_up"], self.catch_up);
        document.set_some(&["misfire", "max_runs"], self.max_runs);

        for (key, value) in self.label {
            document.set(&["labels", &key], value.into());
        }
        document.set_some(&["description"], self.description);
        document.set_some(&["enabled"], self.disabled.then_some(false));
        Ok(document)
    }
}

fn timeout_help() -> String {
    let defaults = everytick_targets::by_kind(|spec| spec.timeout_default().to_string());
    format!("End an attempt after this time [default: {defaults}]")
}

fn max_retries_help() -> String {
    let defaults = everytick_targets::by_kind(|spec| spec.retry_default().max_retries.to_string());
    format!("Retry a failed run at most this many times [default: {defaults}]")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use everytick_domain::target::TargetKind;
    use serde_json::{json, value::RawValue};

    use super::*;

    #[derive(Parser)]
    struct Create {
        #[command(flatten)]
        flags: JobFlags,
    }
    #[derive(Parser)]
    struct Update {
        #[command(flatten)]
        flags: JobFlags,
        #[command(flatten)]
        update: UpdateFlags,
    }

    fn created(args: &[&str]) -> Value {
        let flags = Create::try_parse_from([&["create"], args].concat()).unwrap().flags;
        serde_json::to_value(flags.for_create().unwrap()).unwrap()
    }
    fn updated(args: &[&str]) -> Value {
        let Update { flags, update } = Update::try_parse_from([&["update"], args].concat()).unwrap();
        serde_json::to_value(flags.for_update(update).unwrap()).unwrap()
    }

    /// The patch of a target: all other kinds are removed.
    fn only(kind: &str, target: Value) -> Value {
        let mut kinds: Value = TargetKind::ALL.iter().map(|kind| (kind.word(), Value::Null)).collect();
        kinds[kind] = target;
        kinds
    }

    #[test]
    fn only_fields_whose_flags_are_set_are_sent() {
        assert_eq!(created(&[]), json!({}));
        assert_eq!(
            created(&["--cron", "0 2 * * *", "--tz", "Europe/Paris", "--url", "https://example.org/hook"]),
            json!({
                "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Paris"},
                "target": {"http": {"url": "https://example.org/hook"}},
            })
        );
    }

    #[test]
    fn every_flag_sets_its_field_of_the_job() {
        let flags = "--every 90s --gap skip --fold both --starts-at 2026-01-01T00:00:00Z --ends-at 2027-01-01T00:00:00Z --jitter 5s \
                     --overlap allow --max-concurrent 4 --priority 9 --timeout 2m --max-retries 1 --base-delay 1s --max-delay 10s \
                     --on-lost fail --late-after 5s --grace 1h30m --catch-up all --max-runs 3 --label team=billing --label a=b=c \
                     --home-region eu-west-1 --keep 7d --exclude one --exclude two --description text --disabled --url http://h/ --method put --secret whsec_x --client-cert-secret x --payload 1 --payload-secrets";
        let mut args: Vec<&str> = flags.split_whitespace().collect();
        args.extend(["--header", "X-A: b: c"]);
        assert_eq!(
            created(&args),
            json!({
                "schedule": {
                    "every": "1m30s", "gap": "skip", "fold": "both", "jitter": "5s", "exclude": ["one", "two"],
                    "starts_at": "2026-01-01T00:00:00Z", "ends_at": "2027-01-01T00:00:00Z",
                },
                "target": {"http": {"url": "http://h/", "method": "PUT", "headers": {"X-A": "b: c"}, "secret": "whsec_x", "client_cert": "x"}},
                "payload": 1, "payload_secrets": true, "overlap": "allow", "max_concurrent": 4, "priority": 9, "timeout": "2m",
                "retry": {"max_retries": 1, "base_delay": "1s", "max_delay": "10s"}, "on_lost": "fail",
                "misfire": {"late_after": "5s", "grace": "1h30m", "catch_up": "all", "max_runs": 3},
                "labels": {"team": "billing", "a": "b=c"}, "home_region": "eu-west-1", "keep": "7d", "description": "text", "enabled": false,
            })
        );
        assert_eq!(
            created(&["--env", "A=b", "--workdir", "/tmp", "--", "echo", "-n", "hi"]),
            json!({"target": {"shell": {"command": {"argv": ["echo", "-n", "hi"]}, "env": {"A": "b"}, "workdir": "/tmp"}}})
        );
        assert_eq!(
            created(&["--queue", "emails", "--concurrency-key", "payload.to", "--max-per-key", "2"]),
            json!({"target": {"queue": {"name": "emails"}}, "concurrency_key": "payload.to", "max_per_key": 2})
        );
        assert_eq!(
            created(&["--shell", "date | cat"]),
            json!({"target": {"shell": {"command": {"script": "date | cat"}}}})
        );
    }

    #[test]
    fn the_payload_is_sent_byte_for_byte() {
        let text = r#"{"b": 1.0, "a":1e2,"b":3}"#;
        let flags = Create::try_parse_from(["create", "--payload", text]).unwrap().flags;
        assert_eq!(serde_json::to_string(&flags.for_create().unwrap()).unwrap(), format!("{{\"payload\":{text}}}"));
        let flags = Create::try_parse_from(["create", "--payload", "hello"]).unwrap().flags;
        assert!(flags.for_create().unwrap_err().to_string().contains("--payload: \"hello\" is not JSON"));
    }

    #[test]
    fn an_update_to_another_kind_removes_the_fields_of_the_old_kind() {
        assert_eq!(
            updated(&["--every", "5m", "--url", "http://h/"]),
            json!({
                "schedule": {"every": "5m", "cron": null, "timezone": null, "gap": null, "fold": null, "at": null},
                "target": only("http", json!({"url": "http://h/"})),
            })
        );
        assert_eq!(
            updated(&["--queue", "emails", "--no-concurrency-key"]),
            json!({"target": only("queue", json!({"name": "emails"})), "concurrency_key": null})
        );
        assert_eq!(
            updated(&["--shell", "date", "--overlap", "skip"]),
            json!({
                "target": only("shell", json!({"command": {"script": "date", "argv": null}})),
                "overlap": "skip", "max_concurrent": null, "queue_limit": null,
            })
        );
        assert_eq!(
            updated(&["--overlap", "queue", "--queue-limit", "3"]),
            json!({"overlap": "queue", "queue_limit": 3, "max_concurrent": null})
        );
        assert_eq!(
            updated(&["--overlap", "allow", "--max-concurrent", "2"]),
            json!({"overlap": "allow", "max_concurrent": 2, "queue_limit": null})
        );
        assert_eq!(updated(&["--tz", "UTC"]), json!({"schedule": {"timezone": "UTC"}}));
        assert_eq!(updated(&["--no-exclude"]), json!({"schedule": {"exclude": null}}));
        assert_eq!(updated(&["--no-home-region"]), json!({"home_region": null}));
        assert_eq!(updated(&["--no-schedule", "--enabled"]), json!({"schedule": null, "enabled": true}));
        assert_eq!(
            updated(&["--remove-label", "team", "--remove-header", "x-a", "--rename", "b"]),
            json!({"labels": {"team": null}, "target": {"http": {"headers": {"x-a": null}}}, "name": "b"})
        );
        assert_eq!(updated(&["--payload", "null"]), json!({"payload": null}));
    }

    #[test]
    fn contradictory_or_invalid_flags_are_refused_when_parsed() {
        for args in [
            &["--cron", "* * * * *", "--every", "5m"][..],
            &["--at", "2026-01-01T00:00:00Z", "--every", "5m"],
            &["--url", "http://h/", "--shell", "date"],
            &["--url", "http://h/", "--", "date"],
            &["--url", "http://h/", "--queue", "q"],
            &["--queue", "q", "--method", "GET"],
            &["--shell", "date", "--", "date"],
            &["--method", "GET", "--shell", "date"],
            &["--header", "novalue", "--url", "http://h/"],
            &["--label", "novalue"],
            &["--every", "5"],
            &["--at", "soon"],
            &["--overlap", "maybe"],
        ] {
            assert!(Create::try_parse_from([&["create"], args].concat()).is_err(), "{args:?}");
        }
    }

    #[test]
    fn flags_override_single_fields_of_the_file() {
        let mut document = Document {
            fields: json!({"name": "a", "retry": {"max_retries": 1, "base_delay": "1s"}}).as_object().unwrap().clone(),
            payload: Some(RawValue::from_string("1".to_owned()).unwrap()),
        };
        document.overlay(Create::try_parse_from(["create", "--max-retries", "2"]).unwrap().flags.for_create().unwrap());
        assert_eq!(
            serde_json::to_value(&document).unwrap(),
            json!({"name": "a", "retry": {"max_retries": 2, "base_delay": "1s"}, "payload": 1})
        );
    }
}
