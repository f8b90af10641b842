//! Secrets: their versions, the jobs that refer to them, and the keys that encrypt them. A store never decrypts a value, so
//! these values are no ciphertexts.

use everytick_domain::{
    edit::Change,
    ids::{TenantId, Version},
    job::JobSpec,
    secret::{SecretKind, SecretRules},
    target::{HttpTarget, TargetSpec},
    time::Span,
};

use super::{Bench, LIMITS, OTHER_TENANT, START, TENANT, actor, s, spec};
use crate::{
    JobFilter, KeyMark, PutSecret, Result, Rewrap, SealedValue, SecretPut, SecretRecord, StoreError, ValuePlace,
};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_secrets {
    ($open:path) => {
        $crate::conformance_group! { $open, secrets:
            a_secret_is_created_read_listed_and_deleted,
            a_secret_with_another_version_is_not_replaced,
            the_newest_two_values_are_kept,
            after_a_rotation_the_previous_value_has_an_end,
            a_second_rotation_waits_for_the_end_of_the_overlap,
            secrets_per_tenant_are_limited,
            a_job_refers_only_to_secrets_that_it_may_use,
            a_batch_refuses_only_the_job_that_may_not_use_its_secret,
            an_edit_refers_only_to_secrets_that_it_may_use,
            a_secret_that_a_job_uses_is_deleted_only_by_force,
            secrets_do_not_cross_tenants,
            secrets_have_audit_rows_without_values,
            a_key_is_needed_while_a_value_is_encrypted_with_it,
            data_keys_are_replaced_only_under_the_key_that_encrypts_them,
            a_data_key_is_replaced_only_in_its_version,
            an_installation_has_one_id,
        }
    };
}

const NEW: Version = Version::from_raw(0);

fn rules(name: &str) -> SecretRules {
    let hosts = vec!["api.example.org".parse().unwrap()];
    SecretRules { name: name.to_owned(), hosts, kinds: vec![SecretKind::Http] }
}

fn mark(id: &str) -> KeyMark {
    KeyMark { id: id.to_owned(), check_value: vec![1, 2] }
}

/// A value that is recognized by its number.
fn value(key: &str, n: u8) -> SealedValue {
    SealedValue { key_id: key.to_owned(), wrapped_key: vec![n], nonce: vec![n, n], ciphertext: vec![n, n, n] }
}

fn put(name: &str, was: Version, n: u8) -> PutSecret {
    let description = format!("value {n}");
    PutSecret { rules: rules(name), description, was, value: value("k1", n), key: mark("k1"), overlap: None }
}

async fn set(bench: &Bench, put: PutSecret) -> SecretPut {
    bench.store.put_secret(TENANT, &actor(), put).await.unwrap()
}

/// Creates a secret for the rules of other files.
pub(super) async fn put_in(bench: &Bench, tenant: TenantId, name: &str) -> Result<SecretPut> {
    bench.store.put_secret(tenant, &actor(), put(name, NEW, 1)).await
}

async fn create(bench: &Bench, name: &str) -> SecretRecord {
    set(bench, put(name, NEW, 1)).await.secret
}

/// The numbers of the stored values of a secret, the newest first.
async fn values(bench: &Bench, tenant: TenantId, name: &str) -> Vec<(i64, u8)> {
    let (found, _) = bench.store.load_secrets(tenant, &[name.to_owned()]).await.unwrap();
    let values = found.into_iter().flat_map(|stored| stored.values);
    values.map(|(version, value)| (version.raw(), value.ciphertext[0])).collect()
}

/// A job that sends a secret to a host.
pub(super) fn using(job: &str, secret: &str, host: &str) -> JobSpec {
    let mut http = HttpTarget::post(format!("https://{host}/hook"));
    http.headers = [("authorization".to_owned(), format!("Bearer {{{{ secrets.{secret} }}}}"))].into();
    JobSpec { target: TargetSpec::Http(http), ..spec(job) }
}

fn replace(spec: JobSpec) -> Change {
    Change::Replace(Box::new(spec))
}

/// The field and the message of the error of a definition.
fn wrong<T: std::fmt::Debug>(answer: Result<T>) -> String {
    match answer {
        Err(StoreError::Invalid(found)) => found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        other => panic!("{other:?}"),
    }
}

pub async fn a_secret_is_created_read_listed_and_deleted(bench: &Bench) {
    let made = set(bench, put("b", NEW, 1)).await;
    let expected = SecretRecord {
        rules: rules("b"),
        description: "value 1".to_owned(),
        version: Version::from_raw(1),
        created_at: START,
        created_by: "tester".to_owned(),
        updated_at: START,
        updated_by: "tester".to_owned(),
        previous_until: None,
        jobs: 0,
    };
    assert_eq!(made, SecretPut { secret: expected.clone(), made: true });
    bench.go(5);
    let again = set(bench, put("b", Version::from_raw(1), 2)).await;
    let second = SecretRecord {
        description: "value 2".to_owned(),
        version: Version::from_raw(2),
        updated_at: s(5),
        ..expected.clone()
    };
    assert_eq!(again, SecretPut { secret: second.clone(), made: false });
    assert_eq!(bench.store.get_secret(TENANT, "b").await.unwrap(), (second, Vec::new()));
    create(bench, "a").await;
    let first = bench.store.list_secrets(TENANT, None, 1).await.unwrap();
    assert_eq!((first.items[0].rules.name.as_str(), first.next.as_deref()), ("a", Some("a")));
    let rest = bench.store.list_secrets(TENANT, Some("a"), 10).await.unwrap();
    assert_eq!((rest.items.len(), rest.items[0].rules.name.as_str(), rest.next), (1, "b", None));
    bench.store.delete_secret(TENANT, &actor(), "b", None, false).await.unwrap();
    let gone = bench.store.get_secret(TENANT, "b").await;
    assert!(matches!(gone, Err(StoreError::NotFound("secret"))), "{gone:?}");
    assert_eq!(values(bench, TENANT, "b").await, []);
    assert_eq!(values(bench, TENANT, "a").await, [(1, 1)]);
}

pub async fn a_secret_with_another_version_is_not_replaced(bench: &Bench) {
    create(bench, "a").await;
    for was in [0, 2] {
        let refused = bench.store.put_secret(TENANT, &actor(), put("a", Version::from_raw(was), 2)).await;
        assert!(matches!(refused, Err(StoreError::VersionMismatch { .. })), "{refused:?}");
    }
    let refused = bench.store.put_secret(TENANT, &actor(), put("b", Version::from_raw(1), 2)).await;
    assert!(matches!(refused, Err(StoreError::VersionMismatch { .. })), "{refused:?}");
    let wanted = Some(Version::from_raw(2));
    let refused = bench.store.delete_secret(TENANT, &actor(), "a", wanted, false).await;
    assert!(matches!(refused, Err(StoreError::VersionMismatch { .. })), "{refused:?}");
    assert_eq!(values(bench, TENANT, "a").await, [(1, 1)]);
}

pub async fn the_newest_two_values_are_kept(bench: &Bench) {
    for was in 0..3 {
        set(bench, put("a", Version::from_raw(was), was as u8 + 1)).await;
    }
    assert_eq!(values(bench, TENANT, "a").await, [(3, 3), (2, 2)]);
    let (stored, now) = bench.store.load_secrets(TENANT, &["a".into(), "b".into()]).await.unwrap();
    assert_eq!((stored.len(), now), (1, START));
    assert_eq!((stored[0].version, &stored[0].rules), (Version::from_raw(3), &rules("a")));
    assert_eq!(stored[0].values[0].1, value("k1", 3));
}

pub async fn after_a_rotation_the_previous_value_has_an_end(bench: &Bench) {
    create(bench, "a").await;
    let rotated = PutSecret { overlap: Some(Span::hours(1)), ..put("a", Version::from_raw(1), 2) };
    let until = Some(START.plus(Span::hours(1)));
    assert_eq!(set(bench, rotated).await.secret.previous_until, until);
    assert_eq!(bench.store.load_secrets(TENANT, &["a".into()]).await.unwrap().0[0].previous_until, until);
    let put = put("a", Version::from_raw(2), 3);
    assert_eq!(
        set(bench, put).await.secret.previous_until,
        None,
        "a value that a caller chose replaces the other at once"
    );
}

pub async fn a_second_rotation_waits_for_the_end_of_the_overlap(bench: &Bench) {
    create(bench, "a").await;
    let rotate = |was: i64, overlap: Span| PutSecret {
        overlap: Some(overlap),
        ..put("a", Version::from_raw(was), was as u8 + 1)
    };
    set(bench, rotate(1, Span::hours(1))).await;
    let refused = bench.store.put_secret(TENANT, &actor(), rotate(2, Span::hours(1))).await;
    assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
    assert_eq!(set(bench, rotate(2, Span::ZERO)).await.secret.previous_until, None);
    set(bench, rotate(3, Span::seconds(5))).await;
    bench.go(5);
    set(bench, rotate(4, Span::seconds(5))).await;
}

pub async fn secrets_per_tenant_are_limited(bench: &Bench) {
    for n in 0..LIMITS.secrets_per_tenant_max {
        create(bench, &format!("s{n}")).await;
    }
    let refused = bench.store.put_secret(TENANT, &actor(), put("more", NEW, 1)).await;
    assert!(matches!(refused, Err(StoreError::QuotaFull { what: "secrets", .. })), "{refused:?}");
    set(bench, put("s0", Version::from_raw(1), 2)).await;
    bench.store.put_secret(OTHER_TENANT, &actor(), put("more", NEW, 1)).await.unwrap();
    bench.store.delete_secret(TENANT, &actor(), "s0", None, false).await.unwrap();
    create(bench, "more").await;
}

pub async fn a_job_refers_only_to_secrets_that_it_may_use(bench: &Bench) {
    create(bench, "api").await;
    let job = bench.create(using("good", "api", "api.example.org")).await;
    assert_eq!(bench.load(&job).await.job.spec, job.spec);
    let other = wrong(bench.created(TENANT, using("other", "api", "evil.example")).await);
    assert!(other.starts_with("target.http.headers.authorization: ") && other.contains("evil.example"), "{other}");
    let missing = wrong(bench.created(TENANT, using("missing", "none", "api.example.org")).await);
    assert!(missing.contains("\"none\" does not exist"), "{missing}");
    let jobs = bench.store.list_jobs(TENANT, &JobFilter::default(), None, 10).await.unwrap();
    assert_eq!(jobs.items.len(), 1);
}

pub async fn a_batch_refuses_only_the_job_that_may_not_use_its_secret(bench: &Bench) {
    create(bench, "api").await;
    let specs = [
        using("one", "api", "api.example.org"),
        using("two", "api", "evil.example"),
        using("three", "api", "api.example.org"),
    ];
    let jobs = specs.map(|spec| crate::NewJob { id: super::job_id(TENANT, &spec.name), spec }).into();
    let answers = bench.store.create_jobs(TENANT, &actor(), jobs, None).await.unwrap();
    assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(bench.store.get_secret(TENANT, "api").await.unwrap().0.jobs, 2);
}

pub async fn an_edit_refers_only_to_secrets_that_it_may_use(bench: &Bench) {
    create(bench, "api").await;
    bench.create(spec("j")).await;
    let edit = async |spec: JobSpec| {
        let edit = crate::EditJob { job: super::by_name("j"), change: replace(spec), if_match: None, cancel: false };
        bench.store.edit_job(TENANT, &actor(), edit).await
    };
    let refused = wrong(edit(using("j", "api", "evil.example")).await);
    assert!(refused.contains("may not be sent to evil.example"), "{refused}");
    assert_eq!(bench.store.get_secret(TENANT, "api").await.unwrap().1, Vec::<String>::new());
    edit(using("j", "api", "api.example.org")).await.unwrap();
    assert_eq!(bench.store.get_secret(TENANT, "api").await.unwrap().1, ["j"]);
    edit(spec("j")).await.unwrap();
    assert_eq!(bench.store.get_secret(TENANT, "api").await.unwrap().0.jobs, 0);
}

pub async fn a_secret_that_a_job_uses_is_deleted_only_by_force(bench: &Bench) {
    create(bench, "api").await;
    for name in ["one", "two"] {
        bench.create(using(name, "api", "api.example.org")).await;
    }
    let refused = bench.store.delete_secret(TENANT, &actor(), "api", None, false).await;
    let Err(StoreError::InUse { what: "secret", by, count: 2 }) = &refused else { panic!("{refused:?}") };
    assert!(by.contains(&"one".to_owned()) && by.contains(&"two".to_owned()), "{by:?}");
    bench.edit("one", Change::Delete).await;
    assert_eq!(bench.store.get_secret(TENANT, "api").await.unwrap().1, ["two"]);
    bench.store.delete_secret(TENANT, &actor(), "api", None, true).await.unwrap();
    assert_eq!(values(bench, TENANT, "api").await, []);
    // A job that refers to a secret of this name is found again when the secret is created again.
    assert_eq!(create(bench, "api").await.jobs, 1);
}

pub async fn secrets_do_not_cross_tenants(bench: &Bench) {
    create(bench, "api").await;
    assert!(bench.store.get_secret(OTHER_TENANT, "api").await.is_err());
    assert!(bench.store.list_secrets(OTHER_TENANT, None, 10).await.unwrap().items.is_empty());
    assert_eq!(values(bench, OTHER_TENANT, "api").await, []);
    assert!(bench.store.delete_secret(OTHER_TENANT, &actor(), "api", None, true).await.is_err());
    let refused = wrong(bench.created(OTHER_TENANT, using("j", "api", "api.example.org")).await);
    assert!(refused.contains("does not exist"), "{refused}");
    bench.store.put_secret(OTHER_TENANT, &actor(), put("api", NEW, 7)).await.unwrap();
    bench.created(OTHER_TENANT, using("j", "api", "api.example.org")).await.unwrap();
    assert_eq!(values(bench, OTHER_TENANT, "api").await, [(1, 7)]);
    assert_eq!(values(bench, TENANT, "api").await, [(1, 1)]);
    assert_eq!(bench.store.get_secret(TENANT, "api").await.unwrap().0.jobs, 0);
    bench.store.delete_secret(TENANT, &actor(), "api", None, false).await.unwrap();
    assert_eq!(values(bench, OTHER_TENANT, "api").await, [(1, 7)]);
}

pub async fn secrets_have_audit_rows_without_values(bench: &Bench) {
    create(bench, "a").await;
    let rotated = PutSecret { overlap: Some(Span::hours(1)), ..put("a", Version::from_raw(1), 2) };
    set(bench, rotated).await;
    let refused = bench.store.put_secret(TENANT, &actor(), put("a", NEW, 3)).await;
    assert!(refused.is_err());
    bench.store.delete_secret(TENANT, &actor(), "a", None, false).await.unwrap();
    let audit = bench.audit().await;
    let rows: Vec<_> = audit.iter().map(|row| (row.action.as_str(), row.subject.as_str())).collect();
    assert_eq!(rows, [("set_secret", "secret/a"), ("rotate_secret", "secret/a"), ("delete_secret", "secret/a")]);
    let detail: serde_json::Value = serde_json::from_str(&audit[0].detail).unwrap();
    let expected = serde_json::json!({
        "version": 1, "hosts": ["api.example.org"], "kinds": ["http"], "previous_until": null,
    });
    assert_eq!(detail, expected);
}

pub async fn a_key_is_needed_while_a_value_is_encrypted_with_it(bench: &Bench) {
    assert!(bench.store.secret_keys().await.unwrap().is_empty());
    create(bench, "a").await;
    let next = PutSecret { value: value("k2", 2), key: mark("k2"), ..put("a", Version::from_raw(1), 2) };
    set(bench, next).await;
    let needed = async || {
        let keys = bench.store.secret_keys().await.unwrap();
        keys.into_iter().map(|key| (key.mark.id, key.needed)).collect::<Vec<_>>()
    };
    assert_eq!(needed().await, [("k1".to_owned(), true), ("k2".to_owned(), true)]);
    assert_eq!(bench.store.secret_keys().await.unwrap()[0].mark, mark("k1"));
    assert!(bench.store.forget_keys(&actor(), "k2").await.unwrap().is_empty(), "both are needed");
    let next = PutSecret { value: value("k2", 3), key: mark("k2"), ..put("a", Version::from_raw(2), 3) };
    set(bench, next).await;
    assert_eq!(needed().await, [("k1".to_owned(), false), ("k2".to_owned(), true)]);
    assert_eq!(bench.store.forget_keys(&actor(), "k2").await.unwrap(), ["k1"]);
    bench.store.delete_secret(TENANT, &actor(), "a", None, false).await.unwrap();
    assert!(bench.store.forget_keys(&actor(), "k2").await.unwrap().is_empty(), "the given key stays");
    assert_eq!(needed().await, [("k2".to_owned(), false)]);
}

pub async fn data_keys_are_replaced_only_under_the_key_that_encrypts_them(bench: &Bench) {
    create(bench, "a").await;
    bench.store.put_secret(OTHER_TENANT, &actor(), put("a", NEW, 2)).await.unwrap();
    set(bench, PutSecret { value: value("k2", 3), key: mark("k2"), ..put("b", NEW, 3) }).await;
    let others = async |after: Option<&ValuePlace>, limit| {
        let found = bench.store.values_under_other_keys("k2", after, limit).await.unwrap();
        found.into_iter().map(|(place, _)| place).collect::<Vec<_>>()
    };
    let place = |tenant| ValuePlace { tenant, name: "a".to_owned(), version: Version::from_raw(1) };
    let [ours, theirs] = [TENANT, OTHER_TENANT].map(place);
    assert_eq!(others(None, 10).await, [ours.clone(), theirs.clone()]);
    assert_eq!(others(None, 1).await, std::slice::from_ref(&ours));
    assert_eq!(others(Some(&ours), 10).await, std::slice::from_ref(&theirs));
    let rewrap = |place: &ValuePlace, was: &str| Rewrap {
        place: place.clone(),
        was_key: was.to_owned(),
        key_id: "k2".to_owned(),
        wrapped_key: vec![9],
    };
    let stale = bench.store.rewrap(&actor(), &mark("k2"), &[rewrap(&ours, "k0")]).await.unwrap();
    assert_eq!(stale, 0);
    let both = [rewrap(&ours, "k1"), rewrap(&theirs, "k1")];
    assert_eq!(bench.store.rewrap(&actor(), &mark("k2"), &both).await.unwrap(), 2);
    assert_eq!(bench.store.rewrap(&actor(), &mark("k2"), &both).await.unwrap(), 0, "it can be repeated");
    assert!(others(None, 10).await.is_empty());
    let (stored, _) = bench.store.load_secrets(TENANT, &["a".into()]).await.unwrap();
    let expected = SealedValue { wrapped_key: vec![9], ..value("k2", 1) };
    assert_eq!(stored[0].values, [(Version::from_raw(1), expected)]);
    let audit = bench.audit().await;
    assert_eq!(audit.iter().filter(|row| row.action == "rekey_secrets").count(), 1, "one row for each tenant");
}

pub async fn a_data_key_is_replaced_only_in_its_version(bench: &Bench) {
    create(bench, "a").await;
    set(bench, put("a", Version::from_raw(1), 2)).await;
    create(bench, "b").await;
    let place =
        |name: &str, version| ValuePlace { tenant: TENANT, name: name.to_owned(), version: Version::from_raw(version) };
    let rewrap =
        Rewrap { place: place("a", 1), was_key: "k1".to_owned(), key_id: "k2".to_owned(), wrapped_key: vec![9] };
    assert_eq!(bench.store.rewrap(&actor(), &mark("k2"), &[rewrap]).await.unwrap(), 1);
    let left = bench.store.values_under_other_keys("k2", None, 10).await.unwrap();
    assert_eq!(left.into_iter().map(|(place, _)| place).collect::<Vec<_>>(), [place("a", 2), place("b", 1)]);
}

pub async fn an_installation_has_one_id(bench: &Bench) {
    assert_eq!(bench.store.installation("one").await.unwrap(), "one");
    assert_eq!(bench.store.installation("two").await.unwrap(), "one");
}
