//! Flows: the edges between jobs, the advancing of flows, and the requests of users. A transaction that ends a run also
//! writes a step. A later transaction processes it.

mod advance;
mod asks;
pub(super) mod edges;

use std::{collections::BTreeMap, sync::atomic::Ordering};

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    run::SkipReason,
    time::DbTime,
};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};
use uuid::Uuid;

use super::{Failed, SqliteStore, Write, rows};
use crate::{
    Actor, Advanced, CancelledFlow, FlowRecord, FlowStore, NodeRun, RerunFlow, Result, StoreError,
    flows::{FlowRow, How},
};

/// The text of a statement, from its file.
macro_rules! sql {
    ($name:literal) => {
        $crate::statement::statement(concat!("sqlite/", $name), include_str!(concat!("../sql/", $name, ".sql")))
    };
}
use sql;

#[async_trait]
impl FlowStore for SqliteStore {
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        advance::flows_with_steps(self, after, limit).await
    }
    async fn advance_flow(&self, flow: RunId) -> Result<Advanced> {
        advance::advance_flow(self, flow).await
    }
    async fn give_up_flow(&self, flow: RunId, why: &str) -> Result<Advanced> {
        advance::advance_by(self, flow, How::GiveUp(why)).await
    }
    fn take_steps_written(&self) -> bool {
        self.steps.swap(false, Ordering::AcqRel)
    }
    async fn get_flow(&self, tenant: TenantId, flow: RunId) -> Result<FlowRecord> {
        asks::get_flow(self, tenant, flow).await
    }
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow> {
        asks::cancel_flow(self, tenant, actor, flow).await
    }
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord> {
        asks::rerun_flow(self, tenant, actor, ask).await
    }
}

/// Writes a step for each of these ended runs that a flow may follow. Every transaction that ends runs calls this.
pub(super) async fn leave_steps(write: &mut Write, runs: impl IntoIterator<Item = RunId>) -> Result<()> {
    let any: bool = sqlx::query_scalar(sql!("flow_any")).fetch_one(&mut *write.tx).await.failed(write.doing)?;
    if !any {
        return Ok(());
    }
    let left = sqlx::query(sql!("flow_leave_steps"))
        .bind(rows::run_ids(runs).failed(write.doing)?)
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    write.left_steps |= left.rows_affected() > 0;
    Ok(())
}

fn flow_row(row: &SqliteRow) -> std::result::Result<FlowRow, sqlx::Error> {
    let graph = serde_json::from_str(row.try_get("graph")?)
        .map_err(|error| sqlx::Error::ColumnDecode { index: "graph".to_owned(), source: error.into() })?;
    Ok(FlowRow {
        id: rows::run_id(row, "id")?,
        tenant: rows::tenant(row)?,
        opened_at: rows::at(row, "opened_at")?,
        scheduled_at: rows::at(row, "scheduled_at")?,
        rerun_of: row.try_get::<Option<Uuid>, _>("rerun_of")?.map(RunId::from_uuid),
        cancelled_at: rows::time(row, "cancelled_at")?,
        graph,
    })
}

async fn find(connection: &mut SqliteConnection, id: RunId, doing: &'static str) -> Result<Option<FlowRow>> {
    let found = sqlx::query(sql!("flow_get")).bind(id.uuid()).fetch_optional(connection).await.failed(doing)?;
    found.as_ref().map(flow_row).transpose().failed(doing)
}

/// Inserts a flow's row.
async fn insert(write: &mut Write, row: &FlowRow) -> Result<()> {
    let graph = serde_json::to_string(&row.graph)
        .map_err(|error| StoreError::Refused { doing: write.doing, source: error.into() })?;
    sqlx::query(sql!("flow_insert"))
        .bind(row.id.uuid())
        .bind(row.tenant.raw())
        .bind(row.opened_at.millis())
        .bind(row.scheduled_at.millis())
        .bind(row.rerun_of.map(RunId::uuid))
        .bind(graph)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    Ok(())
}

/// The recorded runs of a flow.
async fn runs_of(
    connection: &mut SqliteConnection,
    row: &FlowRow,
    doing: &'static str,
) -> Result<BTreeMap<RunId, NodeRun>> {
    let asked = rows::run_ids(row.run_ids()).failed(doing)?;
    let found = sqlx::query(sql!("flow_runs")).bind(asked).fetch_all(connection).await.failed(doing)?;
    let run = |row: &SqliteRow| {
        let id = rows::run_id(row, "id")?;
        let run = NodeRun {
            id,
            state: rows::state(row)?,
            skip_reason: row.try_get::<Option<i16>, _>("skip_reason")?.map(SkipReason::from_code),
            started_at: rows::time(row, "started_at")?,
            finished_at: rows::time(row, "finished_at")?,
            error: row.try_get("error")?,
        };
        Ok((id, run))
    };
    found.iter().map(run).collect::<std::result::Result<_, sqlx::Error>>().failed(doing)
}

/// The root of a flow that has no row yet.
async fn root_of(connection: &mut SqliteConnection, id: RunId, doing: &'static str) -> Result<Option<Root>> {
    let found = sqlx::query(sql!("flow_root")).bind(id.uuid()).fetch_optional(connection).await.failed(doing)?;
    let root = |row: &SqliteRow| {
        Ok(Root {
            job: rows::job_id(row, "job")?,
            tenant: rows::tenant(row)?,
            scheduled_at: rows::at(row, "scheduled_at")?,
            opens: rows::state(row)?.is_open() || row.try_get("stepped")?,
        })
    };
    found.as_ref().map(root).transpose().failed(doing)
}

struct Root {
    job: JobId,
    tenant: TenantId,
    scheduled_at: DbTime,
    /// Whether it will open a flow. False for a run that ended before any job depended on its job.
    opens: bool,
}
