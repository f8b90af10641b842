//! API tokens, and the settings of the installation.

use everytick_domain::{
    access::{Grant, Lifetime, Role, RunKey, Scope, Token},
    ids::{TenantId, TokenId},
    time::Span,
};

use super::{Bench, OTHER_TENANT, START, TENANT, actor, s};
use crate::{Actor, ActorKind, AuditFilter, AuditRecord, Creator, NewToken, Result, StoreError, TokenKey, TokenRecord};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_tokens {
    ($open:path) => {
        $crate::conformance_group! { $open, tokens:
            a_token_is_created_found_by_its_hash_listed_and_revoked,
            the_first_token_makes_every_request_need_a_credential,
            revoking_the_last_token_keeps_the_api_closed,
            a_first_token_is_refused_once_a_credential_exists,
            a_token_is_never_stronger_than_its_creator,
            a_worker_without_queues_is_refused,
            the_name_of_a_valid_token_is_taken,
            tokens_per_tenant_are_limited,
            an_expired_token_is_found_and_is_not_valid,
            a_rotated_token_is_valid_until_its_overlap_ends,
            a_token_that_expires_soon_does_not_live_longer_by_a_rotation,
            a_token_is_rotated_once,
            a_chain_of_rotations_has_few_valid_tokens,
            a_revocation_ends_the_tokens_made_by_rotation,
            several_tokens_are_found_at_once,
            tokens_that_expire_soon_are_counted,
            a_use_is_stored_at_most_once_a_minute,
            ended_tokens_are_removed_later,
            tokens_do_not_cross_tenants,
            token_changes_have_audit_rows,
            a_refused_token_changes_nothing,
            a_reset_opens_the_api_and_keeps_the_tokens,
            a_first_token_after_a_reset_replaces_a_token_of_the_same_name,
            a_node_creates_its_tokens_until_an_operator_creates_one,
            the_key_of_run_tokens_is_stored_once,
            a_denied_request_has_an_audit_row,
            audit_rows_have_the_origin_of_the_request,
        }
    };
}

fn key(n: u8) -> TokenKey {
    let token = Token::from_random(&[n; 64]).unwrap();
    TokenKey { hash: token.hash(), id: id(n), prefix: token.prefix().to_owned() }
}

fn id(n: u8) -> TokenId {
    TokenId::new(START, [n; 10])
}

fn grant(tenant: TenantId, role: Role) -> Grant {
    let queues = (role == Role::Worker).then(|| vec!["*".to_owned().try_into().unwrap()]);
    Grant { tenant: Some(tenant), role, scope: Scope { queues, ..Scope::default() } }
}

fn new(n: u8, role: Role) -> NewToken {
    let (grant, name) = (grant(TENANT, role), format!("t{n}"));
    NewToken { key: key(n), name, grant, allowed_ips: Vec::new(), lifetime: Lifetime::For(Span::days(90)) }
}

async fn create(bench: &Bench, token: NewToken) -> TokenRecord {
    bench.store.create_token(&actor(), &Creator::Open, token).await.unwrap()
}

/// Creates a token for the rules of other files.
pub(super) async fn create_in(bench: &Bench, tenant: TenantId, n: u8) -> Result<TokenRecord> {
    let token = NewToken { grant: grant(tenant, Role::Viewer), ..new(n, Role::Viewer) };
    bench.store.create_token(&actor(), &Creator::Open, token).await
}

pub(super) fn hash_of(n: u8) -> everytick_domain::access::TokenHash {
    key(n).hash
}

async fn find(bench: &Bench, n: u8) -> Option<TokenRecord> {
    bench.store.find_token(&key(n).hash).await.unwrap().0
}

async fn names(bench: &Bench, owner: Option<TenantId>) -> Vec<String> {
    let page = bench.store.list_tokens(owner, None, 100).await.unwrap();
    page.items.into_iter().map(|token| token.name).collect()
}

async fn trail(bench: &Bench) -> Vec<AuditRecord> {
    let mut rows = bench.store.list_audit(TENANT, &AuditFilter::default(), None, 100).await.unwrap().items;
    rows.reverse();
    rows
}

async fn actions(bench: &Bench) -> Vec<String> {
    trail(bench).await.into_iter().map(|row| row.action).collect()
}

fn is_conflict<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(StoreError::Conflict(_)))
}

pub async fn a_token_is_created_found_by_its_hash_listed_and_revoked(bench: &Bench) {
    let asked = NewToken { allowed_ips: vec!["10.0.0.0/8".to_owned()], ..new(1, Role::Editor) };
    let made = create(bench, asked.clone()).await;
    assert_eq!((made.id, made.hash, &made.grant), (asked.key.id, asked.key.hash, &asked.grant));
    assert_eq!((made.created_at, made.expires_at), (START, Some(START.plus(Span::days(90)))));
    assert_eq!((made.created_by.as_str(), made.prefix.as_str()), ("tester", asked.key.prefix.as_str()));
    assert_eq!(bench.store.find_token(&made.hash).await.unwrap(), (Some(made.clone()), START));
    assert_eq!(find(bench, 2).await, None);
    let second = create(bench, new(2, Role::Worker)).await;
    let first = bench.store.list_tokens(Some(TENANT), None, 1).await.unwrap();
    assert_eq!((&first.items, first.next), (&vec![made.clone()], Some(made.id)));
    let rest = bench.store.list_tokens(Some(TENANT), first.next, 10).await.unwrap();
    assert_eq!((&rest.items, rest.next), (&vec![second.clone()], None));
    assert_eq!(bench.store.get_token(Some(TENANT), second.id).await.unwrap(), second);
    bench.go(5);
    let revoked = bench.store.revoke_token(&actor(), Some(TENANT), made.id).await.unwrap();
    let found = find(bench, 1).await.unwrap();
    assert!(found.revoked_at == Some(s(5)) && !found.is_live(s(5)));
    assert_eq!(revoked, [found]);
    assert_eq!(names(bench, Some(TENANT)).await, ["t2"]);
    let again = bench.store.revoke_token(&actor(), Some(TENANT), made.id).await;
    assert!(matches!(again, Err(StoreError::NotFound("token"))), "{again:?}");
    assert!(find(bench, 2).await.unwrap().is_live(s(5)), "another token stays valid");
}

pub async fn the_first_token_makes_every_request_need_a_credential(bench: &Bench) {
    assert!(!bench.store.auth_required().await.unwrap());
    create(bench, new(1, Role::Viewer)).await;
    assert!(bench.store.auth_required().await.unwrap());
    assert_eq!(actions(bench).await, ["require_auth", "create_token"]);
    create(bench, new(2, Role::Viewer)).await;
    assert_eq!(actions(bench).await, ["require_auth", "create_token", "create_token"]);
}

pub async fn revoking_the_last_token_keeps_the_api_closed(bench: &Bench) {
    let made = create(bench, new(1, Role::Admin)).await;
    bench.store.revoke_token(&actor(), Some(TENANT), made.id).await.unwrap();
    assert!(bench.store.auth_required().await.unwrap());
}

pub async fn a_first_token_is_refused_once_a_credential_exists(bench: &Bench) {
    let first = bench.store.create_token(&actor(), &Creator::First, new(1, Role::Admin)).await.unwrap();
    assert!(is_conflict(bench.store.create_token(&actor(), &Creator::First, new(2, Role::Admin)).await));
    bench.store.revoke_token(&actor(), Some(TENANT), first.id).await.unwrap();
    assert!(is_conflict(bench.store.create_token(&actor(), &Creator::First, new(2, Role::Admin)).await));
    assert_eq!(find(bench, 2).await, None);
}

pub async fn a_token_is_never_stronger_than_its_creator(bench: &Bench) {
    let admin = Creator::Grant(grant(TENANT, Role::Admin));
    let try_as = async |creator: &Creator, token| bench.store.create_token(&actor(), creator, token).await;
    let instance = NewToken { grant: Grant { tenant: None, ..grant(TENANT, Role::Instance) }, ..new(1, Role::Viewer) };
    let foreign = NewToken { grant: grant(OTHER_TENANT, Role::Viewer), ..new(1, Role::Viewer) };
    for stronger in [instance.clone(), foreign] {
        let refused = try_as(&admin, stronger).await;
        assert!(matches!(refused, Err(StoreError::NotAllowed(_))), "{refused:?}");
    }
    let scope = Scope { job_prefix: Some("etl-".to_owned()), ..Scope::default() };
    let limited = Grant { scope: scope.clone(), ..grant(TENANT, Role::Admin) };
    let refused = try_as(&Creator::Grant(limited.clone()), new(1, Role::Viewer)).await;
    assert!(matches!(refused, Err(StoreError::NotAllowed(_))), "{refused:?}");
    let editor = Creator::Grant(grant(TENANT, Role::Editor));
    assert!(matches!(try_as(&editor, new(1, Role::Viewer)).await, Err(StoreError::NotAllowed(_))));
    assert_eq!(find(bench, 1).await, None);
    let narrow = NewToken { grant: Grant { scope, ..grant(TENANT, Role::Viewer) }, ..new(1, Role::Viewer) };
    try_as(&Creator::Grant(limited), narrow).await.unwrap();
    try_as(&admin, new(2, Role::Admin)).await.unwrap();
    let key = key(3);
    let owner = Creator::Grant(Grant { tenant: None, ..grant(TENANT, Role::Instance) });
    try_as(&owner, NewToken { key, ..instance }).await.unwrap();
    assert_eq!(names(bench, None).await, ["t1"]);
}

pub async fn a_worker_without_queues_is_refused(bench: &Bench) {
    let mut token = new(1, Role::Worker);
    token.grant.scope.queues = None;
    let refused = bench.store.create_token(&actor(), &Creator::Open, token).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
    assert!(!bench.store.auth_required().await.unwrap(), "nothing was changed");
}

pub async fn the_name_of_a_valid_token_is_taken(bench: &Bench) {
    let first = create(bench, new(1, Role::Viewer)).await;
    let same = || NewToken { name: "t1".to_owned(), ..new(2, Role::Viewer) };
    assert!(is_conflict(bench.store.create_token(&actor(), &Creator::Open, same()).await));
    bench.store.revoke_token(&actor(), Some(TENANT), first.id).await.unwrap();
    create(bench, same()).await;
    bench.clock.set(START.plus(Span::days(90)));
    create(bench, NewToken { name: "t1".to_owned(), ..new(3, Role::Viewer) }).await;
}

pub async fn tokens_per_tenant_are_limited(bench: &Bench) {
    for n in 1..=4 {
        create(bench, new(n, Role::Viewer)).await;
    }
    let full = async |n| bench.store.create_token(&actor(), &Creator::Open, new(n, Role::Viewer)).await;
    assert!(matches!(full(5).await, Err(StoreError::QuotaFull { what: "tokens", max: 4 })));
    let rotated = bench.store.rotate_token(&actor(), Some(TENANT), id(1), key(5), Span::days(1)).await;
    assert!(matches!(rotated, Err(StoreError::QuotaFull { .. })), "{rotated:?}");
    let other = NewToken { grant: grant(OTHER_TENANT, Role::Viewer), ..new(6, Role::Viewer) };
    create(bench, other).await;
    bench.store.revoke_token(&actor(), Some(TENANT), id(1)).await.unwrap();
    full(5).await.unwrap();
}

pub async fn an_expired_token_is_found_and_is_not_valid(bench: &Bench) {
    create(bench, NewToken { lifetime: Lifetime::For(Span::minutes(1)), ..new(1, Role::Viewer) }).await;
    create(bench, NewToken { lifetime: Lifetime::Unlimited, ..new(2, Role::Viewer) }).await;
    bench.go(59);
    assert!(find(bench, 1).await.unwrap().is_live(s(59)));
    bench.go(60);
    let (found, now) = bench.store.find_token(&key(1).hash).await.unwrap();
    assert!(!found.unwrap().is_live(now));
    let unlimited = find(bench, 2).await.unwrap();
    assert!(unlimited.expires_at.is_none() && unlimited.is_live(now));
}

pub async fn a_rotated_token_is_valid_until_its_overlap_ends(bench: &Bench) {
    let old = create(bench, new(1, Role::Operator)).await;
    create(bench, new(3, Role::Viewer)).await;
    bench.go(3_600);
    let overlap = Span::hours(24);
    let fresh = bench.store.rotate_token(&actor(), Some(TENANT), old.id, key(2), overlap).await.unwrap();
    assert_eq!((fresh.name.as_str(), &fresh.grant, fresh.rotated_from), ("t1", &old.grant, Some(old.id)));
    assert_eq!(fresh.expires_at, Some(s(3_600).plus(Span::days(90))), "it lives as long as the old one did");
    let ends = s(3_600).plus(Span::hours(24));
    assert_eq!(find(bench, 1).await.unwrap().expires_at, Some(ends));
    assert_eq!(
        find(bench, 3).await.unwrap().expires_at,
        Some(START.plus(Span::days(90))),
        "another token is unchanged"
    );
    bench.clock.set(ends);
    assert!(!find(bench, 1).await.unwrap().is_live(ends) && find(bench, 2).await.unwrap().is_live(ends));
    assert!(is_conflict(bench.store.rotate_token(&actor(), Some(TENANT), old.id, key(4), Span::hours(1)).await));
}

pub async fn a_token_that_expires_soon_does_not_live_longer_by_a_rotation(bench: &Bench) {
    create(bench, NewToken { lifetime: Lifetime::For(Span::minutes(1)), ..new(1, Role::Viewer) }).await;
    bench.store.rotate_token(&actor(), Some(TENANT), id(1), key(2), Span::days(1)).await.unwrap();
    assert_eq!(find(bench, 1).await.unwrap().expires_at, Some(s(60)));
}

async fn rotate(bench: &Bench, from: u8, to: u8, overlap: Span) -> Result<TokenRecord> {
    bench.store.rotate_token(&actor(), Some(TENANT), id(from), key(to), overlap).await
}

pub async fn a_token_is_rotated_once(bench: &Bench) {
    create(bench, new(1, Role::Viewer)).await;
    rotate(bench, 1, 2, Span::days(1)).await.unwrap();
    bench.go(3_600);
    assert!(is_conflict(rotate(bench, 1, 3, Span::days(1)).await));
    bench.store.revoke_token(&actor(), Some(TENANT), id(2)).await.unwrap();
    assert!(is_conflict(rotate(bench, 1, 3, Span::days(1)).await), "also when the new token was revoked");
    assert_eq!(find(bench, 3).await, None);
    assert!(find(bench, 1).await.unwrap().is_live(s(3_600)), "the new token does not end the old one");
}

pub async fn a_chain_of_rotations_has_few_valid_tokens(bench: &Bench) {
    create(bench, new(1, Role::Viewer)).await;
    rotate(bench, 1, 2, Span::days(1)).await.unwrap();
    bench.go(59);
    assert!(is_conflict(rotate(bench, 2, 3, Span::days(1)).await), "a moment after the rotation");
    bench.go(60);
    rotate(bench, 2, 3, Span::days(1)).await.unwrap();
    bench.go(120);
    assert!(is_conflict(rotate(bench, 3, 4, Span::days(1)).await), "a fourth valid token");
    rotate(bench, 3, 4, Span::millis(0)).await.unwrap();
    bench.clock.set(s(120).plus(Span::days(1)));
    rotate(bench, 4, 5, Span::days(1)).await.unwrap();
}

pub async fn a_revocation_ends_the_tokens_made_by_rotation(bench: &Bench) {
    create(bench, new(1, Role::Viewer)).await;
    for n in 1..=3 {
        bench.go(60 * i64::from(n));
        // The third token ends at once. Its successor is found all the same.
        rotate(bench, n, n + 1, if n == 3 { Span::millis(0) } else { Span::days(1) }).await.unwrap();
    }
    create(bench, new(9, Role::Viewer)).await;
    bench.go(300);
    let before = actions(bench).await.len();
    let ended = bench.store.revoke_token(&actor(), Some(TENANT), id(2)).await.unwrap();
    assert_eq!(ended.iter().map(|token| token.id).collect::<Vec<_>>(), [id(2), id(4)]);
    assert!(ended.iter().all(|token| token.revoked_at == Some(s(300))));
    let mut live = Vec::new();
    for n in [1, 2, 3, 4, 9] {
        live.push(find(bench, n).await.unwrap().is_live(s(300)));
    }
    assert_eq!(live, [true, false, false, false, true], "the token before it and another one stay valid");
    assert_eq!(actions(bench).await[before..], ["revoke_token", "revoke_token"]);
}

pub async fn tokens_that_expire_soon_are_counted(bench: &Bench) {
    let count = async || bench.store.count_expiring(Span::days(14)).await.unwrap();
    for (n, lifetime) in
        [(1, Lifetime::For(Span::days(14))), (2, Lifetime::For(Span::days(15))), (3, Lifetime::Unlimited)]
    {
        create(bench, NewToken { lifetime, ..new(n, Role::Viewer) }).await;
    }
    let other = NewToken { grant: grant(OTHER_TENANT, Role::Viewer), ..new(4, Role::Viewer) };
    create(bench, NewToken { lifetime: Lifetime::For(Span::minutes(1)), ..other }).await;
    assert_eq!(count().await, 2);
    bench.go(60);
    assert_eq!(count().await, 1, "one has expired");
    rotate(bench, 1, 5, Span::days(1)).await.unwrap();
    assert_eq!(count().await, 1, "only the new token, not the one that was replaced");
    bench.store.revoke_token(&actor(), Some(TENANT), id(5)).await.unwrap();
    assert_eq!(count().await, 0);
}

pub async fn several_tokens_are_found_at_once(bench: &Bench) {
    for n in 1..=3 {
        create(bench, new(n, Role::Viewer)).await;
    }
    let hashes = [1, 7, 3].map(|n| key(n).hash);
    let (mut found, now) = bench.store.find_tokens(&hashes).await.unwrap();
    found.sort_by_key(|token| token.id);
    assert_eq!((found.iter().map(|token| token.id).collect::<Vec<_>>(), now), (vec![id(1), id(3)], START));
    assert_eq!(bench.store.find_tokens(&[]).await.unwrap().0, []);
}

pub async fn a_use_is_stored_at_most_once_a_minute(bench: &Bench) {
    let made = create(bench, new(1, Role::Viewer)).await;
    create(bench, new(2, Role::Viewer)).await;
    for (at, ip, stored) in [(1, "::1", (1, "::1")), (60, "10.0.0.1", (1, "::1")), (61, "10.0.0.1", (61, "10.0.0.1"))] {
        bench.go(at);
        bench.store.note_token_used(made.id, ip).await.unwrap();
        let used = find(bench, 1).await.unwrap();
        assert_eq!((used.last_used_at, used.last_used_ip.as_deref()), (Some(s(stored.0)), Some(stored.1)), "at {at}");
    }
    assert_eq!(find(bench, 2).await.unwrap().last_used_at, None, "another token is unchanged");
}

pub async fn ended_tokens_are_removed_later(bench: &Bench) {
    create(bench, NewToken { lifetime: Lifetime::For(Span::minutes(1)), ..new(1, Role::Viewer) }).await;
    create(bench, new(2, Role::Viewer)).await;
    create(bench, NewToken { lifetime: Lifetime::Unlimited, ..new(3, Role::Viewer) }).await;
    create(bench, NewToken { grant: grant(OTHER_TENANT, Role::Viewer), ..new(4, Role::Viewer) }).await;
    bench.go(60);
    for (owner, n) in [(TENANT, 2), (OTHER_TENANT, 4)] {
        bench.store.revoke_token(&actor(), Some(owner), id(n)).await.unwrap();
    }
    let prune = async |before, limit| bench.store.prune_tokens(before, limit).await.unwrap();
    assert_eq!(prune(s(60), 10).await, 0);
    assert_eq!(prune(s(61), 1).await, 1, "at most the limit");
    assert_eq!((prune(s(61), 10).await, prune(s(61), 10).await), (2, 0));
    let left = [find(bench, 1).await, find(bench, 2).await, find(bench, 3).await, find(bench, 4).await];
    assert_eq!(left.map(|token| token.is_some()), [false, false, true, false]);
}

pub async fn tokens_do_not_cross_tenants(bench: &Bench) {
    let own = create(bench, new(1, Role::Viewer)).await;
    let other = create(bench, NewToken { grant: grant(OTHER_TENANT, Role::Viewer), ..new(2, Role::Viewer) }).await;
    assert_eq!(
        (names(bench, Some(TENANT)).await, names(bench, Some(OTHER_TENANT)).await),
        (vec!["t1".into()], vec!["t2".into()])
    );
    assert_eq!(names(bench, None).await, Vec::<String>::new());
    for (owner, token) in [(Some(TENANT), other.id), (Some(OTHER_TENANT), own.id), (None, own.id)] {
        let found = bench.store.get_token(owner, token).await;
        assert!(matches!(found, Err(StoreError::NotFound("token"))), "{found:?}");
        let revoked = bench.store.revoke_token(&actor(), owner, token).await;
        assert!(matches!(revoked, Err(StoreError::NotFound("token"))), "{revoked:?}");
        let rotated = bench.store.rotate_token(&actor(), owner, token, key(3), Span::days(1)).await;
        assert!(matches!(rotated, Err(StoreError::NotFound("token"))), "{rotated:?}");
    }
}

pub async fn token_changes_have_audit_rows(bench: &Bench) {
    let made = create(bench, new(1, Role::Operator)).await;
    bench.store.rotate_token(&actor(), Some(TENANT), made.id, key(2), Span::days(1)).await.unwrap();
    bench.store.revoke_token(&actor(), Some(TENANT), made.id).await.unwrap();
    let rows = trail(bench).await;
    let of = |row: &AuditRecord| (row.action.clone(), row.subject.clone(), row.result.clone());
    let token = |n| format!("token/{}", id(n));
    let expected = [
        ("require_auth", "setting/auth_required".to_owned()),
        ("create_token", token(1)),
        ("rotate_token", token(2)),
        ("revoke_token", token(1)),
        ("revoke_token", token(2)),
    ];
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        expected.map(|(action, subject)| (action.to_owned(), subject, "ok".to_owned()))
    );
    assert!(rows[1].detail.contains("\"operator\"") && rows[1].detail.contains("\"t1\""), "{rows:?}");
    let hash = made.hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(rows.iter().all(|row| !row.detail.contains(&hash)), "no hash is in the trail");
}

pub async fn a_refused_token_changes_nothing(bench: &Bench) {
    create(bench, new(1, Role::Viewer)).await;
    let before = actions(bench).await;
    let same = NewToken { name: "t1".to_owned(), ..new(2, Role::Viewer) };
    assert!(bench.store.create_token(&actor(), &Creator::Open, same).await.is_err());
    assert_eq!((actions(bench).await, find(bench, 2).await), (before, None));
}

pub async fn a_reset_opens_the_api_and_keeps_the_tokens(bench: &Bench) {
    create(bench, new(1, Role::Admin)).await;
    bench.store.reset_access(&actor()).await.unwrap();
    assert!(!bench.store.auth_required().await.unwrap());
    assert!(find(bench, 1).await.unwrap().is_live(START));
    assert_eq!(actions(bench).await.last().unwrap(), "reset_access");
    bench.store.create_token(&actor(), &Creator::First, new(2, Role::Admin)).await.unwrap();
    assert!(bench.store.auth_required().await.unwrap());
}

pub async fn a_first_token_after_a_reset_replaces_a_token_of_the_same_name(bench: &Bench) {
    create(bench, new(1, Role::Admin)).await;
    create(bench, new(2, Role::Admin)).await;
    bench.store.reset_access(&actor()).await.unwrap();
    let first = NewToken { name: "t1".to_owned(), ..new(3, Role::Admin) };
    bench.store.create_token(&actor(), &Creator::First, first).await.unwrap();
    assert!(!find(bench, 1).await.unwrap().is_live(START) && find(bench, 2).await.unwrap().is_live(START));
}

pub async fn a_node_creates_its_tokens_until_an_operator_creates_one(bench: &Bench) {
    let (node, named) =
        (Actor::node("n"), |n: u8, name: &str| NewToken { name: name.to_owned(), ..new(n, Role::Admin) });
    let create_own = async |tokens| bench.store.create_node_tokens(&node, tokens).await.unwrap();
    assert!(create_own(vec![named(1, "a"), named(2, "b")]).await);
    assert!(bench.store.auth_required().await.unwrap());
    bench.go(1);
    assert!(create_own(vec![named(3, "a")]).await, "a new start replaces the node's token");
    let live = async |n| find(bench, n).await.is_some_and(|token| token.is_live(s(1)));
    assert_eq!((live(1).await, live(2).await, live(3).await), (false, true, true));
    create(bench, new(4, Role::Viewer)).await;
    assert!(!create_own(vec![named(5, "c")]).await, "an operator has created a token");
    assert_eq!((find(bench, 5).await, live(3).await), (None, true));
    bench.store.reset_access(&actor()).await.unwrap();
    assert!(create_own(vec![named(5, "c")]).await && bench.store.auth_required().await.unwrap());
}

pub async fn the_key_of_run_tokens_is_stored_once(bench: &Bench) {
    let (first, second) = (RunKey::from_bytes([1; 32]), RunKey::from_bytes([2; 32]));
    assert_eq!(bench.store.run_key(first.clone()).await.unwrap(), first);
    assert_eq!(bench.store.run_key(second).await.unwrap(), first);
}

pub async fn a_denied_request_has_an_audit_row(bench: &Bench) {
    bench.store.note_denied(TENANT, &actor(), "denied", "GET /x", "{\"a\":1}").await.unwrap();
    bench.store.note_denied(OTHER_TENANT, &actor(), "denied", "GET /y", "{}").await.unwrap();
    create(bench, new(1, Role::Viewer)).await;
    let with = async |result: &str| {
        let filter = AuditFilter { result: Some(result.to_owned()), ..AuditFilter::default() };
        let rows = bench.store.list_audit(TENANT, &filter, None, 100).await.unwrap().items;
        rows.into_iter().map(|row| (row.action, row.subject, row.detail)).collect::<Vec<_>>()
    };
    assert_eq!(with("denied").await, [("denied".to_owned(), "GET /x".to_owned(), "{\"a\":1}".to_owned())]);
    assert_eq!(with("ok").await.len(), 2);
}

pub async fn audit_rows_have_the_origin_of_the_request(bench: &Bench) {
    let (ip, request) = ("::ffff:10.1.2.3".parse().ok(), Some("r-1".to_owned()));
    let caller = Actor { name: "token:ci".to_owned(), kind: ActorKind::Token, token: Some(id(9)), ip, request };
    bench.store.create_token(&caller, &Creator::Open, new(1, Role::Viewer)).await.unwrap();
    bench.store.note_denied(TENANT, &actor(), "denied", "x", "{}").await.unwrap();
    let rows = trail(bench).await;
    let of =
        |row: &AuditRecord| (row.actor.clone(), row.actor_kind.clone(), row.token, row.ip.clone(), row.request.clone());
    let token =
        ("token:ci".to_owned(), "token".to_owned(), Some(id(9)), Some("10.1.2.3".to_owned()), Some("r-1".to_owned()));
    assert_eq!([of(&rows[0]), of(&rows[1])], [token.clone(), token]);
    assert_eq!(of(&rows[2]), ("tester".to_owned(), "local".to_owned(), None, None, None));
}
