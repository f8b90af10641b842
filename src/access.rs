//! Creates credentials when a node starts: the bootstrap token from a file, and the tokens of the user who runs a node with
//! `--enable-shell`. So that user needs no login.

use std::{fs, path::Path};

use anyhow::Context as _;
use everytick_api::AuthMode;
use everytick_domain::{
    access::{Grant, Lifetime, Role, Scope, Token},
    ids::{TenantId, TokenId},
    wrong_input::os_error,
};
use everytick_engine::{commands::Entropy, new_token};
use everytick_store::{Actor, Creator, NewToken, Store, StoreError, TokenKey};
use everytick_worker::{Certificates, Server, WorkerError};

use crate::{
    config::{Auth, Settings},
    credentials::{self, Entry, Stored},
    failure::Failure,
};

const BOOTSTRAP: &str = "bootstrap";

/// How the API authenticates its callers.
pub(crate) const fn mode(settings: &Settings) -> AuthMode {
    match settings.auth {
        Auth::Open => AuthMode::Open,
        Auth::Required => AuthMode::Required,
        // Other users of the machine must not be able to run commands as the server's user.
        Auth::Auto if runs_commands(settings) => AuthMode::Required,
        Auth::Auto => AuthMode::Auto,
    }
}

/// Whether callers of the API can make this node run commands.
const fn runs_commands(settings: &Settings) -> bool {
    settings.enable_shell && settings.roles.api
}

/// Creates the credentials that the settings ask for. `servers` are the addresses under which commands reach this node.
pub(crate) async fn prepare(
    settings: &Settings,
    store: &dyn Store,
    entropy: &dyn Entropy,
    servers: &[String],
    bootstrap: Option<Token>,
) -> anyhow::Result<()> {
    if let Some(token) = bootstrap {
        create_bootstrap(store, entropy, &token, settings).await?;
    }
    if settings.auth == Auth::Auto && runs_commands(settings) {
        own_tokens(settings, store, entropy, servers).await?;
    }
    if settings.proxy_auth.is_some() || !settings.cert_grants.is_empty() {
        let node = Actor::node(&settings.node_name);
        store
            .require_auth(&node)
            .await
            .context("could not require credentials, which [proxy_auth] and [[client_cert]] need")?;
    }
    Ok(())
}

/// The name of the setting, for messages.
const BOOTSTRAP_FLAG: &str = "--bootstrap-token-file";

fn wrong_bootstrap(settings: &Settings, what: &str) -> Failure {
    let path = settings.bootstrap_token_file.as_deref().unwrap_or(Path::new("")).display();
    Failure::usage(format!("{BOOTSTRAP_FLAG}: {path}: {what}"))
}

/// The token in the file of the settings; `None` without a file, and once a credential exists. A file that cannot be used is an
/// error before the node starts.
pub(crate) async fn bootstrap_token(settings: &Settings, store: &dyn Store) -> anyhow::Result<Option<Token>> {
    let Some(path) = &settings.bootstrap_token_file else { return Ok(None) };
    if store.auth_required().await? {
        tracing::info!("a credential exists, so {BOOTSTRAP_FLAG} is ignored; it can be removed");
        return Ok(None);
    }
    let text = fs::read_to_string(path).map_err(|error| wrong_bootstrap(settings, &os_error(&error)))?;
    Ok(Some(Token::parse(text.trim()).map_err(|error| wrong_bootstrap(settings, &error.to_string()))?))
}

/// Stores the token as the first one.
async fn create_bootstrap(
    store: &dyn Store,
    entropy: &dyn Entropy,
    token: &Token,
    settings: &Settings,
) -> anyhow::Result<()> {
    let wrong = |what: String| wrong_bootstrap(settings, &what);
    let mut random = [0; 10];
    entropy.fill(&mut random);
    let id = TokenId::new(store.now().await?, random);
    let key = TokenKey { hash: token.hash(), id, prefix: token.prefix().to_owned() };
    let (grant, name) = (Grant::admin(TenantId::DEFAULT), BOOTSTRAP.to_owned());
    let lifetime = settings.lifetimes().lifetime(None).map_err(|invalid| wrong(invalid.to_string()))?;
    let new = NewToken { key, name, grant, allowed_ips: Vec::new(), lifetime };
    match store.create_token(&Actor::local("local"), &Creator::First, new).await {
        Ok(_) => tracing::info!("created the token {BOOTSTRAP:?} with the role admin from --bootstrap-token-file"),
        Err(StoreError::Conflict(why)) if store.auth_required().await? => {
            tracing::info!("--bootstrap-token-file is ignored, because another node has created a credential: {why}");
        }
        // Without the token, this node would serve requests without a credential, which the operator wants to prevent with
        // the file.
        Err(StoreError::Conflict(why)) => return Err(wrong(format!("the token could not be created: {why}")).into()),
        Err(error) => return Err(error).context("could not create the bootstrap token"),
    }
    Ok(())
}

/// Makes sure that the user who runs this node has a credential for it, until an operator creates one.
async fn own_tokens(
    settings: &Settings,
    store: &dyn Store,
    entropy: &dyn Entropy,
    servers: &[String],
) -> anyhow::Result<()> {
    let Some(path) = credentials::path() else {
        tracing::warn!(
            "no credential was created, because neither HOME nor XDG_CONFIG_HOME is set: stop this node and run \
             `everytick token create first --role admin` with its database"
        );
        return Ok(());
    };
    let keys = servers.iter().map(|server| Ok(credentials::key(&Server::new(server, Certificates::default())?)));
    let keys = keys.collect::<Result<Vec<_>, WorkerError>>().context("the address of the node")?;
    let insert = |entry: &Entry| {
        credentials::change(&path, |stored| {
            stored.servers.extend(keys.iter().map(|key| (key.clone(), entry.clone())));
        })
    };
    let admin = format!("local-admin@{}", settings.node_name);
    let stored = Stored::load(&path)?;
    if let Some(entry) = known(&stored, store, &admin).await? {
        if keys.iter().any(|key| stored.servers.get(key) != Some(&entry)) {
            insert(&entry)?;
        }
        return Ok(());
    }
    let now = store.now().await?;
    let (token, admin_key) = new_token(now, entropy)?;
    let (worker_token, worker_key) = new_token(now, entropy)?;
    let new = |key, name, role, scope| {
        let grant = Grant { tenant: Some(TenantId::DEFAULT), role, scope };
        NewToken { key, name, grant, allowed_ips: Vec::new(), lifetime: Lifetime::Unlimited }
    };
    let every_queue = "*".to_owned().try_into().map_err(Failure::usage)?;
    let worker = format!("local-worker@{}", settings.node_name);
    let queues = Scope { queues: Some(vec![every_queue]), ..Scope::default() };
    let tokens =
        vec![new(admin_key, admin, Role::Admin, Scope::default()), new(worker_key, worker, Role::Worker, queues)];
    if !store.create_node_tokens(&Actor::node(&settings.node_name), tokens).await? {
        tracing::info!("requests need a token: an operator has created one");
        return Ok(());
    }
    let worker_token = Some(worker_token.expose().to_owned());
    let entry = Entry { token: token.expose().to_owned(), worker_token };
    insert(&entry)?;
    tracing::info!(file = %path.display(), "requests need a token; the file has the token of this user");
    Ok(())
}

/// The stored entry with this node's valid token, whatever address it has.
async fn known(stored: &Stored, store: &dyn Store, name: &str) -> anyhow::Result<Option<Entry>> {
    for entry in stored.servers.values() {
        let Ok(token) = Token::parse(&entry.token) else { continue };
        let (found, now) = store.find_token(&token.hash()).await?;
        if found.is_some_and(|token| token.name == name && token.is_live(now)) {
            return Ok(Some(entry.clone()));
        }
    }
    Ok(None)
}
