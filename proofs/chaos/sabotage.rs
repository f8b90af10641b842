//! Removes a guard, to show that the checker finds what the guard prevents.

use anyhow::Context;
use everytick_store::PostgresStore;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::{
    common::{Random, sleep_ms},
    load::sleep_to_a_tick,
    net::NODES,
    postgres::Postgres,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Sabotage {
    /// Drops the primary key of `runs`, and gives each node its own table of partitions, so that several nodes own the same
    /// partitions
    Unique,
    /// Accepts settlements with any fence. Needs a binary built with the feature `mutants`
    Fence,
}

/// Time between two false assignments, so that the affected nodes work again before the next one.
const FALSE_ASSIGNMENT_EVERY_MS: i64 = 1_500;
/// How long before a tick a false assignment is made: the new owner should read it in time, the old owner should not.
const BEFORE_MS: (i64, i64) = (30, 330);

impl Sabotage {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Unique => "the primary key of runs is dropped, and nodes own the same partitions",
            Self::Fence => "settlements are accepted with any fence",
        }
    }

    /// The mutant that the nodes run with.
    pub(crate) const fn mutant(self) -> Option<&'static str> {
        match self {
            Self::Unique => None,
            Self::Fence => Some("UnfencedSettle"),
        }
    }

    /// Must run before the nodes start: a running node would not use its separate table.
    pub(crate) async fn begin(self, postgres: &Postgres) -> anyhow::Result<()> {
        if self != Self::Unique {
            return Ok(());
        }
        PostgresStore::migrate(&postgres.url).await?;
        let mut statements =
            "alter table runs drop constraint runs_pkey; create index runs_not_unique on runs (id);".to_owned();
        for n in 0..NODES {
            let schema = own_schema(n);
            statements.push_str(&format!(
                "create schema {schema}; create table {schema}.partitions (like public.partitions including all); \
                 insert into {schema}.partitions select * from public.partitions; \
                 create table {schema}.schema_steps (like public.schema_steps including all); \
                 insert into {schema}.schema_steps select * from public.schema_steps;"
            ));
        }
        let mut connection = postgres.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(statements))
            .execute(&mut connection)
            .await
            .context("could not drop the primary key")?;
        Ok(())
    }

    /// The database URL of node `n`.
    pub(crate) fn url(sabotage: Option<Self>, url: &str, n: usize) -> String {
        match sabotage {
            Some(Self::Unique) => format!("{url}?options[search_path]={},public", own_schema(n)),
            Some(Self::Fence) | None => url.to_owned(),
        }
    }
}

/// The schema with a node's own table of partitions, in which other owners are not visible.
fn own_schema(n: usize) -> String {
    format!("node_{n}")
}

/// Repeatedly assigns partitions to nodes that do not own them, each time just before a tick. With the primary key this must
/// not change the record.
pub(crate) async fn assign_falsely(url: String, seed: u64) {
    let mut random = Random::new(seed);
    loop {
        let (low, high) = BEFORE_MS;
        // Connect first, so that the assignment is in time. The database is down now and then.
        let Ok(mut connection) = PgConnection::connect(&url).await else {
            sleep_ms(FALSE_ASSIGNMENT_EVERY_MS).await;
            continue;
        };
        sleep_to_a_tick(FALSE_ASSIGNMENT_EVERY_MS, -random.between(low, high)).await;
        let _ = assign_falsely_once(&mut connection).await;
    }
}

async fn assign_falsely_once(connection: &mut PgConnection) -> sqlx::Result<()> {
    let statement = "update partitions p
        set holder = (select l.incarnation from leases l
                       where not l.ended and l.incarnation is distinct from p.holder order by l.renewed_at desc limit 1),
            fence = p.fence + 1
      where p.partition % 2 = 0
        and exists (select 1 from leases l where not l.ended and l.incarnation is distinct from p.holder)";
    sqlx::query(statement).execute(connection).await?;
    Ok(())
}

/// Waits until the first node has created the schema.
pub(crate) async fn with_schema(postgres: &Postgres) -> anyhow::Result<PgConnection> {
    let mut connection = postgres.connect().await?;
    for _ in 0..600 {
        let table: Option<String> =
            sqlx::query_scalar("select to_regclass('runs')::text").fetch_one(&mut connection).await?;
        if table.is_some() {
            return Ok(connection);
        }
        sleep_ms(100).await;
    }
    anyhow::bail!("no node created the schema")
}
