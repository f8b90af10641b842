//! The jobs of the campaign and their creation. About 80 ticks a second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    common::{Random, create_jobs, now_ms, rfc3339, sleep_ms, sleep_until_ms},
    node::Api,
    oracle::{Kind, Planned, Schedule},
    sink,
};

/// Zones whose offsets differ in their minutes. Minute crons do not depend on hours, so daylight saving does not matter.
pub(crate) const ZONES: [(&str, i64); 6] = [
    ("America/New_York", 0),
    ("Europe/Paris", 0),
    ("Asia/Kolkata", 30),
    ("Asia/Kathmandu", 45),
    ("Australia/Adelaide", 30),
    ("Pacific/Chatham", 45),
];

const SECOND: i64 = 1_000;
/// How long the creation of a one-shot job is retried.
const CREATION_MS_MAX: i64 = 20_000;

/// Every job of the campaign, as it was sent to the API.
#[derive(Clone, Default)]
pub(crate) struct Plans(Arc<Mutex<Vec<Planned>>>);

impl Plans {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Planned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; returns its index.
    pub(crate) fn add(&self, planned: Planned) -> usize {
        let mut plans = self.lock();
        plans.push(planned);
        plans.len() - 1
    }

    pub(crate) fn change(&self, index: usize, change: impl FnOnce(&mut Planned)) {
        if let Some(planned) = self.lock().get_mut(index) {
            change(planned);
        }
    }
}

/// What every part of the load needs.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) plans: Plans,
    pub(crate) apis: Vec<Api>,
    pub(crate) hook: String,
    pub(crate) ends_at: i64,
}

impl Load {
    pub(crate) fn any(&self, random: &mut Random) -> &Api {
        &self.apis[usize::try_from(random.below(self.apis.len() as u64)).unwrap_or(0)]
    }

    /// A definition. No tick is ever late enough for catch-up to apply, and retries last longer than every fault.
    pub(crate) fn definition(&self, name: &str, kind: Kind, schedule: Value) -> Value {
        let retries = if kind == Kind::Failing { 2 } else { 30 };
        json!({
            "name": name,
            "schedule": schedule,
            "target": {"http": {"url": format!("{}/{}", self.hook, sink::word(kind))}},
            "overlap": if kind.skips() { "skip" } else { "allow" },
            "misfire": {"late_after": "10m", "grace": "1h", "catch_up": "all", "max_runs": 1000},
            "retry": {"max_retries": retries, "base_delay": "500ms", "max_delay": "2s"},
            "timeout": "4s",
        })
    }

    /// Creates the jobs that tick from `starts_at` on, in one request.
    pub(crate) async fn create_steady(&self, starts_at: i64) -> anyhow::Result<()> {
        let mut lines = String::new();
        // The API refuses a job that has no tick in this short time.
        let ticking = |schedule: Schedule| !schedule.ticks(starts_at - 1, self.ends_at).is_empty();
        for (name, kind, schedule, timing) in steady().into_iter().filter(|job| ticking(job.2)) {
            let mut timing = timing;
            timing["starts_at"] = rfc3339(starts_at).into();
            timing["ends_at"] = rfc3339(self.ends_at).into();
            lines.push_str(&format!("{}\n", self.definition(&name, kind, timing)));
            self.plans.add(Planned { starts_at, created: true, ..planned(name, kind, schedule, self.ends_at) });
        }
        create_jobs(self.apis[0].request(Method::POST, "/api/v1/jobs/batch"), lines).await?;
        anyhow::ensure!(now_ms() < starts_at, "the jobs were not created before their first tick");
        Ok(())
    }

    /// Creates one-shot jobs, about one a second, shortly before their instant and through any node.
    pub(crate) async fn create_one_shots(self, seed: u64) {
        let mut random = Random::new(seed);
        for n in 0.. {
            sleep_ms(random.between(700, 1_300)).await;
            let at = now_ms() + random.between(1_500, 4_000);
            if at > self.ends_at {
                return;
            }
            let (load, seed) = (self.clone(), random.below(u64::MAX));
            tokio::spawn(async move { load.create_one_shot(n, at, Random::new(seed)).await });
        }
    }

    async fn create_one_shot(&self, n: u64, at: i64, mut random: Random) {
        let name = format!("shot-{n:04}");
        let definition = self.definition(&name, Kind::Shot, json!({"at": rfc3339(at)}));
        let index = self.plans.add(planned(name, Kind::Shot, Schedule::At { ms: at }, i64::MAX));
        // Repeat until a node answers: the unique name prevents a second job.
        while now_ms() < at + CREATION_MS_MAX {
            let answer = self.any(&mut random).request(Method::POST, "/api/v1/jobs").json(&definition).send().await;
            match answer.map(|answer| answer.status().as_u16()) {
                Ok(201 | 409) => return self.plans.change(index, |planned| planned.created = true),
                _ => sleep_ms(300).await,
            }
        }
    }
}

pub(crate) fn planned(name: String, kind: Kind, schedule: Schedule, ends_at: i64) -> Planned {
    let sent = vec![(1, schedule)];
    let (requested, answered) = (Vec::new(), Vec::new());
    Planned { name, kind, sent, starts_at: 0, ends_at, created: false, requested, answered }
}

fn steady() -> Vec<(String, Kind, Schedule, Value)> {
    let every = |kind: Kind, seconds: i64, count: usize| {
        (0..count).map(move |n| {
            let name = format!("{kind:?}-{seconds}s-{n:03}").to_lowercase();
            (name, kind, Schedule::Every { ms: seconds * SECOND }, json!({"every": format!("{seconds}s")}))
        })
    };
    let crons = ZONES.iter().flat_map(|(zone, offset)| {
        [(1, "* * * * *"), (2, "*/2 * * * *")].into_iter().flat_map(move |(step, cron)| {
            (0..4).map(move |n| {
                let name = format!("minute-{step}-{}-{n}", zone.replace('/', "-").to_lowercase());
                let schedule = Schedule::Minutes { step, offset: *offset };
                (name, Kind::Plain, schedule, json!({"cron": cron, "timezone": zone}))
            })
        })
    });
    every(Kind::Plain, 1, 50)
        .chain(every(Kind::Plain, 5, 60))
        .chain(every(Kind::Single, 10, 100))
        .chain(every(Kind::Slow, 1, 5))
        .chain(every(Kind::Retried, 5, 10))
        .chain(every(Kind::Failing, 10, 5))
        .chain(every(Kind::Greedy, 1, 1))
        .chain(crons)
        .collect()
}

/// Chooses the first full second that is more than `ahead` ms from now, and sleeps until `off` ms after it (before it if negative).
pub(crate) async fn sleep_to_a_tick(ahead: i64, off: i64) {
    sleep_until_ms((now_ms() + ahead).div_euclid(SECOND) * SECOND + SECOND + off).await;
}
