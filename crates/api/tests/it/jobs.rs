//! Jobs: create, read, edit, pause, delete; idempotency keys, versions, masks, pages.

use serde_json::{Value, json};

use crate::support::{Server, job, text_of};

#[tokio::test]
async fn an_answer_has_every_field_of_a_job_with_its_default() {
    let server = Server::new().await;
    let answer = server.post("/api/v1/jobs", job("nightly")).await;
    let made = answer.expect(201);
    assert_eq!(answer.header("etag"), "\"1\"");
    assert_eq!(answer.header("location"), format!("/api/v1/jobs/{}", made["id"].as_str().unwrap()));
    let mut rest = made.clone();
    for varying in ["id", "created_at", "updated_at", "next_tick"] {
        assert!(rest[varying].take().is_string(), "{varying}");
    }
    let expected = json!({
        "id": null, "created_at": null, "updated_at": null, "next_tick": null,
        "name": "nightly", "description": "", "labels": {}, "enabled": true,
        "schedule": {"cron": "0 2 * * *", "timezone": "America/New_York", "gap": "shift", "fold": "first"},
        "target": {"http": {"url": "https://example.org/hook", "method": "POST", "headers": {}, "secret": null}},
        "payload": null, "payload_secrets": false, "overlap": "skip", "max_concurrent": 1, "queue_limit": null, "priority": 5,
        "misfire": {"late_after": "1m", "grace": null, "catch_up": "latest", "max_runs": 10},
        "retry": {"max_retries": 10, "base_delay": "5s", "max_delay": "10m", "jitter": "equal", "longest_total": "40m35s"},
        "timeout": "30s", "on_lost": "retry", "home_region": null, "concurrency_key": null, "max_per_key": 1, "keep": null,
        "depends_on": [],
        "version": 1, "created_by": "local", "last_run": null, "paused": false, "pause_note": null,
    });
    assert_eq!(rest, expected);
    let mut with_followers = made.clone();
    with_followers["followers"] = json!([]);
    for named in ["nightly", made["id"].as_str().unwrap()] {
        let answer = server.get(&format!("/api/v1/jobs/{named}")).await;
        assert_eq!(answer.expect(200), with_followers);
        assert_eq!(answer.header("etag"), "\"1\"");
    }
}

#[tokio::test]
async fn every_form_of_a_job_is_returned_as_written() {
    let server = Server::new().await;
    let forms = [
        json!({"name": "a", "schedule": {"every": "15m", "starts_at": "2030-01-01T00:00:00Z", "ends_at": "2031-01-01T00:00:00Z", "jitter": "30s"},
               "target": {"http": {"url": "https://example.org/", "method": "PUT", "headers": {"accept": "text/plain"}, "secret": null}}, "payload": "{{ other }}", "payload_secrets": true}),
        json!({"name": "b", "schedule": {"at": "2040-01-01T00:00:00Z"}, "keep": "7d", "overlap": "allow", "max_concurrent": 7, "priority": 0,
               "target": {"shell": {"command": {"argv": ["/bin/echo", "a b"]}, "env": {"LANG": "C"}, "workdir": "/srv"}}}),
        json!({"name": "c", "enabled": false, "labels": {"team": "x"}, "description": "what it does", "on_lost": "fail", "timeout": "2h", "home_region": "eu-west-1",
               "schedule": {"cron": "0 30 2 * * *", "timezone": "Europe/Paris", "gap": "skip", "fold": "both"},
               "misfire": {"late_after": "5m", "grace": "2h", "catch_up": "all", "max_runs": 3},
               "retry": {"max_retries": 1, "base_delay": "1s", "max_delay": "1m", "jitter": "full", "longest_total": "1s"},
               "target": {"shell": {"command": {"script": "echo hi"}, "env": {}, "workdir": null}}}),
        json!({"name": "d", "schedule": null, "target": {"http": {"url": "https://example.org/", "method": "GET", "headers": {}, "secret": null}}}),
    ];
    for form in forms {
        let made = server.post("/api/v1/jobs", form.clone()).await.expect(201);
        for (field, value) in form.as_object().unwrap() {
            assert_eq!(made[field], *value, "{field}");
        }
        // A client can send an answer back, and nothing changes.
        let path = format!("/api/v1/jobs/{}", form["name"].as_str().unwrap());
        let again = server.call("PUT", &path, &[], made.to_string()).await.expect(200);
        assert_eq!((&again["version"], &again["effective_at"]), (&json!(1), &Value::Null), "{form}");
    }
}

#[tokio::test]
async fn a_schedule_below_the_operators_minimum_interval_is_refused() {
    let server = Server::with(true, everytick_domain::time::Span::minutes(5)).await;
    for (field, value, status) in
        [("cron", "*/4 * * * *", 422), ("cron", "*/5 * * * *", 201), ("every", "299s", 422), ("every", "5m", 201)]
    {
        let body = json!({"name": format!("{field}-{status}"), "schedule": {field: value}, "target": {"http": {"url": "https://example.org"}}});
        let answer = server.post("/api/v1/jobs", body).await.expect(status);
        if status == 422 {
            assert_eq!(answer["errors"][0]["field"], format!("schedule.{field}"), "{answer}");
            assert!(answer["errors"][0]["message"].as_str().unwrap().contains("5m (--min-interval)"), "{answer}");
        }
    }
    let patch = json!({"schedule": {"every": "1m"}}).to_string();
    server.call("PATCH", "/api/v1/jobs/every-201", &[], patch).await.expect(422);
}

#[tokio::test]
async fn a_payload_is_stored_byte_for_byte() {
    let server = Server::new().await;
    let payload = r#"{"z": 1.50, "a":[1e3,  "é\u00e9"],"n":123456789012345678901234567890}"#;
    let body = format!(r#"{{"name":"p","target":{{"http":{{"url":"https://example.org"}}}},"payload":{payload}}}"#);
    let answer = server.call("POST", "/api/v1/jobs", &[], body).await;
    assert!(answer.text.contains(payload), "{}", answer.text);
    let answer = server.call("PATCH", "/api/v1/jobs/p", &[], r#"{"description":"x"}"#).await;
    answer.expect(200);
    assert!(answer.text.contains(payload), "{}", answer.text);
    let answer = server.call("PATCH", "/api/v1/jobs/p", &[], r#"{"payload":{"a":null,"b":2}}"#).await;
    answer.expect(200);
    assert!(answer.text.contains(r#"{"z":1.50,"n":123456789012345678901234567890,"b":2}"#), "{}", answer.text);
}

#[tokio::test]
async fn put_restores_defaults_and_patch_keeps_absent_fields() {
    let server = Server::new().await;
    let mut definition = job("j");
    definition["priority"] = json!(9);
    definition["description"] = json!("first");
    server.post("/api/v1/jobs", definition).await.expect(201);
    let patched = server
        .call(
            "PATCH",
            "/api/v1/jobs/j",
            &[("content-type", "application/merge-patch+json")],
            r#"{"description":"second"}"#,
        )
        .await;
    let patched_job = patched.expect(200);
    assert_eq!((&patched_job["description"], &patched_job["priority"]), (&json!("second"), &json!(9)));
    assert_eq!(patched.header("etag"), "\"2\"");
    assert!(patched_job["effective_at"].is_string());
    let replaced = server.call("PUT", "/api/v1/jobs/j", &[("if-match", "\"2\"")], text_of(&job("j"))).await.expect(200);
    assert_eq!(
        (&replaced["description"], &replaced["priority"], &replaced["version"]),
        (&json!(""), &json!(5), &json!(3))
    );
    server.call("PUT", "/api/v1/jobs/j", &[("if-match", "\"2\"")], text_of(&job("j"))).await.expect(412);
    server.call("PUT", "/api/v1/jobs/j", &[("if-match", "\"2\", W/\"3\"")], text_of(&job("renamed"))).await.expect(200);
    server.get("/api/v1/jobs/j").await.expect(404);
    server.call("PATCH", "/api/v1/jobs/renamed", &[("if-match", "*")], r#"{"schedule":null}"#).await.expect(200);
    assert_eq!(server.get("/api/v1/jobs/renamed").await.expect(200)["next_tick"], Value::Null);
}

#[tokio::test]
async fn the_resolved_time_of_h_stays_when_only_the_name_changes() {
    let server = Server::new().await;
    let mut definition = job("first");
    definition["schedule"] = json!({"cron": "H H * * *"});
    server.post("/api/v1/jobs", definition).await.expect(201);
    let before = server.get("/api/v1/jobs/first/next?count=2").await.expect(200);
    let renamed = server.call("PATCH", "/api/v1/jobs/first", &[], r#"{"name":"second"}"#).await.expect(200);
    assert_eq!(renamed["schedule"]["cron"], "H H * * *");
    assert_eq!(server.get("/api/v1/jobs/second/next?count=2").await.expect(200), before);
}

#[tokio::test]
async fn concurrent_patches_are_all_applied() {
    let server = Server::new().await;
    server.make("j").await;
    let patches = (0..6).map(|n| {
        let body = format!(r#"{{"labels":{{"l{n}":"x"}}}}"#);
        let server = &server;
        async move { server.call("PATCH", "/api/v1/jobs/j", &[], body).await.expect(200) }
    });
    futures::future::join_all(patches).await;
    let job = server.get("/api/v1/jobs/j").await.expect(200);
    assert_eq!(job["labels"].as_object().unwrap().len(), 6);
    assert_eq!(job["version"], 7);
}

#[tokio::test]
async fn answers_never_contain_credentials() {
    const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let server = Server::new().await;
    let definition = json!({"name": "s", "target": {"http": {
        "url": "https://example.org/", "headers": {"authorization": "Bearer hunter2", "accept": "text/plain"}, "secret": SECRET}}});
    let answer = server.post("/api/v1/jobs", definition.clone()).await;
    let made = answer.expect(201);
    let stored = async || {
        let named = everytick_store::JobRef::Name("s".to_owned());
        let record = server.store.get_job(everytick_domain::ids::TenantId::DEFAULT, &named).await.unwrap();
        let everytick_domain::target::TargetSpec::Http(http) = record.job.spec.target.clone() else { panic!() };
        (http.secret, http.headers.get("authorization").cloned())
    };
    let both = (Some(SECRET.to_owned()), Some("Bearer hunter2".to_owned()));
    let shown = |answer: &str| answer.contains("hunter2") || answer.contains("MDEyMz");
    assert!(!shown(&answer.text), "{}", answer.text);
    assert_eq!(made["target"]["http"]["secret"], "********");
    assert_eq!(made["target"]["http"]["headers"], json!({"authorization": "********", "accept": "text/plain"}));
    assert_eq!(stored().await, both);

    let mut again = made.clone();
    again["priority"] = json!(1);
    let answer = server.call("PUT", "/api/v1/jobs/s", &[], again.to_string()).await;
    assert_eq!(answer.expect(200)["priority"], 1);
    assert!(!shown(&answer.text));
    assert_eq!(stored().await, both);
    server.call("PATCH", "/api/v1/jobs/s", &[], r#"{"priority":2}"#).await.expect(200);
    assert_eq!(stored().await, both);
    for path in ["/api/v1/jobs", "/api/v1/jobs/s", "/api/v1/audit"] {
        assert!(!shown(&server.get(path).await.text), "{path}");
    }
    server.call("PATCH", "/api/v1/jobs/s", &[], r#"{"target":{"http":{"secret":null}}}"#).await.expect(200);
    assert_eq!(stored().await, (None, both.1));
    let unmasked = json!({"name": "s", "target": {"http": {"url": "https://example.org/"}}});
    server.call("PUT", "/api/v1/jobs/s", &[], unmasked.to_string()).await.expect(200);
    assert_eq!(stored().await, (None, None), "a PUT without them removes them");
}

#[tokio::test]
async fn pause_resume_and_delete_return_the_instant_from_which_they_apply() {
    let server = Server::new().await;
    let made = server.make("j").await;
    let paused = server.post("/api/v1/jobs/j/pause", json!({"note": "until the move is done"})).await;
    let job = paused.expect(200);
    assert_eq!((&job["paused"], &job["pause_note"]), (&json!(true), &json!("until the move is done")));
    assert_eq!(job["next_tick"], Value::Null);
    assert!(job["effective_at"].is_string());
    assert_eq!(paused.header("etag"), "\"2\"");
    assert_eq!(server.get("/api/v1/jobs/j/next").await.expect(200)["ticks"], json!([]));
    server.call("POST", "/api/v1/jobs/j/pause", &[], "null").await.expect(200);
    let again = server.post("/api/v1/jobs/j/pause", Value::Null).await.expect(200);
    assert_eq!((&again["version"], &again["effective_at"]), (&json!(2), &Value::Null), "it was paused already");
    // The answer of a paused job can be sent back too.
    server.call("PUT", "/api/v1/jobs/j", &[], again.to_string()).await.expect(200);
    server.call("POST", "/api/v1/jobs/j/resume", &[("if-match", "\"1\"")], "").await.expect(412);
    let resumed = server.call("POST", "/api/v1/jobs/j/resume", &[("if-match", "\"2\"")], "").await.expect(200);
    assert_eq!((&resumed["paused"], &resumed["version"]), (&json!(false), &json!(3)));
    let deleted = server.call("DELETE", "/api/v1/jobs/j?cancel=true", &[("if-match", "\"3\"")], "").await.expect(200);
    assert_eq!((&deleted["id"], &deleted["name"], &deleted["cancelled"]), (&made["id"], &json!("j"), &json!([])));
    assert!(deleted["effective_at"].is_string());
    server.get("/api/v1/jobs/j").await.expect(404);
    let recreated = server.make("j").await;
    assert_ne!(recreated["id"], made["id"], "a recreated name is a new job");
}

#[tokio::test]
async fn a_request_repeated_with_its_key_is_executed_once() {
    let server = Server::new().await;
    let key = [("idempotency-key", "k-1")];
    let first = server.call("POST", "/api/v1/jobs", &key, job("j").to_string()).await;
    let second = server.call("POST", "/api/v1/jobs", &key, job("j").to_string()).await;
    assert_eq!(first.expect(201), second.expect(201));
    assert_eq!(first.header("location"), second.header("location"));
    let other = server.call("POST", "/api/v1/jobs", &key, job("other").to_string()).await.expect(422);
    assert_eq!(other["errors"][0]["field"], "Idempotency-Key");
    server.call("POST", "/api/v1/jobs", &[("idempotency-key", "k-2")], job("j").to_string()).await.expect(409);
    let key = [("idempotency-key", "k-3")];
    let first = server.call("POST", "/api/v1/jobs/j/trigger", &key, "").await.expect(201);
    let second = server.call("POST", "/api/v1/jobs/j/trigger", &key, "").await.expect(201);
    assert_eq!(first["id"], second["id"]);
    server.call("POST", "/api/v1/jobs/j/trigger", &key, r#"{"force":true}"#).await.expect(422);
    assert_eq!(server.get("/api/v1/runs").await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_repeat_does_not_recreate_a_deleted_job() {
    let server = Server::new().await;
    let key = [("idempotency-key", "k-1")];
    server.call("POST", "/api/v1/jobs", &key, job("j").to_string()).await.expect(201);
    server.call("DELETE", "/api/v1/jobs/j", &[], "").await.expect(200);
    let problem = server.call("POST", "/api/v1/jobs", &key, job("j").to_string()).await.expect(409);
    assert_eq!(problem["errors"][0]["field"], "Idempotency-Key");
}

#[tokio::test]
async fn pages_contain_every_job_once_and_in_order() {
    let server = Server::new().await;
    let lines: String = (0..250).map(|n| format!("{}\n", job(&format!("job-{n:03}")))).collect();
    server.call("POST", "/api/v1/jobs/batch", &[("content-type", "application/x-ndjson")], lines).await;
    let (mut names, mut pages, mut query) = (Vec::new(), 0, "?limit=60".to_owned());
    loop {
        let page = server.get(&format!("/api/v1/jobs{query}")).await.expect(200);
        names.extend(page["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()));
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(cursor) => query = format!("?limit=60&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(pages, 5);
    assert_eq!(names, (0..250).map(|n| format!("job-{n:03}")).collect::<Vec<_>>());
    assert_eq!(server.get("/api/v1/jobs").await.expect(200)["items"].as_array().unwrap().len(), 100, "the default");
    let audit = server.get("/api/v1/audit?limit=200").await.expect(200);
    let rest = server
        .get(&format!("/api/v1/audit?limit=200&cursor={}", audit["next_cursor"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), 50);
    assert_eq!((&rest["items"][0]["action"], &rest["items"][0]["actor"]), (&json!("create"), &json!("local")));
}

#[tokio::test]
async fn a_list_applies_all_its_filters() {
    let server = Server::new().await;
    for (name, more) in [
        ("alpha", json!({"labels": {"team": "a", "tier": "1"}})),
        ("beta", json!({"labels": {"team": "b"}, "enabled": false})),
        ("gamma", json!({"target": {"shell": {"command": {"script": "true"}}}, "description": "Sweeps the floor"})),
    ] {
        let mut definition = job(name);
        definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/api/v1/jobs", definition).await.expect(201);
    }
    server.post("/api/v1/jobs/alpha/pause", Value::Null).await.expect(200);
    for (query, names) in [
        ("enabled=false", vec!["beta"]),
        ("paused=true", vec!["alpha"]),
        ("target=shell", vec!["gamma"]),
        ("label=team", vec!["alpha", "beta"]),
        ("label=team%3Da&label=tier", vec!["alpha"]),
        ("label=team=b&enabled=true", vec![]),
        ("q=FLOOR", vec!["gamma"]),
        ("q=", vec!["alpha", "beta", "gamma"]),
    ] {
        let page = server.get(&format!("/api/v1/jobs?{query}")).await.expect(200);
        let found: Vec<_> = page["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{query}");
    }
}

#[tokio::test]
async fn a_schedule_is_previewed_before_and_after_a_job_uses_it() {
    let server = Server::new().await;
    let preview =
        json!({"cron": "0 2 * * *", "timezone": "America/New_York", "count": 2, "from": "2026-11-15T12:00:00Z"});
    let preview = server.post("/api/v1/schedules/preview", preview).await.expect(200);
    assert_eq!(
        preview["ticks"],
        json!([
            {"at": "2026-11-16T07:00:00Z", "local": "2026-11-16T02:00:00-05:00", "note": null},
            {"at": "2026-11-17T07:00:00Z", "local": "2026-11-17T02:00:00-05:00", "note": null},
        ])
    );
    assert!(preview["description"].as_str().is_some_and(|words| !words.is_empty()));
    let made = server.make("j").await;
    let next = server.get("/api/v1/jobs/j/next?count=3").await.expect(200);
    assert_eq!(next["ticks"].as_array().unwrap().len(), 3);
    assert_eq!(next["ticks"][0]["at"], made["next_tick"]);
    let every = server.post("/api/v1/schedules/preview", json!({"every": "90s"})).await.expect(200);
    assert_eq!(every["ticks"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn the_next_ticks_of_a_job_and_a_preview_from_an_instant_show_clock_changes() {
    let server = Server::new().await;
    let schedule = json!({"cron": "30 2 * * *", "timezone": "America/New_York", "gap": "skip"});
    let mut made = job("j");
    made["schedule"] = schedule.clone();
    server.post("/api/v1/jobs", made).await.expect(201);
    let next = server.get("/api/v1/jobs/j/next?count=2&from=2027-03-13T00:00:00Z").await.expect(200);
    let at: Vec<_> = next["ticks"].as_array().unwrap().iter().map(|tick| tick["at"].clone()).collect();
    assert_eq!(at, ["2027-03-13T07:30:00Z", "2027-03-15T06:30:00Z"]);
    assert_eq!(next["nonexistent"].as_array().unwrap().len(), 1);
    assert_eq!(next["nonexistent"][0]["local"], "2027-03-14T02:30:00");
    let mut request = schedule;
    request["count"] = 2.into();
    request["from"] = "2027-03-13T00:00:00Z".into();
    assert_eq!(server.post("/api/v1/schedules/preview", request).await.expect(200), next);
    let past = server.get("/api/v1/jobs/j/next?count=1&from=1990-01-01T00:00:00Z").await.expect(200);
    let now = server.get("/api/v1/jobs/j/next?count=1").await.expect(200);
    assert_eq!(past["ticks"], now["ticks"], "no tick precedes the job's creation");
}

#[tokio::test]
async fn a_masked_credential_is_kept_only_for_the_same_receiver() {
    let server = Server::new().await;
    let http = |url: &str, method: &str| json!({"name": "h", "target": {"http": {"url": url, "method": method, "headers": {"authorization": "********"}}}});
    let mut definition = http("https://example.org/hook", "POST");
    definition["target"]["http"]["headers"]["authorization"] = json!("Bearer hunter2");
    server.post("/api/v1/jobs", definition).await.expect(201);
    let put = async |name: &str, body: Value| {
        server.call("PUT", &format!("/api/v1/jobs/{name}"), &[], body.to_string()).await
    };
    for (url, method, status) in [
        ("https://example.org/other?q=1", "POST", 200),
        ("HTTPS://EXAMPLE.ORG:443/", "POST", 200),
        ("https://example.org/hook", "GET", 422),
        ("https://example.org:8443/hook", "POST", 422),
        ("http://example.org/hook", "POST", 422),
        ("https://example.org.evil.example/hook", "POST", 422),
        ("https://example.org:443@evil.example/hook", "POST", 422),
    ] {
        let answer = put("h", http(url, method)).await;
        assert_eq!(answer.status.as_u16(), status, "{url}: {}", answer.text);
        if status == 422 {
            assert_eq!(answer.json()["errors"][0]["field"], "target.http.headers.authorization", "{url}");
        }
    }
    let shell = |argv: &[&str], workdir: &str, token: &str| {
        json!({"name": "s", "target": {
            "shell": {"command": {"argv": argv}, "env": {"TOKEN": token}, "workdir": workdir}}})
    };
    // A change of the kind of target does not keep the credential either.
    let mut other_kind = shell(&["env"], "/srv", "********");
    other_kind["target"]["shell"]["env"] = json!({"authorization": "********"});
    put("h", other_kind).await.expect(422);

    server.post("/api/v1/jobs", shell(&["./backup", "--all"], "/srv", "hunter2")).await.expect(201);
    let mut kept = shell(&["./backup", "--all"], "/srv", "********");
    kept["priority"] = json!(7);
    put("s", kept).await.expect(200);
    for (argv, workdir) in [(&["env"][..], "/srv"), (&["./backup"], "/srv"), (&["./backup", "--all"], "/tmp")] {
        let answer = put("s", shell(argv, workdir, "********")).await.expect(422);
        assert_eq!(answer["errors"][0]["field"], "target.shell.env.TOKEN", "{argv:?}");
    }
    put("s", shell(&["env"], "/srv", "another")).await.expect(200);
}

#[tokio::test]
async fn a_masked_variable_is_kept_only_in_an_unchanged_environment() {
    let server = Server::new().await;
    let definition = |env: Value| json!({"name": "s", "target": {"shell": {"command": {"argv": ["bash", "-c", "true"]}, "env": env}}});
    let stored = json!({"API_TOKEN": "hunter2", "GIT_PASSWORD": "hunter3", "LANG": "C"});
    server.post("/api/v1/jobs", definition(stored)).await.expect(201);
    let put = async |env: Value| server.call("PUT", "/api/v1/jobs/s", &[], definition(env).to_string()).await;
    let mask = "********";
    put(json!({"API_TOKEN": mask, "GIT_PASSWORD": mask, "LANG": "C"})).await.expect(200);
    put(json!({"API_TOKEN": mask, "GIT_PASSWORD": "hunter3", "LANG": "C"})).await.expect(200);
    for (env, changed) in [
        (json!({"API_TOKEN": mask, "GIT_PASSWORD": mask, "LANG": "C", "BASH_ENV": "/tmp/x"}), "BASH_ENV"),
        (json!({"API_TOKEN": mask, "GIT_PASSWORD": mask, "LANG": "C", "GIT_ASKPASS": "/tmp/x"}), "GIT_ASKPASS"),
        (json!({"API_TOKEN": mask, "GIT_PASSWORD": mask, "LANG": "de_DE"}), "LANG"),
        (json!({"API_TOKEN": mask, "GIT_PASSWORD": mask}), "LANG"),
        (json!({"API_TOKEN": mask, "GIT_PASSWORD": "other", "LANG": "C"}), "GIT_PASSWORD"),
    ] {
        let problem = put(env).await.expect(422);
        assert_eq!(problem["errors"][0]["field"], "target.shell.env.API_TOKEN", "{changed}");
        let message = problem["errors"][0]["message"].as_str().unwrap();
        assert!(message.contains(&format!("the variable {changed} differs from the stored one")), "{message}");
    }
    let patch = json!({"target": {"shell": {"env": {"BASH_ENV": "/tmp/x"}}}}).to_string();
    server.call("PATCH", "/api/v1/jobs/s", &[], patch).await.expect(422);
    put(json!({"API_TOKEN": "hunter2", "GIT_PASSWORD": "hunter3", "BASH_ENV": "/tmp/x"})).await.expect(200);
}

#[tokio::test]
async fn a_list_has_short_payloads_and_only_the_length_of_long_ones() {
    let server = Server::new().await;
    let (short, long) = ("x".repeat(4_094), "x".repeat(4_095));
    for (name, payload) in [("short", &short), ("long", &long)] {
        let mut definition = job(name);
        definition["payload"] = json!(payload);
        server.post("/api/v1/jobs", definition).await.expect(201);
    }
    let listed = server.get("/api/v1/jobs").await.expect(200);
    let of =
        |list: &Value, at: usize| (list["items"][at]["payload"].clone(), list["items"][at]["payload_bytes"].clone());
    assert_eq!(of(&listed, 0), (Value::Null, json!(4_097)));
    assert_eq!(of(&listed, 1), (json!(short), Value::Null));
    let whole = server.get("/api/v1/jobs?include=payload").await.expect(200);
    assert_eq!(of(&whole, 0), (json!(long), Value::Null));
    assert_eq!(server.get("/api/v1/jobs/long").await.expect(200)["payload"], json!(long));
    // A client that sends the item of a list back would remove the payload.
    let refused = server.call("PUT", "/api/v1/jobs/long", &[], listed["items"][0].to_string()).await.expect(422);
    assert_eq!(refused["errors"][0]["field"], "payload");
    server.call("PUT", "/api/v1/jobs/long", &[], whole["items"][0].to_string()).await.expect(200);
    server.call("PATCH", "/api/v1/jobs/long", &[], r#"{"payload":null}"#).await.expect(200);
}

#[tokio::test]
async fn a_problem_lists_twenty_errors_and_counts_the_rest() {
    let server = Server::new().await;
    let path = |count: usize| format!("/api/v1/jobs?{}", (0..count).map(|n| format!("x{n}=1&")).collect::<String>());
    let problem = server.get(&path(33)).await.expect(400);
    assert_eq!((problem["errors"].as_array().unwrap().len(), &problem["more_errors"]), (20, &json!(13)));
    assert!(problem["detail"].as_str().unwrap().ends_with("; and 13 more"), "{problem}");
    let problem = server.get(&path(20)).await.expect(400);
    assert_eq!((problem["errors"].as_array().unwrap().len(), &problem["more_errors"]), (20, &Value::Null));
}
