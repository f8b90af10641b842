//! Compact definitions: written only if every live node reads them. From then on no earlier release may start.

use everytick_domain::{job::JobSpec, time::Span};
use everytick_store::{
    Store,
    conformance::{TENANT, by_name, spec},
};
use sqlx::PgConnection;

async fn written(look: &mut PgConnection, name: &str) -> (String, String) {
    let row = sqlx::query_as("select spec, search from jobs where name = $1").bind(name);
    row.fetch_one(look).await.unwrap()
}

/// The step of the schema, and the step that a release must know.
async fn needed(look: &mut PgConnection) -> (i32, i32) {
    let row = sqlx::query_as("select step, works_from from schema_steps where name = 'short'");
    row.fetch_one(look).await.unwrap()
}

#[tokio::test]
async fn definitions_are_written_compact_once_every_node_reads_them() {
    let opened = super::bench().await;
    let (bench, mut look) = (&opened.bench, opened.connect().await);
    sqlx::raw_sql("update schema_steps set works_from = 1 where name = 'short'").execute(&mut look).await.unwrap();
    bench.join("new", 1).await;
    bench.join("old", 2).await;
    let as_old = "update leases set reads_short = false where node = 'old'";
    sqlx::raw_sql(as_old).execute(&mut look).await.unwrap();
    let described = |name: &str| JobSpec { description: "Words".into(), ..spec(name) };

    bench.create(described("beside")).await;
    let (document, search) = written(&mut look, "beside").await;
    assert!(
        document.starts_with("{\"name\":\"beside\",\"description\":\"Words\",\"labels\":{},\"enabled\":true"),
        "{document}"
    );
    assert_eq!(search, "beside\nwords");
    assert_eq!(needed(&mut look).await.1, 1, "a rollback to the earlier release is still possible");

    sqlx::raw_sql("update leases set ended = true where node = 'old'").execute(&mut look).await.unwrap();
    bench.create(described("alone")).await;
    let (document, search) = written(&mut look, "alone").await;
    assert_eq!(
        document,
        r#"{"every":"10s","target":{"shell":{"command":{"argv":["true"]},"env":{},"workdir":null}},"description":"Words","retry":{"max_retries":0,"base_delay":"5s","max_delay":"10m","jitter":"equal"}}"#
    );
    assert_eq!(search, "words");
    let (step, works_from) = needed(&mut look).await;
    assert_eq!(step, works_from, "a release that cannot read it starts no more");
    let others = "select count(*) from schema_steps where name <> 'short' and works_from > 1";
    let others: i64 = sqlx::query_scalar(others).fetch_one(&mut look).await.unwrap();
    assert_eq!(others, 0, "the other steps require no newer release");

    // A suspended node of the earlier step resumes.
    sqlx::raw_sql("update leases set ended = false where node = 'old'").execute(&mut look).await.unwrap();
    bench.create(described("again")).await;
    assert!(written(&mut look, "again").await.0.starts_with("{\"name\":"));

    for name in ["beside", "alone", "again"] {
        let read = opened.store.get_job(TENANT, &by_name(name)).await.unwrap().job;
        assert_eq!(*read.spec, described(name));
    }
    assert_eq!(opened.store.list_jobs(TENANT, &Default::default(), None, 10).await.unwrap().items.len(), 3);
    assert_eq!(spec("j").timeout, Span::hours(1), "the default of a shell target, so it is not written");
}

/// Thousands of jobs due far ahead get no change number, so owners never read them as changes.
#[tokio::test]
async fn a_job_due_far_ahead_gets_no_change_number() {
    use everytick_domain::schedule::Timing;
    let opened = super::bench().await;
    let (bench, mut look) = (&opened.bench, opened.connect().await);
    let every = |name: &str, every: Span| {
        let mut described = spec(name);
        described.schedule = Some(Timing::Every { every }.into());
        described
    };
    bench.create(every("near", Span::minutes(4))).await;
    bench.create(every("far", Span::hours(1))).await;
    bench.create(JobSpec { schedule: None, ..spec("never") }).await;
    let told: Vec<String> =
        sqlx::query_scalar("select j.name from epochs e join jobs j on j.id = e.job where e.seq > 0 order by 1")
            .fetch_all(&mut look)
            .await
            .unwrap();
    assert_eq!(told, ["near"]);
    let changes = opened.store.changes(&bench.all(), Default::default(), 10).await.unwrap();
    assert_eq!(changes.jobs.len(), 1);
}
