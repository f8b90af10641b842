//! `everytick access check`: compares the files, the settings, the keys and the tokens of an installation with what a hardened one
//! has. It reads only.

use std::{
    fmt,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use everytick_api::Tls;
use everytick_domain::{
    access::Role,
    ids::TenantId,
    secret::OperatorKey,
    time::{DbTime, Span},
    wrong_input::os_error,
};
use everytick_store::{KeyRecord, PostgresStore, SqliteStore, Store, SystemClock, TokenRecord};
use serde::Serialize;

use super::serve::ServeFlags;
use crate::{
    config::{Auth, DatabaseUrl, File, InlineSecrets, Listen, Settings, read_keys},
    failure::{Exit, Failure},
    output::Output,
};

pub(crate) const CHECK_HELP: &str = "\
Examples:
  everytick access check --data-dir /var/lib/everytick
  everytick --config /etc/everytick/everytick.toml access check
  everytick access check -o json | jq -r '.checks[] | select(.level != \"ok\") | .message'

Takes the flags, variables and settings file of `everytick serve`: give it the same ones, and run it as the same user. It changes
nothing. Keys and tokens in a SQLite file are checked only while no server has it open. Exits with 1 if a check fails; a warning
does not count.";

const TOKENS_PER_PAGE: usize = 500;
/// A check lists at most this many names.
const NAMED_MAX: usize = 5;
/// A token that was not used for this long is probably forgotten.
const FORGOTTEN_AFTER: Span = Span::days(90);
const CERTIFICATE_WARNING: Span = Span::days(14);
const OTHERS_MAY_WRITE: u32 = 0o022;
const OTHERS_MAY_READ: u32 = 0o044;
const ROOT: u32 = 0;

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    flags: Box<ServeFlags>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Fail,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// One line of the answer.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    message: String,
}

#[derive(Debug, Default, Serialize)]
struct Findings {
    checks: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, level: Level, check: &'static str, message: impl Into<String>) {
        self.checks.push(Finding { level, check, message: message.into() });
    }

    fn count(&self, level: Level) -> usize {
        self.checks.iter().filter(|finding| finding.level == level).count()
    }
}

impl Check {
    pub(crate) async fn run(self, file: File, out: Output) -> anyhow::Result<()> {
        let mut found = Findings::default();
        settings_file(&mut found, &file);
        match Settings::resolve(*self.flags, file) {
            Err(wrong) => found.add(Level::Fail, "settings", wrong.to_string()),
            Ok(settings) => {
                found.add(Level::Ok, "settings", "complete and valid");
                access(&mut found, &settings);
                tls(&mut found, &settings);
                files(&mut found, &settings);
                shell(&mut found, &settings);
                database(&mut found, &settings).await;
            }
        }
        print(&found, out)?;
        match found.count(Level::Fail) {
            0 => Ok(()),
            failed => Err(Failure::new(Exit::Failed, format!("{failed} checks failed")).into()),
        }
    }
}

fn print(found: &Findings, out: Output) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(found)?);
    }
    for Finding { level, check, message } in &found.checks {
        out.line(&format!("{level:<4}  {check}: {message}"))?;
    }
    Ok(())
}

/// What the owner and the mode of a file permit to other users.
fn file(found: &mut Findings, check: &'static str, path: &Path, may_others_read: bool) {
    let shown = path.display();
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) => return found.add(Level::Fail, check, format!("{shown} could not be read: {}", os_error(&error))),
    };
    let (level, message) = judge(&about, rustix::process::geteuid().as_raw(), may_others_read);
    found.add(level, check, format!("{shown} {}", message.replace("PATH", &shown.to_string())));
}

fn judge(about: &Metadata, own: u32, may_others_read: bool) -> (Level, String) {
    let (mode, owner) = (about.mode() & 0o7777, about.uid());
    if about.is_symlink() {
        return (Level::Warn, "is a symlink, which its folder's owner can change; name the file itself".to_owned());
    }
    if ![own, ROOT].contains(&owner) {
        return (Level::Fail, format!("belongs to the user with the id {owner}; run: chown {own} PATH"));
    }
    if mode & OTHERS_MAY_WRITE != 0 {
        return (Level::Fail, format!("has mode {mode:04o}, so other users may change it; run: chmod go-w PATH"));
    }
    if !may_others_read && mode & OTHERS_MAY_READ != 0 {
        let level = if about.is_dir() { Level::Warn } else { Level::Fail };
        return (level, format!("has mode {mode:04o}, so other users may read it; run: chmod go-rwx PATH"));
    }
    (Level::Ok, format!("has mode {mode:04o}"))
}

fn settings_file(found: &mut Findings, settings: &File) {
    if let Some(path) = settings.path() {
        // It may contain a database URL with a password.
        file(found, "settings file", path, settings.database_url.is_none());
    }
}

/// Whether requests need a credential, and whether others can read them.
fn access(found: &mut Findings, settings: &Settings) {
    match settings.auth {
        Auth::Required => found.add(Level::Ok, "auth", "every request needs a credential"),
        Auth::Open => found.add(Level::Fail, "auth", "--auth open lets every program on this machine do everything"),
        Auth::Auto => {
            found.add(Level::Warn, "auth", "open on this machine until the first token; write auth = \"required\"")
        }
    }
    match settings.allow_tokens_without_expiry {
        false => found.add(Level::Ok, "lifetimes", format!("new tokens expire within {}", settings.token_ttl_max)),
        true => found.add(
            Level::Warn,
            "lifetimes",
            "new tokens may never expire; write allow_tokens_without_expiry = false",
        ),
    }
    match settings.inline_secrets {
        InlineSecrets::Refuse => found.add(Level::Ok, "credentials of jobs", "jobs refer to secrets"),
        InlineSecrets::Allow => found.add(
            Level::Warn,
            "credentials of jobs",
            "jobs may hold credentials in plain text; move them with `everytick secret import-inline`, then write \
             inline_secrets = \"refuse\"",
        ),
    }
}

fn tls(found: &mut Findings, settings: &Settings) {
    let is_reached = |listen: &&Listen| matches!(listen, Listen::Tcp(address) if !address.ip().is_loopback());
    let outside: Vec<String> = settings.listen.iter().filter(is_reached).map(ToString::to_string).collect();
    let Some(files) = &settings.tls else {
        return match outside.is_empty() {
            true => found.add(Level::Ok, "tls", "not needed: the API is served on this machine only"),
            false => found.add(
                Level::Fail,
                "tls",
                format!("{} serves plain HTTP to other hosts; write tls_cert and tls_key", outside.join(", ")),
            ),
        };
    };
    file(found, "tls key", &files.key, false);
    match Tls::load(files.clone()) {
        Err(wrong) => found.add(Level::Fail, "tls", wrong),
        Ok(tls) => match tls.time_left() {
            None => found.add(Level::Warn, "tls", "the end of the certificate could not be read"),
            Some(Span::ZERO) => {
                found.add(Level::Fail, "tls", format!("{} has expired; replace it", files.cert.display()));
            }
            Some(left) if left < CERTIFICATE_WARNING => {
                found.add(Level::Warn, "tls", format!("{} expires in {left}; replace it", files.cert.display()));
            }
            Some(left) => found.add(Level::Ok, "tls", format!("the certificate is valid for {left}")),
        },
    }
}

fn files(found: &mut Findings, settings: &Settings) {
    if let DatabaseUrl::Sqlite(database) = &settings.database {
        let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        file(found, "data directory", folder, false);
        // The mode of the folder protects these too, but backups may copy only the file.
        for suffix in ["", "-wal"] {
            let mut path = database.clone().into_os_string();
            path.push(suffix);
            let path = PathBuf::from(path);
            if suffix.is_empty() || path.exists() {
                file(found, "database file", &path, false);
            }
        }
    }
    if let Some(path) = &settings.bootstrap_token_file {
        file(found, "bootstrap token", path, false);
    }
    if settings.secret_key_files.is_empty() {
        found.add(
            Level::Warn,
            "keys",
            "no key file, so no secret can be stored; run `everytick secret keygen` and name it in secret_key_files",
        );
    }
    for path in &settings.secret_key_files {
        file(found, "keys", path, false);
    }
}

fn shell(found: &mut Findings, settings: &Settings) {
    let rules = settings.shell.as_ref();
    let user = rules.and_then(|shell| shell.isolation.user.as_ref());
    match (settings.enable_shell, user) {
        (false, _) => found.add(Level::Ok, "shell", "jobs cannot run commands"),
        (true, None) => found.add(
            Level::Fail,
            "shell",
            "commands run as the user of the server and can read the database; write user in [shell]",
        ),
        (true, Some(user)) => found.add(Level::Ok, "shell", format!("commands run as {}", user.name)),
    }
    if settings.enable_shell && rules.is_none_or(|shell| shell.policy.allow.is_none()) {
        found.add(Level::Warn, "shell", "commands may be any program; write allow in [shell]");
    }
}

/// Keys and tokens, as the database has them.
async fn database(found: &mut Findings, settings: &Settings) {
    if let DatabaseUrl::Postgres(url) = &settings.database {
        match PostgresStore::unverified_host(url) {
            Ok(None) => found.add(Level::Ok, "database", "the connection is verified, or stays on this machine"),
            Ok(Some(host)) => found.add(
                Level::Fail,
                "database",
                format!("the connection to {host} is not protected; add sslmode=verify-full to the URL"),
            ),
            Err(error) => found.add(Level::Fail, "database", error.to_string()),
        }
    }
    let store: Box<dyn Store> = match &settings.database {
        DatabaseUrl::Sqlite(file) if !file.exists() => return, // reported with its file
        DatabaseUrl::Sqlite(file) => match SqliteStore::open_read_only(file, Arc::new(SystemClock)).await {
            Ok(store) => Box::new(store),
            Err(error) => {
                let why = format!("keys and tokens were not checked: {error}");
                return found.add(Level::Warn, "database", why);
            }
        },
        DatabaseUrl::Postgres(url) => match PostgresStore::connect_read_only(url).await {
            Ok(store) => Box::new(store),
            Err(error) => return found.add(Level::Fail, "database", error.to_string()),
        },
    };
    match store.secret_keys().await {
        Ok(known) if known.is_empty() => {}
        Ok(known) => keys(found, &settings.secret_key_files, &known),
        Err(error) => found.add(Level::Fail, "keys", error.to_string()),
    }
    match tokens(store.as_ref()).await {
        Ok((all, now)) => judge_tokens(found, &all, now),
        Err(error) => found.add(Level::Fail, "tokens", error.to_string()),
    }
}

/// Whether the files have every key under which the database has secrets.
fn keys(found: &mut Findings, files: &[PathBuf], known: &[KeyRecord]) {
    let have: Vec<String> = match read_keys(files) {
        Ok(keys) => keys.iter().map(OperatorKey::id).collect(),
        Err(wrong) => return found.add(Level::Fail, "keys", wrong.to_string()),
    };
    let missing: Vec<&str> = known
        .iter()
        .filter(|key| key.needed)
        .map(|key| key.mark.id.as_str())
        .filter(|id| !have.iter().any(|has| has == id))
        .collect();
    match missing.as_slice() {
        [] => found.add(Level::Ok, "keys", format!("the files have all {} keys of the database", known.len())),
        missing => found.add(
            Level::Fail,
            "keys",
            format!(
                "no file has the key {}; name it in secret_key_files, or run `everytick secret rekey`",
                missing.join(", ")
            ),
        ),
    }
}

/// The valid tokens, and the time of the database.
async fn tokens(store: &dyn Store) -> Result<(Vec<TokenRecord>, DbTime), everytick_store::StoreError> {
    let now = store.now().await?;
    let mut all = Vec::new();
    for owner in [None, Some(TenantId::DEFAULT)] {
        let mut after = None;
        loop {
            let page = store.list_tokens(owner, after, TOKENS_PER_PAGE).await?;
            all.extend(page.items.into_iter().filter(|token| token.is_live(now)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok((all, now))
}

fn judge_tokens(found: &mut Findings, all: &[TokenRecord], now: DbTime) {
    if all.is_empty() {
        return found.add(
            Level::Warn,
            "tokens",
            "there is no valid token; create one with `everytick token create first --role admin --data-dir DIR`",
        );
    }
    // A server with --enable-shell creates these for its own user, and keeps them in a file of mode 0600.
    let is_own = |token: &&TokenRecord| token.name.starts_with("local-");
    let forever = all.iter().filter(|token| token.expires_at.is_none() && !is_own(token));
    named(found, "tokens without expiry", forever, "never expire; rotate or revoke them", "every token expires");
    let is_strong = |token: &&TokenRecord| matches!(token.grant.role, Role::Admin | Role::Instance);
    let unused = |token: &&TokenRecord| now.since(token.last_used_at.unwrap_or(token.created_at)) > FORGOTTEN_AFTER;
    let forgotten = all.iter().filter(|token| is_strong(token) && unused(token));
    named(
        found,
        "roles",
        forgotten,
        "have the role admin or instance and were not used for 90d; revoke them",
        &format!("{} of {} tokens have the role admin or instance", all.iter().filter(is_strong).count(), all.len()),
    );
}

/// A warning with the names of tokens, or the text for none.
fn named<'t>(
    found: &mut Findings,
    check: &'static str,
    tokens: impl Iterator<Item = &'t TokenRecord>,
    wrong: &str,
    none: &str,
) {
    let names: Vec<&str> = tokens.map(|token| token.name.as_str()).collect();
    match names.as_slice() {
        [] => found.add(Level::Ok, check, none),
        names => {
            let more = if names.len() > NAMED_MAX { " and others" } else { "" };
            let listed = names[..names.len().min(NAMED_MAX)].join(", ");
            found.add(Level::Warn, check, format!("{listed}{more} {wrong}"));
        }
    }
}
