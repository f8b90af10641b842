//! Row-level security: nodes connect as a role that owns nothing, and the database separates tenants.

use std::{any::Any, process::Command, sync::Arc};

use everytick_domain::{
    ids::{RunId, TenantId},
    run::Verdict,
    time::Span,
};
use everytick_store::{
    Beat, PostgresStore, Store, StoreError,
    conformance::{
        Bench, LIMITS, TENANT, by_name, new_run, overlapping, s,
        server::{Database, Server, as_app, options},
        spec,
    },
    shared::statements,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use super::{Opened, plans::plan};

const OTHER: TenantId = TenantId::from_raw(2);
const DAY: i64 = 86_400;

/// A bench whose store owns no table.
async fn bench() -> Opened {
    let mut opened = None;
    let bench = Bench::open(async |clock, _| {
        let database = Server::shared().protected().await;
        let store = PostgresStore::connect(&as_app(&database.url), options(Some(clock)), LIMITS).await.unwrap();
        assert!(store.has_row_level_security());
        let store = Arc::new(store);
        opened = Some((store.clone(), database));
        let store: Arc<dyn Store> = store;
        (store, Box::new(()) as Box<dyn Any + Send + Sync>)
    })
    .await;
    let (store, database) = opened.unwrap();
    Opened { bench, store, database }
}

async fn admin(opened: &Opened, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut opened.connect().await).await.unwrap();
}

/// Executes a statement as the application's role, and rolls back: the number of rows, or the code of the error.
async fn as_role(app: &mut PgConnection, role: &str, tenant: Option<i32>, text: &str) -> Result<usize, String> {
    let tenant = tenant.map(|tenant| format!("; set local everytick.tenant = '{tenant}'")).unwrap_or_default();
    let begin = format!("begin; set local role {role}{tenant}");
    sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *app).await.unwrap();
    let done = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).fetch_all(&mut *app).await;
    sqlx::raw_sql("rollback").execute(&mut *app).await.unwrap();
    done.map(|rows| rows.len())
        .map_err(|error| error.as_database_error().and_then(|error| error.code()).unwrap().into_owned())
}

const DENIED: &str = "42501";

/// The tables with rows of tenants, each with its column, among them the day tables.
async fn tables(look: &mut PgConnection) -> Vec<(String, String)> {
    sqlx::query_as(
        "select c.relname::text, a.attname::text
           from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and (a.attname = 'tenant' or c.relname = 'tenants' and a.attname = 'id')
          order by 1",
    )
    .fetch_all(look)
    .await
    .unwrap()
}

/// A statement for each of these tables that inserts a row of a tenant, made from the catalogue. A run is in a day table.
async fn inserts(look: &mut PgConnection, tenant: i32) -> Vec<(String, String)> {
    let text = "
        select c.relname::text,
               format('insert into %I (%s) values (%s) on conflict do nothing', c.relname,
                      string_agg(quote_ident(a.attname), ', ' order by a.attnum),
                      string_agg(case
                          when a.attname = 'tenant' or c.relname = 'tenants' and a.attname = 'id' then $1::text
                          when c.relname = 'runs' and a.attname = 'id' then quote_literal(overlay($2 placing lpad($1::text, 12, '0') from 25))
                          when a.atttypid = 'uuid'::regtype then 'gen_random_uuid()'
                          when a.attname = 'state' then '0'
                          when a.atttypid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) then '1'
                          when a.atttypid = 'bool'::regtype then 'false'
                          when a.atttypid = 'bytea'::regtype then format('''\\x%s''', lpad($1::text, 64, '0'))
                          when a.atttypid = 'jsonb'::regtype then '''{}'''
                          else quote_literal('of-' || $1) end, ', ' order by a.attnum))
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attidentity = ''
          left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relname !~ '^runs_[0-9]+$'
           and (c.relname = 'tenants' or exists (select 1 from pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant'))
           and (a.attnotnull and d.oid is null or a.attname = 'tenant')
         group by c.relname order by 1";
    let first = RunId::floor(s(0)).uuid().to_string();
    sqlx::query_as(text).bind(tenant).bind(first).fetch_all(look).await.unwrap()
}

#[tokio::test]
async fn a_tenant_sees_and_writes_only_its_rows_in_every_table_also_by_the_name_of_a_day() {
    let opened = bench().await;
    let mut look = opened.connect().await;
    for tenant in [1, 2] {
        for (table, insert) in inserts(&mut look, tenant).await {
            let done = sqlx::raw_sql(AssertSqlSafe(insert.clone())).execute(&mut look).await;
            assert!(done.is_ok(), "{table}: {insert}: {done:?}");
        }
    }
    let app = &mut PgConnection::connect(&as_app(&opened.database.url)).await.unwrap();
    let everything: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') \
            and relname <> 'test_clock'",
    )
    .fetch_all(&mut look)
    .await
    .unwrap();
    assert!(everything.len() > 40, "{}", everything.len());
    for table in everything {
        let read = sqlx::raw_sql(AssertSqlSafe(format!("select from {table}"))).execute(&mut *app).await;
        let code = read.unwrap_err().as_database_error().unwrap().code().unwrap().into_owned();
        assert_eq!(code, DENIED, "{table}: the login role itself may read nothing");
    }
    let tables = tables(&mut look).await;
    assert!(tables.len() > 30, "{}", tables.len());
    let mut days = 0;
    for (table, column) in &tables {
        let all: i64 = sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {table}")))
            .fetch_one(&mut look)
            .await
            .unwrap();
        let day = table.strip_prefix("runs_").is_some();
        assert!(all == 2 || day && all == 0, "{table} has a row of each tenant: {all}");
        days += usize::from(day && all == 2);
        let own = usize::from(all == 2);
        let select = format!("select from {table}");
        assert_eq!(as_role(app, "everytick_engine", None, &select).await, Ok(own * 2), "{table}");
        assert_eq!(as_role(app, "everytick_api", None, &select).await, Ok(0), "{table}: without a tenant");
        assert_eq!(as_role(app, "everytick_api", Some(2), &select).await, Ok(own), "{table}");
        let others = format!("select from {table} where {column} <> 2");
        assert_eq!(as_role(app, "everytick_api", Some(2), &others).await, Ok(0), "{table}");
        // A row of the other tenant is not found, and no row can be given to the other tenant.
        let own_columns = if table == "tenants" { "name = name" } else { "tenant = tenant" };
        let touch = format!("update {table} set {own_columns} where {column} = 1 returning 1");
        let may_not = ["audit", "tokens"].contains(&table.as_str());
        let touched = if may_not { Err(DENIED.to_owned()) } else { Ok(0) };
        assert_eq!(as_role(app, "everytick_api", Some(2), &touch).await, touched, "{table}");
        if own == 1 {
            let given = as_role(app, "everytick_api", Some(2), &format!("update {table} set {column} = 1")).await;
            assert_eq!(given, Err(DENIED.to_owned()), "{table}");
        }
    }
    assert_eq!(days, 1, "the rows of runs are in one day");
    for (table, insert) in inserts(&mut look, 1).await {
        assert_eq!(as_role(app, "everytick_api", Some(2), &insert).await, Err(DENIED.to_owned()), "{table}");
    }
    for role in ["everytick_api", "everytick_engine"] {
        for change in ["update audit set action = 'x'", "delete from audit", "truncate audit", "drop table audit"] {
            assert_eq!(as_role(app, role, Some(1), change).await, Err(DENIED.to_owned()), "{role}: {change}");
        }
    }
}

#[tokio::test]
async fn every_table_with_a_tenant_has_forced_security_and_exactly_two_policies() {
    let opened = bench().await;
    let wrong = "
        select c.relname::text
          from pg_class c
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
           and (c.relname = 'tenants' or exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant'))
           and (not c.relrowsecurity or not c.relforcerowsecurity
                or (select array_agg(polname::text || polcmd::text || polpermissive::text order by polname) from pg_policy
                     where polrelid = c.oid) is distinct from '{api*true,engine*true}')";
    let found = async || {
        let found: Vec<String> = sqlx::query_scalar(wrong).fetch_all(&mut opened.connect().await).await.unwrap();
        found
    };
    assert_eq!(found().await, Vec::<String>::new());
    admin(&opened, "create table extra (tenant integer); alter table jobs no force row level security").await;
    assert_eq!(found().await.len(), 2, "the query finds tables without it");
}

/// A statement whose filter by tenant was forgotten shows another tenant's row to a node that owns the tables.
#[tokio::test]
async fn a_statement_without_its_tenant_filter_shows_no_row_of_another_tenant() {
    const HERE: &str = "postgres::rls::a_statement_without_its_tenant_filter_shows_no_row_of_another_tenant";
    const MUTATED: &str = "EVERYTICK_TEST_TENANT_MUTANT";
    if std::env::var_os(MUTATED).is_none() {
        let folder = tempfile::tempdir().unwrap();
        let statement = include_str!("../../../src/postgres/sql/runs/get_run.sql");
        let mutated = statement.replace("r.tenant = $1", "$1::integer is not null");
        assert_ne!(mutated, statement);
        std::fs::create_dir_all(folder.path().join("postgres/runs")).unwrap();
        std::fs::write(folder.path().join("postgres/runs/get_run.sql"), mutated).unwrap();
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", HERE]).env(MUTATED, "1").env("EVERYTICK_TEST_SQL", folder.path());
        let done = again.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
        return;
    }
    let opened = bench().await;
    opened.bench.create(spec("j")).await;
    let run = opened.bench.trigger(new_run("j", "k")).await.id;
    let owner = PostgresStore::connect(&opened.database.url, options(None), LIMITS).await.unwrap();
    assert!(!owner.has_row_level_security());
    assert_eq!(owner.get_run(OTHER, run).await.unwrap().id, run, "the statement is broken");
    let found = opened.store.get_run(OTHER, run).await;
    assert!(matches!(found, Err(StoreError::NotFound("run"))), "{found:?}");
    assert_eq!(opened.store.get_run(TENANT, run).await.unwrap().id, run);
}

/// The pages that a statement reads, as counted by the server.
async fn pages(look: &mut PgConnection, call: &str) -> u32 {
    let explain = format!("explain (analyze, buffers, costs off, timing off) execute {call}");
    // The first execution may read pages of the catalogue.
    sqlx::raw_sql(AssertSqlSafe(explain.clone())).fetch_all(&mut *look).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(look).await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let top = steps.iter().find(|step| step.contains("Buffers: ")).unwrap_or_else(|| panic!("{steps:?}"));
    let counts = top.split("shared ").nth(1).unwrap_or("").split_whitespace();
    counts.filter_map(|count| count.split_once('=').and_then(|(_, count)| count.parse::<u32>().ok())).sum()
}

#[tokio::test]
async fn reading_a_job_costs_a_tenant_at_most_a_tenth_more() {
    let opened = bench().await;
    let mut look = opened.connect().await;
    let fill = "
        insert into jobs (id, tenant, name, version, created_at, created_by, updated_at, enabled, target, labels, search, spec)
          select gen_random_uuid(), n % 3, 'j' || n, 1, 0, '', 0, true, 'queue', '{}', '', '' from generate_series(1, 5000) n;
        insert into epochs (job, tenant, partition, epoch, seq) select id, tenant, 0, 1, 1 from jobs;
        insert into cursors (job, tenant, partition, next_tick) select id, tenant, 0, 0 from jobs;
        insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence)
          select overlay((select substr(pg_get_expr(relpartbound, oid), 19, 36) from pg_class where relname = 'runs_20261116')
                         placing substr(id::text, 25) from 25)::uuid, tenant, id, 1, 0, 0, 0, false, false, 1, 0, 1 from jobs;
        insert into job_parents (tenant, child, parent, when_ended)
          select tenant, gen_random_uuid(), gen_random_uuid(), 1 from jobs;
        insert into flow_steps (run, flow, tenant) select gen_random_uuid(), gen_random_uuid(), tenant from jobs;
        insert into flows (id, tenant, opened_at, scheduled_at, graph) select gen_random_uuid(), tenant, 0, 0, '{}' from jobs;
        analyze jobs, epochs, cursors, runs, job_parents, flow_steps, flows";
    sqlx::raw_sql(fill).execute(&mut look).await.unwrap();
    let job: uuid::Uuid =
        sqlx::query_scalar("select id from jobs where name = 'j1'").fetch_one(&mut look).await.unwrap();
    let forms = [
        ("job_by_name", include_str!("../../../src/postgres/sql/jobs/job_by_name.sql"), "s(1, 'j1')".to_owned()),
        (
            "last_runs",
            include_str!("../../../src/postgres/sql/reads/last_runs.sql"),
            format!("s(array['{job}'::uuid])"),
        ),
        ("flow_children", include_str!("../../../src/postgres/sql/edges/flow_children.sql"), format!("s('{job}')")),
        ("backlog_of", include_str!("../../../src/postgres/sql/backlog/backlog_of.sql"), format!("s('{job}')")),
    ];
    let mut read = [0, 0];
    for (of, role) in ["reset role", "set role everytick_api; set everytick.tenant = '1'"].into_iter().enumerate() {
        sqlx::raw_sql(role).execute(&mut look).await.unwrap();
        for (name, text, call) in &forms {
            plan(&mut look, name, &statements::of_file("postgres", text)).await;
            read[of] += pages(&mut look, call).await;
        }
    }
    let [without, with] = read;
    println!("pages to read a job: {without} as the owner, {with} as a tenant");
    assert!(without > 5 && f64::from(with) <= f64::from(without) * 1.1, "{without} {with}");
}

async fn day_tables(look: &mut PgConnection) -> Vec<String> {
    let days = "select inhrelid::regclass::text from pg_inherits where inhparent = 'runs'::regclass order by 1";
    sqlx::query_scalar(days).fetch_all(look).await.unwrap()
}

#[tokio::test]
async fn a_node_that_owns_no_table_creates_and_drops_the_days_of_ten_days() {
    let opened = bench().await;
    let bench = &opened.bench;
    let mut look = opened.connect().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    for day in 0..10 {
        let now = day * DAY + 10;
        bench.go(now);
        let run = bench.claimed(&lease, &job, now).await;
        bench.settle(&run, Verdict::Succeeded).await;
        let epoch = bench.epoch(&job).await;
        bench.raise(&job, epoch, Some(s(now + DAY))).await;
        bench.pass_claims(&lease, RunId::floor(s(now))).await;
        bench.store.renew(&lease, Span::days(365), &Beat::of(RunId::floor(s(now)))).await.unwrap();
        bench.store.prune(s(now - 2 * DAY), 100).await.unwrap();
    }
    let days = day_tables(&mut look).await;
    // From two days before the last one, up to a week after it.
    assert_eq!((days[0].as_str(), days.len()), ("runs_20261123", 3 + 7), "{days:?}");
    let left: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relname ~ '^runs_[0-9]{8}$' and not relforcerowsecurity",
    )
    .fetch_all(&mut look)
    .await
    .unwrap();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(bench.history(&job).await.len(), 3);
    assert_eq!(bench.store.prune_audit(s(-40 * DAY), 10).await.unwrap(), 0);
    let recent = bench.store.prune_audit(s(0), 10).await.unwrap_err();
    assert!(format!("{recent:?}").contains("audit rows of the last 30 days stay"), "{recent:?}");
}

/// A node of an earlier release, which connects as the owner, made a day without policies.
#[tokio::test]
async fn a_day_that_an_earlier_release_made_is_protected_before_it_is_addressed_by_its_name() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let day = "create table runs_20261124 (like runs including all); \
               alter table runs attach partition runs_20261124 for values from ('019a9360-7800-0000-0000-000000000000') \
                 to ('019a9886-d400-0000-0000-000000000000')";
    let bounds = RunId::floor(s(8 * DAY)).uuid().to_string();
    let end = RunId::floor(s(9 * DAY)).uuid().to_string();
    let day = day
        .replace("019a9360-7800-0000-0000-000000000000", &bounds)
        .replace("019a9886-d400-0000-0000-000000000000", &end);
    admin(&opened, &day).await;
    bench.go(8 * DAY + 10);
    let run = bench.claimed(&lease, &job, 8 * DAY + 10).await;
    bench.settle(&run, Verdict::Succeeded).await;
    assert_eq!(bench.run(run.id).await.state, everytick_domain::run::State::Succeeded);
    bench.store.renew(&lease, Span::days(365), &Beat::of(RunId::floor(s(8 * DAY)))).await.unwrap();
    let forced = "select relforcerowsecurity from pg_class where relname = 'runs_20261124'";
    assert!(sqlx::query_scalar::<_, bool>(forced).fetch_one(&mut opened.connect().await).await.unwrap());
}

/// A database whose owner is not a superuser, and its URL.
async fn owned(owner: &str) -> (Database, String) {
    let database = Server::shared().blank().await;
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let name: String = sqlx::query_scalar("select current_database()::text").fetch_one(&mut admin).await.unwrap();
    let own = format!(
        "create role {owner} login createrole; alter database {name} owner to {owner}; alter schema public owner to {owner}"
    );
    sqlx::raw_sql(AssertSqlSafe(own)).execute(&mut admin).await.unwrap();
    let url = database.url.replace("//postgres@", &format!("//{owner}@"));
    (database, url)
}

#[tokio::test]
async fn nodes_of_the_owner_work_before_and_after_row_level_security_is_installed() {
    let (_database, url) = owned("everytick_owner_a").await;
    let owner = PostgresStore::connect(&url, options(None), LIMITS).await.unwrap();
    let bench = Bench::open(async |_, _| {
        let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url, options(None), LIMITS).await.unwrap());
        (store, Box::new(()) as Box<dyn Any + Send + Sync>)
    })
    .await;
    let job = bench.create(spec("before")).await;
    let installed = PostgresStore::install_roles(&url, "everytick_app_a").await.unwrap();
    assert!(installed.created);
    assert!(!PostgresStore::install_roles(&url, "everytick_app_a").await.unwrap().created, "again");
    assert_eq!(owner.get_job(TENANT, &by_name("before")).await.unwrap().job.id, job.id);
    bench.create(spec("after")).await;
    let app = url.replace("//everytick_owner_a@", "//everytick_app_a@");
    let reader = PostgresStore::connect_read_only(&app).await.unwrap();
    assert_eq!(reader.get_job(TENANT, &by_name("after")).await.unwrap().job.spec.name, "after");
    let app = PostgresStore::connect(&app, options(None), LIMITS).await.unwrap();
    assert_eq!(app.get_job(TENANT, &by_name("after")).await.unwrap().job.spec.name, "after");
    let other = app.get_job(OTHER, &by_name("after")).await;
    assert!(matches!(other, Err(StoreError::NotFound(_))), "{other:?}");
    assert!(app.cluster().await.unwrap().row_level_security);
    assert!(!owner.cluster().await.unwrap().row_level_security);
}

#[tokio::test]
async fn a_role_that_is_not_limited_and_a_database_that_is_not_ready_are_refused_at_the_start() {
    let (database, url) = owned("everytick_owner_b").await;
    let app = url.replace("//everytick_owner_b@", "//everytick_app_b@");
    let why = async |url: &str| match PostgresStore::connect(url, options(None), LIMITS).await {
        Err(StoreError::Unusable(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let mut run = async |text: &str| {
        sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut admin).await.unwrap();
    };
    run("create role everytick_app_b login").await;
    PostgresStore::migrate(&url).await.unwrap();
    assert!(why(&app).await.contains("neither owns the tables nor"), "{}", why(&app).await);
    PostgresStore::install_roles(&url, "everytick_app_b").await.unwrap();
    for (wrong, right, said) in [
        ("alter role everytick_app_b inherit", "alter role everytick_app_b noinherit", "inherits the privileges"),
        (
            "grant create on schema public to everytick_app_b",
            "revoke create on schema public from everytick_app_b",
            "may create objects",
        ),
        (
            "alter role everytick_app_b bypassrls",
            "alter role everytick_app_b nobypassrls",
            "is not limited by row-level security",
        ),
        (
            "revoke everytick_api from everytick_app_b",
            "grant everytick_api to everytick_app_b",
            "neither owns the tables nor",
        ),
        (
            "create table extra (tenant integer)",
            "drop table extra",
            "lack row-level security or have policies of their own: extra;",
        ),
        ("create policy all_rows on jobs using (true)", "drop policy all_rows on jobs", "policies of their own: jobs;"),
        (
            "alter table jobs no force row level security",
            "alter table jobs force row level security",
            "policies of their own: jobs;",
        ),
        (
            "create table kept as select * from schema_steps where step > 1; delete from schema_steps where step > 1",
            "insert into schema_steps select * from kept; drop table kept",
            "the schema is at step 1, and this release needs step",
        ),
    ] {
        run(wrong).await;
        assert!(why(&app).await.contains(said), "{wrong}: {}", why(&app).await);
        run(right).await;
    }
    PostgresStore::connect(&app, options(None), LIMITS).await.unwrap().close().await;
    for (role, said) in [
        ("everytick_owner_b", "is the owner of the tables"),
        ("", "cannot be the name"),
        ("everytick_api", "cannot be the name"),
    ] {
        let refused = PostgresStore::install_roles(&url, role).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Unusable(why) if why.contains(said)), "{role}: {refused:?}");
    }
    let refused = PostgresStore::migrate(&app).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(why) if why.contains("use the owner's URL")), "{refused:?}");
    let refused = PostgresStore::install_roles(&url, "postgres").await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unusable(why) if why.contains("may not do this") || why.contains("not limited")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn rows_from_before_and_of_nodes_of_earlier_releases_have_the_tenant_of_their_run() {
    let database = Server::shared().blank().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let mut steps: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    steps.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("00"));
    steps.sort();
    let at = steps.iter().position(|path| path.to_str().unwrap().contains("row_security")).unwrap();
    steps.truncate(at);
    let mut text = include_str!("../../../src/postgres/sql/setup/migration_table.sql").to_owned();
    for (number, step) in (1..).zip(&steps) {
        text.push_str(&std::fs::read_to_string(step).unwrap());
        text.push_str(&format!(";insert into schema_steps (step, name, works_from) values ({number}, '{number}', 1);"));
    }
    // The ids do not matter: the old release has a table for all of them here.
    text.push_str(
        "create table runs_20260101 partition of runs default;
         insert into tenants (id, name) values (7, 'seven');
         insert into runs (id, tenant, cause, state, job, scheduled_at, due_at, fence, attempt, lost, late, force)
           select lpad(n::text, 32, '0')::uuid, case when n = 1 then 7 else 1 end, 1, 0, gen_random_uuid(), 0, 0, 0, 2, 0, false, false
             from generate_series(1, 2) n;
         insert into attempts (run, attempt, fence, outcome) select id, 1, 1, 'failed' from runs;
         insert into backfills (id, tenant, job, from_at, to_at, newest_first, total, created_at, created_by, ticks)
           select id, tenant, job, 0, 1, false, 1, 0, '', '' from runs;
         insert into backfill_runs (run, backfill) select id, id from runs;",
    );
    let mut look = PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut look).await.unwrap();
    PostgresStore::migrate(&database.url).await.unwrap();
    let of_old = "insert into attempts (run, attempt, fence, outcome) select id, 2, 2, 'failed' from runs;
                  update backfill_runs set run = gen_random_uuid();
                  insert into backfill_runs (run, backfill) select id, id from runs";
    sqlx::raw_sql(of_old).execute(&mut look).await.unwrap();
    for table in ["attempts", "backfill_runs"] {
        let found = format!("select array_agg(tenant order by tenant) from {table}");
        let found: Vec<i32> = sqlx::query_scalar(AssertSqlSafe(found)).fetch_one(&mut look).await.unwrap();
        assert_eq!(found, [1, 1, 7, 7], "{table}");
    }
}

/// The policies must not make a statement scan a table, nor keep it from its index.
#[tokio::test]
async fn no_statement_of_a_tenant_scans_a_table_that_grows() {
    let opened = bench().await;
    let mut look = opened.connect().await;
    sqlx::raw_sql(include_str!("../../../src/postgres/sql/move/move_tables.sql")).execute(&mut look).await.unwrap();
    let grant = "grant all on all tables in schema public to everytick_api; \
                 grant execute on all functions in schema public to everytick_api; \
                 set role everytick_api; set everytick.tenant = '1'";
    sqlx::raw_sql(grant).execute(&mut look).await.unwrap();
    // Only nodes settle with this one, as `everytick_engine`.
    super::plans::scan_nothing_that_grows(&mut look, &["settle_terminal"]).await;
    let row = sqlx::raw_sql("select current_user::text").fetch_one(&mut look).await.unwrap();
    assert_eq!(row.get::<String, _>(0), "everytick_api");
}
