//! The schema: the result of the migrations, and which releases may use it.

use std::{sync::Arc, time::Duration};

use everytick_domain::{
    ids::RunId,
    job::{Job, JobSpec},
    run::Verdict,
    schedule::{Fold, Gap, ScheduleSpec},
    time::Span,
};
use everytick_store::{
    AuditFilter, JobRef, PostgresOptions, PostgresStore, Raise, Store, StoreError,
    conformance::{
        LIMITS, START, TENANT, by_name, new_run, overlapping, pause, raised, s, schedule,
        server::{Server, options},
        spec,
    },
};
use sqlx::{Connection, PgConnection, Row as _};

/// The complete schema, from the catalogue: stable across servers, unlike the text of pg_dump. Leaves out the day
/// tables, except for the settings of one.
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

/// `UPDATE_SCHEMA=1 cargo test` rewrites the dump.
#[tokio::test]
async fn the_migrated_schema_matches_the_committed_dump() {
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
    assert_eq!(dump, on_record, "run with UPDATE_SCHEMA=1 and check the difference");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_on_an_empty_database_migrate_it_one_after_another() {
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
async fn a_newer_schema_is_used_only_if_it_declares_that_this_release_works_with_it() {
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
async fn an_invalid_url_and_a_missing_database_have_clear_messages() {
    let refused = PostgresStore::connect("nonsense", options(None), LIMITS).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unusable(text) if text.contains("write it like postgres://")),
        "{refused:?}"
    );
    let database = Server::shared().blank().await;
    let url = database.url.replace("/test_", "/no_such_");
    let refused = PostgresStore::connect(&url, options(None), LIMITS).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(text) if text.contains("does not exist")), "{refused:?}");
}

/// A session such as `pg_dump` reads the leases for long. Statements that queue behind the migration must not wait for
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_waits_for_a_table_does_not_block_other_statements() {
    let database = Server::shared().blank().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let mut steps: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    steps.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("000"));
    steps.sort();
    // Step 7 is the last one that changes the table of leases.
    steps.truncate(6);
    let mut text = include_str!("../../../src/postgres/sql/setup/migration_table.sql").to_owned();
    for (number, step) in (1..).zip(&steps) {
        text.push_str(&std::fs::read_to_string(step).unwrap());
        text.push_str(&format!("insert into schema_steps (step, name, works_from) values ({number}, '{number}', 1);"));
    }
    let mut reader = PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut reader).await.unwrap();
    sqlx::raw_sql("begin; select from leases").execute(&mut reader).await.unwrap();
    let url = database.url.clone();
    let migrating = tokio::spawn(async move { PostgresStore::migrate(&url).await });
    let mut node = PgConnection::connect(&database.url).await.unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut node).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("set lock_timeout = '30 s'; select from leases").execute(&mut node).await.unwrap();
    assert!(!migrating.is_finished(), "the migration tries again");
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    migrating.await.unwrap().unwrap();
}

fn zoned(name: &str) -> JobSpec {
    let cron = ScheduleSpec::cron("0 2 * * *", Some("Europe/Paris"), Gap::default(), Fold::default(), name).unwrap();
    JobSpec { schedule: Some(schedule(cron)), ..spec(name) }
}

/// Starts a node of a release with this zone-data version. The cursors were planned with older data.
async fn start_with(opened: &super::Opened, zone_data: i64) -> Arc<PostgresStore> {
    let set = "update counters set value = 202501 where name = 'zone_data'";
    sqlx::raw_sql(set).execute(&mut opened.connect().await).await.unwrap();
    let options = PostgresOptions { zone_data, ..options(Some(opened.bench.clock.clone())) };
    Arc::new(PostgresStore::connect(&opened.database.url, options, LIMITS).await.unwrap())
}

#[tokio::test]
async fn newer_zone_data_lowers_the_cursors_of_zoned_jobs_and_older_data_changes_nothing() {
    let opened = super::bench().await;
    let bench = &opened.bench;
    let (paris, plain) = (bench.create(zoned("paris")).await, bench.create(spec("plain")).await);
    for job in [&paris, &plain] {
        bench.raise(job, 1, Some(s(86_400))).await;
    }
    bench.go(5);
    start_with(&opened, 202_501).await.close().await;
    assert_eq!((bench.cursor(&paris).await, bench.epoch(&paris).await), (Some(s(86_400)), 1));
    let mark = bench.store.changes(&bench.all(), Default::default(), 0).await.unwrap().mark;
    start_with(&opened, 202_502).await.close().await;
    assert_eq!((bench.cursor(&paris).await, bench.epoch(&paris).await), (Some(s(5)), raised(s(5))));
    assert_eq!((bench.cursor(&plain).await, bench.epoch(&plain).await), (Some(s(86_400)), 1), "the job has no zone");
    let changed = bench.store.changes(&bench.all(), mark, 10).await.unwrap().jobs;
    assert!(changed.iter().any(|changed| changed.id == paris.id), "its owner reloads it");
}

#[tokio::test]
async fn newer_zone_data_raises_no_cursor_and_no_other_counter() {
    let opened = super::bench().await;
    let (bench, mut look) = (&opened.bench, opened.connect().await);
    let paris = bench.create(zoned("paris")).await;
    let due = bench.cursor(&paris).await;
    bench.go(3 * 86_400);
    start_with(&opened, 202_502).await.close().await;
    assert_eq!(bench.cursor(&paris).await, due, "a tick that is due is not passed");
    let closed = "select value from counters where name = 'days_closed'";
    let closed: i64 = sqlx::query_scalar(closed).fetch_one(&mut look).await.unwrap();
    assert_eq!(closed, 0, "no day was dropped");
}

#[tokio::test]
async fn a_node_with_older_zone_data_does_not_raise_a_cursor_that_newer_data_replanned() {
    let opened = super::bench().await;
    let bench = &opened.bench;
    let (paris, plain) = (bench.create(zoned("paris")).await, bench.create(spec("plain")).await);
    let newer = start_with(&opened, 999_912).await;
    let raise = async |store: &dyn Store, job: &Job, at| {
        let raise = Raise { job: job.id, epoch: bench.load(job).await.epoch, cursor: Some(s(at)) };
        store.raise_cursors(&[raise]).await.unwrap()
    };
    assert_eq!(raise(&*bench.store, &paris, 86_400).await, [paris.id], "the node has nothing left to do");
    assert_eq!(bench.cursor(&paris).await, Some(START), "newer data may have a tick in between");
    assert_eq!(raise(&*bench.store, &plain, 86_400).await, [plain.id]);
    assert_eq!(bench.cursor(&plain).await, Some(s(86_400)));
    raise(&*newer, &paris, 86_400).await;
    assert_eq!(bench.cursor(&paris).await, Some(s(86_400)));
}

#[tokio::test]
async fn the_repeat_of_a_raise_that_met_a_locked_cursor_respects_newer_zone_data_too() {
    let opened = super::bench().await;
    let bench = &opened.bench;
    let (paris, plain) = (bench.create(zoned("paris")).await, bench.create(spec("plain")).await);
    start_with(&opened, 999_912).await.close().await;
    let mut session = opened.connect().await;
    let lock = format!("begin; select from cursors where job = '{}' for update", plain.id);
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut session).await.unwrap();
    let mut raises = Vec::new();
    for job in [&paris, &plain] {
        raises.push(Raise { job: job.id, epoch: bench.load(job).await.epoch, cursor: Some(s(86_400)) });
    }
    assert_eq!(bench.store.raise_cursors(&raises).await.unwrap(), [paris.id]);
    assert_eq!(bench.cursor(&paris).await, Some(START), "newer data may have a tick in between");
}

/// A node raises the cursors of two jobs, the second before the first, while another node replans both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replanning_and_raising_cursors_do_not_deadlock() {
    let opened = super::bench().await;
    let bench = &opened.bench;
    let mut jobs = [bench.create(zoned("a")).await, bench.create(zoned("b")).await];
    jobs.sort_by_key(|job| job.id);
    let [first, second] = &jobs;
    let mut raiser = opened.connect().await;
    let begin = format!(
        "begin; select from epochs where job = '{0}' for key share; update cursors set next_tick = next_tick where job = '{0}'",
        second.id
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(begin)).execute(&mut raiser).await.unwrap();
    let starting = start_with(&opened, 999_912);
    let raising = async {
        // Waits until the replanning has locked the first job and waits for the second.
        let waits =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        let mut look = opened.connect().await;
        while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut look).await.unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let raise = sqlx::query(include_str!("../../../src/postgres/sql/cursors/raise_cursors.sql"))
            .bind(vec![first.id.uuid()])
            .bind(vec![1_i64])
            .bind(vec![s(86_400).millis()])
            .bind(999_912_i64);
        let raised: i64 = raise.fetch_one(&mut raiser).await.unwrap().get("count");
        sqlx::raw_sql("commit").execute(&mut raiser).await.unwrap();
        raised
    };
    let (_, raised) = tokio::join!(starting, raising);
    assert_eq!(raised, 0, "it skips a job that is being replanned");
}

/// A newer node starts and expands the schema while this one works: this node's prepared statements keep working.
#[tokio::test]
async fn a_node_keeps_working_while_a_newer_one_expands_the_schema() {
    let opened = super::bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let work = async |n: i64| {
        let name = format!("j{n}");
        let job = bench.create(overlapping(&name)).await;
        let at = (n + 1) * 100;
        bench.go(at);
        bench.load(&job).await;
        let run = bench.claimed(&lease, &job, at).await;
        bench.settle(&run, Verdict::Succeeded).await;
        bench.trigger(new_run(&name, &name)).await;
        for waiting in bench.due(&lease).await {
            let claimed = bench.claim(&lease, waiting).await;
            bench.settle(&claimed, Verdict::Failed).await;
        }
        bench.edit(&name, pause()).await;
        assert!(!bench.history(&job).await.is_empty());
        bench.store.get_job(TENANT, &by_name(&name)).await.unwrap();
        bench.store.get_job(TENANT, &JobRef::Id(job.id)).await.unwrap();
        bench.store.list_jobs(TENANT, &Default::default(), None, 10).await.unwrap();
        bench.store.list_runs(TENANT, &Default::default(), None, 10).await.unwrap();
        bench.store.get_run(TENANT, run.id).await.unwrap();
        bench.store.list_attempts(TENANT, run.id).await.unwrap();
        bench.store.list_audit(TENANT, &AuditFilter::default(), None, 10).await.unwrap();
        bench.store.load_horizon(&lease, &bench.all(), s(at + 60), None, 10).await.unwrap();
        bench.store.cluster().await.unwrap();
        bench.store.renew(&lease, Span::days(9), &everytick_store::Beat::of(RunId::floor(s(at)))).await.unwrap();
        bench.store.load_lost(&lease, 10).await.unwrap();
        bench.store.prune(s(at), 10).await.unwrap();
    };
    // More than once: the server caches a generic plan only after some uses.
    for n in 0..3 {
        work(n).await;
    }
    let mut newer = opened.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
            and relname !~ '^runs_[0-9]' and relname not in ('schema_steps', 'test_clock') order by 1",
    )
    .fetch_all(&mut newer)
    .await
    .unwrap();
    assert!(tables.len() > 10, "{tables:?}");
    let mut text = "begin; set local lock_timeout = 5000;".to_owned();
    for table in tables {
        text.push_str(&format!("alter table {table} add column later text;"));
    }
    text.push_str("insert into schema_steps (step, name, works_from) values (900, 'expands', 1); commit");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut newer).await.unwrap();
    for n in 3..6 {
        work(n).await;
    }
    // A node of this release that starts now works too, as after a rolled-back deploy.
    let again = PostgresStore::connect(&opened.database.url, options(Some(bench.clock.clone())), LIMITS).await.unwrap();
    assert_eq!(again.list_jobs(TENANT, &Default::default(), None, 10).await.unwrap().items.len(), 6);
    again.close().await;
}
