//! The schema: what the migrations make, and who may use it.

use everytick_store::{
    PostgresStore, Store, StoreError,
    conformance::{
        LIMITS, START, s,
        server::{Server, options},
        spec,
    },
};
use sqlx::{Connection, PgConnection};

/// Everything that makes the schema what it is, from the catalogue: stable over servers, unlike pg_dump's text. The days'
/// tables are left out, but for the settings of one.
const DUMP: &str = "
with tables as (
    select c.oid, c.relname, c.relkind, c.reloptions
      from pg_class c
     where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relname !~ '^runs_[0-9]+$'
), lines as (
    select relname as of, 0 as kind, 0 as place,
           'table ' || relname || coalesce(' partition by ' || pg_get_partkeydef(oid), '')
               || coalesce(' with (' || array_to_string(reloptions, ', ') || ')', '') as line
      from tables
    union all
    select t.relname, 1, a.attnum,
           '    ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
               || case when a.attcollation <> 0 and a.attcollation <> y.typcollation then ' collate ' || quote_ident(l.collname) else '' end
               || case when a.attnotnull then ' not null' else '' end
               || case when a.attidentity <> '' then ' generated always as identity' else '' end
               || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
      from tables t
      join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
      join pg_type y on y.oid = a.atttypid
      left join pg_collation l on l.oid = a.attcollation
      left join pg_attrdef d on d.adrelid = t.oid and d.adnum = a.attnum
    union all
    select t.relname, 2, row_number() over (partition by t.relname order by n.conname), '    constraint ' || n.conname || ' ' || pg_get_constraintdef(n.oid)
      from tables t
      join pg_constraint n on n.conrelid = t.oid and n.contype in ('c', 'p', 'u')
    union all
    select t.relname, 3, row_number() over (partition by t.relname order by i.indexrelid::regclass::text), '    ' || pg_get_indexdef(i.indexrelid)
      from tables t
      join pg_index i on i.indrelid = t.oid and not i.indisprimary
    union all
    select '~' || p.proname, 4, 0, pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = 'public'::regnamespace
    union all
    select '~~' || s.relname, 5, 0, 'sequence ' || s.relname
      from pg_class s where s.relnamespace = 'public'::regnamespace and s.relkind = 'S'
    union all
    select '~~~day', 6, 0, 'a day with (' || array_to_string(c.reloptions, ', ') || ') ' || count(i.*) || ' indexes'
      from pg_class c join pg_index i on i.indrelid = c.oid
     where c.oid = (select max(inhrelid) from pg_inherits where inhparent = 'runs'::regclass)
     group by c.reloptions
)
select line from lines order by of collate \"C\", kind, place";

/// `UPDATE_SCHEMA=1 cargo test` writes the dump anew.
#[tokio::test]
async fn the_migrated_schema_is_the_one_on_record() {
    let database = Server::shared().blank().await;
    PostgresStore::connect(&database.url, options(None), LIMITS).await.unwrap().close().await;
    let mut look = PgConnection::connect(&database.url).await.unwrap();
    let lines: Vec<String> = sqlx::query_scalar(DUMP).fetch_all(&mut look).await.unwrap();
    let mut dump =
        "-- What the migrations make. Written by the test that compares it; see tests/it/postgres/schema.rs.\n"
            .to_owned();
    for line in lines {
        if !line.starts_with(' ') {
            dump.push('\n');
        }
        dump.push_str(line.trim_end());
        dump.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &dump).unwrap();
    }
    let on_record = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(dump, on_record, "run with UPDATE_SCHEMA=1 and look at the difference");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_on_an_empty_database_take_turns() {
    let database = Server::shared().blank().await;
    let start = || {
        let url = database.url.clone();
        tokio::spawn(async move { PostgresStore::connect(&url, options(None), LIMITS).await })
    };
    for started in [start(), start(), start(), start()] {
        let store = started.await.unwrap().unwrap();
        assert!(store.now().await.unwrap().millis() > 1_700_000_000_000, "the server's own clock");
        store.close().await;
    }
}

#[tokio::test]
async fn a_newer_schema_is_used_if_it_says_so_and_refused_if_not() {
    let database = Server::shared().blank().await;
    PostgresStore::migrate(&database.url).await.unwrap();
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let add = "insert into schema_steps (step, name, works_from) values (900, 'expands', 1)";
    sqlx::raw_sql(add).execute(&mut admin).await.unwrap();
    PostgresStore::connect(&database.url, options(None), LIMITS).await.unwrap().close().await;
    let add = "insert into schema_steps (step, name, works_from) values (901, 'contracts', 900)";
    sqlx::raw_sql(add).execute(&mut admin).await.unwrap();
    let refused = PostgresStore::connect(&database.url, options(None), LIMITS).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(said) if said.contains("newer everytick")), "{refused:?}");
}

#[tokio::test]
async fn a_url_that_cannot_be_read_and_a_database_that_is_not_there_are_said_to_be_so() {
    for (url, said) in [("nonsense", "cannot be read"), ("postgres://", "")] {
        if said.is_empty() {
            continue;
        }
        let refused = PostgresStore::connect(url, options(None), LIMITS).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Unusable(text) if text.contains(said)), "{refused:?}");
    }
    let database = Server::shared().blank().await;
    let url = database.url.replace("/test_", "/no_such_");
    let refused = PostgresStore::connect(&url, options(None), LIMITS).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(text) if text.contains("does not exist")), "{refused:?}");
}

#[tokio::test]
async fn newer_zone_data_has_the_ticks_ahead_looked_for_anew_and_older_data_changes_nothing() {
    let opened = super::bench().await;
    let bench = &opened.bench;
    let job = bench.create(spec("j")).await;
    bench.raise(&job, 1, Some(s(86_400))).await;
    let mut admin = opened.connect().await;
    for (planned, cursor) in [(999_912, s(86_400)), (202_501, START)] {
        let set = format!("update counters set value = {planned} where name = 'zone_data'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut admin).await.unwrap();
        let options = options(Some(bench.clock.clone()));
        PostgresStore::connect(&opened.database.url, options, LIMITS).await.unwrap().close().await;
        assert_eq!(bench.cursor(&job).await, Some(cursor), "{planned}");
    }
}
