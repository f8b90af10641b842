//! Writes one batch in one transaction: its rows, the values derived from them, and the position.

use std::collections::BTreeMap;

use everytick_domain::{ids::JobId, job::JobSpec, partition::PARTITIONS, run::State};
use sqlx::{AssertSqlSafe, Postgres, postgres::PgArguments, query::Query};
use uuid::Uuid;

use super::{
    super::{DbTx, Failed, PostgresStore, compact::Form, define::Listed, rows},
    DOING, begin_write, check_no_live_node,
};
use crate::{
    Result, StoreError,
    moving::{Batch, Column, Heights, Kind, Part, Progress},
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
    let query = sqlx::query(AssertSqlSafe(statement(part)));
    let query = batch.columns.iter().chain(&derived).fold(query, bind);
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

/// The statement that inserts rows of a part: the columns as arrays, then those of [`derived`].
pub(crate) fn statement(part: &Part) -> String {
    let (overriding, more, conflict) = match part.name {
        // Audit rows keep their ids.
        "audit" => (" overriding system value", "", ""),
        // The default tenant exists already.
        "tenants" => (
            "",
            "",
            " on conflict (id) do update set (name, jobs, state, work, quotas, own_quotas, egress, own_egress, shell, \
                      created_at, suspended_at) = (excluded.name, excluded.jobs, excluded.state, excluded.work, \
                      excluded.quotas, excluded.own_quotas, excluded.egress, excluded.own_egress, excluded.shell, \
                      excluded.created_at, excluded.suspended_at)",
        ),
        // The new schema has settings already.
        "settings" => ("", "", " on conflict (name) do update set value = excluded.value"),
        // Every job has changed just now.
        "epochs" => {
            ("", ", n.queue is not null, everytick_now() * 2097152 + (nextval('changes_seq') % 1048576) * 2", "")
        }
        _ => ("", "", ""),
    };
    let columns: Vec<(&str, Kind)> = part.columns.iter().chain(derived_columns(part)).copied().collect();
    let names = columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let inserted = if more.is_empty() { names.clone() } else { format!("{names}, guarded, seq") };
    let value =
        |(name, _): &(&str, Kind)| if *name == "labels" { "n.labels::jsonb".to_owned() } else { format!("n.{name}") };
    let values = columns.iter().map(value).collect::<Vec<_>>().join(", ");
    let array = |(index, (_, kind)): (i32, &(&str, Kind))| format!("${index}::{}[]", type_of(*kind));
    let arrays = (1..).zip(&columns).map(array).collect::<Vec<_>>().join(", ");
    let table = part.name;
    format!(
        "insert into {table} ({inserted}){overriding} select {values}{more} from unnest({arrays}) as n ({names}){conflict}"
    )
}

const fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Id => "uuid",
        Kind::Long => "bigint",
        Kind::Word => "integer",
        Kind::Short => "smallint",
        Kind::Flag => "boolean",
        Kind::Text => "text",
        Kind::Bytes => "bytea",
    }
}

/// The columns that PostgreSQL has in addition to a row's own: the partition of a job, and the columns by which lists
/// filter jobs.
fn derived_columns(part: &Part) -> &'static [(&'static str, Kind)] {
    match part.name {
        "waiting" | "epochs" | "cursors" => &[("partition", Kind::Short)],
        "jobs" => &[("enabled", Kind::Flag), ("target", Kind::Text), ("labels", Kind::Text), ("search", Kind::Text)],
        _ => &[],
    }
}

/// Their values.
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
