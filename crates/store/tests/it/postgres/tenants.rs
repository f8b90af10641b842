//! The first tenant in a cluster: a node that knows no tenants would serve suspended ones. And the locks of tenants.

use everytick_domain::edit::Change;
use everytick_store::{
    EditJob, NO_RULES, NewTenant, Store as _, StoreError, TenantStore as _,
    conformance::{actor, by_name, spec},
};
use sqlx::{Connection, PgConnection};

use super::{Opened, bench, guards::waits_for_a_lock};

fn tenant(name: &str) -> NewTenant {
    NewTenant { name: name.to_owned(), quotas: Default::default(), egress: NO_RULES.to_owned(), shell: false }
}

/// The step that a release must know.
async fn works_from(opened: &Opened) -> (i32, i32) {
    let mut look = PgConnection::connect(&opened.database.url).await.unwrap();
    let step = "select step, works_from from schema_steps where name = 'tenants'";
    sqlx::query_as(step).fetch_one(&mut look).await.unwrap()
}

#[tokio::test]
async fn a_first_tenant_is_refused_while_a_node_of_an_earlier_release_is_alive() {
    let opened = bench().await;
    opened.bench.join("old", 1).await;
    opened.bench.join("new", 2).await;
    let mut old = PgConnection::connect(&opened.database.url).await.unwrap();
    sqlx::raw_sql("update leases set knows_tenants = false where node = 'old'").execute(&mut old).await.unwrap();
    let refused = opened.store.create_tenant(&actor(), tenant("a")).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Conflict(why) if why.message.contains(": old;")), "{refused:?}");
    assert_eq!(works_from(&opened).await.1, 1);
    sqlx::raw_sql("update leases set ended = true where node = 'old'").execute(&mut old).await.unwrap();
    opened.store.create_tenant(&actor(), tenant("a")).await.unwrap();
    let (step, from) = works_from(&opened).await;
    assert_eq!(from, step, "earlier releases do not start any more");
}

#[tokio::test]
async fn a_definition_waits_for_the_suspension_of_its_tenant_and_is_refused() {
    let opened = bench().await;
    let id = opened.store.create_tenant(&actor(), tenant("a")).await.unwrap().id;
    opened.bench.created(id, spec("a")).await.unwrap();
    let mut suspending = PgConnection::connect(&opened.database.url).await.unwrap();
    sqlx::raw_sql("begin").execute(&mut suspending).await.unwrap();
    let suspend = format!(
        "select id from tenants where id = {0} for update; update tenants set state = 'suspended' where id = {0}",
        id.raw()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(suspend)).execute(&mut suspending).await.unwrap();
    let change = Change::Replace(Box::new(spec("b")));
    let edit = EditJob { job: by_name("a"), change, if_match: None, cancel: false };
    let store = opened.store.clone();
    let mut editing = tokio::spawn(async move { store.edit_job(id, &actor(), edit).await });
    waits_for_a_lock(&opened, &mut editing).await;
    sqlx::raw_sql("commit").execute(&mut suspending).await.unwrap();
    let edited = editing.await.unwrap();
    assert!(matches!(edited, Err(StoreError::TenantSuspended)), "{edited:?}");
}
