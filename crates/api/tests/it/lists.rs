//! Filters of lists, and short ids.

use serde_json::{Value, json};

use crate::support::{Server, with};

async fn trigger(server: &Server, job: &str) -> String {
    let run = server.post(&format!("/api/v1/jobs/{job}/trigger"), json!({"payload": null})).await.expect(201);
    run["id"].as_str().unwrap().to_owned()
}

async fn labelled(server: &Server, name: &str, team: &str) {
    let mut job = with("labels.team", json!(team));
    job["name"] = json!(name);
    server.post("/api/v1/jobs", job).await.expect(201);
}

fn jobs(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|run| run["job"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn runs_are_filtered_by_cause_and_label_and_wrong_filters_are_refused() {
    let server = Server::new().await;
    labelled(&server, "a", "x").await;
    labelled(&server, "b", "y").await;
    trigger(&server, "a").await;
    trigger(&server, "b").await;
    for (query, found) in [
        ("label=team%3Dx", &["a"][..]),
        ("label=team&cause=request", &["b", "a"]),
        ("cause=tick,parent", &[]),
        ("status=waiting&label=team%3Dy", &["b"]),
    ] {
        let page = server.get(&format!("/api/v1/runs?{query}")).await.expect(200);
        assert_eq!(jobs(&page), found, "{query}");
    }
    let of_job = server.get("/api/v1/jobs/a/runs?cause=request&label=team%3Dy").await.expect(200);
    assert!(jobs(&of_job).is_empty());
    let wrong = server.get("/api/v1/runs?cause=magic").await.expect(400);
    assert_eq!(wrong["errors"][0]["field"], "cause");
    assert!(wrong["errors"][0]["message"].as_str().unwrap().contains("backfill"), "{wrong}");
    server.get("/api/v1/runs?flow=zzz").await.expect(404);
    server.get("/api/v1/runs?flow=01a1e327").await.expect(404);
    let wrong = server.get("/api/v1/flows?status=waiting").await.expect(400);
    assert_eq!(wrong["errors"][0]["field"], "status");
    let runs = server.get("/api/v1/runs?limit=1").await.expect(200);
    let cursor = runs["next_cursor"].as_str().unwrap().to_owned();
    let wrong = server.get(&format!("/api/v1/flows?cursor={cursor}")).await.expect(400);
    assert_eq!(wrong["errors"][0]["field"], "cursor", "a list refuses the cursor of another list");
    let wrong = server.get("/api/v1/audit?from=2026-11-16T00:00:00Z&to=2026-11-16T00:00:00Z").await.expect(400);
    assert_eq!(wrong["errors"][0]["field"], "to");
}

#[tokio::test]
async fn a_short_id_is_accepted_if_it_is_unique() {
    let server = Server::new().await;
    labelled(&server, "a", "x").await;
    let run = trigger(&server, "a").await;
    let found = server.get(&format!("/api/v1/runs/{}", &run[..18])).await.expect(200);
    assert_eq!(found["id"], *run);
    let short = server.get(&format!("/api/v1/runs/{}", &run[..4])).await.expect(404);
    assert!(short["errors"][0]["message"].as_str().unwrap().contains("at least 8"), "{short}");
    server.get("/api/v1/runs/ffffffff").await.expect(404);
    // Runs that are triggered at nearly one instant have ids with the same beginning.
    let mut ids = vec![run];
    for _ in 0..9 {
        ids.push(trigger(&server, "a").await);
    }
    let ambiguous = server.get(&format!("/api/v1/runs/{}", &ids[9][..8])).await.expect(409);
    let errors = ambiguous["errors"].as_array().unwrap();
    assert_eq!((errors[0]["field"].as_str(), errors.len()), (Some("id"), 7), "{ambiguous}");
    assert!(errors[1]["message"].as_str().unwrap().contains(&ids[9]), "the newest comes first: {ambiguous}");
    assert_eq!(errors[6]["message"], "and more");
    let cancelled = server.post(&format!("/api/v1/runs/{}/cancel", &ids[0]), json!({})).await.expect(200);
    assert_eq!(cancelled["cancelled_by"], "local");
}
