//! Users: they create jobs, edit and pause them close to their ticks, trigger runs and cancel them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everytick_domain::{
    calendar::CalendarSpec,
    edit::Change,
    flow::{DependsOn, When},
    ids::{JobId, TenantId},
    job::{CatchUp, JobSpec, Misfire, Overlap},
    retry::{Jitter, OnLost, RetryPolicy},
    schedule::{ScheduleSpec, Timing},
    target::{HttpMethod, HttpTarget, QueueTarget, TargetSpec},
    time::Span,
};
use everytick_engine::commands::Trigger;
use everytick_store::{Actor, EditJob, JobRef, PutCalendar, Redrive, RunFilter, WallClock};

use super::{backfills, random::Random, worker, world::World};

pub async fn run(world: Arc<World>, random: Random) {
    let mut jobs = Vec::new();
    for name in CALENDARS {
        set_calendar(&world, &random, name).await;
    }
    for n in 0..7 + random.below(4) {
        jobs.extend(create(&world, &random, n).await);
    }
    let mut made = jobs.len() as u64 + 10;
    while !world.calm.load(Ordering::SeqCst) {
        wait_near_a_tick(&world, &random).await;
        if jobs.is_empty() || random.chance(60) {
            made += 1;
            jobs.extend(create(&world, &random, made).await);
            continue;
        }
        if has_calendars(&world) && random.chance(80) {
            let name = *random.pick(&CALENDARS);
            set_calendar(&world, &random, name).await;
            continue;
        }
        if has_flows(&world) && random.chance(100) {
            cancel_or_rerun_flow(&world, &random).await;
            continue;
        }
        let job = *random.pick(&jobs);
        match random.below(100) {
            0..35 => {
                let spec = current(&world, &random, job).await.map(|spec| edited(spec, &world, &random));
                if let Some(spec) = spec {
                    edit(&world, &random, job, Change::Replace(Box::new(spec)), false).await;
                }
            }
            35..55 => edit(&world, &random, job, Change::Pause { note: None }, random.chance(200)).await,
            55..75 => edit(&world, &random, job, Change::Resume, false).await,
            75..79 => {
                edit(&world, &random, job, Change::Delete, random.chance(300)).await;
                jobs.retain(|id| *id != job);
            }
            79..89 => {
                let commands = world.commands(&random);
                let force = random.chance(150);
                let request = Trigger { job: JobRef::Id(job), payload: None, force, idempotency: None };
                let _ = commands.trigger(TenantId::DEFAULT, &users(), request).await;
            }
            89..91 => {
                let _ = world.commands(&random).cancel_job(TenantId::DEFAULT, &users(), &JobRef::Id(job)).await;
            }
            91..93 => {
                let from = world.clock.now().minus(Span::seconds(random.below(60)));
                let limit = 1 + random.below(4) as usize;
                let request = Redrive { job: JobRef::Id(job), from, to: None, limit, dry_run: false };
                let _ = world.commands(&random).redrive(TenantId::DEFAULT, &users(), &request).await;
            }
            93..96 => backfills::request(&world, &random, job).await,
            96 => backfills::cancel(&world, &random, job).await,
            _ => cancel(&world, &random, job).await,
        }
    }
}

/// Waits for a random time. In half of the cases it then waits until less than 50 ms before or after a whole second,
/// when ticks are due.
async fn wait_near_a_tick(world: &World, random: &Random) {
    tokio::time::sleep(random.millis(50, 2_500)).await;
    if random.chance(500) {
        let past = u64::try_from(world.clock.now().millis().rem_euclid(1_000)).unwrap();
        tokio::time::sleep(Duration::from_millis(950 + random.below(100)).saturating_sub(Duration::from_millis(past)))
            .await;
    }
}

const CALENDARS: [&str; 2] = ["holidays", "maintenance"];

/// One history in three has calendars.
fn has_calendars(world: &World) -> bool {
    world.scene.seed.is_multiple_of(3)
}

/// Sets a new version of a calendar. A history is shorter than a day, so each version excludes either all ticks or
/// none. A version takes effect close to a tick, so excluded periods begin and end within the history.
async fn set_calendar(world: &World, random: &Random, name: &str) {
    if !has_calendars(world) {
        return;
    }
    let days = if random.chance(500) { vec!["2026-11-14/2026-11-16".parse().unwrap()] } else { Vec::new() };
    // Another zone makes another version, even if it excludes the same ticks.
    let zone = *random.pick(&["UTC", "Asia/Tokyo", "America/New_York"]);
    let spec = CalendarSpec::new(zone, days, Vec::new()).unwrap();
    let put = PutCalendar { name: name.to_owned(), spec, if_match: None };
    let _ = world.commands(random).put_calendar(TenantId::DEFAULT, &users(), put).await;
}

/// Two histories in five have flows.
fn has_flows(world: &World) -> bool {
    world.scene.seed % 5 < 2
}

/// Some of the jobs created before the nth, so that chains, fans and diamonds result. A missing parent or a cycle is refused.
fn parents(random: &Random, n: u64) -> Vec<DependsOn> {
    if n < 2 || random.chance(300) {
        return Vec::new();
    }
    let mut parents: Vec<DependsOn> = Vec::new();
    for _ in 0..1 + random.below(3) {
        let job = format!("job-{}", random.below(n.min(8)));
        let when = *random.pick(&[When::Succeeded, When::Succeeded, When::Finished, When::Failed]);
        if !parents.iter().any(|parent| parent.job == job) {
            parents.push(DependsOn { job, when });
        }
    }
    parents
}

async fn cancel_or_rerun_flow(world: &World, random: &Random) {
    let commands = world.commands(random);
    let Ok(page) = commands.queries().runs(TenantId::DEFAULT, &RunFilter::default(), None, 30).await else { return };
    let flows: Vec<_> = page.items.iter().filter_map(|run| run.flow).collect();
    if flows.is_empty() {
        return;
    }
    let flow = *random.pick(&flows);
    if random.chance(400) {
        let _ = commands.cancel_flow(TenantId::DEFAULT, &users(), flow).await;
    } else {
        let _ = commands.rerun_flow(TenantId::DEFAULT, &users(), flow, Vec::new(), None).await;
    }
}

pub fn users() -> Actor {
    Actor::local("users")
}

async fn edit(world: &World, random: &Random, job: JobId, change: Change, cancel: bool) {
    let commands = world.commands(random);
    let edit = EditJob { job: JobRef::Id(job), change, if_match: None, cancel };
    let _ = commands.edit_job(TenantId::DEFAULT, &users(), edit).await;
}

async fn current(world: &World, random: &Random, job: JobId) -> Option<JobSpec> {
    let commands = world.commands(random);
    let record = commands.queries().job(TenantId::DEFAULT, &JobRef::Id(job)).await.ok()?;
    Some((*record.job.spec).clone())
}

async fn cancel(world: &World, random: &Random, job: JobId) {
    let commands = world.commands(random);
    let filter = RunFilter { job: Some(job), ..RunFilter::default() };
    let Ok(page) = commands.queries().runs(TenantId::DEFAULT, &filter, None, 5).await else { return };
    if !page.items.is_empty() {
        let _ = commands.cancel_run(TenantId::DEFAULT, &users(), random.pick(&page.items).id).await;
    }
}

async fn create(world: &World, random: &Random, n: u64) -> Option<JobId> {
    let commands = world.commands(random);
    let spec = spec(world, random, n);
    let created = commands.create_jobs(TenantId::DEFAULT, &users(), vec![spec], None).await.ok()?;
    created.into_iter().next()?.ok().map(|created| created.job.id)
}

fn schedule(timing: Timing) -> Option<ScheduleSpec> {
    Some(ScheduleSpec { timing, starts_at: None, ends_at: None, jitter: None, exclude: Vec::new() })
}

fn excluding(mut schedule: Option<ScheduleSpec>, world: &World, random: &Random) -> Option<ScheduleSpec> {
    if has_calendars(world)
        && random.chance(600)
        && let Some(schedule) = &mut schedule
    {
        let names = if random.chance(300) { &CALENDARS[..] } else { &CALENDARS[..1] };
        schedule.exclude = names.iter().map(|name| (*name).to_owned()).collect();
    }
    schedule
}

fn timing(world: &World, random: &Random) -> Timing {
    match random.below(10) {
        0..6 => Timing::Every { every: Span::seconds(1) },
        6..9 => Timing::Every { every: Span::seconds(2 + random.below(9)) },
        _ => Timing::At { at: world.clock.now().plus(Span::millis(random.below(30_000))) },
    }
}

fn edited(mut spec: JobSpec, world: &World, random: &Random) -> JobSpec {
    if has_flows(world) && random.chance(150) {
        let n = spec.name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        spec.depends_on = parents(random, n + 2);
        return spec;
    }
    match random.below(3) {
        0 => spec.enabled = !spec.enabled,
        1 => spec.description = format!("{}", random.next()),
        _ => spec.schedule = excluding(schedule(timing(world, random)), world, random),
    }
    spec
}

fn spec(world: &World, random: &Random, n: u64) -> JobSpec {
    let plain = world.scene.plain;
    let pulled = !plain && random.chance(400);
    let target = if pulled {
        TargetSpec::Queue(QueueTarget { name: (*random.pick(&worker::QUEUES)).to_owned() })
    } else {
        TargetSpec::Http(HttpTarget {
            // A private address: not every node may reach it.
            url: "http://10.0.0.1".into(),
            method: HttpMethod::Post,
            headers: Default::default(),
            secret: None,
            client_cert: None,
        })
    };
    let policies = [
        (Overlap::Skip, None),
        (Overlap::Skip, None),
        (Overlap::Allow, None),
        (Overlap::Allow, Some(2)),
        (Overlap::Queue { limit: 1 }, None),
        (Overlap::Queue { limit: 3 }, None),
        (Overlap::CancelPrevious, None),
    ];
    let (overlap, max_concurrent) = *random.pick(if plain { &policies[..4] } else { &policies });
    let mut schedule = excluding(schedule(timing(world, random)), world, random);
    if random.chance(150)
        && let Some(schedule) = &mut schedule
    {
        schedule.jitter = Some(Span::millis(1 + random.below(3_000)));
    }
    let depends_on = if has_flows(world) { parents(random, n) } else { Vec::new() };
    if !depends_on.is_empty() && random.chance(800) {
        schedule = None;
    }
    JobSpec {
        schedule,
        overlap,
        max_concurrent,
        priority: random.below(10) as u8,
        misfire: Misfire {
            late_after: late_after(world, random),
            grace: Some(Span::seconds(3 + random.below(30))),
            catch_up: *random.pick(&[CatchUp::None, CatchUp::Latest, CatchUp::All, CatchUp::All]),
            max_runs: 1 + random.below(5) as u32,
        },
        retry: RetryPolicy {
            max_retries: random.below(3) as u32,
            base_delay: Span::seconds(1),
            max_delay: Span::seconds(5),
            jitter: Jitter::Full,
        },
        on_lost: if random.chance(150) { OnLost::Fail } else { OnLost::Retry },
        timeout: if pulled { worker::timeout(random) } else { Span::seconds(6) },
        depends_on,
        ..JobSpec::new(format!("job-{n}"), target)
    }
}

fn late_after(world: &World, random: &Random) -> Span {
    let millis = 1_500 + random.below(3_000);
    if world.scene.patient { Span::minutes(1) } else { Span::millis(millis) }
}
