//! Times as people type them, in every flag that takes one, and the zone in which tables show them.

use serde_json::{Value, json};

use crate::support::{Done, Server, everytick, everytick_command};

/// A server with a job in Paris, and one without a zone.
fn server() -> Server {
    let server = Server::start();
    let paris = ["--cron", "0 2 * * *", "--tz", "Europe/Paris", "--url", "https://example.org/"];
    server.everytick(&[&["job", "create", "paris"], &paris[..]].concat()).ok();
    server.everytick(&["job", "create", "plain", "--every", "1h", "--url", "https://example.org/"]).ok();
    server
}

/// Runs a command on a machine in New York.
fn in_new_york(server: &Server, args: &[&str]) -> Done {
    server.command(args).env("TZ", "America/New_York").output().unwrap().into()
}

#[test]
fn every_flag_for_a_time_reads_dates_as_people_type_them_and_prints_how() {
    let server = server();
    let (day, paris, york) = ("2026-01-20 02:00", "2026-01-20T02:00:00+01:00", "2026-01-20T02:00:00-05:00");
    let (paris, york) = (format!("{paris} (Europe/Paris)"), format!("{york} (America/New_York)"));
    for (args, flag, read) in [
        (&["run", "list", "--from"][..], "from", &york),
        (&["run", "list", "--to"], "to", &york),
        (&["run", "list", "--since"], "from", &york),
        (&["run", "list", "--until"], "to", &york),
        (&["run", "list", "--job", "paris", "--from"], "from", &paris),
        (&["job", "runs", "paris", "--from"], "from", &paris),
        (&["job", "runs", "paris", "--to"], "to", &paris),
        (&["job", "runs", "plain", "--to"], "to", &york),
        (&["job", "explain", "paris", "--at"], "at", &paris),
        (&["job", "next", "paris", "--from"], "from", &paris),
        (&["job", "explain", "plain", "--at"], "at", &york),
        (&["run", "redrive", "--job", "paris", "--since", "now", "--dry-run", "--until"], "to", &paris),
        (&["run", "redrive", "--job", "paris", "--dry-run", "--since"], "from", &paris),
        (&["job", "backfill", "paris", "--dry-run", "--to", "now", "--from"], "from", &paris),
        (&["job", "backfill", "paris", "--dry-run", "--from", "now", "--to"], "to", &paris),
        (&["cron", "next", "0 2 * * *", "--tz", "Europe/Paris", "--from"], "from", &paris),
        (&["cron", "explain", "CRON_TZ=Europe/Paris 0 2 * * *", "--from"], "from", &paris),
        (&["job", "update", "paris", "--starts-at"], "starts_at", &paris),
        (&["job", "update", "plain", "--starts-at"], "starts_at", &york),
    ] {
        // The server refuses some of these bounds, but only after the command has read and printed the time.
        let done = in_new_york(&server, &[args, &[day]].concat());
        assert!(done.stderr.contains(&format!("{flag} {read}\n")), "{args:?}: {done:?}");
        let exact = in_new_york(&server, &[args, &["2026-01-20T02:00:00+01:00"]].concat());
        assert!(!exact.stderr.contains("2026-01-20T02:00:00+01:00 ("), "RFC 3339 needs no reading: {exact:?}");
        let utc = in_new_york(&server, &[&["--utc"], args, &[day]].concat());
        assert!(utc.stderr.contains(&format!("{flag} 2026-01-20T02:00:00Z (UTC)\n")), "{args:?}: {utc:?}");
        let wrong = in_new_york(&server, &[args, &["2026-02-30"]].concat()).failed(2);
        assert!(wrong.contains("2026-02 has 28 days"), "{args:?}: {wrong}");
    }
}

#[test]
fn a_job_is_created_at_a_time_as_people_type_it() {
    let server = server();
    let at = |name: &str, flags: &[&str]| -> (Value, String) {
        let create = ["job", "create", name, "--url", "https://example.org/"];
        let done = in_new_york(&server, &[&create, flags].concat());
        let stderr = done.stderr.clone();
        done.ok();
        (server.everytick(&["job", "get", name, "-o", "json"]).json()["schedule"].clone(), stderr)
    };
    let (schedule, read) = at("a", &["--at", "2199-01-20 02:00"]);
    assert_eq!(schedule["at"], "2199-01-20T07:00:00Z");
    assert_eq!(read, "at 2199-01-20T02:00:00-05:00 (America/New_York)\n");
    // With --at, --tz is the zone of the time.
    let (schedule, read) = at("b", &["--at", "2199-01-20 02:00", "--tz", "Europe/Paris"]);
    assert_eq!(schedule, json!({"at": "2199-01-20T01:00:00Z"}));
    assert_eq!(read, "at 2199-01-20T02:00:00+01:00 (Europe/Paris)\n");
    let (schedule, _) = at("c", &["--every", "24h", "--starts-at", "2199-01-20 02:00", "--tz", "Europe/Paris"]);
    assert_eq!(schedule, json!({"every": "1d", "starts_at": "2199-01-20T01:00:00Z"}));
    let (schedule, _) = at("d", &["--cron", "@daily", "--ends-at", "2199-01-20 UTC", "--tz", "Europe/Paris"]);
    assert_eq!((&schedule["ends_at"], &schedule["timezone"]), (&json!("2199-01-20T00:00:00Z"), &json!("Europe/Paris")));
    let (_, read) = at("e", &["--at", "in 2h"]);
    assert!(read.starts_with("at 20") && read.ends_with(" (America/New_York)\n"), "{read}");

    let create = ["job", "create", "f", "--url", "https://example.org/", "--at", "2199-01-20", "--tz", "Paris"];
    let wrong = in_new_york(&server, &create).failed(2);
    assert!(wrong.contains("--tz: \"Paris\"") && wrong.contains("Europe/Paris"), "{wrong}");
}

#[test]
fn tables_show_times_in_the_zone_of_the_job_or_of_the_machine_and_json_in_utc() {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    server.everytick(&["job", "create", "kolkata", "--cron", "0 2 * * *", "--tz", "Asia/Kolkata", "--", "true"]).ok();
    server.everytick(&["job", "create", "plain", "--every", "1h", "--", "true"]).ok();
    let id = server.everytick(&["job", "trigger", "kolkata"]).ok().trim().to_owned();
    server.everytick(&["job", "trigger", "plain"]).ok();
    let range = ["--from", "2 days ago", "--to", "now", "--dry-run"];
    let backfill = [&["job", "backfill", "kolkata"], &range[..]].concat();
    // Kolkata has no daylight saving time; New York is at -05:00 or -04:00.
    let york: &[&str] = &["-05:00", "-04:00"];
    for (args, zone) in [
        (&["job", "get", "kolkata"][..], &["+05:30"][..]),
        (&["job", "runs", "kolkata"], &["+05:30"]),
        (&["run", "list", "--job", "kolkata"], &["+05:30"]),
        (&["run", "get", &id], &["+05:30"]),
        (&backfill, &["+05:30"]),
        (&["job", "get", "plain"], york),
        (&["job", "runs", "plain"], york),
        (&["job", "list"], york),
        (&["run", "list"], york),
    ] {
        let shown = in_new_york(&server, args).ok();
        assert!(zone.iter().any(|offset| shown.contains(offset)), "{args:?}: {shown}");
        let has_utc = |text: &str| {
            text.split_whitespace().any(|word| word == "UTC" || (word.starts_with("20") && word.ends_with('Z')))
        };
        assert!(!has_utc(&shown), "{args:?}: {shown}");
        let utc = in_new_york(&server, &[&["--utc"], args].concat()).ok();
        assert!(has_utc(&utc.replace([',', ';'], " ")), "{args:?}: {utc}");
        assert!(!zone.iter().any(|offset| utc.contains(offset)), "{args:?}: {utc}");
        let json = in_new_york(&server, &[args, &["-o", "json"]].concat()).ok();
        assert!(!zone.iter().any(|offset| json.contains(offset)), "{args:?}: {json}");
    }
}

#[test]
fn with_utc_an_explanation_has_its_times_in_utc() {
    let server = server();
    let explain = |flags: &[&str]| {
        in_new_york(&server, &[flags, &["job", "explain", "paris", "--at", "2040-01-20T01:00:00Z"]].concat()).ok()
    };
    let (local, utc) = (explain(&[]), explain(&["--utc"]));
    assert!(local.starts_with("2040-01-20T02:00:00+01:00 (2040-01-20T01:00:00Z): "), "{local}");
    assert!(utc.starts_with("2040-01-20T01:00:00Z: ") && utc.contains("next tick: "), "{utc}");
    assert!(!utc.contains("+01:00") && !utc.contains("+02:00"), "{utc}");
    let run = server.everytick(&["job", "trigger", "paris"]).ok().trim().to_owned();
    let of_run = |flags: &[&str]| in_new_york(&server, &[flags, &["run", "explain", &run]].concat()).ok();
    let (local, utc) = (of_run(&[]), of_run(&["--utc"]));
    let has_offset = |text: &str| text.contains("+01:00") || text.contains("+02:00");
    assert!(has_offset(&local) && !has_offset(&utc), "{local}\n{utc}");
    // The fields for programs do not depend on the flag.
    let json: Value = serde_json::from_str(&explain(&["--utc", "-o", "json"])).unwrap();
    assert_eq!(
        (&json["local"], &json["schedule_timezone"]),
        (&json!("2040-01-20T02:00:00+01:00"), &json!("Europe/Paris"))
    );
}

#[test]
fn dates_for_a_deleted_job_are_read_in_its_zone() {
    let server = server();
    for (job, zone) in [("paris", "+01:00 (Europe/Paris)"), ("plain", "-05:00 (America/New_York)")] {
        server.everytick(&["job", "delete", job, "--yes"]).ok();
        let done = in_new_york(&server, &["job", "explain", job, "--at", "2026-01-20 02:00"]);
        assert!(done.stderr.contains(&format!("at 2026-01-20T02:00:00{zone}\n")), "{done:?}");
        done.ok();
    }
    let unknown = in_new_york(&server, &["job", "explain", "unknown", "--at", "2026-01-20 02:00"]).failed(3);
    assert!(unknown.contains("\"unknown\""), "{unknown}");
}

#[test]
fn the_printed_reading_mentions_a_clock_change() {
    let next = |from: &str| -> String {
        let args = ["cron", "next", "0 12 * * *", "-n", "1", "--tz", "Europe/Paris", "--from", from];
        let done = everytick(&args);
        assert_eq!(done.code, 0, "{done:?}");
        done.stderr
    };
    assert_eq!(
        next("2026-03-29 02:30"),
        "from 2026-03-29T03:00:00+02:00 (Europe/Paris; 02:30 does not exist on this day: this is the first instant after \
         the clock change)\n"
    );
    assert_eq!(
        next("2026-10-25 02:30"),
        "from 2026-10-25T02:30:00+02:00 (Europe/Paris; 02:30 comes twice on this day: this is the first; the second is \
         2026-10-25T02:30:00+01:00)\n"
    );
}

#[test]
fn a_machine_without_a_valid_zone_uses_utc() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = everytick_command(dir.path());
    let done: Done =
        command.args(["cron", "next", "@daily", "--from", "now"]).env("TZ", "Nowhere").output().unwrap().into();
    assert!(done.stderr.ends_with("Z (UTC)\n"), "{done:?}");
    done.ok();
}

#[test]
fn output_about_a_job_without_a_zone_is_in_the_local_zone() {
    let server = server();
    let run = server.everytick(&["job", "trigger", "plain"]).ok().trim().to_owned();
    for args in [
        &["job", "next", "plain", "-n", "2"][..],
        &["job", "explain", "plain"],
        &["job", "explain", "plain", "--at", "2040-01-20 02:00"],
        &["run", "explain", &run],
    ] {
        let has_offset = |text: &str| text.contains("-05:00") || text.contains("-04:00");
        let shown = in_new_york(&server, args).ok();
        assert!(has_offset(&shown), "{args:?}: {shown}");
        let utc = in_new_york(&server, &[&["--utc"], args].concat()).ok();
        assert!(!has_offset(&utc) && !utc.contains("LOCAL"), "{args:?}: {utc}");
    }
}

#[test]
fn a_preview_includes_the_time_from_which_it_starts() {
    let server = server();
    let from = ["-n", "1", "--from", "2040-01-20T01:00:00Z"];
    for args in [
        &["cron", "next", "0 * * * *"][..],
        &["cron", "explain", "0 2 * * *", "--tz", "Europe/Paris"],
        &["job", "next", "paris"],
        &["job", "next", "plain"],
    ] {
        let shown = server.everytick(&[args, &from].concat()).ok();
        assert!(shown.contains("\n2040-01-20T01:00:00Z"), "{args:?}: {shown}");
    }
}
