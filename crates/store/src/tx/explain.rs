//! Reads the facts about one instant of a job, or about one run, in one snapshot. The job may be deleted.

use std::collections::BTreeMap;

use async_trait::async_trait;
use everytick_domain::{
    explain::{
        Backfilled, ClaimFacts, Facts, FlowRun, IN_THE_WAY_SHOWN_MAX, Parent, Question, QueueFacts, RunFacts, RunRow,
        What,
    },
    ids::{Cause, JobId, RunId, TenantId},
    job::Job,
    overlap::{Open, superseded_by},
    plan::SkipRange,
    run::{CauseKind, SkipReason, State},
    time::{DbTime, Span},
};

use super::{
    JobRow,
    flow::{FlowTx, get_flow},
};
use crate::{
    AttemptRecord, AuditRecord, BacklogAction, JobRef, Result, RunRecord, StoreError,
    facts::{ACTIONS_MAX, CHANGES_MAX, actions, attempt, changes, flow_facts, named, row},
};

/// The verbs of explanations.
#[async_trait]
pub trait ExplainTx: FlowTx {
    /// A deleted job that still has a row; by name, the last deleted one.
    async fn find_deleted_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow>;
    /// The last skip range of a job that begins at or before this instant.
    async fn range_before(&mut self, tenant: TenantId, job: JobId, at: DbTime) -> Result<Option<SkipRange>>;
    /// The newest backfills over this instant, without the states of their runs.
    async fn backfills_over(&mut self, job: JobId, at: DbTime) -> Result<Vec<Backfilled>>;
    /// The newest audit rows about a job, a run or another subject; at most `limit`.
    async fn audit_of(&mut self, tenant: TenantId, subject: &str, limit: usize) -> Result<Vec<AuditRecord>>;
    /// The attempts of a run after which the run continued, in order.
    async fn attempts_of(&mut self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>>;
    /// The newest runs of a job with ids from `low` to before `high` that are not skips; at most `limit`. Reads a
    /// bounded number of rows.
    async fn runs_between(
        &mut self,
        tenant: TenantId,
        job: JobId,
        low: RunId,
        high: RunId,
        limit: usize,
    ) -> Result<Vec<RunRecord>>;
    /// The newest run or skip of each of the jobs.
    async fn last_runs(&mut self, jobs: &[JobId]) -> Result<Vec<RunRecord>>;
    /// A queue, as the waiting run sees it at this instant.
    async fn queue_facts(&mut self, tenant: TenantId, queue: &str, run: RunId, now: DbTime) -> Result<QueueFacts>;
    /// Runs of a job with this concurrency key that workers have claimed; at most `limit`.
    async fn claimed_with_key(&mut self, job: JobId, key: &str, limit: usize) -> Result<Vec<RunId>>;
    /// The claim of a worker or receiver on a run.
    async fn worker_claim(&mut self, tenant: TenantId, run: RunId) -> Result<Option<ClaimFacts>>;
    /// The living node that owns a partition.
    async fn partition_owner(&mut self, partition: u16, now: DbTime) -> Result<Option<String>>;
}

pub async fn load_facts<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    job: &JobRef,
    question: Question,
    kept: Span,
) -> Result<Facts> {
    let found = match tx.find_job(tenant, job).await {
        Err(StoreError::NotFound(_)) => tx.find_deleted_job(tenant, job).await?,
        found => found?,
    };
    let now = tx.read_clock().await?;
    let at = question.instant(&found.job, now);
    let id = found.job.id;
    let run = match found_run(tx, tenant, RunId::of(id, Cause::Tick(at))).await? {
        None => None,
        Some(found) => Some(Box::new(run_facts(tx, tenant, found, now).await?)),
    };
    let range = tx.range_before(tenant, id, at).await?;
    let backfilled = backfilled(tx, id, at).await?;
    let mut facts = Facts {
        job: found.job,
        cursor: found.cursor,
        now,
        kept_from: now.minus(kept),
        changes: changes(tx.audit_of(tenant, &id.to_string(), CHANGES_MAX).await?),
        calendars: Vec::new(),
        run,
        range: range.filter(|range| range.to >= at),
        backfilled,
        last: None,
        parents: Vec::new(),
    };
    facts.calendars = tx.calendars_named(tenant, &named(&facts)).await?;
    if facts.job.schedule.is_none() {
        if let Some(last) = tx.last_runs(&[id]).await?.pop() {
            facts.last = Some(Box::new(run_facts(tx, tenant, last, now).await?));
        }
        facts.parents = parents(tx, tenant, &facts.job).await?;
    }
    Ok(facts)
}

pub async fn load_run_facts<T: ExplainTx + ?Sized>(tx: &mut T, tenant: TenantId, run: RunId) -> Result<RunFacts> {
    let run = tx.get_run(tenant, run).await?;
    let now = tx.read_clock().await?;
    run_facts(tx, tenant, run, now).await
}

async fn backfilled<T: ExplainTx + ?Sized>(tx: &mut T, job: JobId, at: DbTime) -> Result<Vec<Backfilled>> {
    let mut found = tx.backfills_over(job, at).await?;
    let runs: Vec<RunId> = found.iter().map(|backfilled| backfilled.run).collect();
    let states = tx.run_states(&runs).await?;
    for backfilled in &mut found {
        backfilled.state = states.get(&backfilled.run).copied();
    }
    found.sort_by_key(|backfilled| backfilled.created_at);
    Ok(found)
}

/// The parents of a job, each with its newest run.
async fn parents<T: ExplainTx + ?Sized>(tx: &mut T, tenant: TenantId, job: &Job) -> Result<Vec<Parent>> {
    let names: Vec<String> = job.spec.depends_on.iter().map(|parent| parent.job.clone()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<JobId> = tx.jobs_called(tenant, &names, &[]).await?.into_iter().map(|(id, _)| id).collect();
    let runs = tx.last_runs(&ids).await?;
    let newest = |name: &str| runs.iter().find(|run| run.job_name == name);
    let run = |run: &RunRecord| FlowRun {
        run: run.id,
        state: run.state,
        finished_at: run.finished_at,
        error: run.error.clone(),
    };
    let parent = |parent: &everytick_domain::flow::DependsOn| Parent {
        job: parent.job.clone(),
        when: parent.when,
        run: newest(&parent.job).map(run),
    };
    Ok(job.spec.depends_on.iter().map(parent).collect())
}

async fn run_facts<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    run: RunRecord,
    now: DbTime,
) -> Result<RunFacts> {
    let job = tx.load_jobs(&[run.job]).await?.pop().map(|found| found.job);
    let mut facts = RunFacts {
        now,
        run: row(&run),
        job_name: run.job_name.clone(),
        attempts: Vec::new(),
        actions: Vec::new(),
        others: Vec::new(),
        open: BTreeMap::new(),
        same_key: Vec::new(),
        same_key_count: 0,
        queue: None,
        owner: None,
        is_cancelling: false,
        claim: None,
        flow: None,
        backfill: None,
        redriven: None,
        is_edited_since: false,
        job,
    };
    if run.range.is_some() {
        return Ok(facts);
    }
    facts.actions = actions(tx.audit_of(tenant, &run.id.to_string(), ACTIONS_MAX).await?);
    if let Some(flow) = run.flow {
        facts.flow = match get_flow(tx, tenant, flow).await {
            Err(StoreError::NotFound(_)) => None,
            found => Some(flow_facts(found?)),
        };
    }
    if run.cause == CauseKind::Backfill {
        let of = tx.backfills_over(run.job, run.scheduled_at).await?;
        facts.backfill = of.into_iter().find(|backfilled| backfilled.run == run.id);
    }
    match run.state {
        State::Waiting => add_waiting(tx, tenant, &run, &mut facts).await?,
        State::Claimed => facts.claim = tx.worker_claim(tenant, run.id).await?,
        State::Failed => {
            let redriven = RunId::redriven(run.job, run.id);
            let states = tx.run_states(&[redriven]).await?;
            facts.redriven = states.get(&redriven).map(|state| (redriven, *state));
            facts.is_edited_since = is_edited_since(tx, tenant, &run, facts.job.as_ref()).await?;
        }
        State::Cancelled => {
            if let Some(newer) = run.error.as_deref().and_then(superseded_by) {
                facts.others = found_run(tx, tenant, newer).await?.iter().map(row).collect();
            }
        }
        State::Skipped if run.skip_reason == Some(SkipReason::Overlap) => {
            add_overlapping(tx, tenant, &run, &mut facts).await?;
        }
        _ => {}
    }
    Ok(facts)
}

/// A run; `None` if it was pruned.
async fn found_run<T: ExplainTx + ?Sized>(tx: &mut T, tenant: TenantId, run: RunId) -> Result<Option<RunRecord>> {
    match tx.get_run(tenant, run).await {
        Err(StoreError::NotFound(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether the definition of the job was edited after a run ended. A pause also updates the job, but is no edit.
async fn is_edited_since<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    run: &RunRecord,
    job: Option<&Job>,
) -> Result<bool> {
    let Some((job, ended)) = job.zip(run.finished_at).filter(|(job, ended)| job.updated_at >= *ended) else {
        return Ok(false);
    };
    let changes = changes(tx.audit_of(tenant, &job.id.to_string(), CHANGES_MAX).await?);
    Ok(changes.iter().any(|changed| changed.effective_at >= ended && matches!(changed.what, What::Edited(_))))
}

/// What a waiting run waits for: other runs, a worker or a node.
async fn add_waiting<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    run: &RunRecord,
    facts: &mut RunFacts,
) -> Result<()> {
    let now = facts.now;
    let Some(job) = facts.job.clone() else { return Ok(()) };
    if run.attempt > 0 {
        facts.attempts = tx.attempts_of(tenant, run.id).await?.into_iter().map(attempt).collect();
    }
    facts.is_cancelling = tx.backlog_action(job.id).await? == Some(BacklogAction::Cancel);
    if job.spec.in_progress_max().is_some() {
        (facts.others, facts.open) = open(tx, tenant, &job).await?;
    }
    if let Some(key) = job.spec.key_of(run.payload.as_deref()) {
        let runs = tx.claimed_with_key(job.id, &key, job.spec.max_per_key as usize).await?;
        facts.same_key_count = runs.len();
        for same in runs.into_iter().take(IN_THE_WAY_SHOWN_MAX) {
            facts.same_key.push(row(&tx.get_run(tenant, same).await?));
        }
    }
    match job.spec.target.queue() {
        Some(queue) => facts.queue = Some(tx.queue_facts(tenant, queue, run.id, now).await?),
        None => facts.owner = tx.partition_owner(job.partition, now).await?,
    }
    Ok(())
}

/// The open runs of a job, and the rows of the first of them; those in progress come first.
async fn open<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    job: &Job,
) -> Result<(Vec<RunRow>, BTreeMap<RunId, Open>)> {
    let mut open = tx.open_runs(&[job]).await?.remove(&job.id).unwrap_or_default();
    open.sort_by_key(|run| (run.state == State::Waiting && run.attempt == 0, run.id));
    let mut rows = Vec::new();
    for run in open.iter().take(OPEN_SHOWN_MAX) {
        rows.push(row(&tx.get_run(tenant, run.id).await?));
    }
    Ok((rows, open.into_iter().map(|run| (run.id, run.into())).collect()))
}

/// How many open runs of a job are loaded as rows, to show what a run waits for.
const OPEN_SHOWN_MAX: usize = 20;

/// The runs that may have been open when a skip was recorded, and the run of a later tick that was due together with it.
async fn add_overlapping<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    run: &RunRecord,
    facts: &mut RunFacts,
) -> Result<()> {
    if let Some(job) = facts.job.clone() {
        (facts.others, _) = open(tx, tenant, &job).await?;
    }
    let first = RunId::floor(DbTime::EPOCH);
    let recorded = RunId::floor(run.finished_at.unwrap_or(run.due_at).plus(Span::millis(1)));
    for (low, high) in [(first, run.id), (run.id, recorded)] {
        let near = tx.runs_between(tenant, run.job, low, high, IN_THE_WAY_SHOWN_MAX).await?;
        facts.others.extend(near.iter().map(row));
    }
    Ok(())
}
