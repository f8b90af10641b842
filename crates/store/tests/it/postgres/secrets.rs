//! The first secret in a cluster is refused while a node is alive that would send references unchanged. The locks of secrets
//! and keys.

use everytick_domain::{
    ids::Version,
    job::JobSpec,
    secret::{SecretKind, SecretRules},
    target::{Command, ShellTarget, TargetSpec},
};
use everytick_store::{
    KeyMark, NewJob, PutSecret, SealedValue, SecretStore as _, Store as _, StoreError,
    conformance::{OTHER_TENANT, TENANT, actor, job_id, spec},
};
use sqlx::{Connection, PgConnection};

use super::{
    Opened, bench,
    guards::{run, waits_for_a_lock},
    narrow_locks::does_not_wait,
};

fn secret() -> PutSecret {
    named("api")
}

fn named(name: &str) -> PutSecret {
    let key_id = "k1".to_owned();
    PutSecret {
        rules: SecretRules { name: name.to_owned(), hosts: Vec::new(), kinds: vec![SecretKind::Shell] },
        description: String::new(),
        was: Version::default(),
        value: SealedValue { key_id: key_id.clone(), wrapped_key: vec![1], nonce: vec![2], ciphertext: vec![3] },
        key: KeyMark { id: key_id, check_value: vec![4] },
        overlap: None,
    }
}

/// A job whose command gets a secret.
fn using(job: &str, secret: &str) -> NewJob {
    let env = [("PASSWORD".to_owned(), format!("{{{{ secrets.{secret} }}}}"))].into();
    let target = TargetSpec::Shell(ShellTarget { command: Command::Argv(vec!["true".into()]), env, workdir: None });
    NewJob { id: job_id(TENANT, job), spec: JobSpec { target, ..spec(job) } }
}

/// The step that a release must know.
async fn works_from(opened: &Opened) -> (i32, i32) {
    let mut look = PgConnection::connect(&opened.database.url).await.unwrap();
    let step = "select step, works_from from schema_steps where name = 'secrets'";
    sqlx::query_as(step).fetch_one(&mut look).await.unwrap()
}

/// The releases that the other steps require.
pub(super) async fn other_steps(opened: &Opened, than: &str) -> Vec<(i32, i32)> {
    let steps = "select step, works_from from schema_steps where name <> $1 order by step";
    sqlx::query_as(steps).bind(than).fetch_all(&mut opened.connect().await).await.unwrap()
}

#[tokio::test]
async fn a_first_secret_is_refused_while_a_node_of_an_earlier_release_is_alive() {
    let opened = bench().await;
    opened.bench.join("old", 1).await;
    opened.bench.join("new", 2).await;
    let mut old = PgConnection::connect(&opened.database.url).await.unwrap();
    sqlx::raw_sql("update leases set fills_secrets = false where node = 'old'").execute(&mut old).await.unwrap();
    let refused = opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Conflict(why) if why.message.contains(": old;")), "{refused:?}");
    assert_eq!(works_from(&opened).await.1, 1);
    sqlx::raw_sql("update leases set ended = true where node = 'old'").execute(&mut old).await.unwrap();
    opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap();
}

#[tokio::test]
async fn from_the_first_secret_on_an_earlier_release_cannot_start() {
    let opened = bench().await;
    opened.bench.join("new", 1).await;
    let before = other_steps(&opened, "secrets").await;
    opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap();
    let (step, works_from) = works_from(&opened).await;
    assert_eq!(works_from, step);
    assert_eq!(other_steps(&opened, "secrets").await, before);
}

/// A definition that names a secret waits while another session changes that secret, and then refers to none that was deleted
/// (`lock_secrets`).
#[tokio::test]
async fn a_job_does_not_refer_to_a_secret_whose_deletion_was_under_way() {
    let opened = bench().await;
    opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap();
    let mut delete = opened.connect().await;
    run(&mut delete, "begin; delete from secret_versions; delete from secrets").await;
    let (store, job) = (opened.store.clone(), using("j", "api"));
    let mut creating = tokio::spawn(async move { store.create_jobs(TENANT, &actor(), vec![job], None).await });
    waits_for_a_lock(&opened, &mut creating).await;
    run(&mut delete, "commit").await;
    let answer = creating.await.unwrap().unwrap().remove(0);
    assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
}

/// A change of a secret reads it only after it has locked it, so it counts the versions that were under way (`lock_secret`).
#[tokio::test]
async fn a_change_of_a_secret_sees_one_that_was_under_way() {
    let opened = bench().await;
    opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap();
    let mut other = opened.connect().await;
    run(&mut other, "begin; update secrets set version = 7").await;
    let (store, put) = (opened.store.clone(), PutSecret { was: Version::from_raw(1), ..secret() });
    let mut changing = tokio::spawn(async move { store.put_secret(TENANT, &actor(), put).await });
    waits_for_a_lock(&opened, &mut changing).await;
    run(&mut other, "commit").await;
    let refused = changing.await.unwrap();
    assert!(matches!(&refused, Err(StoreError::VersionMismatch { has, .. }) if has.raw() == 7), "{refused:?}");
}

/// `lock_secret` and `lock_secrets`.
#[tokio::test]
async fn a_transaction_waits_for_no_other_secret_and_for_no_other_tenant() {
    let opened = bench().await;
    for (tenant, name) in [(TENANT, "api"), (TENANT, "other"), (OTHER_TENANT, "api")] {
        opened.store.put_secret(tenant, &actor(), named(name)).await.unwrap();
    }
    let ours = format!("tenant = {} and name = 'api'", TENANT.raw());
    let lock = format!("select from secrets where not ({ours}) for update");
    let (store, put) = (opened.store.clone(), PutSecret { was: Version::from_raw(1), ..secret() });
    let change = async move { store.put_secret(TENANT, &actor(), put).await };
    does_not_wait(&opened, &lock, change).await.unwrap();
    let (store, job) = (opened.store.clone(), using("j", "api"));
    let create = async move { store.create_jobs(TENANT, &actor(), vec![job], None).await };
    does_not_wait(&opened, &lock, create).await.unwrap().remove(0).unwrap();
}

/// The key of a value that was under way is not forgotten (`lock_keys`).
#[tokio::test]
async fn a_key_is_not_forgotten_while_a_value_that_needs_it_is_stored() {
    let opened = bench().await;
    opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap();
    opened.store.delete_secret(TENANT, &actor(), "api", None, false).await.unwrap();
    let mut put = opened.connect().await;
    run(
        &mut put,
        "begin; insert into keys (id, check_value, created_at) values ('k1', '', 0)
                   on conflict (id) do update set id = excluded.id",
    )
    .await;
    run(
        &mut put,
        "insert into secret_versions (tenant, name, version, key_id, wrapped_key, nonce, ciphertext)
                   values (1, 'api', 1, 'k1', '', '', '')",
    )
    .await;
    let store = opened.store.clone();
    let mut forgetting = tokio::spawn(async move { store.forget_keys(&actor(), "k2").await });
    waits_for_a_lock(&opened, &mut forgetting).await;
    run(&mut put, "commit").await;
    assert!(forgetting.await.unwrap().unwrap().is_empty());
}
