//! `everytick login`, `logout` and `whoami`: the token of this user for a server, and `everytick access reset`.

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use everytick_domain::wrong_input::os_error;
use everytick_store::Actor;
use everytick_worker::Server;
use serde::Deserialize;

use super::access_check::{CHECK_HELP, Check};
use super::token::Offline;
use crate::{
    client::Client,
    config::File,
    credentials::{self, Credential, Entry},
    failure::Failure,
    output::{self, Output},
};

pub(crate) const LOGIN_HELP: &str = "\
Examples:
  everytick login < token
  everytick --server https://ticks.example.org login --token-file token

Reads a token, checks it at the server, and stores it in ~/.config/everytick/credentials.toml, which only this user can read. Other
commands send it to this server and to no other. `everytick token create` creates tokens.";

pub(crate) const LOGOUT_HELP: &str = "\
Examples:
  everytick logout
  everytick --server https://ticks.example.org logout

Removes the stored token. It stays valid at the server; `everytick token revoke` ends it.";

pub(crate) const WHOAMI_HELP: &str = "\
Examples:
  everytick whoami
  everytick whoami -o json | jq .permissions";

const RESET_HELP: &str = "\
Examples:
  everytick access reset --data-dir everytick-data
  everytick access reset --database-url-file /run/secrets/database

For an operator who has lost every token. A server on this machine then serves callers without a token again, until a token is
created. Tokens stay valid. A SQLite file must not be open in a server.";

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Read the token from this file [default: stdin]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Login {
    pub(crate) async fn run(self, server: Server, out: Output) -> anyhow::Result<()> {
        let text = match &self.token_file {
            Some(path) => fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!("--token-file: could not read {}: {}", path.display(), os_error(&error)))
            })?,
            None => {
                if io::stdin().is_terminal() {
                    output::note_line("paste the token and press Enter:");
                }
                let mut line = String::new();
                io::stdin().lock().read_line(&mut line)?;
                line
            }
        };
        let credential = Credential::typed(&text)?;
        credentials::check_safe(&server)?;
        let path = file()?;
        let key = credentials::key(&server);
        let client = Client::new(server)?.with_credential(credential.clone());
        let me = client.get(&["me"]).send().await?;
        let entry = Entry { token: credential.token().unwrap_or_default().to_owned(), worker_token: None };
        credentials::change(&path, |stored| _ = stored.servers.insert(key.clone(), entry))?;
        if out.is_json() {
            return Ok(out.json(&me)?);
        }
        output::note_line(&format!("logged in to {key} as {}", me.read::<Me>()?));
        Ok(())
    }
}

fn file() -> anyhow::Result<PathBuf> {
    let none = || Failure::usage("neither HOME nor XDG_CONFIG_HOME is set, so there is no folder for credentials");
    Ok(credentials::path().ok_or_else(none)?)
}

#[derive(Debug, Args)]
pub(crate) struct Logout {}

impl Logout {
    pub(crate) fn run(self, server: &Server) -> anyhow::Result<()> {
        let (path, key) = (file()?, credentials::key(server));
        let mut removed = false;
        credentials::change(&path, |stored| removed = stored.servers.remove(&key).is_some())?;
        output::note_line(&if removed { format!("logged out of {key}") } else { format!("not logged in to {key}") });
        Ok(())
    }
}

/// The caller, as GET /api/v1/me describes it.
#[derive(Debug, Deserialize)]
struct Me {
    actor: String,
    tenant: Option<String>,
    role: Option<String>,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    read_only: bool,
    token: Option<TokenOfMe>,
}

#[derive(Debug, Deserialize)]
struct TokenOfMe {
    expires_at: Option<String>,
}

impl std::fmt::Display for Me {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.actor)?;
        match &self.role {
            Some(role) => write!(f, ", role {role}")?,
            None => f.write_str(", the server is open: callers on its machine may do everything")?,
        }
        if let Some(tenant) = &self.tenant {
            write!(f, ", tenant {tenant}")?;
        }
        if let Some(queues) = &self.queues {
            write!(f, ", queues {}", queues.join(" "))?;
        }
        if let Some(prefix) = &self.job_prefix {
            write!(f, ", jobs {prefix}*")?;
        }
        if self.read_only {
            f.write_str(", read only")?;
        }
        match self.token.as_ref().and_then(|token| token.expires_at.as_ref()) {
            Some(at) => write!(f, ", expires {at}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Whoami {}

impl Whoami {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let me = client.get(&["me"]).send().await?;
        if out.is_json() {
            return Ok(out.json(&me)?);
        }
        out.line(&me.read::<Me>()?.to_string())?;
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessCommand {
    /// Let a server on this machine serve callers without a token again
    #[command(after_help = RESET_HELP)]
    Reset(Reset),
    /// Check file modes, settings, TLS, keys and tokens: one line each, with what to do
    #[command(after_help = CHECK_HELP)]
    Check(Check),
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    #[command(flatten)]
    database: Offline,
}

impl AccessCommand {
    pub(crate) async fn run(self, file: File, out: Output) -> anyhow::Result<()> {
        let Reset { database } = match self {
            Self::Check(check) => return check.run(file, out).await,
            Self::Reset(reset) => reset,
        };
        if !database.is_set() {
            return Err(Failure::usage("write --data-dir, --database-url or --database-url-file").into());
        }
        database.open_existing(&file).await?.reset_access(&Actor::local("local")).await?;
        output::note_line("a server on this machine serves callers without a token again, until a token is created");
        Ok(())
    }
}
