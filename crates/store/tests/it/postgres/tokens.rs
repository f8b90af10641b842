//! The first token in a cluster. It is refused while a node is alive that checks no tokens.

use everytick_domain::{
    access::{Grant, Lifetime, Token},
    ids::TokenId,
    time::Span,
};
use everytick_store::{
    Creator, NewToken, SecretStore as _, StoreError, TokenKey, TokenStore as _,
    conformance::{START, TENANT, actor},
};
use sqlx::{Connection, PgConnection};

use super::{
    Opened, bench,
    guards::{run, waits_for_a_lock},
    narrow_locks::does_not_wait,
    secrets::other_steps,
};

fn token() -> NewToken {
    let token = Token::from_random(&[1; 64]).unwrap();
    let key = TokenKey { hash: token.hash(), id: TokenId::new(START, [1; 10]), prefix: token.prefix().to_owned() };
    let (grant, lifetime) = (Grant::admin(TENANT), Lifetime::For(Span::days(1)));
    NewToken { key, name: "first".to_owned(), grant, allowed_ips: Vec::new(), lifetime }
}

/// The step that a release must know.
async fn works_from(opened: &Opened) -> (i32, i32) {
    let mut look = PgConnection::connect(&opened.database.url).await.unwrap();
    let step = "select step, works_from from schema_steps where name = 'access'";
    sqlx::query_as(step).fetch_one(&mut look).await.unwrap()
}

#[tokio::test]
async fn a_first_token_is_refused_while_a_node_of_an_earlier_release_is_alive() {
    let opened = bench().await;
    opened.bench.join("old", 1).await;
    opened.bench.join("new", 2).await;
    let mut old = PgConnection::connect(&opened.database.url).await.unwrap();
    let join = "update leases set checks_tokens = false where node = 'old'";
    sqlx::raw_sql(join).execute(&mut old).await.unwrap();
    let refused = opened.store.create_token(&actor(), &Creator::First, token()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Conflict(why) if why.message.contains(": old;")), "{refused:?}");
    assert!(!opened.store.auth_required().await.unwrap());
    assert_eq!(works_from(&opened).await.1, 1);
    sqlx::raw_sql("update leases set ended = true where node = 'old'").execute(&mut old).await.unwrap();
    opened.store.create_token(&actor(), &Creator::First, token()).await.unwrap();
}

#[tokio::test]
async fn from_the_first_token_on_an_earlier_release_cannot_start() {
    let opened = bench().await;
    opened.bench.join("new", 1).await;
    let before = other_steps(&opened, "access").await;
    opened.store.create_token(&actor(), &Creator::First, token()).await.unwrap();
    let (step, works_from) = works_from(&opened).await;
    assert_eq!(works_from, step);
    assert_eq!(other_steps(&opened, "access").await, before);
}

/// Changes of tokens are serialized. So the second of two first tokens sees the first one (`lock_access`).
#[tokio::test]
async fn a_first_token_waits_for_one_that_was_under_way() {
    let opened = bench().await;
    let mut other = opened.connect().await;
    run(&mut other, "begin; update settings set value = 'true' where name = 'auth_required'").await;
    let store = opened.store.clone();
    let mut creating = tokio::spawn(async move { store.create_token(&actor(), &Creator::First, token()).await });
    waits_for_a_lock(&opened, &mut creating).await;
    run(&mut other, "commit").await;
    let refused = creating.await.unwrap();
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
}

/// `lock_access` locks one setting.
#[tokio::test]
async fn a_token_does_not_wait_for_other_settings() {
    let opened = bench().await;
    opened.store.installation("one").await.unwrap();
    let (store, lock) = (opened.store.clone(), "select from settings where name <> 'auth_required' for update");
    let create = async move { store.create_token(&actor(), &Creator::First, token()).await };
    does_not_wait(&opened, lock, create).await.unwrap();
}
