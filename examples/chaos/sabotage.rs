//! Takes a guard away, so that the checker can be seen to find what the guard prevents.

use anyhow::Context;
use sqlx::{Connection as _, PgConnection};

use crate::{
    common::{Random, sleep_ms},
    load::sleep_to_a_tick,
    postgres::Postgres,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Sabotage {
    /// The unique key of runs is dropped, and partitions are given to nodes behind the back of those that hold them.
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

    pub(crate) async fn begin(self, connection: &mut PgConnection) -> anyhow::Result<()> {
        if self == Self::Unique {
            let statements = "alter table runs drop constraint runs_pkey; create index runs_not_unique on runs (id)";
            sqlx::raw_sql(statements).execute(connection).await.context("could not drop the key")?;
        }
        Ok(())
    }
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
