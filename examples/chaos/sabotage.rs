//! Takes a guard away, so that the checker can be seen to find what the guard prevents.

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
    /// The unique key of runs is dropped, and each node has a table of partitions to itself: it is told that it holds
    /// whatever it takes, and so are the others.
    Unique,
    /// Settlements are taken whatever their fence: the binary is one that can make named mistakes.
    Fence,
}

/// How long a lie is left alone, so that its victims are back at work when the next one comes.
const LIE_MS: i64 = 1_500;
/// How long before a tick a lie is told: the new holder is to hear of it in time, the old one is not.
const BEFORE_MS: (i64, i64) = (30, 330);

impl Sabotage {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Unique => "the unique key of runs is dropped, and leases lie",
            Self::Fence => "settlements are taken whatever their fence",
        }
    }

    /// The named mistake that the nodes make.
    pub(crate) const fn mutant(self) -> Option<&'static str> {
        match self {
            Self::Unique => None,
            Self::Fence => Some("UnfencedSettle"),
        }
    }

    /// Before the nodes start: afterwards they would not notice the tables set apart.
    pub(crate) async fn begin(self, postgres: &Postgres) -> anyhow::Result<()> {
        if self != Self::Unique {
            return Ok(());
        }
        PostgresStore::migrate(&postgres.url).await?;
        let mut statements =
            "alter table runs drop constraint runs_pkey; create index runs_not_unique on runs (id);".to_owned();
        for n in 0..NODES {
            let apart = apart(n);
            statements.push_str(&format!(
                "create schema {apart}; create table {apart}.partitions (like public.partitions including all); \
                 insert into {apart}.partitions select * from public.partitions; \
                 create table {apart}.schema_steps (like public.schema_steps including all); \
                 insert into {apart}.schema_steps select * from public.schema_steps;"
            ));
        }
        let mut connection = postgres.connect().await?;
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.context("could not drop the key")?;
        Ok(())
    }

    /// Where the node `n` finds the database.
    pub(crate) fn url(sabotage: Option<Self>, url: &str, n: usize) -> String {
        match sabotage {
            Some(Self::Unique) => format!("{url}?options[search_path]={},public", apart(n)),
            Some(Self::Fence) | None => url.to_owned(),
        }
    }
}

/// The schema with a node's own table of partitions: nobody tells it that others hold them too.
fn apart(n: usize) -> String {
    format!("apart_{n}")
}

/// Tells nodes, again and again and just before a tick, that they hold what another one holds. With the unique key this must
/// change nothing on the record.
pub(crate) async fn lie(url: String, seed: u64) {
    let mut random = Random(seed);
    loop {
        let (low, high) = BEFORE_MS;
        // Connected before, so that the lie comes when it should. The database is away now and then.
        let Ok(mut connection) = PgConnection::connect(&url).await else {
            sleep_ms(LIE_MS).await;
            continue;
        };
        sleep_to_a_tick(LIE_MS, -random.between(low, high)).await;
        let _ = lie_once(&mut connection).await;
    }
}

async fn lie_once(connection: &mut PgConnection) -> sqlx::Result<()> {
    let statement = "update partitions p
        set holder = (select l.incarnation from leases l
                       where not l.ended and l.incarnation is distinct from p.holder order by l.renewed_at desc limit 1),
            fence = p.fence + 1
      where p.partition % 2 = 0
        and exists (select 1 from leases l where not l.ended and l.incarnation is distinct from p.holder)";
    sqlx::query(statement).execute(connection).await?;
    Ok(())
}

/// Whether the schema is there: the first node makes it.
pub(crate) async fn with_schema(postgres: &Postgres) -> anyhow::Result<PgConnection> {
    let mut connection = postgres.connect().await?;
    for _ in 0..600 {
        let there: Option<String> =
            sqlx::query_scalar("select to_regclass('runs')::text").fetch_one(&mut connection).await?;
        if there.is_some() {
            return Ok(connection);
        }
        sleep_ms(100).await;
    }
    anyhow::bail!("no node made the schema")
}
