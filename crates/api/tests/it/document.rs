//! The OpenAPI document against the router: both have the same operations, and answers match their schemas.

use std::collections::BTreeMap;

use everytick_domain::time::Span;
use serde_json::{Value, json};

use crate::support::{Server, job, request};

fn document() -> Value {
    serde_json::to_value(everytick_api::openapi()).unwrap()
}

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

#[tokio::test]
async fn each_path_supports_exactly_the_methods_in_the_document() {
    let server = Server::new().await;
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 22, "{}", paths.len());
    for (path, item) in paths {
        let path = path
            .replace("{job}", "missing")
            .replace("{name}", "missing")
            .replace("{id}", "01a1e327-d180-8de1-92e3-d388a74d8fe4");
        for method in METHODS {
            let answer = server.call(&method.to_uppercase(), &path, &[], "").await;
            let problem: Value = serde_json::from_str(&answer.text).unwrap_or_default();
            assert_ne!(problem["type"], "urn:everytick:problem:no-such-path", "{method} {path}");
            let accepted = answer.status != 405;
            assert_eq!(accepted, item.get(method).is_some(), "{method} {path}");
            if !accepted {
                let allowed: Vec<_> =
                    answer.header("allow").split(',').map(|word| word.trim().to_lowercase()).collect();
                for method in METHODS {
                    let listed = allowed.iter().any(|word| word == method);
                    assert_eq!(listed, item.get(method).is_some(), "Allow of {path}: {allowed:?}");
                }
            } else {
                let declared = &item[method]["responses"][answer.status.as_str()];
                assert!(declared.is_object(), "{method} {path} answered {}, which is not declared", answer.status);
                let kind = answer.header("content-type").split(';').next().unwrap().to_owned();
                assert!(declared["content"].get(&kind).is_some(), "{method} {path} answered {kind}");
            }
        }
    }
}

#[tokio::test]
async fn the_root_redirects_a_browser_to_the_docs() {
    let server = Server::new().await;
    let answer = server.call("GET", "/", &[("accept", "text/html")], "").await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (307, "/docs"));
    assert_eq!(server.get("/docs").await.status.as_u16(), 200);
}

#[test]
fn every_reference_resolves_and_every_operation_has_a_summary() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    let mut ids = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS.iter().filter(|method| item.get(**method).is_some()) {
            let operation = &item[method];
            assert!(operation["summary"].as_str().is_some_and(|words| !words.is_empty()), "{method} {path}");
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert_eq!(ids.insert(id.clone(), path), None, "{id}");
        }
    }
}

#[test]
fn request_schemas_forbid_unknown_fields() {
    let document = document();
    for name in [
        "JobDefinition",
        "Schedule",
        "Target",
        "Http",
        "Shell",
        "Command",
        "Misfire",
        "Retry",
        "PauseRequest",
        "TriggerRequest",
        "RedriveRequest",
        "SettleRequest",
        "PreviewRequest",
        "CalendarDefinition",
    ] {
        assert_eq!(document["components"]["schemas"][name]["additionalProperties"], false, "{name}");
    }
    let definition = &document["components"]["schemas"]["JobDefinition"];
    assert_eq!(definition["required"], json!(["name", "target"]));
    assert!(definition["properties"].get("id").is_none());
    let patch = &document["components"]["schemas"]["JobPatch"];
    let names = |schema: &Value| schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(patch), names(definition));
    assert_eq!((&patch["additionalProperties"], patch.get("required")), (&json!(false), None));
}

/// A small validator with the parts of JSON Schema that our answers use.
fn check(document: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return check(document, &document["components"]["schemas"][name], value, at, wrong);
    }
    if let Some(several) = schema["oneOf"].as_array() {
        let fits = several.iter().filter(|one| {
            let mut found = Vec::new();
            check(document, one, value, at, &mut found);
            found.is_empty()
        });
        if fits.count() != 1 {
            wrong.push(format!("{at}: {value} does not fit exactly one of {several:?}"));
        }
        return;
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        check(document, part, value, at, wrong);
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong.push(format!("{at}: {value} is none of {words:?}"));
    }
    let kinds: Vec<_> = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
        _ => return,
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        wrong.push(format!("{at}: {value} is {kind}, not {kinds:?}"));
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        check(document, &schema["items"], item, &format!("{at}[{n}]"), wrong);
    }
    if let Some(object) = value.as_object().filter(|_| schema["properties"].is_object()) {
        for (field, value) in object {
            match schema["properties"].get(field) {
                Some(schema) => check(document, schema, value, &format!("{at}.{field}"), wrong),
                None => wrong.push(format!("{at}.{field} is not declared")),
            }
        }
        for field in schema["required"].as_array().into_iter().flatten() {
            if !object.contains_key(field.as_str().unwrap()) {
                wrong.push(format!("{at}: {field} is missing"));
            }
        }
    }
}

#[tokio::test]
async fn answers_match_the_schemas_of_the_document() {
    let server = Server::new().await;
    let document = document();
    server.make("j").await;
    let mut shell = job("s");
    shell["target"] = json!({"shell": {"command": {"argv": ["/bin/true"]}, "env": {"A": "b"}}});
    shell["payload"] = json!([1, null]);
    server.post("/api/v1/jobs", shell).await.expect(201);
    let run = server.post("/api/v1/jobs/j/trigger", Value::Null).await.expect(201);
    server.post("/api/v1/jobs/s/trigger", Value::Null).await.expect(201);
    let run = run["id"].as_str().unwrap();
    let now = server.store.now().await.unwrap();
    let days_ago = |days| now.minus(Span::days(days)).to_string();
    let period = json!({"from": days_ago(4), "to": days_ago(0)});
    let backfill = server.post("/api/v1/jobs/j/backfill", period).await.expect(201);
    let backfill = backfill["id"].as_str().unwrap();
    let requests = [
        ("get", "/api/v1/jobs", "/api/v1/jobs".to_owned(), Value::Null),
        ("post", "/api/v1/jobs", "/api/v1/jobs".to_owned(), job("k")),
        ("post", "/api/v1/jobs", "/api/v1/jobs".to_owned(), job("k")),
        ("post", "/api/v1/jobs", "/api/v1/jobs".to_owned(), json!({})),
        ("get", "/api/v1/jobs/{job}", "/api/v1/jobs/j".to_owned(), Value::Null),
        ("put", "/api/v1/jobs/{job}", "/api/v1/jobs/k".to_owned(), job("l")),
        ("patch", "/api/v1/jobs/{job}", "/api/v1/jobs/l".to_owned(), json!({"priority": 2})),
        ("post", "/api/v1/jobs/{job}/pause", "/api/v1/jobs/l/pause".to_owned(), json!({"note": "x"})),
        ("post", "/api/v1/jobs/{job}/resume", "/api/v1/jobs/l/resume".to_owned(), Value::Null),
        (
            "post",
            "/api/v1/jobs/{job}/redrive",
            "/api/v1/jobs/j/redrive".to_owned(),
            json!({"since": "2040-01-01T00:00:00Z"}),
        ),
        (
            "post",
            "/api/v1/jobs/{job}/backfill",
            "/api/v1/jobs/j/backfill".to_owned(),
            json!({"from": days_ago(9), "to": days_ago(5), "rate": "10/1m"}),
        ),
        (
            "post",
            "/api/v1/jobs/{job}/backfill",
            "/api/v1/jobs/j/backfill".to_owned(),
            json!({"from": days_ago(9), "to": days_ago(5), "dry_run": true}),
        ),
        (
            "post",
            "/api/v1/jobs/{job}/backfill",
            "/api/v1/jobs/none/backfill".to_owned(),
            json!({"from": days_ago(9), "to": days_ago(5)}),
        ),
        ("get", "/api/v1/jobs/{job}/backfills", "/api/v1/jobs/j/backfills".to_owned(), Value::Null),
        ("get", "/api/v1/backfills/{id}", format!("/api/v1/backfills/{backfill}"), Value::Null),
        ("get", "/api/v1/backfills/{id}", format!("/api/v1/backfills/{run}"), Value::Null),
        (
            "post",
            "/api/v1/backfills/{id}/cancel",
            format!("/api/v1/backfills/{backfill}/cancel?cancel_runs=true"),
            Value::Null,
        ),
        ("post", "/api/v1/jobs/{job}/cancel", "/api/v1/jobs/s/cancel".to_owned(), Value::Null),
        ("get", "/api/v1/jobs/{job}/next", "/api/v1/jobs/l/next".to_owned(), Value::Null),
        ("get", "/api/v1/jobs/{job}/runs", "/api/v1/jobs/j/runs".to_owned(), Value::Null),
        ("delete", "/api/v1/jobs/{job}", "/api/v1/jobs/l".to_owned(), Value::Null),
        ("post", "/api/v1/schedules/preview", "/api/v1/schedules/preview".to_owned(), json!({"every": "1h"})),
        ("get", "/api/v1/runs", "/api/v1/runs".to_owned(), Value::Null),
        ("get", "/api/v1/runs/{id}", format!("/api/v1/runs/{run}"), Value::Null),
        ("get", "/api/v1/runs/{id}/attempts", format!("/api/v1/runs/{run}/attempts"), Value::Null),
        ("get", "/api/v1/runs/{id}/explain", format!("/api/v1/runs/{run}/explain"), Value::Null),
        (
            "get",
            "/api/v1/runs/{id}/explain",
            "/api/v1/runs/01a1e327-d180-8de1-92e3-d388a74d8fe4/explain".to_owned(),
            Value::Null,
        ),
        ("get", "/api/v1/jobs/{job}/explain", "/api/v1/jobs/j/explain".to_owned(), Value::Null),
        ("get", "/api/v1/jobs/{job}/explain", "/api/v1/jobs/none/explain".to_owned(), Value::Null),
        (
            "post",
            "/api/v1/runs/{id}/settle",
            format!("/api/v1/runs/{run}/settle"),
            json!({"fence": 1, "outcome": "failed"}),
        ),
        ("post", "/api/v1/runs/{id}/cancel", format!("/api/v1/runs/{run}/cancel"), Value::Null),
        ("post", "/api/v1/runs/{id}/rerun", format!("/api/v1/runs/{run}/rerun"), Value::Null),
        ("put", "/api/v1/queues/{queue}", "/api/v1/queues/q".to_owned(), json!({"concurrency": 2, "rate": "5/1m"})),
        ("put", "/api/v1/queues/{queue}", "/api/v1/queues/q".to_owned(), json!({"concurrency": 0})),
        ("get", "/api/v1/queues/{queue}", "/api/v1/queues/q".to_owned(), Value::Null),
        ("get", "/api/v1/queues/{queue}", "/api/v1/queues/none".to_owned(), Value::Null),
        ("get", "/api/v1/queues", "/api/v1/queues".to_owned(), Value::Null),
        ("post", "/api/v1/queues/{queue}/claim", "/api/v1/queues/q/claim".to_owned(), json!({"worker": "w"})),
        (
            "post",
            "/api/v1/queues/{queue}/settle",
            "/api/v1/queues/q/settle".to_owned(),
            json!({"settles": [{"run": run, "fence": 1, "outcome": "succeeded"}]}),
        ),
        ("post", "/api/v1/runs/{id}/heartbeat", format!("/api/v1/runs/{run}/heartbeat"), json!({"fence": 1})),
        ("post", "/api/v1/runs/{id}/log", format!("/api/v1/runs/{run}/log"), json!({"fence": 1, "text": "x"})),
        ("get", "/api/v1/audit", "/api/v1/audit".to_owned(), Value::Null),
        ("get", "/healthz", "/healthz".to_owned(), Value::Null),
        ("get", "/readyz", "/readyz".to_owned(), Value::Null),
        ("get", "/openapi.json", "/openapi.json".to_owned(), Value::Null),
    ];
    let mut wrong = Vec::new();
    for (method, path, url, body) in requests {
        let body = crate::support::text_of(&body);
        let answer = server.send(request(&method.to_uppercase(), &url, &[], body)).await;
        let declared = &document["paths"][path][method]["responses"][answer.status.as_str()];
        let kind = answer.header("content-type").split(';').next().unwrap().to_owned();
        let schema = &declared["content"][&kind]["schema"];
        assert!(schema.is_object(), "{method} {path}: {} {kind} is not declared", answer.status);
        check(&document, schema, &answer.json(), &format!("{method} {path}"), &mut wrong);
        for (header, _) in declared["headers"].as_object().into_iter().flatten() {
            assert!(!answer.header(header).is_empty(), "{method} {path}: {header}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_docs_are_plain_html_without_a_script() {
    let server = Server::new().await;
    let page = server.get("/docs").await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(!page.text.contains("<script") && !page.text.contains("style=") && !page.text.contains("http://"));
    for text in ["/api/v1/jobs/{job}/trigger", "JobDefinition", "If-Match", "Idempotency-Key"] {
        assert!(page.text.contains(text), "{text}");
    }
    let style = server.get("/docs/style.css").await;
    assert!(style.header("content-type").starts_with("text/css") && style.text.contains("prefers-color-scheme"));
    assert_eq!(server.get("/openapi.json").await.expect(200), document());
}
