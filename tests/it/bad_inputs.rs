//! Wrong input as people type it: on the command line, in requests and in `everytick.toml`. Each message names the field, the
//! value and the remedy, and none has a word of serde, clap, Rust or the operating system.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use crate::support::{Done, Server};

/// Least number of wrong inputs in the tables of this file.
const ROWS_MIN: usize = 120;

/// Words that only authors of Rust programs know.
const FOREIGN_WORDS: [&str; 34] = [
    "expected struct",
    "expected a ",
    "expected one of",
    "invalid type",
    "invalid value",
    "invalid digit",
    "unknown variant",
    "unknown field",
    "missing field",
    "duplicate field",
    "a sequence",
    "a map",
    "i64",
    "u64",
    "u32",
    "u16",
    "u8",
    "..=",
    "tip:",
    "Usage:",
    "unexpected argument",
    "unrecognized subcommand",
    "required arguments",
    "possible values",
    "EOF while",
    "trailing c",
    "TOML parse",
    "os error",
    "relative URL",
    "socket address syntax",
    "untagged",
    "error with configuration",
    "message completed",
    "SUN_LEN",
];

/// What a message must contain: the field, the value and the remedy.
type Parts = &'static [&'static str];

fn check(what: &str, message: &str, parts: Parts, wrong: &mut Vec<String>) {
    for part in parts {
        if !message.contains(part) {
            wrong.push(format!("{what}: {part:?} is missing: {message}"));
        }
    }
    for word in FOREIGN_WORDS {
        if message.contains(word) {
            wrong.push(format!("{what}: the word {word:?}: {message}"));
        }
    }
}

/// Arguments are separated by `|`, because some have spaces.
const COMMAND_LINES: [(&str, Parts); 130] = [
    // Cron expressions.
    ("job|create|x|--cron|0|2|*|*|*|--url|http://h/", &["--cron", "\"0\"", "--cron '0 2 * * *'"]),
    ("job|create|x|--cron|0|2|a.txt|b.txt|c.txt|--url|http://h/", &["--cron", "\"0\"", "in quotes"]),
    ("job|update|nightly|--cron|*/5|*|*|*|*", &["--cron", "\"*/5\"", "'*/5 * * * *'"]),
    ("cron|next|0|2|*|*|*", &["EXPR", "\"0\"", "'0 2 * * *'"]),
    ("cron|explain|0|2|a|b|c", &["EXPR", "\"0\"", "in quotes"]),
    ("cron|next", &["<EXPR>", "cron next"]),
    ("cron|next|61 * * * *", &["cron", "61", "0-59"]),
    ("cron|next|0 25 * * *", &["hour", "25", "0-23"]),
    ("cron|next|0 2 * *", &["cron", "\"0 2 * *\"", "5 (minute hour"]),
    ("cron|next|@dayly", &["cron", "\"@dayly\"", "@daily"]),
    ("cron|next|0 2 * * * /usr/bin/backup", &["cron", "/usr/bin/backup", "\"0 2 * * *\""]),
    ("job|create|x|--cron|0 2 * * * root /usr/bin/backup --all|--url|http://h/", &["cron", "crontab", "\"0 2 * * *\""]),
    ("job|create|x|--cron|@daily /usr/bin/backup|--url|http://h/", &["cron", "crontab", "\"@daily\""]),
    ("job|create|x|--cron|every day|--url|http://h/", &["cron", "\"every day\"", "5 (minute hour"]),
    ("job|create|x|--cron", &["--cron", "missing", "EXPR"]),
    ("cron|next|@daily|--tz|EST", &["timezone", "\"EST\"", "America/New_York"]),
    ("job|create|x|--cron|@daily|--tz|Paris|--url|http://h/", &["timezone", "\"Paris\"", "Europe/Paris"]),
    // Numbers.
    ("job|create|x|--every|-5m|--url|http://h/", &["--every", "\"-5m\"", "\"15m\""]),
    ("job|create|x|--every|5|--url|http://h/", &["--every", "\"5\"", "\"90s\""]),
    ("job|create|x|--every|5 minutes|--url|http://h/", &["--every", "\"5 minutes\"", "\"15m\""]),
    ("job|create|x|--priority|-1|--url|http://h/", &["--priority", "\"-1\"", "0 to 9"]),
    ("job|create|x|--priority|high|--url|http://h/", &["--priority", "\"high\"", "0 to 9"]),
    ("job|create|x|--priority|99|--url|http://h/", &["priority", "99", "0 to 9"]),
    ("job|create|x|--priority|5.5|--url|http://h/", &["--priority", "\"5.5\"", "0 to 9"]),
    ("job|create|x|--max-retries|many|--url|http://h/", &["--max-retries", "\"many\"", "0 to 100"]),
    ("job|create|x|--max-retries|99999999999|--url|http://h/", &["--max-retries", "99999999999", "0 to 100"]),
    ("job|create|x|--timeout|0s|--url|http://h/", &["timeout", "0s", "at most 7d"]),
    ("job|create|x|--timeout|-1s|--url|http://h/", &["--timeout", "\"-1s\"", "\"90s\""]),
    ("job|next|nightly|-n|0", &["--count", "\"0\"", "1 to 1000"]),
    ("job|next|nightly|-n|5000", &["--count", "\"5000\"", "1 to 1000"]),
    ("job|next|nightly|-n|x", &["--count", "\"x\"", "1 to 1000"]),
    ("job|next|nightly|-n|-3", &["--count", "\"-3\"", "1 to 1000"]),
    ("job|list|--limit|0", &["--limit", "\"0\"", "1 or more"]),
    ("job|list|--limit|-1", &["--limit", "\"-1\"", "1 or more"]),
    ("job|update|nightly|--if-version|x|--priority|3", &["--if-version", "\"x\"", "from 1"]),
    ("queue|set|q|--concurrency|x", &["--concurrency", "\"x\"", "1 to 100000"]),
    ("queue|set|q|--rate|5", &["--rate", "\"5\"", "100/1m"]),
    // Times.
    ("run|list|--from|soon", &["--from", "\"soon\"", "yesterday"]),
    ("run|list|--to|2026-02-30", &["--to", "\"2026-02-30\"", "28 days"]),
    ("job|explain|nightly|--at|25:00", &["--at", "\"25:00\"", "23:59"]),
    ("job|create|x|--at|20.10.2026|--url|http://h/", &["--at", "\"20.10.2026\"", "\"2026-11-16\""]),
    ("run|list|--from|today|--to|yesterday", &["to", "not after from", "ends before to"]),
    // Words.
    ("job|create|x|--overlap|maybe|--url|http://h/", &["--overlap", "\"maybe\"", "skip, queue"]),
    ("job|create|x|--overlap|alow|--url|http://h/", &["--overlap", "\"alow\"", "\"allow\""]),
    ("job|create|x|--gap|both|--cron|@daily|--url|http://h/", &["--gap", "\"both\"", "shift, skip"]),
    ("job|create|x|--catch-up|some|--url|http://h/", &["--catch-up", "\"some\"", "none, latest, all"]),
    ("run|list|--status|done", &["--status", "\"done\"", "succeeded"]),
    ("job|list|--target|htp", &["--target", "\"htp\"", "\"http\""]),
    ("-o|xml|job|list", &["--output", "\"xml\"", "table, json"]),
    ("completions|tcsh", &["SHELL", "\"tcsh\"", "bash"]),
    ("job|gte|nightly", &["everytick job", "\"gte\"", "\"get\""]),
    ("jobs|list", &["everytick", "\"jobs\"", "\"job\""]),
    ("job|list|--enabledd", &["job list", "--enabledd", "--enabled"]),
    ("serve|--lisen|x", &["serve", "--lisen", "--listen"]),
    ("bench", &["bench", "missing", "tick"]),
    // Targets and files.
    ("job|create|x|--cron|@daily", &["the job", "no target", "--url"]),
    ("job|create|x", &["the job", "no target", "--queue"]),
    ("job|create|x|--url|example.org", &["target.http.url", "\"example.org\"", "\"https://example.org\""]),
    ("job|create|x|--url|ftp://h/", &["target.http.url", "\"ftp\"", "http and https"]),
    ("job|create|x|--url|http://h/|--header|foo", &["--header", "\"foo\"", "Authorization"]),
    ("job|create|x|--url|http://h/|--label|foo", &["--label", "\"foo\"", "team=billing"]),
    ("job|create|x|--cron|@daily|--every|5m|--url|http://h/", &["--cron", "--every", "only one"]),
    ("job|create|x|--url|http://h/|--shell|date", &["--url", "--shell", "only one"]),
    ("job|create|x|--url|http://h/|--payload|{", &["--payload", "\"{\"", "add the missing }"]),
    ("job|create|x|--url|http://h/|--payload|hello", &["--payload", "\"hello\"", "'\"hello\"'"]),
    ("job|create|x|--url|http://h/|--payload|@nofile", &["--payload", "nofile", "could not read", "no such file"]),
    ("job|create|-f|nofile", &["--file", "nofile", "could not read", "no such file"]),
    ("job|create|-f|.", &["could not read .", "directory", "name a file"]),
    ("job|create|-f|big.json", &["big.json", "bytes", "1048576"]),
    ("job|create|x|--url|http://h/|--payload|@big.json", &["--payload", "bytes", "256 KiB"]),
    ("job|create|-f|broken.json", &["broken.json", "line 1", "double quotes"]),
    ("calendar|set|c|-f|nofile", &["--file", "nofile", "could not read", "no such file"]),
    // Fields that contradict each other.
    ("job|create|x|--late-after|2m|--grace|1m|--url|http://h/", &["misfire.late_after", "2m", "at most 1m"]),
    ("job|create|x|--grace|30s|--url|http://h/", &["misfire.late_after", "grace (30s)", "at least 1m"]),
    ("job|update|nightly|--grace|0s", &["misfire.late_after", "grace (0s)", "at least 1m"]),
    ("job|create|x|--url|http://h/|--method|GET|--payload|{}", &["payload", "GET", "use POST"]),
    ("job|create|x|--every|1m|--jitter|2m|--url|http://h/", &["schedule.jitter", "2m", "at most 1m"]),
    ("job|update|tick|--jitter|301s", &["schedule.jitter", "5m1s", "at most 5m"]),
    // Names.
    ("job|get|nope", &["job", "\"nope\"", "job list"]),
    ("job|get|nightyl", &["job", "\"nightyl\"", "did you mean \"nightly\"?"]),
    ("job|pause|Nightly", &["job", "\"Nightly\"", "did you mean \"nightly\"?"]),
    ("calendar|get|nope", &["calendar", "\"nope\"", "calendar list"]),
    ("run|get|01a1e327-d180-8de1-92e3-d388a74d8fe4", &["run", "01a1e327-d180-8de1-92e3-d388a74d8fe4", "90d"]),
    ("job|create|bad name|--url|http://h/", &["name", "\"bad name\"", "A-Z a-z 0-9"]),
    ("job|create|x|--after|nope|--url|http://h/", &["depends_on", "\"nope\"", "create it first"]),
    // What is missing or empty.
    ("token|create", &["--role <ROLE> and <NAME> are missing", "add them", "token create"]),
    ("job|pause", &["<JOB>... is missing", "job pause", "--label or --all"]),
    ("job|list|--label|", &["label", "no key", "team=billing"]),
    ("run|list|--label|=x", &["label", "no key", "team=billing"]),
    ("job|trigger|tick|--idempotency-key|", &["--idempotency-key", "1 to 255", "UUID"]),
    ("job|create|x|--url|http://h/|--payload|{\"a\":1,}", &["--payload", "{\\\"a\\\":1,}", "remove the comma"]),
    ("calendar|set|c|--date|2026-02-30", &["--date", "\"2026-02-30\"", "\"2026-12-25\""]),
    ("serve|--listen|127.0.0.1:0|--data-dir|big.json", &["big.json", "not a directory", "--data-dir"]),
    ("serve|--listen|127.0.0.1:0|--data-dir|/proc/x", &["/proc/x", "could not be created", "--data-dir"]),
    ("serve|--database-url-file|nofile", &["--database-url-file", "nofile", "there is no such file"]),
    ("run|cancel|nope", &["RUN", "\"nope\"", "01a1e327"]),
    // Settings of a node.
    ("serve|--allow-webhook-range|foo", &["--allow-webhook-range", "\"foo\"", "10.0.0.0/8"]),
    ("serve|--dns-server|foo:53", &["--dns-server", "\"foo:53\"", "10.0.0.53"]),
    ("serve|--slots|-1", &["--slots", "\"-1\"", "1 to 10000"]),
    ("serve|--enable-shell|yes", &["--enable-shell", "\"yes\"", "--enable-shell=yes"]),
    ("serve|--listen|8640", &["--listen", "\"8640\"", "127.0.0.1:8640"]),
    ("serve|--database-url|mysql://x", &["--database-url", "not a database URL", "sqlite:jobs.db"]),
    ("--config|nofile|job|list", &["--config", "nofile", "could not read", "no such file"]),
    // Files that commands read and write.
    ("job|create|x|--url|http://h/|--secret|@nofile", &["--secret", "could not read nofile", "no such file"]),
    ("job|create|--batch|nofile", &["--batch", "could not read nofile", "no such file"]),
    ("login|--token-file|nofile", &["--token-file", "could not read nofile", "no such file"]),
    ("--ca-file|nofile|--server|https://127.0.0.1:1|job|list", &["--ca-file", "nofile", "there is no such file"]),
    (
        "--ca-file|.|--server|https://127.0.0.1:1|job|list",
        &["--ca-file", "could not read .", "directory", "name a file"],
    ),
    ("secret|keygen|--file|big.json", &["--file", "big.json", "exists", "name a new file"]),
    ("secret|keygen|--file|.", &["--file", "could not write .", "directory", "name a new file"]),
    ("calendar|set|c|-f|list.json", &["--file", "list.json", "JSON object", "{\"timezone\":"]),
    ("calendar|set|c|-f|syntax.json", &["--file", "syntax.json", "line 1", "double quotes"]),
    ("calendar|set|c|-f|number.json", &["dates", "5", "\"5\""]),
    ("calendar|set|c|-f|zone.json", &["timezone", "7", "\"7\""]),
    ("calendar|set|c|-f|unknown.json", &["date", "\"date\"", "\"dates\""]),
    ("calendar|set|c|-f|cut.ics", &["--file", "cut.ics", "line 1", "no END:VCALENDAR", "get it again"]),
    // Databases.
    ("access|reset|--data-dir|nodir", &["there is no file", "nodir/everytick.db"]),
    ("access|reset|--database-url|sqlite:zzz.db", &["there is no file", "zzz.db"]),
    ("token|create|t|--role|admin|--data-dir|nodir", &["--data-dir", "there is no folder nodir", "mkdir"]),
    ("token|create|t|--role|admin|--database-url|sqlite:nodir/x.db", &["--database-url", "no folder nodir", "mkdir"]),
    ("recover|--database-url|postgres://127.0.0.1:99999/x", &["the database URL", "its port", "1 to 65535"]),
    ("move|--from|a.db|--to|postgres://h/d", &["--from", "\"a.db\"", "\"sqlite:a.db\""]),
    ("move|--from|sqlite:a.db|--to|mysql://x/y", &["--to", "\"mysql://x/y\"", "\"postgres://user@host/database\""]),
    // The first token.
    ("token|create|t|--role|viewer", &["role", "viewer", "the role admin first"]),
    ("token|create|t|--role|admin|--read-only", &["read_only", "without a limit first"]),
    // Schedules and targets.
    ("cron|explain|0 0 L-3 * *", &["day of month", "L-3", "LW for the last working day"]),
    ("job|create|x|--shell|true|--exclude|nocal", &["--exclude", "--cron, --every or --at"]),
    ("job|create|x|--url|http://x.org:99999/", &["target.http.url", "x.org:99999", "1 to 65535"]),
    ("job|create|x|--url|http://example.org:9/", &["target.http.url", "by default", "1024-65535", "[egress]"]),
    (
        "job|create|x|--url|https://h/|--header|x-key: {{ secret.api }}",
        &["target.http.headers.x-key", "secret.api", "{{ secrets.api }}"],
    ),
];

const TARGET: &str = r#""target": {"http": {"url": "https://example.org/"}}"#;

/// The fields of a job beside its name and its target.
const JOB_FIELDS: [(&str, Parts); 22] = [
    (r#""timeout": 30"#, &["timeout", "30", "\"30s\""]),
    (r#""timeout": true"#, &["timeout", "true", "\"90s\""]),
    (r#""priority": "high""#, &["priority", "\"high\"", "0 to 9"]),
    (r#""priority": 5.5"#, &["priority", "5.5", "0 to 9"]),
    (r#""depends_on": "nightly""#, &["depends_on", "\"nightly\"", "write a list"]),
    (r#""depends_on": [5]"#, &["depends_on[0]", "5", "write an object"]),
    (r#""depends_on": [{"job": "nightly", "when": "done"}]"#, &["depends_on[0].when", "\"done\"", "finished"]),
    (r#""schedule": "0 2 * * *""#, &["schedule", "\"0 2 * * *\"", "write an object such as {\"cron\""]),
    (r#""schedule": {"cron": 5}"#, &["schedule.cron", "5", "\"5\""]),
    (r#""schedule": {"cron": "@daily", "tz": "UTC"}"#, &["schedule.tz", "\"tz\"", "schedule.timezone"]),
    (r#""schedul": {"cron": "@daily"}"#, &["schedul", "\"schedul\"", "\"schedule\""]),
    (r#""cron": "@daily""#, &["cron", "\"cron\"", "schedule.cron"]),
    (r#""overlap": "never""#, &["overlap", "\"never\"", "\"skip\""]),
    (r#""enabled": "yes""#, &["enabled", "\"yes\"", "true or false"]),
    (r#""labels": {"a": 1}"#, &["labels.a", "1", "\"1\""]),
    (r#""labels": ["a"]"#, &["labels", "a list", "an object"]),
    (r#""retry": 3"#, &["retry", "3", "an object"]),
    (r#""retry": {"max_retries": -1}"#, &["retry.max_retries", "-1", "0 to 100"]),
    (r#""misfire": {"catch_up": "some"}"#, &["misfire.catch_up", "\"some\"", "latest"]),
    (r#""misfire": {"late_after": "1h", "grace": "30m"}"#, &["misfire.late_after", "1h", "at most 30m"]),
    (r#""schedule": {"every": "5m", "jitter": "1h"}"#, &["schedule.jitter", "1h", "at most 5m"]),
    (r#""name": "again""#, &["name", "twice", "remove one"]),
];

/// Method, path and body. An empty body is sent without one.
const REQUESTS: [(&str, &str, &str, Parts); 26] = [
    ("POST", "/api/v1/jobs", "{\"name\": \"x\"", &["not JSON", "line 1", "add the missing }"]),
    ("POST", "/api/v1/jobs", "{name: \"x\"}", &["not JSON", "line 1", "double quotes"]),
    ("POST", "/api/v1/jobs", "{\"name\": \"x\",}", &["not JSON", "line 1", "remove the comma"]),
    ("POST", "/api/v1/jobs", "[]", &["a list", "an object", "write"]),
    ("POST", "/api/v1/jobs", "{\"name\": \"x\"}", &["target", "missing", "http"]),
    (
        "POST",
        "/api/v1/jobs",
        "{\"name\": \"x\", \"target\": {\"webhook\": {}}}",
        &["target.webhook", "\"webhook\"", "target.http"],
    ),
    (
        "POST",
        "/api/v1/jobs",
        "{\"name\": \"x\", \"target\": {\"http\": {}}}",
        &["target.http.url", "missing", "https://"],
    ),
    (
        "POST",
        "/api/v1/jobs",
        "{\"name\": \"x\", \"target\": {\"http\": \"https://h/\"}}",
        &["target.http", "\"https://h/\"", "an object"],
    ),
    (
        "PATCH",
        "/api/v1/jobs/tick",
        "{\"schedule\": {\"cron\": \"@daily\"}}",
        &["schedule", "every (\"5m\")", "set the others to null"],
    ),
    (
        "PATCH",
        "/api/v1/jobs/tick",
        "{\"target\": {\"queue\": {\"name\": \"q\"}}}",
        &["target", "http and queue", "set the others to null"],
    ),
    ("PATCH", "/api/v1/jobs/tick", "[]", &["the body", "not a JSON object", "{\\\"priority\\\": 7}"]),
    ("POST", "/api/v1/schedules/preview", "{}", &["the schedule is empty", "cron, every and at", "omit it"]),
    (
        "POST",
        "/api/v1/jobs",
        "{\"name\": \"x\", \"target\": {\"queue\": \"q\"}}",
        &["target.queue", "\"q\"", "{\"name\":\"emails\"}"],
    ),
    (
        "POST",
        "/api/v1/jobs",
        "{\"name\": \"x\", \"target\": {\"http\": {\"url\": \"https://h/\", \"headers\": [\"a\"]}}}",
        &["target.http.headers", "a list", "{\"x-team\":\"billing\"}"],
    ),
    (
        "POST",
        "/api/v1/jobs",
        "{\"name\": \"x\", \"target\": {\"http\": {\"url\": \"https://h/\", \"method\": \"post\"}}}",
        &["target.http.method", "did you mean \"POST\"?", "Write one of GET, POST, PUT, PATCH, DELETE"],
    ),
    ("GET", "/api/v1/runs?label=", "", &["label", "no key", "team=billing"]),
    ("GET", "/api/v1/jobs/tick/explain?zone=Paris", "", &["zone", "\\\"Paris\\\"", "Europe/Paris"]),
    ("GET", "/api/v1/jobs?limit=0", "", &["limit", "\\\"0\\\"", "1 to 1000"]),
    ("GET", "/api/v1/jobs?limt=5", "", &["limt", "parameter", "limit"]),
    ("GET", "/api/v1/jobs?enabled=yes", "", &["enabled", "\\\"yes\\\"", "true nor false"]),
    ("GET", "/api/v1/runs?from=yesterday", "", &["from", "\\\"yesterday\\\"", "RFC 3339"]),
    ("GET", "/api/v1/jobs/nightyl", "", &["job", "\\\"nightyl\\\"", "did you mean \\\"nightly\\\"?"]),
    ("POST", "/api/v1/jobs/tick/trigger", "{\"payloads\": 1}", &["payloads", "\\\"payloads\\\"", "\\\"payload\\\""]),
    (
        "POST",
        "/api/v1/queues/q/claim",
        "{\"worker\": \"w\", \"limit\": \"x\"}",
        &["limit", "\\\"x\\\"", "a number from 1"],
    ),
    (
        "POST",
        "/api/v1/schedules/preview",
        "{\"cron\": \"@daily\", \"count\": \"ten\"}",
        &["count", "\\\"ten\\\"", "1 to 1000"],
    ),
    (
        "PUT",
        "/api/v1/calendars/c",
        "{\"dates\": \"2026-01-01\"}",
        &["dates", "\\\"2026-01-01\\\"", "[\\\"2026-01-01\\\"]"],
    ),
];

const SETTINGS: [(&str, Parts); 17] = [
    ("lisen = \"x\"", &["line 1", "\"lisen\"", "\"listen\""]),
    ("[serve]\nlease = \"15s\"", &["line 1", "\"serve\"", "without the section"]),
    ("lease = 15", &["lease", "15", "\"15s\""]),
    ("lease = \"fast\"", &["lease", "\"fast\"", "\"90s\""]),
    ("slots = \"many\"", &["slots", "\"many\"", "a number"]),
    ("slots = -1", &["slots", "-1", "a number from 1"]),
    ("max_job_share = 300", &["max_job_share", "300", "1 to 100"]),
    ("enable_shell = \"yes\"", &["enable_shell", "\"yes\"", "true or false"]),
    ("allow_webhook_range = \"10.0.0.0/8\"", &["allow_webhook_range", "\"10.0.0.0/8\"", "[\"10.0.0.0/8\"]"]),
    ("dns_server = [\"dns\"]", &["dns_server", "\"dns\"", "10.0.0.53"]),
    ("log_format = \"xml\"", &["log_format", "\"xml\"", "text, json"]),
    ("lease = 15s", &["line 1", "\"lease\"", "double quotes"]),
    ("lease \"15s\"", &["line 1", "\"lease\"", "KEY = VALUE"]),
    ("[egress]\nports = [99999]", &["line 2", "[egress] ports", "\"99999\"", "1024-65535"]),
    ("[egress]\nports = \"443\"", &["line 2", "[egress] ports", "\"443\"", "[443, "]),
    ("[egress]\nhttps_only = \"x\"", &["line 2", "[egress] https_only", "\"x\"", "true or false"]),
    ("lease = \"15s\"\nlease = \"20s\"", &["line 2", "\"lease\"", "twice"]),
];

/// Sends one request and returns the body of the answer.
fn answer(server: &Server, method: &str, path: &str, body: &str) -> String {
    let address = server.url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 4"), "{method} {path} {body}: {text}");
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn every_wrong_input_is_answered_with_its_field_its_value_and_the_remedy() {
    let server = Server::start();
    server.everytick(&["job", "create", "nightly", "--cron", "0 2 * * *", "--url", "https://example.org/"]).ok();
    server.everytick(&["job", "create", "tick", "--every", "5m", "--url", "https://example.org/"]).ok();
    let big = format!("{{\"name\": \"big\", \"payload\": \"{}\"}}", "a".repeat(5_000_000));
    fs::write(server.dir().join("big.json"), big).unwrap();
    for (file, text) in [
        ("broken.json", "{name: 1}"),
        ("list.json", "[\"2026-12-25\"]"),
        ("syntax.json", "{bad"),
        ("number.json", "{\"dates\": [5]}"),
        ("zone.json", "{\"timezone\": 7, \"dates\": [\"2026-12-25\"]}"),
        ("unknown.json", "{\"date\": [\"2026-12-25\"]}"),
        ("cut.ics", "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nEND:VEVENT\r\n"),
    ] {
        fs::write(server.dir().join(file), text).unwrap();
    }
    let (mut rows, mut wrong) = (0, Vec::new());

    for (line, parts) in COMMAND_LINES {
        let done = server.everytick(&line.split('|').collect::<Vec<_>>());
        assert_ne!(done.code, 0, "{line}: {done:?}");
        check(line, &done.stderr, parts, &mut wrong);
        rows += 1;
    }
    for (fields, parts) in JOB_FIELDS {
        let text = answer(&server, "POST", "/api/v1/jobs", &format!("{{\"name\": \"x\", {fields}, {TARGET}}}"));
        check(fields, &text.replace("\\\"", "\""), parts, &mut wrong);
        rows += 1;
    }
    for (method, path, body, parts) in REQUESTS {
        let text = answer(&server, method, path, body);
        // Most rows write quotes escaped, as in the JSON of the answer; some rows write them plain.
        check(&format!("{method} {path} {body}"), &format!("{text} {}", text.replace("\\\"", "\"")), parts, &mut wrong);
        rows += 1;
    }
    for (text, parts) in SETTINGS {
        fs::write(server.dir().join("t.toml"), text).unwrap();
        let message = server.everytick(&["--config", "t.toml", "job", "list"]).failed(2);
        check(text, &message, parts, &mut wrong);
        rows += 1;
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= ROWS_MIN, "{rows} rows");
    let jobs = server.everytick(&["job", "list", "-o", "json"]).json();
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2, "refused input changed nothing");
}

/// A server that answers each connection with these bytes.
fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

#[test]
fn a_wrong_server_address_is_explained() {
    let server = Server::start();
    let address = server.url().trim_start_matches("http://").to_owned();
    // What a TLS server answers to a request without TLS.
    let tls = answering(b"\x15\x03\x03\x00\x02\x02\x0a");
    let mut wrong = Vec::new();
    for (url, parts) in [
        (
            format!("https://{address}"),
            vec!["--server".to_owned(), "does not use TLS".into(), format!("http://{address}")],
        ),
        (format!("http://{tls}"), vec!["--server".into(), tls, "https://".into()]),
        (
            "http://no-such-host.invalid:8640".into(),
            vec!["--server".into(), "no-such-host.invalid".into(), "check its name".into()],
        ),
        (format!("http://{address}/api/v1"), vec!["--server".into(), "/api/v1".into(), format!("http://{address}/")]),
        (
            format!("http://{address}/everytick"),
            vec!["--server".into(), "/everytick".into(), format!("http://{address}/")],
        ),
        (address.clone(), vec!["--server".into(), address.clone(), format!("http://{address}")]),
        ("http://127.0.0.1:1".into(), vec!["--server".into(), "127.0.0.1:1".into(), "everytick serve".into()]),
        ("http://127.0.0.1:99999".into(), vec!["--server".into(), "99999".into(), "http://127.0.0.1:8640".into()]),
    ] {
        let done: Done = server.everytick(&["--server", &url, "job", "list"]);
        assert_ne!(done.code, 0, "{url}: {done:?}");
        for part in parts {
            if !done.stderr.contains(&part) {
                wrong.push(format!("{url}: {part:?} is missing: {}", done.stderr));
            }
        }
        check(&url, &done.stderr, &[], &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn input_that_people_expect_to_work_is_accepted() {
    let server = Server::builder().flags(&["--allow-webhook-range", "127.0.0.1", "--dns-server", "127.0.0.1"]).start();
    server.everytick(&["job", "create", "extract", "--url", "https://example.org/"]).ok();
    let job = format!("{{\"name\": \"load\", \"depends_on\": [\"extract\"], {TARGET}}}");
    server.everytick_with_stdin(&["job", "create", "-f", "-"], &job).ok();
    let load = server.everytick(&["job", "get", "load", "-o", "json"]).json();
    assert_eq!(load["depends_on"], serde_json::json!([{"job": "extract", "when": "succeeded"}]));
}
