//! Jobs that are edited, paused, resumed and deleted as close to a tick as possible, through any node. Without an answer the
//! outcome is unknown; the audit trail shows it at the end.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    common::{Random, instant, now_ms, rfc3339, sleep_ms},
    load::{Load, planned, sleep_to_a_tick},
    oracle::{Answered, Kind, Schedule},
};

/// Maximum distance between a change and a tick.
const NEAR_MS: i64 = 50;

/// Works on one job after another until the campaign ends.
pub(crate) async fn run(load: Load, editor: u64, seed: u64) {
    let mut random = Random::new(seed);
    for n in 0.. {
        if now_ms() + 8_000 > load.ends_at {
            return;
        }
        let name = format!("edited-{editor}-{n:03}");
        edit_one(&load, &name, &mut random).await;
    }
}

struct Edited<'a> {
    load: &'a Load,
    name: &'a str,
    /// Its index in `Load::plans`.
    index: usize,
    version: i64,
    seconds: i64,
    paused: bool,
}

/// The answer to a request.
enum Answer {
    Done(Value),
    Gone,
    /// Outcome unknown, or refused.
    Nothing,
}

/// Creates a job, changes it a few times, and deletes it.
async fn edit_one(load: &Load, name: &str, random: &mut Random) {
    let index = load.plans.add(planned(name.to_owned(), Kind::Edited, every(1), load.ends_at));
    let mut job = Edited { load, name, index, version: 1, seconds: 1, paused: false };
    let definition = job.definition(1);
    let created = load.any(random).request(Method::POST, "/api/v1/jobs").json(&definition).send().await;
    let mut answered = created.is_ok_and(|answer| answer.status().as_u16() == 201);
    load.plans.change(index, |planned| planned.created = answered);
    for _ in 0..random.between(2, 5) {
        if !answered {
            break;
        }
        sleep_to_a_tick(random.between(500, 2_500), random.between(-NEAR_MS, NEAR_MS)).await;
        answered = job.change(random).await;
    }
    if answered {
        sleep_to_a_tick(random.between(500, 2_500), random.between(-NEAR_MS, NEAR_MS)).await;
    }
    job.delete(random).await;
}

const fn every(seconds: i64) -> Schedule {
    Schedule::Every { ms: seconds * 1_000 }
}

impl Edited<'_> {
    fn definition(&self, seconds: i64) -> Value {
        let ends_at = rfc3339(self.load.ends_at);
        self.load.definition(self.name, Kind::Edited, json!({"every": format!("{seconds}s"), "ends_at": ends_at}))
    }

    /// Pauses, resumes or edits the job. Returns whether that was answered.
    async fn change(&mut self, random: &mut Random) -> bool {
        let path = format!("/api/v1/jobs/{}", self.name);
        let answer = match (self.paused, random.below(2)) {
            (true, _) => self.send(random, "resume", Method::POST, &format!("{path}/resume"), None).await,
            (false, 0) => self.send(random, "pause", Method::POST, &format!("{path}/pause"), Some(json!({}))).await,
            (false, _) => {
                let seconds = 1 + self.seconds % 3;
                let next = (self.version + 1, every(seconds));
                self.load.plans.change(self.index, |planned| planned.sent.push(next));
                let answer = self.send(random, "edit", Method::PUT, &path, Some(self.definition(seconds))).await;
                self.seconds = seconds;
                answer
            }
        };
        let Answer::Done(body) = answer else { return false };
        self.paused = body["paused"].as_bool().unwrap_or(false);
        self.version = body["version"].as_i64().unwrap_or(0);
        true
    }

    /// Repeats the request until a node answers that the job is deleted.
    async fn delete(&mut self, random: &mut Random) {
        let path = format!("/api/v1/jobs/{}", self.name);
        self.version = 0;
        while now_ms() < self.load.ends_at {
            match self.send(random, "delete", Method::DELETE, &path, None).await {
                Answer::Done(_) | Answer::Gone => return,
                Answer::Nothing => sleep_ms(500).await,
            }
        }
    }

    async fn send(
        &self,
        random: &mut Random,
        action: &'static str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Answer {
        let mut request = self.load.any(random).request(method, path);
        if self.version > 0 {
            request = request.header("if-match", format!("\"{}\"", self.version));
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        self.load.plans.change(self.index, |planned| planned.requested.push(action));
        let sent_at = now_ms();
        let Ok(answer) = request.send().await else { return Answer::Nothing };
        let status = answer.status();
        let Ok(body) = answer.json::<Value>().await else { return Answer::Nothing };
        match (status.as_u16(), instant(&body["effective_at"])) {
            (200, Ok(effective_at)) => {
                let answered = Answered { action, effective_at, sent_at, answered_at: now_ms() };
                self.load.plans.change(self.index, |planned| planned.answered.push(answered));
                Answer::Done(body)
            }
            (404, _) => Answer::Gone,
            _ => Answer::Nothing,
        }
    }
}
