//! The record, read directly from the database with statements that are independent of the product.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context;
use serde_json::Value;
use sqlx::{PgConnection, Row as _};

use crate::{
    common::instant,
    history::{Job, Range, Row, State},
    oracle::{Audited, Planned, in_force},
};

/// The rows of ticks from `from` on. Ids start with the tick's milliseconds.
pub(crate) async fn rows(connection: &mut PgConnection, from: i64) -> anyhow::Result<Vec<Row>> {
    let lowest = format!("{:08x}-{:04x}-0000-0000-000000000000", from >> 16, from & 0xffff);
    let found = sqlx::query(
        "select r.id::text, coalesce(j.name, r.job::text), r.scheduled_at, r.due_at, r.state, r.skip_reason, r.attempt,
                r.fence, r.started_at, r.finished_at
           from runs r left join jobs j on j.id = r.job
          where r.id >= $1::text::uuid and r.cause = 1",
    )
    .bind(lowest)
    .fetch_all(connection)
    .await?;
    found
        .iter()
        .map(|row| {
            Ok(Row {
                id: row.try_get(0)?,
                job: row.try_get(1)?,
                tick: row.try_get(2)?,
                due_at: row.try_get(3)?,
                state: State::from_code(row.try_get(4)?).context("unknown state code")?,
                skip_reason: row.try_get(5)?,
                attempt: row.try_get::<i32, _>(6)?.unsigned_abs(),
                fence: row.try_get(7)?,
                started_at: row.try_get(8)?,
                finished_at: row.try_get(9)?,
            })
        })
        .collect()
}

pub(crate) async fn ranges(connection: &mut PgConnection) -> anyhow::Result<Vec<Range>> {
    let found = sqlx::query(
        "select j.name, s.from_tick, s.to_tick, s.count, s.reason from skip_ranges s join jobs j on j.id = s.job",
    )
    .fetch_all(connection)
    .await?;
    found
        .iter()
        .map(|row| {
            Ok(Range {
                job: row.try_get(0)?,
                from: row.try_get(1)?,
                to: row.try_get(2)?,
                count: row.try_get(3)?,
                reason: row.try_get(4)?,
            })
        })
        .collect()
}

/// Every planned job, with the periods in which its definitions applied.
pub(crate) async fn jobs(connection: &mut PgConnection, planned: &[Planned], until: i64) -> anyhow::Result<Vec<Job>> {
    let mut audit = audit(connection).await?;
    planned
        .iter()
        .map(|planned| {
            let changes = audit.remove(&planned.name).unwrap_or_default();
            let in_force =
                in_force(planned, &changes, until).map_err(|wrong| anyhow::anyhow!("{}: {wrong}", planned.name))?;
            Ok(Job {
                name: planned.name.clone(),
                kind: planned.kind,
                in_force,
                requested: planned.requested.clone(),
                answered: planned.answered.clone(),
                created_at: changes.iter().find(|change| change.action == "create").map(|change| change.effective_at),
                audited: changes.into_iter().map(|change| (change.action, change.effective_at)).collect(),
                created: planned.created,
            })
        })
        .collect()
}

/// The audit trail by job name. The campaign never uses a name twice.
async fn audit(connection: &mut PgConnection) -> anyhow::Result<BTreeMap<String, Vec<Audited>>> {
    let found = sqlx::query("select subject, action, at, detail from audit order by id").fetch_all(connection).await?;
    let mut names: HashMap<String, String> = HashMap::new();
    let mut audit: BTreeMap<String, Vec<Audited>> = BTreeMap::new();
    for row in found {
        let (subject, action, at): (String, String, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let detail: Value = serde_json::from_str(&row.try_get::<String, _>(3)?)?;
        if action == "create" {
            let name = detail["name"].as_str().context("a job without a name")?;
            names.insert(subject.clone(), name.to_owned());
        }
        let effective_at = if action == "create" { at } else { instant(&detail["x"])? };
        let name =
            names.get(&subject).with_context(|| format!("the audit has {subject}, for which it has no create"))?;
        let version = detail["version"].as_i64().unwrap_or(0);
        audit.entry(name.clone()).or_default().push(Audited { action, version, effective_at });
    }
    Ok(audit)
}
