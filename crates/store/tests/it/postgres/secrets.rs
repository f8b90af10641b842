//! The first secret in a cluster. It is refused while a node is alive that would send references unchanged.

use everytick_domain::{
    ids::Version,
    secret::{SecretKind, SecretRules},
};
use everytick_store::{
    KeyMark, PutSecret, SealedValue, SecretStore as _, StoreError,
    conformance::{TENANT, actor},
};
use sqlx::{Connection, PgConnection};

use super::{Opened, bench};

fn secret() -> PutSecret {
    let key_id = "k1".to_owned();
    PutSecret {
        rules: SecretRules { name: "api".to_owned(), hosts: Vec::new(), kinds: vec![SecretKind::Shell] },
        description: String::new(),
        was: Version::default(),
        value: SealedValue { key_id: key_id.clone(), wrapped_key: vec![1], nonce: vec![2], ciphertext: vec![3] },
        key: KeyMark { id: key_id, check_value: vec![4] },
        overlap: None,
    }
}

/// The step that a release must know.
async fn works_from(opened: &Opened) -> (i32, i32) {
    let mut look = PgConnection::connect(&opened.database.url).await.unwrap();
    let step = "select step, works_from from schema_steps where name = 'secrets'";
    sqlx::query_as(step).fetch_one(&mut look).await.unwrap()
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
    opened.store.put_secret(TENANT, &actor(), secret()).await.unwrap();
    let (step, works_from) = works_from(&opened).await;
    assert_eq!(works_from, step);
}
