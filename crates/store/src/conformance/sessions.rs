//! Sessions of browsers.

use everytick_domain::{
    access::{NamedGrant, Role, SESSIONS_PER_USER_MAX, Scope, SessionHash, SessionSecret, TokenHash},
    ids::SessionId,
    time::Span,
};

use super::{Bench, OTHER_TENANT, START, TENANT, actor, s};
use crate::{AuditFilter, NewSession, Result, SessionEnd, SessionRecord, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_sessions {
    ($open:path) => {
        $crate::conformance_group! { $open, sessions:
            a_session_is_created_found_by_its_hash_listed_and_ended,
            several_sessions_are_found_at_once,
            a_session_ends_12_hours_after_its_login_and_8_hours_after_its_last_use,
            a_login_ends_the_session_that_the_browser_had,
            the_sessions_of_a_user_are_limited,
            the_use_of_a_session_is_stored_at_most_once_a_minute,
            a_chosen_tenant_is_stored,
            sessions_that_have_reached_a_limit_are_deleted,
            logins_and_ends_have_audit_rows,
            sessions_are_listed_in_pages,
        }
    };
}

fn secret(n: u8) -> SessionSecret {
    SessionSecret::from_random([n; 32])
}

fn hash(n: u8) -> SessionHash {
    secret(n).hash()
}

fn id(n: u8) -> SessionId {
    SessionId::new(START, [n; 10])
}

fn grant(tenant: &str, role: Role) -> NamedGrant {
    let scope = Scope { job_prefix: Some("etl-".to_owned()), ..Scope::default() };
    NamedGrant { tenant: Some(tenant.to_owned()), role, scope }
}

fn new(n: u8, user: &str) -> NewSession {
    let grants = vec![grant("default", Role::Operator), grant("b", Role::Viewer)];
    let (user, ip) = (user.to_owned(), Some("10.0.0.1".to_owned()));
    NewSession { hash: hash(n), id: id(n), user, token: None, grants, tenant: None, ip, replaces: None }
}

async fn log_in(bench: &Bench, session: NewSession) -> SessionRecord {
    bench.store.create_session(TENANT, &actor(), session).await.unwrap()
}

async fn find(bench: &Bench, n: u8) -> Option<SessionRecord> {
    bench.store.find_sessions(&[hash(n)]).await.unwrap().0.into_iter().next()
}

async fn listed(bench: &Bench) -> Vec<SessionId> {
    bench.store.list_sessions(None, 100).await.unwrap().items.into_iter().map(|session| session.id).collect()
}

async fn end(bench: &Bench, n: u8, end: SessionEnd) -> Result<SessionRecord> {
    bench.store.end_session(TENANT, &actor(), id(n), end).await
}

fn is_missing<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(StoreError::NotFound("session")))
}

pub async fn a_session_is_created_found_by_its_hash_listed_and_ended(bench: &Bench) {
    let token = Some(TokenHash::from_bytes([9; 32]));
    let asked = NewSession { token, tenant: Some("b".to_owned()), ..new(1, "token:ci") };
    let made = log_in(bench, asked.clone()).await;
    assert_eq!((made.hash, made.id, &made.user, made.token), (asked.hash, asked.id, &asked.user, token));
    assert_eq!((&made.grants, &made.tenant, &made.ip), (&asked.grants, &asked.tenant, &asked.ip));
    let times = (made.created_at, made.seen_at, made.expires_at);
    assert_eq!(times, (START, START, START.plus(Span::hours(12))));
    assert_eq!(bench.store.find_sessions(&[hash(1)]).await.unwrap(), (vec![made.clone()], START));
    assert_eq!(find(bench, 2).await, None);
    assert_eq!(bench.store.get_session(id(1)).await.unwrap(), made);
    log_in(bench, new(2, "user:ann")).await;
    assert_eq!(listed(bench).await, [id(1), id(2)]);
    assert_eq!(end(bench, 1, SessionEnd::Logout).await.unwrap(), made);
    assert_eq!((find(bench, 1).await, listed(bench).await), (None, vec![id(2)]));
    assert!(is_missing(end(bench, 1, SessionEnd::Logout).await) && is_missing(bench.store.get_session(id(1)).await));
}

pub async fn several_sessions_are_found_at_once(bench: &Bench) {
    for n in 1..=3 {
        log_in(bench, new(n, "user:ann")).await;
    }
    let (found, _) = bench.store.find_sessions(&[hash(3), hash(9), hash(1)]).await.unwrap();
    let mut found: Vec<_> = found.into_iter().map(|session| session.id).collect();
    found.sort_unstable();
    assert_eq!(found, [id(1), id(3)]);
    assert_eq!(bench.store.find_sessions(&[]).await.unwrap().0, []);
}

pub async fn a_session_ends_12_hours_after_its_login_and_8_hours_after_its_last_use(bench: &Bench) {
    log_in(bench, new(1, "user:ann")).await;
    log_in(bench, new(2, "user:ann")).await;
    let at = |hours| START.plus(Span::hours(hours));
    bench.clock.set(at(7));
    bench.store.note_session_used(id(1), "10.0.0.2").await.unwrap();
    bench.clock.set(at(8));
    let (found, now) = bench.store.find_sessions(&[hash(2)]).await.unwrap();
    assert!(!found[0].is_live(now), "idle");
    assert!(is_missing(bench.store.get_session(id(2)).await) && is_missing(end(bench, 2, SessionEnd::Revoked).await));
    assert_eq!(listed(bench).await, [id(1)]);
    bench.clock.set(at(12).minus(Span::millis(1)));
    assert!(bench.store.get_session(id(1)).await.is_ok());
    bench.clock.set(at(12));
    assert!(is_missing(bench.store.get_session(id(1)).await));
    assert_eq!(listed(bench).await, []);
}

pub async fn a_login_ends_the_session_that_the_browser_had(bench: &Bench) {
    log_in(bench, new(1, "user:ann")).await;
    log_in(bench, new(2, "user:ann")).await;
    log_in(bench, NewSession { replaces: Some(hash(1)), ..new(3, "user:bob") }).await;
    log_in(bench, NewSession { replaces: Some(hash(9)), ..new(4, "user:bob") }).await;
    assert_eq!(listed(bench).await, [id(2), id(3), id(4)]);
}

pub async fn the_sessions_of_a_user_are_limited(bench: &Bench) {
    let max = u8::try_from(SESSIONS_PER_USER_MAX).unwrap();
    for n in 1..=max {
        log_in(bench, new(n, "user:ann")).await;
    }
    // Neither another user nor the owner of a token with this name is counted.
    log_in(bench, new(101, "user:bob")).await;
    log_in(bench, NewSession { token: Some(TokenHash::from_bytes([9; 32])), ..new(102, "user:ann") }).await;
    assert_eq!(listed(bench).await.len(), SESSIONS_PER_USER_MAX + 2);
    bench.go(120);
    for n in (1..=max).filter(|n| *n != 7) {
        bench.store.note_session_used(id(n), "10.0.0.1").await.unwrap();
    }
    log_in(bench, new(max + 1, "user:ann")).await;
    let left = listed(bench).await;
    assert_eq!(left.len(), SESSIONS_PER_USER_MAX + 2);
    assert!(left.contains(&id(1)) && !left.contains(&id(7)), "the least recently used session has ended");
    // A browser that logs in again ends only its own session.
    log_in(bench, NewSession { replaces: Some(hash(max + 1)), ..new(max + 2, "user:ann") }).await;
    let own = (1..=max).filter(|n| *n != 7).map(id).chain([id(max + 2)]);
    let left = listed(bench).await;
    assert!(own.into_iter().all(|id| left.contains(&id)), "{left:?}");
}

pub async fn the_use_of_a_session_is_stored_at_most_once_a_minute(bench: &Bench) {
    log_in(bench, new(1, "user:ann")).await;
    log_in(bench, new(2, "user:ann")).await;
    for (at, ip, stored) in
        [(59, "a", (0, "10.0.0.1")), (60, "b", (60, "b")), (119, "c", (60, "b")), (120, "d", (120, "d"))]
    {
        bench.go(at);
        bench.store.note_session_used(id(1), ip).await.unwrap();
        let used = find(bench, 1).await.unwrap();
        assert_eq!((used.seen_at, used.ip.as_deref()), (s(stored.0), Some(stored.1)), "at {at}");
    }
    assert_eq!(find(bench, 2).await.unwrap().seen_at, START, "another session is unchanged");
}

pub async fn a_chosen_tenant_is_stored(bench: &Bench) {
    log_in(bench, new(1, "user:ann")).await;
    log_in(bench, new(2, "user:ann")).await;
    let chosen = bench.store.choose_tenant(id(1), Some("b")).await.unwrap();
    assert_eq!((chosen.tenant.as_deref(), find(bench, 1).await), (Some("b"), Some(chosen.clone())));
    assert_eq!(find(bench, 2).await.unwrap().tenant, None);
    assert_eq!(bench.store.choose_tenant(id(1), None).await.unwrap().tenant, None);
    assert!(is_missing(bench.store.choose_tenant(id(9), None).await));
}

pub async fn sessions_that_have_reached_a_limit_are_deleted(bench: &Bench) {
    for n in 1..=3 {
        log_in(bench, new(n, "user:ann")).await;
    }
    let at = |hours| START.plus(Span::hours(hours));
    bench.clock.set(at(5));
    bench.store.note_session_used(id(3), "10.0.0.1").await.unwrap();
    let prune = async |limit| bench.store.prune_sessions(limit).await.unwrap();
    bench.clock.set(at(8).minus(Span::millis(1)));
    assert_eq!(prune(10).await, 0);
    bench.clock.set(at(8));
    assert_eq!((prune(1).await, prune(10).await, prune(10).await), (1, 1, 0));
    assert!(find(bench, 1).await.is_none() && find(bench, 3).await.is_some());
    bench.clock.set(at(12));
    assert_eq!((prune(10).await, find(bench, 3).await), (1, None));
}

pub async fn logins_and_ends_have_audit_rows(bench: &Bench) {
    log_in(bench, new(1, "user:ann")).await;
    log_in(bench, NewSession { replaces: Some(hash(1)), ..new(2, "user:ann") }).await;
    end(bench, 2, SessionEnd::Logout).await.unwrap();
    bench.store.create_session(OTHER_TENANT, &actor(), new(3, "user:ann")).await.unwrap();
    log_in(bench, new(4, "user:ann")).await;
    end(bench, 4, SessionEnd::Revoked).await.unwrap();
    let trail = async |tenant| {
        let mut rows = bench.store.list_audit(tenant, &AuditFilter::default(), None, 100).await.unwrap().items;
        rows.reverse();
        rows
    };
    let rows = trail(TENANT).await;
    let actions: Vec<_> = rows.iter().map(|row| (row.action.as_str(), row.subject.clone())).collect();
    let of = |action, n| (action, format!("session/{}", id(n)));
    assert_eq!(actions, [of("login", 1), of("login", 2), of("logout", 2), of("login", 4), of("end_session", 4)]);
    assert!(rows[0].detail.contains("user:ann") && rows[0].detail.contains("operator"), "{:?}", rows[0]);
    assert!(rows[1].detail.contains(&id(1).to_string()), "the ended session is named: {:?}", rows[1]);
    assert!(rows.iter().all(|row| !row.detail.contains(&secret(1).expose())), "{rows:?}");
    assert_eq!(trail(OTHER_TENANT).await.len(), 1);
}

pub async fn sessions_are_listed_in_pages(bench: &Bench) {
    for n in 1..=3 {
        log_in(bench, new(n, "user:ann")).await;
    }
    let first = bench.store.list_sessions(None, 2).await.unwrap();
    assert_eq!((first.items.len(), first.next), (2, Some(id(2))));
    let rest = bench.store.list_sessions(first.next, 2).await.unwrap();
    assert_eq!((rest.items[0].id, rest.items.len(), rest.next), (id(3), 1, None));
}
