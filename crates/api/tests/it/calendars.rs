//! Calendars: put as JSON or iCalendar, read, list, delete; and the schedules that exclude their dates.

use serde_json::{Value, json};

use crate::support::{Server, with};

const PATH: &str = "/api/v1/calendars/holidays-de";

async fn put(server: &Server, body: Value) -> Value {
    let answer = server.call("PUT", PATH, &[], body.to_string()).await;
    assert!(answer.status.is_success(), "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn a_calendar_is_created_replaced_read_listed_and_deleted() {
    let server = Server::new().await;
    let body =
        json!({"timezone": "europe/berlin", "dates": ["2027-03-26", "2026-12-27/2026-12-31"], "yearly": ["12-25"]});
    let answer = server.call("PUT", PATH, &[], body.to_string()).await;
    let mut made = answer.expect(201);
    assert_eq!((answer.header("etag"), answer.header("location")), ("\"1\"", PATH));
    for varying in ["created_at", "updated_at", "effective_at"] {
        assert!(made[varying].take().is_string(), "{varying}");
    }
    let expected = json!({
        "name": "holidays-de", "timezone": "Europe/Berlin", "dates": ["2026-12-27/2026-12-31", "2027-03-26"],
        "yearly": ["12-25"], "jobs": 0, "version": 1, "created_by": "local",
        "created_at": null, "updated_at": null, "effective_at": null,
    });
    assert_eq!(made, expected);
    let answer = server.get(PATH).await;
    let read = answer.expect(200);
    assert_eq!(answer.header("etag"), "\"1\"");
    let again = server.call("PUT", PATH, &[], read.to_string()).await.expect(200);
    assert_eq!((&again["version"], &again["effective_at"]), (&json!(1), &Value::Null), "an answer can be sent back");
    assert_eq!(put(&server, json!({"dates": ["2026-12-24"]})).await["version"], 2);
    let list = server.get("/api/v1/calendars").await.expect(200);
    assert_eq!((&list["items"][0]["name"], &list["next_cursor"]), (&json!("holidays-de"), &Value::Null));
    for (tag, status) in [("\"1\"", 412), ("\"1\", \"3\"", 412), ("\"1\", \"2\"", 200)] {
        server.call("DELETE", PATH, &[("if-match", tag)], "").await.expect(status);
    }
    server.get(PATH).await.expect(404);
    server.call("PUT", PATH, &[("if-match", "\"1\"")], "{}").await.expect(412);
}

#[tokio::test]
async fn an_icalendar_file_is_accepted_as_a_calendar() {
    let server = Server::new().await;
    let ics = "BEGIN:VCALENDAR\r\nX-WR-TIMEZONE:Europe/Berlin\r\nBEGIN:VEVENT\r\nSUMMARY:Christmas\r\n\
               DTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261227\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";
    let ics_type = ("content-type", "text/calendar; charset=utf-8");
    let made = server.call("PUT", PATH, &[ics_type], ics).await.expect(201);
    assert_eq!((&made["yearly"], &made["timezone"]), (&json!(["12-25", "12-26"]), &json!("Europe/Berlin")));
    let url = format!("{PATH}?timezone=Asia/Tokyo");
    assert_eq!(server.call("PUT", &url, &[ics_type], ics).await.expect(200)["timezone"], "Asia/Tokyo");
    assert_eq!(made["left_out"], json!([]));
    let lunch = "END:VEVENT\r\nBEGIN:VEVENT\r\nSUMMARY:Lunch\r\nDTSTART:20261224T120000Z\r\nEND:VEVENT\r\n";
    let partly = server.call("PUT", PATH, &[ics_type], ics.replace("END:VEVENT\r\n", lunch)).await.expect(200);
    assert_eq!(partly["yearly"], json!(["12-25", "12-26"]));
    assert_eq!((&partly["left_out"][0]["line"], &partly["left_out"][0]["event"]), (&json!(11), &json!("Lunch")));
    assert!(server.get(PATH).await.expect(200).get("left_out").is_none());
    let wrong = server.call("PUT", PATH, &[ics_type], ics.replace("YEARLY", "WEEKLY")).await.expect(422);
    assert!(wrong["detail"].as_str().unwrap().contains("line 7: the event \"Christmas\": RRULE"), "{wrong}");
}

#[tokio::test]
async fn errors_of_a_calendar_name_their_fields() {
    let server = Server::new().await;
    for (body, field, message) in [
        (json!({"dates": ["25.12.2026"]}), "dates", "2026-12-25"),
        (json!({"dates": ["2026-02-30"]}), "dates", "2026-02-30"),
        (json!({"yearly": ["13-01"]}), "yearly", "12-25"),
        (json!({"timezone": "CET"}), "timezone", "Europe/Paris"),
        (json!({"holidays": []}), "holidays", "is not a field; write one of dates"),
        (json!({"dates": "2026-12-25"}), "dates", "is not a list; write ["),
    ] {
        let wrong = server.call("PUT", PATH, &[], body.to_string()).await.expect(422);
        assert_eq!(wrong["errors"][0]["field"], field, "{wrong}");
        assert!(wrong["errors"][0]["message"].as_str().unwrap().contains(message), "{wrong}");
    }
    let name = server.call("PUT", "/api/v1/calendars/-x", &[], "{}").await.expect(404);
    assert_eq!(name["errors"][0]["field"], "name");
    server.call("PUT", PATH, &[("content-type", "text/plain")], "hello").await.expect(415);
    let zone = server.call("PUT", &format!("{PATH}?timezone=UTC"), &[], "{}").await.expect(400);
    assert_eq!(zone["errors"][0]["field"], "timezone");
}

#[tokio::test]
async fn a_job_can_use_only_existing_calendars_which_then_cannot_be_deleted() {
    let server = Server::new().await;
    let job = with("schedule.exclude", json!(["holidays-de"]));
    let refused = server.post("/api/v1/jobs", job.clone()).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "schedule.exclude");
    assert!(refused["errors"][0]["message"].as_str().unwrap().contains("\"holidays-de\""), "{refused}");
    put(&server, json!({"dates": ["2026-12-24"]})).await;
    let made = server.post("/api/v1/jobs", job).await.expect(201);
    assert_eq!(made["schedule"]["exclude"], json!(["holidays-de"]));
    let again = server.call("PUT", "/api/v1/jobs/case", &[], made.to_string()).await.expect(200);
    assert_eq!(again["version"], 1);
    assert_eq!(server.get(PATH).await.expect(200)["jobs"], 1);
    let refused = server.call("DELETE", PATH, &[], "").await.expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("the job case"), "{refused}");
    let patch = json!({"schedule": {"exclude": null}}).to_string();
    let free = server.call("PATCH", "/api/v1/jobs/case", &[], patch).await.expect(200);
    assert!(free["schedule"].get("exclude").is_none(), "{free}");
    server.call("DELETE", PATH, &[], "").await.expect(200);
}

#[tokio::test]
async fn previews_mark_excluded_ticks_and_next_tick_skips_them() {
    let server = Server::new().await;
    put(&server, json!({"timezone": "Europe/Berlin", "dates": ["2027-03-26"], "yearly": ["12-25"]})).await;
    let request = json!({"cron": "0 6 * * *", "timezone": "Europe/Berlin", "exclude": ["holidays-de"], "count": 3,
                       "from": "2026-12-24T00:00:00Z"});
    let preview = server.post("/api/v1/schedules/preview", request).await.expect(200);
    let marks: Vec<_> = preview["ticks"].as_array().unwrap().iter().map(|tick| tick["excluded_by"].clone()).collect();
    assert_eq!(marks, [Value::Null, json!("holidays-de"), Value::Null]);
    assert_eq!(preview["ticks"][1]["note"], "skipped: calendar holidays-de");
    let unknown = json!({"every": "1h", "exclude": ["mars"]});
    let refused = server.post("/api/v1/schedules/preview", unknown).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "exclude");

    // Excludes every day for a hundred years; the day after them is the next tick.
    put(&server, json!({"dates": ["2020-01-01/2120-01-01"]})).await;
    let mut job = with("schedule.exclude", json!(["holidays-de"]));
    job["schedule"]["timezone"] = json!("UTC");
    let made = server.post("/api/v1/jobs", job).await.expect(201);
    assert_eq!(made["next_tick"], "2120-01-02T02:00:00Z");
    let next = server.get("/api/v1/jobs/case/next?count=2").await.expect(200);
    assert!(next["ticks"].as_array().unwrap().iter().all(|tick| tick["excluded_by"] == "holidays-de"), "{next}");
}
