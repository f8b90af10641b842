//! Damaged rows: each column of each table is set to an unknown code, a maximum or garbage, each in a different row and
//! all at once. Jobs with sound rows are served as before, and the damaged rows are listed.

use std::collections::BTreeSet;

use everytick_domain::{
    calendar::CalendarSpec,
    explain::Question,
    flow::{DependsOn, When},
    ids::{BackfillId, RunId},
    job::{Job, JobSpec},
    plan::Fate,
    run::Verdict,
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    Actor, AuditFilter, ChangeMark, ClaimQueue, JobFilter, Lease, NewBackfill, NewJob, PutCalendar, RowAnswer,
    RunFilter, Settle, SettleAnswer, StoreError,
    conformance::{Bench, TENANT, actor, born, by_name, job_id, new_run, overlapping, s, settle, tick, ticks},
};
use uuid::Uuid;

/// The number of jobs of each kind whose rows are damaged.
const BAD_JOBS: usize = 130;
const LEASE: Span = Span::seconds(30);
const KEPT: Span = Span::days(90);

/// A column that can be damaged.
#[derive(Clone, Debug)]
pub struct Column {
    pub table: String,
    pub name: String,
    pub kind: Kind,
    pub keys: Vec<String>,
    pub columns: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Number {
        max: i64,
    },
    Text,
    Json,
    /// Ids and other bytes, each value as an SQL literal.
    Bytes {
        values: [&'static str; 2],
    },
    Flag,
}

/// A connection that belongs to no store.
pub trait Raw {
    async fn columns(&mut self) -> Vec<Column>;
    /// Returns the number of changed rows; an error if the schema forbids the change.
    async fn run(&mut self, sql: String) -> Result<u64, String>;
    /// An id as a literal.
    fn id(id: Uuid) -> String;
}

/// Tables whose rows concern the whole installation, or that contain the notes themselves.
const OF_ALL: [&str; 3] = ["tenants", "counters", "unreadable"];

/// The objects that must be served despite all damage.
struct Victim {
    push: Job,
    queued: Job,
    parent: Job,
    backfill: BackfillId,
    waiting: RunId,
    lost: RunId,
    queue_waiting: RunId,
    queue_lost: RunId,
    flow: RunId,
    /// Ids of rows that must not be damaged.
    sound: BTreeSet<Uuid>,
}

fn queued(name: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..overlapping(name) }
}

fn after(name: &str, parent: &str) -> JobSpec {
    let depends_on = vec![DependsOn { job: parent.into(), when: When::Succeeded }];
    JobSpec { schedule: None, depends_on, ..overlapping(name) }
}

fn excluding(mut spec: JobSpec, calendar: &str) -> JobSpec {
    spec.schedule.as_mut().unwrap().exclude = vec![calendar.into()];
    spec
}

async fn create(bench: &Bench, specs: Vec<JobSpec>) -> Vec<Job> {
    let new = specs.into_iter().map(|spec| NewJob { id: job_id(TENANT, &spec.name), spec }).collect();
    let created = bench.store.create_jobs(TENANT, &actor(), new, None).await.unwrap();
    created.into_iter().map(|created| created.unwrap().job).collect()
}

async fn calendar(bench: &Bench, name: &str) {
    let spec = CalendarSpec::new("UTC", vec!["2027-01-01".parse().unwrap()], vec![]).unwrap();
    let put = PutCalendar { name: name.into(), spec, if_match: None };
    bench.store.put_calendar(TENANT, &actor(), put).await.unwrap();
}

fn claim_all() -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 1_000, lease: LEASE }
}

async fn backfill(bench: &Bench, n: u128, job: &str) -> BackfillId {
    let id = BackfillId::from_uuid(Uuid::from_u128(n));
    let stretch = everytick_domain::backfill::Stretch {
        from: s(10),
        to: s(30),
        order: everytick_domain::backfill::Order::Oldest,
    };
    let ask = NewBackfill { id, job: by_name(job), stretch, rate: None, payload: None, kept: KEPT, idempotency: None };
    bench.store.create_backfill(TENANT, &actor(), ask).await.unwrap();
    id
}

/// Creates rows in every table, for sound jobs and for jobs that are damaged later. Returns the lease of the node that
/// continues.
async fn fill(bench: &Bench) -> (Victim, Lease) {
    for n in 0..BAD_JOBS {
        calendar(bench, &format!("bad{n}")).await;
    }
    calendar(bench, "good").await;
    let dead = bench.join("dead", 1).await;
    for n in 0..BAD_JOBS {
        // If only one process can open the store, each join ends the previous lease.
        if bench.store.partitions() > 1 {
            bench.join(&format!("zombie{n}"), 1_000 + n as u128).await;
        }
    }
    let mut specs =
        vec![excluding(overlapping("push"), "good"), queued("queued"), overlapping("parent"), after("child", "parent")];
    for n in 0..BAD_JOBS {
        specs.push(excluding(overlapping(&format!("bad-push{n}")), &format!("bad{n}")));
        specs.push(queued(&format!("bad-queued{n}")));
        specs.push(overlapping(&format!("bad-parent{n}")));
        specs.push(after(&format!("bad-child{n}"), &format!("bad-parent{n}")));
    }
    let jobs = create(bench, specs).await;
    bench.go(60);
    // Damaged jobs first: their rows are older, and come before the sound ones in every order.
    for batch in jobs.chunks(4).rev() {
        let [push, queued, parent, _] = batch else { unreachable!() };
        for (job, rows) in [
            (push, vec![tick(push, 10, Fate::Run), born(push, 20), tick(push, 30, Fate::Run)]),
            (queued, vec![tick(queued, 10, Fate::Run)]),
            (parent, vec![born(parent, 10)]),
        ] {
            let answered = bench.record(&dead, ticks(job, bench.epoch(job).await, rows)).await;
            assert!(answered.iter().all(|answer| *answer == RowAnswer::Inserted));
        }
    }
    // Workers claim the waiting runs of the queue and never report.
    let mut taken = 0;
    while taken < BAD_JOBS + 1 {
        taken += bench.store.claim_queue(&claim_all()).await.unwrap().claims.len();
    }
    for batch in jobs.chunks(4).rev() {
        let row = tick(&batch[1], 20, Fate::Run);
        bench.record(&dead, ticks(&batch[1], bench.epoch(&batch[1]).await, vec![row])).await;
    }
    // Parents succeed, so that flows have steps. One run of each push job fails after a retry.
    let mut ended = Vec::new();
    for run in bench.store.load_claimed(&dead).await.unwrap() {
        if jobs.chunks(4).any(|batch| batch[2].id == run.job) {
            ended.push(settle(&run, Verdict::Succeeded));
        }
    }
    assert_eq!(ended.len(), BAD_JOBS + 1);
    bench.store.settle(&ended).await.unwrap();
    for batch in jobs.chunks(4) {
        let third = tick(&batch[0], 30, Fate::Run).tick.id;
        let run = bench.claim(&dead, third).await;
        bench.settle(&run, Verdict::Retry { due_at: s(60) }).await;
        let run = bench.claim(&dead, third).await;
        bench.settle(&run, Verdict::Failed).await;
        bench.store.trigger(TENANT, &actor(), new_run(&batch[3].spec.name, &batch[3].spec.name)).await.unwrap();
    }
    let good = backfill(bench, 1, "push").await;
    for n in 0..BAD_JOBS {
        backfill(bench, 2 + n as u128, &format!("bad-push{n}")).await;
        bench.store.set_queue(TENANT, &actor(), &format!("bad{n}"), Default::default()).await.unwrap();
    }
    let [push, queued, parent, child] = <[Job; 4]>::try_from(jobs.into_iter().take(4).collect::<Vec<_>>()).unwrap();
    let victim = Victim {
        waiting: tick(&push, 10, Fate::Run).tick.id,
        lost: tick(&push, 20, Fate::Run).tick.id,
        queue_waiting: tick(&queued, 20, Fate::Run).tick.id,
        queue_lost: tick(&queued, 10, Fate::Run).tick.id,
        flow: tick(&parent, 10, Fate::Run).tick.id,
        backfill: good,
        sound: BTreeSet::new(),
        push,
        queued,
        parent,
    };
    // The claims of the dead node become old and are listed.
    bench.go(200);
    bench.pass_claims(&dead, RunId::floor(s(100))).await;
    let lease = bench.join("living", 2).await;
    if bench.store.partitions() > 1 {
        bench.store.leave(&dead).await.unwrap();
    }
    let jobs = [victim.push.id, victim.queued.id, victim.parent.id, child.id].map(everytick_domain::ids::JobId::uuid);
    let runs = [victim.waiting, victim.lost, victim.queue_waiting, victim.queue_lost, victim.flow].map(RunId::uuid);
    let mut sound: BTreeSet<Uuid> = jobs.into_iter().chain(runs).collect();
    sound.extend([lease.incarnation.uuid(), dead.incarnation.uuid(), good.uuid(), Uuid::nil()]);
    sound.insert(RunId::of(child.id, everytick_domain::ids::Cause::Parent { flow: victim.flow }).uuid());
    (Victim { sound, ..victim }, lease)
}

/// Damages one row after another. Returns the cases, and how many changes the schema forbids.
async fn damage<R: Raw>(raw: &mut R, victim: &Victim) -> (Vec<String>, usize) {
    let sound: Vec<String> = victim.sound.iter().map(|id| R::id(*id)).collect();
    let (mut done, mut forbidden) = (Vec::new(), 0);
    let mut offsets = std::collections::HashMap::<String, usize>::new();
    for column in raw.columns().await {
        // If the highest id is in use, SQLite refuses every further row.
        let numbered = (&*column.table, &*column.name) == ("audit", "id");
        if numbered || OF_ALL.contains(&column.table.as_str()) {
            continue;
        }
        for value in values(column.kind) {
            let keys = column.keys.join(", ");
            let ids = ["id", "job", "run", "incarnation", "flow", "backfill", "parent", "holder"];
            let mut sound_row: Vec<String> = column
                .columns
                .iter()
                .filter(|name| ids.contains(&name.as_str()) && column.table != "audit")
                .map(|name| format!("({name} is null or {name} not in ({}))", sound.join(", ")))
                .collect();
            if column.columns.iter().any(|name| name == "name") {
                sound_row.push("name not in ('good', 'q', 'push', 'queued', 'parent', 'child')".into());
            }
            if column.columns.iter().any(|name| name == "calendar") {
                sound_row.push("calendar <> 'good'".into());
            }
            if column.table == "partitions" {
                sound_row.push("partition > 0".into());
            }
            let condition = if sound_row.is_empty() { "true".to_owned() } else { sound_row.join(" and ") };
            let (table, name) = (&column.table, &column.name);
            let offset = *offsets.get(table).unwrap_or(&0);
            let mut damaged = 0;
            // Damages one row in each quarter of the table, because a table may have several kinds of rows, sorted by kind.
            for quarter in 0..4 {
                let sql = format!(
                    "update {table} set {name} = {value} where ({keys}) = \
                     (select {keys} from {table} where {condition} order by {keys} \
                       limit 1 offset {offset} + {quarter} * (select count(*) / 4 from {table} where {condition}))"
                );
                damaged += raw.run(sql).await.unwrap_or_else(|_| {
                    forbidden += 1;
                    0
                });
            }
            if damaged > 0 {
                // The next case damages the next row, not the same one again.
                offsets.insert(table.clone(), offset + usize::from(!column.keys.contains(name)));
                done.push(format!("{table}.{name} = {value}"));
            }
        }
    }
    (done, forbidden)
}

fn values(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Number { max } => vec!["99".into(), max.to_string(), "-1".into()],
        Kind::Text => vec!["'{\"garbage\": '".into(), "''".into()],
        Kind::Json => vec!["'{\"garbage\": 1}'".into(), "'7'".into()],
        Kind::Bytes { values } => values.map(str::to_owned).into(),
        // Both values can be decoded.
        Kind::Flag => Vec::new(),
    }
}

/// Does the work of nodes, workers and users, as the engine does it: a batch that fails for its data is split.
pub async fn sound_rows_are_served_beside_damaged_ones<R: Raw>(bench: &Bench, raw: &mut R, cases_min: usize) {
    let (victim, lease) = fill(bench).await;
    let (done, forbidden) = damage(raw, &victim).await;
    eprintln!("{} cases; the schema forbids {forbidden} changes", done.len());
    assert!(done.len() >= cases_min, "{done:#?}");
    let store = &bench.store;
    bench.go(260);

    // Nodes.
    let cluster = store.cluster().await.unwrap();
    assert!(cluster.nodes.iter().any(|node| node.name == "living"));
    let mut acquired = 0;
    for partition in 0..store.partitions() {
        let one = [partition].into_iter().collect();
        acquired += store.acquire(&lease, &one).await.map_or(0, |got| got.len());
    }
    assert!(acquired + 40 >= usize::from(store.partitions()), "{acquired}");
    store.changes(&bench.all(), ChangeMark::default(), 10_000).await.unwrap();

    // Ticks.
    let seen = store.look_at_horizon(&lease, &bench.all(), s(300), None, 10_000).await.unwrap();
    for job in [&victim.push, &victim.queued, &victim.parent] {
        assert!(seen.iter().any(|seen| seen.id == job.id), "{}", job.spec.name);
        let loaded = store.load_jobs(&[job.id]).await.unwrap();
        assert_eq!(loaded.len(), 1, "{}", job.spec.name);
        let answered = bench.record(&lease, ticks(job, loaded[0].epoch.raw(), vec![born(job, 250)])).await;
        assert_eq!(answered, [RowAnswer::Inserted], "{}", job.spec.name);
        assert_eq!(bench.raise(job, loaded[0].epoch.raw(), Some(s(260))).await, [job.id]);
    }
    let page = store.load_horizon(&lease, &bench.all(), s(300), None, 10_000).await;
    assert!(page.is_err_and(|error| error.is_for_its_data()) || seen.len() > 3, "it loads, or fails for its data");

    // Runs that wait for a node.
    let mut claimed = Vec::new();
    for _ in 0..50 {
        let waiting = store.peek_waiting(&lease, &bench.all(), &[], None, 20).await.unwrap();
        let ids: Vec<RunId> = waiting.due.iter().map(|run| run.id).collect();
        claimed.extend(store.claim(&lease, &bench.all(), &ids).await.unwrap());
        if claimed.iter().any(|run| run.id == victim.waiting) {
            break;
        }
    }
    let run = claimed.iter().find(|run| run.id == victim.waiting).unwrap();
    assert_eq!(bench.settle(run, Verdict::Succeeded).await, SettleAnswer::Settled);

    // Runs whose node died.
    let mut found = false;
    for _ in 0..50 {
        let lost = store.load_lost(&lease, 20).await.unwrap();
        let jobs: Vec<_> = lost.iter().map(|run| run.job).collect();
        let readable: BTreeSet<_> = load_in_parts(bench, &jobs).await;
        let settles: Vec<Settle> =
            lost.iter().filter(|run| readable.contains(&run.job)).map(|run| settle(run, Verdict::Redeliver)).collect();
        found |= settle_in_parts(bench, &settles).await.contains(&victim.lost);
        if found {
            break;
        }
    }
    assert!(found, "the victim's lost run is found");

    // Workers.
    let mut claims = Vec::new();
    for _ in 0..50 {
        claims.extend(store.claim_queue(&ClaimQueue { limit: 20, ..claim_all() }).await.unwrap().claims);
    }
    assert!(claims.iter().any(|claim| claim.run.id == victim.queue_waiting), "the queue serves its other runs");
    let mut found = false;
    for _ in 0..50 {
        let overdue = store.load_overdue_claims(Span::ZERO, 20).await.unwrap();
        let settles: Vec<Settle> = overdue.iter().map(|claim| settle(&claim.claim.run, Verdict::Redeliver)).collect();
        found |= settle_in_parts(bench, &settles).await.contains(&victim.queue_lost);
        if found {
            break;
        }
    }
    assert!(found, "the victim's expired worker claim is found");
    store.look_at_queues(&[(TENANT, "q".into())]).await.unwrap();
    store.supersede_in_queues(100).await.unwrap();

    // Flows, backfills, and the tasks of the leader.
    let mut flows = Vec::new();
    while let Ok(page) = store.flows_with_steps(flows.last().copied(), 50).await
        && !page.is_empty()
    {
        flows.extend(page);
    }
    assert!(flows.contains(&victim.flow));
    assert_eq!(store.advance_flow(victim.flow).await.unwrap().started, 1);
    let mut backfills = Vec::new();
    while let Ok(page) = store.load_backfills(&bench.all(), backfills.last().copied(), 50).await
        && !page.is_empty()
    {
        backfills.extend(page);
    }
    assert!(backfills.contains(&victim.backfill));
    store.advance_backfill(&lease, victim.backfill, KEPT).await.unwrap();
    let mut walked = Vec::new();
    let mut after = None;
    loop {
        let page = store.walk_jobs(after, 100).await.unwrap();
        walked.extend(page.jobs.into_iter().map(|walked| walked.job.id));
        after = page.last;
        if after.is_none() {
            break;
        }
    }
    assert!(walked.contains(&victim.push.id));
    store.prune_audit(s(0), 100).await.unwrap();

    // Users.
    let mut names = BTreeSet::new();
    let mut next = None;
    loop {
        let page = store.list_jobs(TENANT, &JobFilter::default(), next.as_deref(), 100).await.unwrap();
        names.extend(page.items.into_iter().map(|record| record.job.spec.name.clone()));
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    assert!(["push", "queued", "parent", "child"].iter().all(|name| names.contains(*name)));
    let runs = store.list_runs(TENANT, &RunFilter::default(), None, 1_000).await.unwrap();
    assert!(runs.items.iter().any(|run| run.job == victim.push.id));
    let failed = RunFilter { states: vec![everytick_domain::run::State::Failed], ..RunFilter::default() };
    store.list_runs(TENANT, &failed, None, 1_000).await.unwrap();
    store.list_audit(TENANT, &AuditFilter::default(), None, 1_000).await.unwrap();
    store.list_queues(TENANT, None, 1_000).await.unwrap();
    store.list_calendars(TENANT, None, 1_000).await.unwrap();
    store.list_backfills(TENANT, victim.push.id, None, 100).await.unwrap();
    store.get_flow(TENANT, victim.flow).await.unwrap();
    store.get_job(TENANT, &by_name("push")).await.unwrap();
    store.load_facts(TENANT, &by_name("push"), Question::at(s(20)), KEPT).await.unwrap();
    store.cancel_job(TENANT, &Actor::local("test"), &by_name("queued")).await.unwrap();

    // The notes.
    let count = store.save_unreadable().await.unwrap();
    assert!(count > 0);
    let listed = store.list_unreadable(10).await.unwrap();
    assert_eq!((listed.count, listed.rows.len()), (count, 10.min(usize::try_from(count).unwrap())));
    let tables: BTreeSet<String> =
        store.list_unreadable(10_000).await.unwrap().rows.into_iter().map(|row| row.table).collect();
    eprintln!("{count} rows listed, of {tables:?}");
    assert!(tables.contains("jobs") && tables.contains("runs"), "{tables:?}");
    bench.go(260 + 2 * 86_400);
    assert_eq!(store.save_unreadable().await.unwrap(), 0, "rows that no process met for a day are removed");
}

/// Those of the jobs that can be loaded.
async fn load_in_parts(bench: &Bench, jobs: &[everytick_domain::ids::JobId]) -> BTreeSet<everytick_domain::ids::JobId> {
    let mut readable = BTreeSet::new();
    let mut parts = vec![jobs];
    while let Some(part) = parts.pop() {
        match bench.store.load_jobs(part).await {
            Ok(loaded) => readable.extend(loaded.iter().map(|loaded| loaded.job.id)),
            Err(_) if part.len() > 1 => parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2))),
            Err(error) => assert!(error.is_for_its_data(), "{error:?}"),
        }
    }
    readable
}

/// Those of the runs that could be settled.
async fn settle_in_parts(bench: &Bench, settles: &[Settle]) -> BTreeSet<RunId> {
    let mut settled = BTreeSet::new();
    let mut parts = vec![settles];
    while let Some(part) = parts.pop() {
        match bench.store.settle(part).await {
            Ok(answers) => {
                let done = part.iter().zip(answers).filter(|(_, answer)| *answer == SettleAnswer::Settled);
                settled.extend(done.map(|(settle, _)| settle.settlement.run));
            }
            Err(error @ (StoreError::Refused { .. } | StoreError::Unreadable { .. })) => match part {
                [_] => drop(error),
                _ => parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2))),
            },
            Err(error) => panic!("{error:?}"),
        }
    }
    settled
}
