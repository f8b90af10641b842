//! Replacing the key of all secrets while others write and read them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use everytick_domain::{
    ids::{TenantId, Version},
    secret::{OperatorKey, SecretKind, SecretRules},
};
use everytick_engine::{
    Hints,
    commands::{Commands, Entropy, SecretRequest},
    live::LiveLogs,
    secrets::{Vault, check_keys, rekey},
};
use everytick_store::{Actor, Limits, SecretStore, SqliteStore, SystemClock, ValuePlace};
use zeroize::Zeroizing;

const TENANT: TenantId = TenantId::DEFAULT;
const SECRETS: usize = 40;

/// Different bytes at each call.
struct Counting(AtomicU64);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let next = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&next.to_be_bytes()[..chunk.len()]);
        }
    }
}

fn vault(keys: &[u8]) -> Vault {
    Vault::new("test", keys.iter().map(|n| OperatorKey::from_random([*n; 32])).collect()).unwrap()
}

fn name(n: usize) -> String {
    format!("s{n}")
}

async fn put(commands: &Commands, n: usize, round: usize) {
    let ask = SecretRequest {
        rules: SecretRules { name: name(n), hosts: Vec::new(), kinds: vec![SecretKind::Shell] },
        description: String::new(),
        value: Zeroizing::new(format!("value {n} of round {round}").into_bytes()),
        if_match: None,
    };
    commands.put_secret(TENANT, &Actor::local("test"), ask).await.unwrap();
}

/// The current value of a secret, decrypted with these keys.
async fn value(store: &dyn SecretStore, vault: &Vault, n: usize) -> String {
    let (stored, _) = store.load_secrets(TENANT, &[name(n)]).await.unwrap();
    let (version, sealed) = stored[0].values.first().unwrap();
    let place = ValuePlace { tenant: TENANT, name: name(n), version: *version };
    let bytes = vault.open(&place, sealed).unwrap_or_else(|why| panic!("{}: {why}", name(n)));
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_rekey_under_load_leaves_every_secret_readable_and_needs_only_the_new_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("everytick.db");
    let store = Arc::new(SqliteStore::open(file, Arc::new(SystemClock), Limits::default()).await.unwrap());
    let entropy = Arc::new(Counting(AtomicU64::new(1)));
    let commands = |keys: &[u8]| {
        Commands::new(store.clone(), Hints::default(), entropy.clone(), LiveLogs::default())
            .with_vault(Some(vault(keys)))
    };
    let (old, both) = (commands(&[1, 2]), vault(&[2, 1]));
    for n in 0..SECRETS {
        put(&old, n, 0).await;
    }
    assert!(check_keys(Some(&vault(&[2])), &store.secret_keys().await.unwrap()).is_err());
    // A node that does not yet encrypt with the new key writes, and another one reads.
    let writes = async {
        for round in 1..4 {
            for n in 0..SECRETS / 2 {
                put(&old, n, round).await;
            }
        }
    };
    let reads = async {
        for n in (0..SECRETS).chain(0..SECRETS) {
            assert!(value(store.as_ref(), &both, n).await.starts_with(&format!("value {n} ")));
        }
    };
    let actor = Actor::local("operator");
    let (first, (), ()) = tokio::join!(rekey(store.as_ref(), &actor, &both, entropy.as_ref()), writes, reads);
    assert!(first.unwrap().failed.is_empty());
    let last = rekey(store.as_ref(), &actor, &both, entropy.as_ref()).await.unwrap();
    assert!(last.failed.is_empty());
    let again = rekey(store.as_ref(), &actor, &both, entropy.as_ref()).await.unwrap();
    assert_eq!((again.versions, again.forgotten.len()), (0, 0), "it can be repeated");
    let new = vault(&[2]);
    check_keys(Some(&new), &store.secret_keys().await.unwrap()).unwrap();
    for n in 0..SECRETS {
        let round = if n < SECRETS / 2 { 3 } else { 0 };
        assert_eq!(value(store.as_ref(), &new, n).await, format!("value {n} of round {round}"));
    }
}

#[tokio::test]
async fn writers_at_the_same_time_store_versions_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("everytick.db");
    let store = Arc::new(SqliteStore::open(file, Arc::new(SystemClock), Limits::default()).await.unwrap());
    let entropy = Arc::new(Counting(AtomicU64::new(1)));
    let commands =
        Commands::new(store.clone(), Hints::default(), entropy, LiveLogs::default()).with_vault(Some(vault(&[1])));
    tokio::join!(put(&commands, 0, 1), put(&commands, 0, 2), put(&commands, 0, 3));
    let (record, _) = store.get_secret(TENANT, &name(0)).await.unwrap();
    assert_eq!(record.version, Version::from_raw(3));
    assert!(value(store.as_ref(), &vault(&[1]), 0).await.starts_with("value 0 of round "));
}
