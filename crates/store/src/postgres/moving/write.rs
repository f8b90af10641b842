//! Writes one batch in one transaction: its rows, the values derived from them, and the position.

use std::collections::BTreeMap;

use everytick_domain::{ids::JobId, job::JobSpec, partition::PARTITIONS, run::State};
use sqlx::{Postgres, postgres::PgArguments, query::Query};
use uuid::Uuid;

use super::{
    super::{DbTx, Failed, PostgresStore, compact::Form, define::Listed, rows},
    DOING, begin_write, check_no_live_node,
};
use crate::{
    Result, StoreError,
    moving::{Batch, Column, Heights, Part, Progress},
};

/// Writes a batch and its position.
pub(crate) async fn write(
    store: &PostgresStore,
    id: Uuid,
    part: &'static Part,
    batch: Batch,
    heights: Heights,
    (before, after): (&Progress, &Progress),
) -> Result<()> {
    let mut write = begin_write(store).await?;
    let written = write_in(&mut write, id, part, batch, heights, (before, after)).await;
    write.finish(written).await
}

async fn write_in(
    write: &mut DbTx,
    id: Uuid,
    part: &'static Part,
    mut batch: Batch,
    heights: Heights,
    (before, after): (&Progress, &Progress),
) -> Result<()> {
    let place = |progress: &Progress| progress.place.as_ref().map(serde_json::to_string).transpose();
    let place = |progress| place(progress).map_err(|error| StoreError::Failed { doing: DOING, source: error.into() });
    let marked = write
        .execute(query!(
            "move/move_mark",
            id,
            part.name,
            place(before)?,
            place(after)?,
            i64::try_from(after.moved).unwrap_or(i64::MAX),
            after.done
        ))
        .await?;
    if marked != 1 {
        return Err(StoreError::Unusable("another process is moving into the target".to_owned()));
    }
    check_no_live_node(&mut write.tx).await?;
    if batch.rows == 0 {
        return Ok(());
    }
    batch.columns.iter_mut().for_each(without_nul);
    let claimed = note_claims(write, part, &batch, heights).await?;
    let derived = derived(part, &batch);
    let query = batch.columns.iter().chain(&derived).fold(sqlx::query(part.write), bind);
    let written = query.execute(&mut *write.tx).await.failed_or_refused(DOING)?.rows_affected();
    if written != batch.rows as u64 {
        return Err(StoreError::Unusable(format!("{written} of {} rows of {} were written", batch.rows, part.table)));
    }
    if !claimed.is_empty() {
        write.execute(query!("move/move_claims_list", claimed)).await?;
    }
    Ok(())
}

/// Copies the leases of the source's nodes as ended ones, because those nodes no longer run. Returns the runs that they
/// had claimed. These are listed, so that the next search for lost claims finds them.
async fn note_claims(write: &mut DbTx, part: &Part, batch: &Batch, heights: Heights) -> Result<Vec<Uuid>> {
    let [Some(ids), Some(states), Some(incarnations), Some(nodes)] =
        ["id", "state", "incarnation", "node"].map(|name| part.column(batch, name))
    else {
        return Ok(Vec::new());
    };
    let (mut nodes_of, mut claimed): (BTreeMap<Uuid, String>, Vec<Uuid>) = Default::default();
    let rows = ids.ids().iter().zip(states.shorts()).zip(incarnations.ids()).zip(nodes.texts());
    for (((id, state), incarnation), node) in rows {
        // A worker's claim has a lease of its own, which is copied too.
        if let (Some(id), Some(incarnation)) = (id, incarnation.filter(|incarnation| !incarnation.is_nil()))
            && state.map(State::from_code) == Some(State::Claimed)
        {
            nodes_of.entry(incarnation).or_insert_with(|| node.clone().unwrap_or_default());
            claimed.push(*id);
        }
    }
    if claimed.is_empty() {
        return Ok(claimed);
    }
    write
        .execute(query!(
            "move/move_claims",
            nodes_of.keys().copied().collect::<Vec<_>>(),
            nodes_of.into_values().collect::<Vec<_>>(),
            heights.lease_fence
        ))
        .await?;
    Ok(claimed)
}

/// Values that PostgreSQL stores in addition to a row's own: the partition of a job, and the columns by which lists
/// filter jobs.
fn derived(part: &Part, batch: &Batch) -> Vec<Column> {
    match part.name {
        "waiting" | "epochs" | "cursors" => {
            let jobs = part.column(batch, "job").map(Column::ids).unwrap_or_default();
            let partition =
                |job: &Option<Uuid>| job.map(|job| rows::partition(JobId::from_uuid(job).partition(PARTITIONS)));
            vec![Column::Short(jobs.iter().map(partition).collect())]
        }
        "jobs" => {
            let specs = part.column(batch, "spec").map(Column::texts).unwrap_or_default();
            let (mut enabled, mut targets) = (Vec::new(), Vec::new());
            let (mut labels, mut search) = (Vec::new(), Vec::new());
            for spec in specs {
                // A definition that cannot be decoded is copied as it is.
                let spec = spec.as_deref().and_then(|spec| serde_json::from_str::<JobSpec>(spec).ok());
                let listed = spec.as_ref().map(|spec| Listed::of(spec, Form::Full));
                enabled.push(Some(listed.as_ref().is_some_and(|listed| listed.enabled)));
                targets.push(Some(listed.as_ref().map_or_else(String::new, |listed| listed.target.to_owned())));
                labels.push(Some(listed.as_ref().map_or_else(|| "{}".to_owned(), |listed| listed.labels.clone())));
                search.push(Some(listed.map_or_else(String::new, |listed| listed.search)));
            }
            vec![Column::Flag(enabled), Column::Text(targets), Column::Text(labels), Column::Text(search)]
        }
        _ => Vec::new(),
    }
}

fn without_nul(column: &mut Column) {
    if let Column::Text(texts) = column {
        texts.iter_mut().filter(|text| text.as_ref().is_some_and(|text| text.contains('\0'))).for_each(|text| {
            *text = rows::texts(text.as_ref());
        });
    }
}

fn bind<'q>(query: Query<'q, Postgres, PgArguments>, column: &'q Column) -> Query<'q, Postgres, PgArguments> {
    match column {
        Column::Id(values) => query.bind(values),
        Column::Long(values) => query.bind(values),
        Column::Word(values) => query.bind(values),
        Column::Short(values) => query.bind(values),
        Column::Flag(values) => query.bind(values),
        Column::Text(values) => query.bind(values),
        Column::Bytes(values) => query.bind(values),
    }
}
