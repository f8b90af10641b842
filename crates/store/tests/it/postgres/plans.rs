//! The query plans: statements use their indexes, whatever the tables contain.

use everytick_store::{
    PostgresStore,
    conformance::{
        LIMITS, START,
        server::{Database, Server, options},
    },
    shared::statements,
};
use sqlx::{Connection, PgConnection, Row};

/// Tables with few rows, or that are scanned on purpose.
const SMALL: [&str; 14] = [
    "keys",
    "tokens",
    "gone_nodes",
    "backlog_work",
    "worker_claims",
    "leases",
    "partitions",
    "counters",
    "tenants",
    "schema_steps",
    "pg_",
    "test_clock",
    "moves",
    "move_parts",
];

async fn migrated() -> (Database, PgConnection) {
    let database = Server::shared().blank().await;
    PostgresStore::connect(&database.url, options(None), LIMITS).await.unwrap().close().await;
    let look = PgConnection::connect(&database.url).await.unwrap();
    (database, look)
}

/// The plan of a statement, prepared with the settings of the store's hot connections. Without `jit = off`, a statement
/// whose estimated cost is high is compiled, and `buffers` then counts the pages of the catalogue that the compiler reads.
pub(super) async fn plan(look: &mut PgConnection, name: &str, text: &str) -> Vec<String> {
    let day: String =
        sqlx::raw_sql("select inhrelid::regclass::text from pg_inherits where inhparent = 'runs'::regclass limit 1")
            .fetch_one(&mut *look)
            .await
            .unwrap()
            .get(0);
    let body = text.replace("runs_of_the_day", &day);
    let parameters = (1..=30).take_while(|n| body.contains(&format!("${n}"))).count();
    let nulls = vec!["null"; parameters].join(", ");
    let call = if parameters == 0 { String::new() } else { format!("({nulls})") };
    let script = format!(
        "deallocate all; set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off; prepare s as {body}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(script))
        .execute(&mut *look)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let explain = format!("explain (verbose) execute s{call}");
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(look).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect()
}

/// Tables grow to millions of rows, so no statement may scan one, except those listed here.
#[tokio::test]
async fn no_statement_scans_a_table_that_grows() {
    let (_database, mut look) = migrated().await;
    // These tables exist only in the target of a move.
    sqlx::raw_sql(include_str!("../../../src/postgres/sql/move/move_tables.sql")).execute(&mut look).await.unwrap();
    scan_nothing_that_grows(&mut look, &[]).await;
}

/// Leaves out the statements with the names in `without`.
pub(super) async fn scan_nothing_that_grows(look: &mut PgConnection, without: &[&str]) {
    let statements = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql");
    let mut seen = 0;
    let folders = std::fs::read_dir(statements).unwrap().map(|folder| folder.unwrap().path());
    for entry in folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = statements::of_file("postgres", &std::fs::read_to_string(&path).unwrap());
        assert!(text.starts_with("-- "), "{name} has no header comment");
        // A benchmark works in a schema of its own, which no node serves.
        if name.starts_with("probe_") || without.contains(&name.as_str()) {
            continue;
        }
        let whole_day = ["day_count", "day_last_runs", "day_open"].contains(&name.as_str());
        let whole_move = name == "move_contents";
        if ["migration_table", "move_tables", "grants", "protect_new"].contains(&name.as_str())
            || whole_day
            || whole_move
        {
            continue;
        }
        for step in plan(look, &name, &text).await {
            // This index finds and counts cursors by their position, never by their job.
            assert!(
                !step.contains("cursors_next")
                    || ["horizon_places", "day_cursors", "lowest_cursor", "count_jobs"].contains(&name.as_str()),
                "{name}: {step}"
            );
            let Some((_, table)) = step.split_once("Seq Scan on ") else { continue };
            let table = table
                .split_whitespace()
                .next()
                .unwrap()
                .trim_start_matches("public.")
                .trim_start_matches("pg_catalog.");
            assert!(SMALL.iter().any(|small| table.starts_with(small)), "{name}: {step}");
        }
        seen += 1;
    }
    assert!(seen > 90, "{seen}");
    for write in statements::move_writes() {
        for step in plan(look, &write, &write).await {
            assert!(!step.contains("Seq Scan on "), "{write}: {step}");
        }
    }
}

/// Plans are cached. A plan made in the first moments of a day, or of a database, stays for a minute or more. A scan of
/// all runs of the day is cheap then, and takes seconds per batch soon after.
#[tokio::test]
async fn plans_made_for_a_table_with_few_rows_find_runs_by_their_keys() {
    let (_database, mut look) = migrated().await;
    let forms = [
        ("claim", include_str!("../../../src/postgres/sql/claim/claim.sql")),
        ("queue_claim", include_str!("../../../src/postgres/sql/queue/queue_claim.sql")),
        ("settle_back", include_str!("../../../src/postgres/sql/settle/settle_back.sql")),
        ("lock_settled", include_str!("../../../src/postgres/sql/settle/lock_settled.sql")),
        ("settle_terminal", include_str!("../../../src/postgres/sql/settle/settle_terminal.sql")),
        ("succeed", include_str!("../../../src/postgres/sql/settle/succeed.sql")),
    ];
    let bound = "select substr(split_part(pg_get_expr(relpartbound, oid), '''', 2), 1, 13) from pg_class \
                  where oid = (select inhrelid from pg_inherits where inhparent = 'runs'::regclass limit 1)";
    let first: String = sqlx::query_scalar(bound).fetch_one(&mut look).await.unwrap();
    for runs in [0, 20, 1_000] {
        let fill = format!(
            "insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at) \
             select ('{first}-8000-8000-' || lpad(to_hex(n + {runs}), 12, '0'))::uuid, 1, gen_random_uuid(), 1, 0, 0, 2, false, false, 1, 0, 1, 0 \
               from generate_series(1, {runs}) as n; analyze runs"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(fill)).execute(&mut look).await.unwrap();
        for (name, text) in forms {
            let plan = plan(&mut look, name, text).await;
            let reads = |line: &String| line.contains(" Scan ") && line.contains("on public.runs_");
            let places: Vec<usize> = (0..plan.len()).filter(|at| reads(&plan[*at])).collect();
            let by_key = |at: usize| plan[at..].iter().take(4).any(|line| line.contains("Index Cond: (r.id = "));
            let right = !places.is_empty() && places.into_iter().all(by_key);
            assert!(right, "{name}, {runs} runs: {}", plan.join("\n"));
        }
    }
}

/// Sorting and hashing the batch is fine, and so is probing its guards one by one, by key. Joining the batch with
/// itself explodes with 10,000 jobs at one instant.
#[tokio::test]
async fn recording_reads_the_clock_after_the_lease_and_probes_each_guard_by_its_key() {
    let (_database, mut look) = migrated().await;
    let forms = [
        ("record", include_str!("../../../src/postgres/sql/record/record.sql")),
        ("record_waiting", include_str!("../../../src/postgres/sql/record/record_waiting.sql")),
        ("record_again", include_str!("../../../src/postgres/sql/record/record_again.sql")),
    ];
    // Without jobs in the statistics, and with a few thousand, which the planner might prefer to scan.
    for jobs in [0, 10_000] {
        let fill = format!(
            "insert into epochs (job, tenant, partition, epoch, seq) select gen_random_uuid(), 1, 0, 1, n from generate_series(1, {jobs}) as n; \
             insert into cursors (job, tenant, partition, next_tick) select job, 1, 0, 0 from epochs; analyze epochs, cursors"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(fill)).execute(&mut look).await.unwrap();
        for (name, text) in forms {
            let plan = plan(&mut look, name, text).await.join("\n");
            assert!(
                plan.contains("clock_timestamp()") && !plan.contains("everytick_now()"),
                "the clock is inlined: {plan}"
            );
            for index in ["leases_pkey", "epochs_pkey", "cursors_pkey"] {
                assert!(plan.contains(index), "{index}: {plan}");
            }
            // The clock is read from the locked lease row, not beside it.
            let clock = plan.split("CTE clock").nth(1).unwrap();
            assert!(clock.trim_start().starts_with("->  CTE Scan on lease"), "{plan}");
            for index in ["epochs_pkey", "cursors_pkey"] {
                let step = plan.split(&format!("using {index} ")).nth(1).unwrap();
                let key = |line: &str| line.contains("Index Cond: (") && line.contains(".job = ");
                assert!(step.lines().take(3).any(key), "{index}: {plan}");
            }
            assert_eq!(plan.matches("LockRows").count(), 2, "{plan}");
        }
    }
    assert!(START.millis() > 0);
}

/// With any other index, each waiting run would be compared with the whole request: a claim of 1,000 runs from a
/// backlog would take seconds. The planner has no statistics of a new backlog.
#[tokio::test]
async fn a_claim_finds_waiting_rows_by_their_key() {
    let (_database, mut look) = migrated().await;
    let forms = [
        ("claim", include_str!("../../../src/postgres/sql/claim/claim.sql")),
        ("queue_dequeue", include_str!("../../../src/postgres/sql/queue/queue_dequeue.sql")),
    ];
    for backlog in [0, 20_000] {
        let fill = format!(
            "insert into waiting select gen_random_uuid(), gen_random_uuid(), 1, n % 256, 5, n, false, false, 0, \
             case when n % 2 = 0 then 'q' end, case when n % 2 = 0 then n end from generate_series(1, {backlog}) as n; analyze waiting"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(fill)).execute(&mut look).await.unwrap();
        for (name, text) in forms {
            let plan = plan(&mut look, name, text).await.join("\n");
            assert!(plan.contains("using waiting_pkey") && plan.contains(".run = asked.run"), "{name}: {plan}");
            assert!(
                plan.contains("TID Cond") && !plan.replace("waiting_pkey", "").contains("waiting_"),
                "{name}: {plan}"
            );
        }
    }
}

/// On-time runs must not pay for a backlog, nor one tenant for another's. Each kind has its own index, with an empty
/// table and with a backlog of one tenant.
#[tokio::test]
async fn each_kind_of_waiting_run_is_found_by_its_own_index() {
    let (_database, mut look) = migrated().await;
    let text = include_str!("../../../src/postgres/sql/claim/peek_waiting.sql");
    for backlog in [0, 20_000] {
        let fill = format!(
            "insert into waiting select gen_random_uuid(), gen_random_uuid(), case when n = 1 then 2 else 1 end, n % 256, 5, n, \
             n % 10 < 9, false, 0 from generate_series(1, {backlog}) as n; analyze waiting"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(fill)).execute(&mut look).await.unwrap();
        let plan = plan(&mut look, "peek_waiting", text).await.join("\n");
        let conditions = |index: &str| -> Vec<String> {
            let using = format!("using {index} ");
            let steps = plan.split(using.as_str()).skip(1);
            steps.map(|step| step.lines().find(|line| line.contains("Index Cond")).unwrap_or("").to_owned()).collect()
        };
        let (claim, late) = (conditions("waiting_claim"), conditions("waiting_late"));
        assert_eq!(claim.len(), 1, "{plan}");
        assert!(claim[0].contains("late = false") && claim[0].contains("priority = "), "{plan}");
        assert!(late.len() >= 2, "{plan}");
        assert!(late.iter().any(|condition| condition.contains("tenant = t")), "{plan}");
    }
    // However the tenants are found, it reads a few pages for each, not the whole backlog.
    let all: Vec<String> = (0..256).map(|partition| partition.to_string()).collect();
    let call = format!("explain (analyze, buffers) execute s(30000, '{{{}}}', '{{}}', 10, 100, '{{}}')", all.join(","));
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(call)).fetch_all(&mut look).await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let pages = |step: &String| -> u32 {
        let counts = step.split("shared ").nth(1).unwrap_or("").split_whitespace();
        counts.filter_map(|count| count.split_once('=').and_then(|(_, count)| count.parse::<u32>().ok())).sum()
    };
    let read = steps.iter().find(|step| step.contains("Buffers: ")).map(pages).unwrap();
    assert!((1..200).contains(&read), "{read} pages: {}", steps.join("\n"));
}

/// The number of rows of `runs` that a statement read, as counted by the server.
async fn runs_read(look: &mut PgConnection, text: &str) -> f64 {
    let explain = format!("begin; explain (analyze, costs off, timing off) {text}");
    let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(&mut *look).await.unwrap();
    sqlx::raw_sql("rollback").execute(look).await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let number = |text: &str, after: &str| -> f64 {
        let found = text.split(after).nth(1).unwrap_or("0");
        found.split([' ', ')']).next().unwrap().parse().unwrap_or(0.0)
    };
    let mut read = 0.0;
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.contains("Scan") && step.contains(" on runs_")) {
        let own = steps[at + 1..].iter().take_while(|line| !line.contains("->"));
        let removed: f64 = own.map(|line| number(line, "Rows Removed by Filter: ")).sum();
        read += number(step, "loops=") * (number(step, "actual rows=") + removed);
    }
    read
}

/// Reading the runs of an instant for each of its flows takes seconds with thousands of flows.
#[tokio::test]
async fn pruning_reads_the_runs_of_an_instant_once() {
    let (_database, mut look) = migrated().await;
    let bound = "select substr(split_part(pg_get_expr(relpartbound, oid), '''', 2), 1, 13) from pg_class \
                  where oid = (select inhrelid from pg_inherits where inhparent = 'runs'::regclass limit 1)";
    let instant: String = sqlx::query_scalar(bound).fetch_one(&mut look).await.unwrap();
    const FLOWS: usize = 100;
    let (root, child, gone) = (
        format!("('{instant}-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"),
        format!("('{instant}-8001-8000-' || lpad(to_hex(n), 12, '0'))::uuid"),
        format!("('{instant}-8002-8000-' || lpad(to_hex(n), 12, '0'))::uuid"),
    );
    let columns =
        "id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at, flow";
    let ended = "1, gen_random_uuid(), 2, 0, 0, 2, false, false, 1, 0, 1, 0";
    let fill = format!(
        "insert into runs ({columns}) select {root}, {ended}, null from generate_series(1, {FLOWS}) n;
         insert into runs ({columns}) select {child}, {ended}, {root} from generate_series(1, {FLOWS}) n;
         insert into flows (id, tenant, opened_at, scheduled_at, graph) select {root}, 1, 0, 0, '{{}}' from generate_series(1, {FLOWS}) n;
         insert into flows (id, tenant, opened_at, scheduled_at, graph) select {gone}, 1, 0, 0, '{{}}' from generate_series(1, {FLOWS}) n;
         set enable_seqscan = off; analyze runs, flows"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(fill)).execute(&mut look).await.unwrap();
    let last = "'ffffffff-ffff-ffff-ffff-ffffffffffff'";
    let prune = include_str!("../../../src/postgres/sql/prune/prune_runs.sql");
    let prune = prune.replace("$1", "9").replace("$2", last).replace("$3", "1000");
    let flows = include_str!("../../../src/postgres/sql/prune/flow_prune.sql");
    let flows = flows.replace("$1", &format!("array(select {gone} from generate_series(1, {FLOWS}) n)"));
    for (name, text) in [("prune_runs", prune), ("flow_prune", flows)] {
        let read = runs_read(&mut look, &text).await;
        // A few times each of the 200 runs. A range scan for each flow would read 20,000.
        assert!(read > 0.0 && read < 10.0 * 2.0 * FLOWS as f64, "{name} read {read} runs");
    }
}
