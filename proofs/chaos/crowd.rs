//! Background clients of every node: some list without end, many are connected and send nothing. Their answers are not checked;
//! the campaign shows that the jobs are as safe and as fast beside them.

use crate::{common::sleep_ms, node::Api};

const READERS_PER_NODE: usize = 2;
const IDLE_PER_NODE: usize = 100;
/// Pause between two lists, and before a closed connection is opened again.
const PAUSE_MS: i64 = 200;
const LISTS: [&str; 4] =
    ["/api/v1/jobs?limit=1000", "/api/v1/runs?limit=1000", "/api/v1/runs?status=failed", "/api/v1/audit?limit=1000"];

/// Starts the clients. They run until this process ends.
pub(crate) fn start(apis: &[Api]) {
    for api in apis {
        for n in 0..READERS_PER_NODE {
            tokio::spawn(read(api.clone(), n));
        }
        for _ in 0..IDLE_PER_NODE {
            tokio::spawn(idle(api.clone()));
        }
    }
}

async fn read(api: Api, n: usize) {
    for list in LISTS.iter().cycle().skip(n) {
        if let Ok(answer) = api.request(reqwest::Method::GET, list).send().await {
            let _ = answer.bytes().await;
        }
        sleep_ms(PAUSE_MS).await;
    }
}

async fn idle(api: Api) {
    loop {
        // Returns when the server closes the connection.
        let _ = api.connect_idle().await;
        sleep_ms(PAUSE_MS).await;
    }
}
