//! Bad requests: each gets the right status and a message that names the field.

use serde_json::{Value, json};

use crate::support::{NONE, Server, job, text_of, with};

struct Bad {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
    status: u16,
    field: &'static str,
    message: &'static str,
}

fn bad(what: &'static str, method: &'static str, path: &'static str, status: u16, field: &'static str) -> Bad {
    Bad { what, method, path, headers: vec![], body: String::new(), status, field, message: "" }
}

impl Bad {
    fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }
    fn json(self, body: Value) -> Self {
        self.body(text_of(&body))
    }
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
    fn message(mut self, text: &'static str) -> Self {
        self.message = text;
        self
    }
}

/// A definition with one wrong field.
fn field(what: &'static str, name: &'static str, value: Value) -> Bad {
    bad(what, "POST", "/api/v1/jobs", 422, name).json(with(name, value))
}

/// A definition with one unknown field.
fn unknown(name: &'static str) -> Bad {
    field("unknown field", name, json!(1)).message("is not a field")
}

fn parents(what: &'static str, parents: Value, name: &'static str) -> Bad {
    bad(what, "POST", "/api/v1/jobs", 422, name).json(with("depends_on", parents))
}

fn schedule(what: &'static str, schedule: Value, name: &'static str) -> Bad {
    bad(what, "POST", "/api/v1/jobs", 422, name).json(with("schedule", schedule))
}

fn target(what: &'static str, target: Value, name: &'static str) -> Bad {
    bad(what, "POST", "/api/v1/jobs", 422, name).json(with("target", target))
}

fn preview(what: &'static str, body: Value, name: &'static str) -> Bad {
    bad(what, "POST", "/api/v1/schedules/preview", 422, name).json(body)
}

const SOME_RUN: &str = "/api/v1/runs/01a1e327-d180-8de1-92e3-d388a74d8fe4";

fn cases() -> Vec<Bad> {
    let url = |url: &str| json!({"http": {"url": url}});
    let mut cases = vec![
        // Names and plain fields.
        field("no name", "name", json!(null)).message("missing"),
        field("empty name", "name", json!("")),
        field("name with a space", "name", json!("a b")).message("a b"),
        field("name that starts with a dot", "name", json!(".a")),
        field("name with a slash", "name", json!("a/b")),
        field("name of 129 bytes", "name", json!("n".repeat(129))),
        field("name that looks like an id", "name", json!("01a1e327-d180-8de1-92e3-d388a74d8fe4")).message("UUID"),
        field("name that is a number", "name", json!(7)).message("write it in quotes"),
        field("description too long", "description", json!("d".repeat(4_097))).message("4096"),
        field("description with NUL", "description", json!("a\u{0}b")).message("NUL"),
        field("labels as a list", "labels", json!(["a"])),
        field("label as a number", "labels.team", json!(7)),
        field("enabled as a string", "enabled", json!("yes")).message("write true or false"),
        field("priority too high", "priority", json!(10)).message("0 to 9"),
        field("priority below 0", "priority", json!(-1)).message("0 to 9"),
        field("priority as a string", "priority", json!("high")),
        field("priority with a fraction", "priority", json!(1.5)),
        field("unknown overlap", "overlap", json!("maybe")).message("maybe"),
        field("queue_limit without queue", "queue_limit", json!(3)).message("needs overlap \"queue\""),
        field("queue_limit 0", "queue_limit", json!(0)).message("1 to 1000"),
        field("queue_limit 1001", "queue_limit", json!(1001)).message("1 to 1000"),
        field("max_concurrent 0", "max_concurrent", json!(0)).message("1 to 1000"),
        field("max_concurrent under skip", "max_concurrent", json!(2)).message("allow"),
        field("keep of a job with many ticks", "keep", json!("7d")).message("one instant (at)"),
        field("keep that is not a duration", "keep", json!("a week")).message("7d"),
        field("home_region with capitals", "home_region", json!("EU")).message("1 to 63 of a-z 0-9 -"),
        field("empty home_region", "home_region", json!("")).message("1 to 63 of a-z 0-9 -"),
        field("home_region as a number", "home_region", json!(7)).message("write it in quotes"),
        parents("unknown end of a parent", json!([{"job": "a", "when": "done"}]), "depends_on[0].when")
            .message("finished"),
        parents("job as its own parent", json!([{"job": "case"}]), "depends_on[0].job").message("cycle"),
        parents("parent as a number", json!([7]), "depends_on[0]").message("write an object such as"),
        parents("parents as a text", json!("a"), "depends_on").message("write a list such as"),
        parents("parent without a job", json!([{"when": "failed"}]), "depends_on[0].job").message("is missing"),
        parents("duplicate parent", json!([{"job": "a"}, {"job": "a"}]), "depends_on[1].job").message("twice"),
        parents("parent that does not exist", json!([{"job": "unknown"}]), "depends_on[0].job").message("no job"),
        field("timeout that is not a duration", "timeout", json!("soon")).message("90s"),
        field("timeout without a unit", "timeout", json!("30")).message("90s"),
        field("timeout as a number", "timeout", json!(30)).message("such as \"30s\""),
        field("timeout 0s", "timeout", json!("0s")),
        field("timeout too long", "timeout", json!("8d")),
        field("timeout of a webhook too long", "timeout", json!("61m")).message("queue target"),
        field("unknown on_lost", "on_lost", json!("cry")).message("retry"),
        field("late_after that is not a duration", "misfire.late_after", json!("1.5h")),
        field("late_after too long", "misfire.late_after", json!("2h")),
        field("grace that is not a duration", "misfire.grace", json!("never")),
        bad("late_after above grace", "POST", "/api/v1/jobs", 422, "misfire.late_after")
            .json(with("misfire", json!({"late_after": "2m", "grace": "1m"})))
            .message("longer than grace (1m)"),
        bad("default late_after above grace", "PATCH", "/api/v1/jobs/taken", 422, "misfire.late_after")
            .json(json!({"misfire": {"grace": "30s"}}))
            .message("late_after to at most 30s"),
        bad("PATCH to a GET with a payload", "PATCH", "/api/v1/jobs/taken", 422, "payload")
            .json(json!({"target": {"http": {"method": "GET"}}, "payload": 1}))
            .message("use POST"),
        schedule("jitter above the period", json!({"every": "1m", "jitter": "61s"}), "schedule.jitter")
            .message("use at most 1m"),
        field("warnings of a new job", "warnings", json!([])).message("set by the server"),
        field("unknown catch_up", "misfire.catch_up", json!("some")).message("latest"),
        field("max_runs 0", "misfire.max_runs", json!(0)).message("1 to 1000"),
        field("max_retries too high", "retry.max_retries", json!(101)).message("0 to 100"),
        field("base_delay that is not a duration", "retry.base_delay", json!("x")),
        bad("base_delay above max_delay", "POST", "/api/v1/jobs", 422, "retry.base_delay")
            .json(with("retry", json!({"base_delay": "2h", "max_delay": "1h"})))
            .message("max_delay"),
        field("max_delay too long", "retry.max_delay", json!("30d")),
        field("payload of 300 KiB", "payload", json!("p".repeat(300 * 1024))).message("256 KiB"),
        field("id of a new job", "id", json!("01a1e327-d180-8de1-92e3-d388a74d8fe4")).message("set by the server"),
        field("paused new job", "paused", json!(true)).message("set by the server"),
        // Unknown fields, at each level.
        unknown("colour"),
        unknown("schedule.crom"),
        unknown("target.ftp"),
        unknown("target.http.verb"),
        unknown("misfire.graze"),
        unknown("retry.count"),
        target("unknown field", json!({"shell": {"command": {"argv": ["a"]}, "shel": 1}}), "target.shell.shel"),
        target("unknown field", json!({"shell": {"command": {"arg": ["a"]}}}), "target.shell.command.arg"),
        // Schedules.
        schedule("no kind of schedule", json!({}), "schedule").message("cron, every and at"),
        schedule("two kinds of schedule", json!({"cron": "* * * * *", "every": "5m"}), "schedule").message("only one"),
        schedule("schedule as a string", json!("* * * * *"), "schedule"),
        schedule("bad minute", json!({"cron": "60 * * * *"}), "schedule.cron").message("60"),
        schedule("four fields", json!({"cron": "* * * *"}), "schedule.cron"),
        schedule("words instead of fields", json!({"cron": "every day"}), "schedule.cron"),
        schedule("empty cron", json!({"cron": ""}), "schedule.cron"),
        schedule("impossible date", json!({"cron": "0 0 30 2 *"}), "schedule.cron").message("never fires"),
        schedule("reboot", json!({"cron": "@reboot"}), "schedule.cron").message("@reboot"),
        schedule("cron too long", json!({"cron": "1,".repeat(200)}), "schedule.cron"),
        schedule("bad zone", json!({"cron": "0 2 * * *", "timezone": "Mars/Olympus"}), "schedule.timezone")
            .message("Mars"),
        schedule("EST", json!({"cron": "0 2 * * *", "timezone": "EST"}), "schedule.timezone"),
        schedule("unknown gap", json!({"cron": "0 2 * * *", "gap": "jump"}), "schedule.gap").message("shift"),
        schedule("unknown fold", json!({"cron": "0 2 * * *", "fold": "second"}), "schedule.fold").message("first"),
        schedule("zone without cron", json!({"every": "5m", "timezone": "UTC"}), "schedule.timezone")
            .message("only with cron"),
        schedule("every without a unit", json!({"every": "5"}), "schedule.every").message("15m"),
        schedule("every too short", json!({"every": "10ms"}), "schedule.every"),
        schedule("every 0s", json!({"every": "0s"}), "schedule.every"),
        schedule("at that is not an instant", json!({"at": "tomorrow"}), "schedule.at").message("RFC 3339"),
        schedule("at that has passed", json!({"at": "2020-01-01T00:00:00Z"}), "schedule.at").message("passed"),
        schedule("starts_at that is not an instant", json!({"every": "5m", "starts_at": "now"}), "schedule.starts_at"),
        schedule(
            "ends_at before starts_at",
            json!({"every": "5m", "starts_at": "2030-01-02T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"}),
            "schedule.ends_at",
        ),
        schedule("jitter that is not a duration", json!({"every": "5m", "jitter": "some"}), "schedule.jitter"),
        // Targets.
        target("no target", json!(null), "target").message("missing"),
        target("no kind of target", json!({}), "target").message("http, shell"),
        target(
            "two kinds of target",
            json!({"http": {"url": "https://example.org"}, "shell": {"command": {"script": "a"}}}),
            "target",
        ),
        target(
            "null as a kind of target",
            json!({"http": {"url": "https://example.org"}, "shell": null}),
            "target.shell",
        ),
        target("missing url", json!({"http": {}}), "target.http.url").message("missing"),
        target("not a URL", url("not a url"), "target.http.url"),
        target("file URL", url("file:///etc/passwd"), "target.http.url").message("file"),
        target("password in the URL", url("https://me:pw@example.org/"), "target.http.url").message("password"),
        target(
            "unknown method",
            json!({"http": {"url": "https://example.org", "method": "FETCH"}}),
            "target.http.method",
        ),
        target(
            "reserved header",
            json!({"http": {"url": "https://example.org", "headers": {"webhook-id": "1"}}}),
            "target.http.headers.webhook-id",
        ),
        target(
            "secret too short",
            json!({"http": {"url": "https://example.org", "secret": "pst"}}),
            "target.http.secret",
        ),
        target(
            "mask without a stored value",
            json!({"http": {"url": "https://example.org", "secret": "********"}}),
            "target.http.secret",
        )
        .message("mask"),
        target("no command", json!({"shell": {"command": {}}}), "target.shell.command").message("argv"),
        target("empty argv", json!({"shell": {"command": {"argv": []}}}), "target.shell.command"),
        target(
            "relative workdir",
            json!({"shell": {"command": {"script": "a"}, "workdir": "srv"}}),
            "target.shell.workdir",
        ),
        target(
            "bad variable name",
            json!({"shell": {"command": {"script": "a"}, "env": {"1A": ""}}}),
            "target.shell.env.1A",
        ),
        // Previews.
        preview("no kind of schedule", json!({}), "").message("cron, every and at"),
        preview("bad cron", json!({"cron": "61 * * * *"}), "cron").message("61"),
        preview("count 0", json!({"cron": "* * * * *", "count": 0}), "count").message("1 to 1000"),
        preview("count 1001", json!({"cron": "* * * * *", "count": 1001}), "count"),
        preview("bad from", json!({"cron": "* * * * *", "from": "noon"}), "from"),
        preview("unknown field", json!({"cron": "* * * * *", "tz": "UTC"}), "tz"),
        // Bodies.
        bad("no body", "POST", "/api/v1/jobs", 400, "").message("empty"),
        bad("not JSON", "POST", "/api/v1/jobs", 400, "").body("{\"name\": ").message("not JSON"),
        bad("two JSON documents", "POST", "/api/v1/jobs", 400, "")
            .body(format!("{} {{}}", job("a")))
            .message("not JSON"),
        bad("list instead of an object", "POST", "/api/v1/jobs", 422, "").body("[]"),
        bad("trigger as a list", "POST", "/api/v1/jobs/taken/trigger", 422, "")
            .body("[null, true]")
            .message("an object"),
        field("misfire as a list", "misfire", json!(["1m", "1h", "all", 3])).message("an object"),
        field("retry as a list", "retry", json!([1, "1s", "1m"])).message("an object"),
        target("http as a list", json!({"http": ["https://example.org"]}), "target.http").message("an object"),
        target("command as a list", json!({"shell": {"command": [["/bin/true"]]}}), "target.shell.command")
            .message("an object"),
        bad("duplicate field", "POST", "/api/v1/jobs", 422, "name")
            .body("{\"name\": \"a\", \"name\": \"b\"}")
            .message("twice"),
        bad("deep JSON", "POST", "/api/v1/jobs", 400, "").body("[".repeat(100_000)).message("nested deeper"),
        bad("deep payload", "POST", "/api/v1/jobs", 400, "")
            .body(format!("{{\"payload\": {}{}}}", "[".repeat(50_000), "]".repeat(50_000)))
            .message("nested deeper"),
        bad("body of 1.1 MiB", "POST", "/api/v1/jobs", 413, "body").body("x".repeat(1_100_000)),
        bad("wrong media type", "POST", "/api/v1/jobs", 415, "Content-Type")
            .json(job("a"))
            .header("content-type", "text/plain")
            .message("text/plain"),
        bad("form instead of JSON", "POST", "/api/v1/jobs", 415, "Content-Type")
            .body("name=a")
            .header("content-type", "application/x-www-form-urlencoded"),
        bad("no media type", "POST", "/api/v1/jobs", 415, "Content-Type").json(job("a")).header("content-type", NONE),
        bad("latin-1", "POST", "/api/v1/jobs", 415, "Content-Type")
            .json(job("a"))
            .header("content-type", "application/json; charset=iso-8859-1"),
        bad("batch as JSON", "POST", "/api/v1/jobs/batch", 415, "Content-Type").json(json!({})),
        bad("empty batch", "POST", "/api/v1/jobs/batch", 400, "").header("content-type", "application/x-ndjson"),
        // Headers.
        bad("empty key", "POST", "/api/v1/jobs", 400, "Idempotency-Key").json(job("a")).header("idempotency-key", ""),
        bad("key with a space", "POST", "/api/v1/jobs", 400, "Idempotency-Key")
            .json(job("a"))
            .header("idempotency-key", "a b"),
        bad("If-Match without quotes", "PUT", "/api/v1/jobs/taken", 400, "If-Match")
            .json(job("taken"))
            .header("if-match", "1"),
        bad("stale If-Match, PUT", "PUT", "/api/v1/jobs/taken", 412, "If-Match")
            .json(job("taken"))
            .header("if-match", "\"9\""),
        bad("stale If-Match, PATCH", "PATCH", "/api/v1/jobs/taken", 412, "If-Match")
            .json(json!({"priority": 1}))
            .header("if-match", "\"9\""),
        bad("stale If-Match, DELETE", "DELETE", "/api/v1/jobs/taken", 412, "If-Match").header("if-match", "\"9\""),
        bad("stale If-Match, pause", "POST", "/api/v1/jobs/taken/pause", 412, "If-Match").header("if-match", "\"9\""),
        bad("If-Match with an unknown tag", "DELETE", "/api/v1/jobs/taken", 412, "If-Match")
            .header("if-match", "\"abc\""),
        // Edits.
        bad("PUT without a target", "PUT", "/api/v1/jobs/taken", 422, "target")
            .json(json!({"name": "taken"}))
            .message("missing"),
        bad("PATCH as a list", "PATCH", "/api/v1/jobs/taken", 422, "").body("[1]").message("object"),
        bad("PATCH of an unknown field", "PATCH", "/api/v1/jobs/taken", 422, "colour").json(json!({"colour": 1})),
        bad("PATCH of a bad cron", "PATCH", "/api/v1/jobs/taken", 422, "schedule.cron")
            .json(json!({"schedule": {"cron": "x"}})),
        bad("PATCH that removes the target", "PATCH", "/api/v1/jobs/taken", 422, "target")
            .json(json!({"target": null})),
        bad("PATCH to pause", "PATCH", "/api/v1/jobs/taken", 422, "paused")
            .json(json!({"paused": true}))
            .message("/pause"),
        bad("PATCH to a taken name", "PATCH", "/api/v1/jobs/taken", 409, "name").json(json!({"name": "other"})),
        bad("taken name", "POST", "/api/v1/jobs", 409, "name").json(job("taken")).message("taken"),
        bad("note too long", "POST", "/api/v1/jobs/taken/pause", 422, "note").json(json!({"note": "n".repeat(1_025)})),
        bad("pause with a wrong type", "POST", "/api/v1/jobs/taken/pause", 422, "cancel")
            .json(json!({"cancel": "yes"})),
        bad("pause with an unknown field", "POST", "/api/v1/jobs/taken/pause", 422, "why").json(json!({"why": "x"})),
        bad("trigger with an unknown field", "POST", "/api/v1/jobs/taken/trigger", 422, "forse")
            .json(json!({"forse": true})),
        bad("trigger with 300 KiB", "POST", "/api/v1/jobs/taken/trigger", 422, "payload")
            .json(json!({"payload": "p".repeat(300 * 1024)})),
        // Query parameters.
        bad("limit 0", "GET", "/api/v1/jobs?limit=0", 400, "limit").message("1 to 1000"),
        bad("limit 1001", "GET", "/api/v1/jobs?limit=1001", 400, "limit"),
        bad("limit as a word", "GET", "/api/v1/runs?limit=many", 400, "limit"),
        bad("limit twice", "GET", "/api/v1/jobs?limit=1&limit=2", 400, "limit").message("more than once"),
        bad("bad cursor", "GET", "/api/v1/jobs?cursor=!!", 400, "cursor"),
        bad("a cursor of another list", "GET", "/api/v1/runs?cursor=am5pZ2h0bHk", 400, "cursor"),
        bad("bad audit cursor", "GET", "/api/v1/audit?cursor=abc", 400, "cursor"),
        bad("enabled maybe", "GET", "/api/v1/jobs?enabled=maybe", 400, "enabled").message("true"),
        bad("unknown kind of target", "GET", "/api/v1/jobs?target=ftp", 400, "target").message("http"),
        bad("unknown parameter", "GET", "/api/v1/jobs?labels=a", 400, "labels"),
        bad("bad from", "GET", "/api/v1/runs?from=yesterday", 400, "from").message("RFC 3339"),
        bad("bad to", "GET", "/api/v1/jobs/taken/runs?to=1", 400, "to"),
        bad("to before from", "GET", "/api/v1/runs?from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z", 400, "to"),
        bad("bad status", "GET", "/api/v1/runs?status=done", 400, "status").message("succeeded"),
        bad("count 0", "GET", "/api/v1/jobs/taken/next?count=0", 400, "count"),
        bad("count -1", "GET", "/api/v1/jobs/taken/next?count=-1", 400, "count"),
        bad("from noon", "GET", "/api/v1/jobs/taken/next?from=noon", 400, "from").message("noon"),
        bad("explain at noon", "GET", "/api/v1/jobs/taken/explain?at=noon", 400, "at").message("noon"),
        bad(
            "explain until before at",
            "GET",
            "/api/v1/jobs/taken/explain?at=2026-01-01T00:00:00Z&until=2000-01-01T00:00:00Z",
            400,
            "until",
        )
        .message("2000-01-01T00:00:00Z is not after at (2026-01-01T00:00:00Z)"),
        bad("explain until alone", "GET", "/api/v1/jobs/taken/explain?until=2099-01-01T00:00:00Z", 400, "until")
            .message("at"),
        bad("cancel that is not a boolean", "DELETE", "/api/v1/jobs/taken?cancel=1", 400, "cancel"),
        // Missing resources.
        bad("no such job", "GET", "/api/v1/jobs/missing", 404, "").message("no job is named"),
        bad("no such job", "PUT", "/api/v1/jobs/missing", 404, "").json(job("missing")),
        bad("no such job", "PATCH", "/api/v1/jobs/missing", 404, "").json(json!({})),
        bad("no such job", "DELETE", "/api/v1/jobs/missing", 404, ""),
        bad("no such job", "POST", "/api/v1/jobs/missing/trigger", 404, ""),
        bad("no such job", "GET", "/api/v1/runs?job=missing", 404, "").message("\"missing\""),
        bad("almost a job", "GET", "/api/v1/jobs/takne/runs", 404, "").message("did you mean \"taken\"?"),
        bad("almost a job", "POST", "/api/v1/jobs/Other/pause", 404, "").message("did you mean \"other\"?"),
        bad("no such run", "GET", SOME_RUN, 404, "").message("there is no run"),
        bad("not the id of a run", "GET", "/api/v1/runs/xyz", 404, "id").message("xyz"),
        bad("not the id of a run", "POST", "/api/v1/runs/xyz/cancel", 404, "id"),
        bad("not the id of a run", "GET", "/api/v1/flows/xyz", 404, "id"),
        bad("not the id of a backfill", "GET", "/api/v1/backfills/xyz", 404, "id"),
        bad("path that is not UTF-8", "GET", "/api/v1/jobs/%ff", 404, "job"),
        bad("not a name", "GET", "/api/v1/jobs/a%20b", 404, "job").message("is not a name"),
        bad("not a name", "DELETE", "/api/v1/jobs/-a", 404, "job"),
        bad("not a name", "GET", "/api/v1/queues/%00", 404, "queue"),
        bad("not a name", "GET", "/api/v1/calendars/a%2Fb", 404, "name"),
        bad("not a name", "PUT", "/api/v1/calendars/a%20b", 404, "name").json(json!({"dates": ["2026-12-25"]})),
        bad("no such path", "GET", "/api/v1/job", 404, "").message("/docs"),
        bad("no such path", "GET", "/api/v1/jobs/", 404, ""),
        // Methods.
        bad("wrong method", "DELETE", "/api/v1/jobs", 405, "").message("supports GET, POST"),
        bad("wrong method", "POST", "/api/v1/jobs/taken", 405, ""),
        bad("wrong method", "GET", "/api/v1/jobs/taken/trigger", 405, ""),
        bad("wrong method", "PUT", "/healthz", 405, ""),
        // Hosts and origins.
        bad("wrong host", "GET", "/api/v1/jobs", 403, "").header("host", "evil.example").message("evil.example"),
        bad("wrong port", "GET", "/api/v1/jobs", 403, "").header("host", "localhost:80"),
        bad("no host", "GET", "/api/v1/jobs", 403, "").header("host", NONE),
        bad("wrong origin", "POST", "/api/v1/jobs", 403, "").json(job("a")).header("origin", "https://evil.example"),
        bad("origin null", "GET", "/api/v1/jobs", 403, "").header("origin", "null"),
        bad("image on another site", "GET", "/api/v1/jobs", 403, "").header("sec-fetch-site", "cross-site"),
        bad("page on another port", "POST", "/api/v1/jobs", 403, "")
            .json(job("a"))
            .header("sec-fetch-site", "same-site"),
        bad("payload omitted by a list", "PUT", "/api/v1/jobs/taken", 422, "payload")
            .json(with("payload_bytes", json!(5_000)))
            .message("include=payload"),
        bad("reserved name", "POST", "/api/v1/jobs", 422, "name").json(job("batch")).message("reserved"),
        bad("reserved name", "PATCH", "/api/v1/jobs/taken", 422, "name").json(json!({"name": "batch"})),
        bad("unknown include", "GET", "/api/v1/jobs?include=output", 400, "include").message("payload"),
    ];
    let settles = [
        ("no fence", json!({"outcome": "succeeded"}), "fence"),
        ("no outcome", json!({"fence": 1}), "outcome"),
        ("unknown outcome", json!({"fence": 1, "outcome": "done"}), "outcome"),
        ("fence as a string", json!({"fence": "1", "outcome": "failed"}), "fence"),
        ("error with the outcome succeeded", json!({"fence": 1, "outcome": "succeeded", "error": "x"}), "error"),
        ("unknown field", json!({"fence": 1, "outcome": "failed", "result": "x"}), "result"),
    ];
    const SETTLE: &str = "/api/v1/runs/01a1e327-d180-8de1-92e3-d388a74d8fe4/settle";
    cases.extend(settles.into_iter().map(|(what, body, field)| bad(what, "POST", SETTLE, 422, field).json(body)));
    cases
}

/// Words of serde, of Rust and of the operating system, which users do not know.
const FOREIGN_WORDS: [&str; 16] = [
    "expected struct",
    "expected a ",
    "expected one of",
    "invalid type",
    "invalid value",
    "unknown variant",
    "unknown field",
    "missing field",
    "duplicate field",
    "a sequence",
    "i64",
    "u32",
    "EOF while",
    "trailing char",
    "relative URL",
    "os error",
];

#[tokio::test]
async fn every_bad_request_gets_its_status_and_a_message_that_names_the_field() {
    let server = Server::new().await;
    server.make("taken").await;
    server.make("other").await;
    let cases = cases();
    assert!(cases.len() >= 70, "{}", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let answer = server.call(case.method, case.path, &case.headers, case.body.clone()).await;
        let label = format!("{} ({} {})", case.what, case.method, case.path);
        let mut check = |right: bool, what: &str| {
            if !right {
                wrong.push(format!("{label}: {what}: {} {}", answer.status, answer.text));
            }
        };
        check(answer.status.as_u16() == case.status, &format!("status {}", case.status));
        check(answer.header("content-type") == "application/problem+json", "content type");
        let problem: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        check(problem["status"] == case.status, "status in the problem");
        for member in ["type", "title", "detail"] {
            check(problem[member].as_str().is_some_and(|text| !text.is_empty()), member);
        }
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let named = errors.iter().any(|error| error["field"] == case.field);
        check(named || case.field.is_empty(), &format!("field {:?}", case.field));
        check(case.field.is_empty() || errors.len() == 1, "exactly one error");
        check(
            problem["detail"].as_str().is_some_and(|detail| detail.contains(case.message)),
            &format!("{:?}", case.message),
        );
        let foreign = FOREIGN_WORDS.iter().find(|word| answer.text.contains(**word));
        check(foreign.is_none(), &format!("the word {foreign:?}"));
        check(case.status != 405 || !answer.header("allow").is_empty(), "Allow");
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    let jobs = server.get("/api/v1/jobs").await.expect(200);
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2, "refused requests changed nothing");
}

#[tokio::test]
async fn all_errors_of_a_request_are_reported_together() {
    let server = Server::new().await;
    let definition = json!({
        "name": "a b", "priority": 11, "timeout": "soon", "overlap": "que",
        "schedule": {"cron": "61 * * * *", "timezone": "Mars/Olympus", "jitter": "x"},
        "target": {"http": {"url": "nowhere", "headers": {"host": "x"}}},
        "misfire": {"late_after": "x", "max_runs": 0}, "retry": {"base_delay": "x"},
    });
    let problem = server.post("/api/v1/jobs", definition).await.expect(422);
    let mut fields: Vec<_> =
        problem["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
    fields.sort_unstable();
    let all = [
        "misfire.late_after",
        "misfire.max_runs",
        "name",
        "overlap",
        "priority",
        "retry.base_delay",
        "schedule.cron",
        "schedule.jitter",
        "schedule.timezone",
        "target.http.headers.host",
        "target.http.url",
        "timeout",
    ];
    assert_eq!(fields, all);
}

#[tokio::test]
async fn a_shell_target_is_refused_unless_the_operator_enables_it() {
    let server = Server::with_shell(false).await;
    let definition = json!({"name": "a", "target": {"shell": {"command": {"argv": ["/bin/true"]}}}});
    let problem = server.post("/api/v1/jobs", definition).await.expect(422);
    assert_eq!(problem["errors"][0]["field"], "target.shell");
    assert!(problem["errors"][0]["message"].as_str().unwrap().contains("--enable-shell"));
}
