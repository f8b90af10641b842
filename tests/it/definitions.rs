//! Definitions whose fields contradict each other: warnings on the command line, and stored jobs that a later release would
//! refuse.

use std::fs;

use sqlx::Connection as _;

use crate::support::{Server, Sink, wait_for};

#[test]
fn commands_that_define_jobs_print_warnings_on_stderr_and_succeed() {
    let server = Server::start();
    let jitter = "warning: schedule.jitter: 2h is longer than the shortest time between two ticks (1h)";
    let address = "warning: target.http.url: no node may call this address: 10.1.2.3 is a private address";
    let cron = ["job", "create", "a", "--cron", "0 9,10 * * *", "--jitter", "2h", "--url", "http://10.1.2.3/"];
    let made = server.everytick(&cron);
    assert!(made.stderr.contains(jitter) && made.stderr.contains(address), "{made:?}");
    assert!(made.ok().starts_with("a created"));
    let updated = server.everytick(&["job", "update", "a", "--priority", "3"]);
    assert!(updated.stderr.contains(jitter) && updated.stderr.contains(address), "{updated:?}");
    let json = server.everytick(&["job", "update", "a", "--priority", "4", "-o", "json"]).json();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);

    // The answer of a command can be used as a file.
    let mut job = json.clone();
    job["name"] = "b".into();
    fs::write(server.dir().join("b.json"), job.to_string()).unwrap();
    let filed = server.everytick(&["job", "create", "-f", "b.json"]);
    assert!(filed.stderr.contains(jitter), "{filed:?}");
    filed.ok();

    let line =
        |name: &str, url: &str| format!("{{\"name\": \"{name}\", \"target\": {{\"http\": {{\"url\": \"{url}\"}}}}}}\n");
    let lines = line("c", "https://example.org/") + &line("d", "http://10.1.2.3/");
    fs::write(server.dir().join("jobs.ndjson"), lines).unwrap();
    let batch = server.everytick(&["job", "create", "--batch", "jobs.ndjson"]);
    assert!(batch.stderr.contains(&format!("line 2 (d): {address}")) && !batch.stderr.contains("line 1"), "{batch:?}");
    assert!(batch.ok().contains("2 created, 0 refused"));

    let plain = server.everytick(&["job", "create", "e", "--every", "1h", "--url", "https://example.org/"]);
    assert!(!plain.stderr.contains("warning"), "{plain:?}");
}

#[test]
fn an_address_that_the_node_may_call_gets_no_warning() {
    let server = Server::builder().flags(&["--allow-webhook-range", "10.0.0.0/8"]).start();
    let made = server.everytick(&["job", "create", "a", "--every", "1h", "--url", "http://10.1.2.3/"]);
    assert!(!made.stderr.contains("warning"), "{made:?}");
    made.ok();
}

/// Changes two stored jobs to definitions that an earlier release accepted.
const STORED: [&str; 2] = [
    "update jobs set spec = json_set(spec, '$.payload', '{}', '$.misfire', json('{\"late_after\":\"2m\",\"grace\":\"1m\",\
     \"catch_up\":\"latest\",\"max_runs\":10}')) where name = 'get'",
    "update jobs set spec = json_set(spec, '$.schedule', json('{\"timing\":{\"kind\":\"every\",\"every\":\"1s\"},\
     \"jitter\":\"2s\"}')) where name = 'every'",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_job_with_contradictions_still_runs_and_accepts_edits_of_other_fields() {
    let (sink, allow) = (Sink::start(), ["--allow-webhook-range", "127.0.0.0/8"]);
    let server = Server::builder().flags(&allow).start();
    server.everytick(&["job", "create", "get", "--every", "1s", "--method", "GET", "--url", &sink.url()]).ok();
    server.everytick(&["job", "create", "every", "--every", "1s", "--url", &sink.url()]).ok();
    let (dir, ..) = server.stop();
    let file = format!("sqlite:{}/data/everytick.db", dir.path().display());
    let mut file = sqlx::SqliteConnection::connect(&file).await.unwrap();
    for update in STORED {
        assert_eq!(sqlx::query(update).execute(&mut file).await.unwrap().rows_affected(), 1);
    }
    file.close().await.unwrap();

    let server = Server::builder().flags(&allow).dir(dir).start();
    let before = sink.deliveries().len();
    for job in ["get", "every"] {
        wait_for(&format!("two deliveries of {job}"), || {
            let new = sink.deliveries().split_off(before);
            (new.iter().filter(|delivery| delivery.headers["everytick-job"] == job).count() >= 2).then_some(())
        });
    }
    let stored = server.everytick(&["job", "get", "get", "-o", "json"]).json();
    assert_eq!((&stored["misfire"]["grace"], &stored["payload"]), (&"1m".into(), &serde_json::json!({})));
    for (job, warnings) in
        [("get", vec!["warning: misfire.late_after", "warning: payload"]), ("every", vec!["warning: schedule.jitter"])]
    {
        let edited = server.everytick(&["job", "update", job, "--description", "edited"]);
        for warning in warnings {
            assert!(edited.stderr.contains(warning), "{edited:?}");
        }
        edited.ok();
    }
    // The same contradiction with another value is new.
    server.everytick(&["job", "update", "get", "--late-after", "3m"]).failed(1);
}
