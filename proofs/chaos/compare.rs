//! Compares, job by job, the runs that the API lists with the runs in the record.

use std::collections::{BTreeSet, HashMap};

use reqwest::Method;
use serde_json::Value;

use crate::{common::instant, history::Row, node::Api};

const PAGE: usize = 1_000;

/// The differences. Deleted jobs are left out: the API does not find them by name.
pub(crate) async fn differences(api: &Api, rows: &[Row]) -> anyhow::Result<Vec<String>> {
    let mut of_job: HashMap<&str, BTreeSet<(i64, String)>> = HashMap::new();
    for row in rows {
        let state = format!("{:?}", row.state).to_lowercase();
        of_job.entry(&row.job).or_default().insert((row.tick, state));
    }
    let mut found = Vec::new();
    for (job, recorded) in of_job {
        let Some(listed) = listed(api, job).await? else { continue };
        for (tick, state) in recorded.symmetric_difference(&listed) {
            let who = if listed.contains(&(*tick, state.clone())) { "the API" } else { "the record" };
            found.push(format!("{job}: only {who} has the tick {tick} as {state}"));
        }
    }
    Ok(found)
}

async fn listed(api: &Api, job: &str) -> anyhow::Result<Option<BTreeSet<(i64, String)>>> {
    let mut all = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let answer = api.request(Method::GET, &format!("/api/v1/jobs/{job}/runs?limit={PAGE}{cursor}")).send().await?;
        if answer.status().as_u16() == 404 {
            return Ok(None);
        }
        let page: Value = answer.error_for_status()?.json().await?;
        for run in page["items"].as_array().into_iter().flatten() {
            all.insert((instant(&run["scheduled_at"])?, run["state"].as_str().unwrap_or_default().to_owned()));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(Some(all)),
        }
    }
}
