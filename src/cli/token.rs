//! `everytick token`: creates, lists, revokes and rotates API tokens, and creates the first one without a server.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use clap::{Args, Subcommand};
use everytick_domain::{
    access::{Grant, Lifetime, LifetimePolicy, Role, Scope},
    ids::TenantId,
    invalid::Invalid,
    time::{DbTime, Span},
};
use everytick_engine::new_token;
use everytick_store::{
    Actor, Creator, Limits, NewToken, PostgresOptions, PostgresStore, SqliteStore, Store, StoreError, SystemClock,
    WallClock as _,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    fit::{self, Column, Layout, Precision},
    ids::{self, ShortIds},
};
use crate::{
    client::Client,
    config::{DatabaseSource, DatabaseUrl, File, database},
    failure::{Exit, Failure},
    node::OsEntropy,
    output::{self, Output, Text},
};

const CREATE_HELP: &str = "\
Examples:
  everytick token create ci --role operator --expires 30d
  everytick token create mailer --role worker --queue mail --queue 'mail-*'
  everytick token create etl --role editor --job-prefix etl-
  everytick token create first --role admin --data-dir everytick-data
  everytick token create first --role instance --database-url-file /run/secrets/database

The token is printed once and stored nowhere. The first token closes an open server: from then on every request needs a token.
With --data-dir or --database-url the command creates the first token in the database itself. The first token has the
role admin or instance, and no limit. A SQLite file must not be open in a server. Once a credential exists, further tokens need a
server.";

const LIST_HELP: &str = "\
Examples:
  everytick token list
  everytick token list -o json | jq -r '.items[] | [.name, .expires_at] | @tsv'";

const REVOKE_HELP: &str = "\
Examples:
  everytick token revoke ci

Also ends the tokens that were made from it by rotation. Takes effect on all nodes within 5 s. The last valid token that can
create others is revoked only with --yes: after it, only `everytick access reset` with the server's database opens the API again.";

const ROTATE_HELP: &str = "\
Examples:
  everytick token rotate ci
  everytick token rotate ci --overlap 0s

Prints a new token with the same name, role and scope. The old one stays valid for --overlap. A token can be rotated only
once. If the server reports that it was rotated already and you did not do it, revoke it.";

const GENERATE_HELP: &str = "\
Examples:
  everytick token generate > token

Prints a random token that no server knows, for --bootstrap-token-file. Needs no server.";

/// The header with which an instance token acts inside a tenant.
const TENANT: &str = "everytick-tenant";

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it
    #[command(after_help = CREATE_HELP)]
    Create(Box<Create>),
    /// List the tokens that are not revoked
    #[command(after_help = LIST_HELP)]
    List(List),
    /// Revoke a token
    #[command(after_help = REVOKE_HELP)]
    Revoke(Revoke),
    /// Replace a token by a new one with the same role and scope, and print it
    #[command(after_help = ROTATE_HELP)]
    Rotate(Rotate),
    /// Print a random token for the first start of a server
    #[command(after_help = GENERATE_HELP)]
    Generate(Generate),
}

impl TokenCommand {
    /// Whether the command works on a database, or without any server.
    pub(crate) fn is_offline(&self) -> bool {
        match self {
            Self::Create(create) => create.offline.is_set(),
            Self::Generate(_) => true,
            Self::List(_) | Self::Revoke(_) | Self::Rotate(_) => false,
        }
    }

    pub(crate) async fn run_offline(self, file: &File, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create(create) => create.offline(file, out).await,
            _ => Ok(println_secret(&generate()?)?),
        }
    }

    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create(create) => create.online(client, out).await,
            Self::List(list) => list.run(client, out).await,
            Self::Revoke(revoke) => revoke.run(client, out).await,
            Self::Rotate(rotate) => rotate.run(client, out).await,
            Self::Generate(_) => Ok(println_secret(&generate()?)?),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Generate {}

fn generate() -> anyhow::Result<String> {
    let (token, _) = new_token(DbTime::EPOCH, &OsEntropy)?;
    Ok(token.expose().to_owned())
}

fn println_secret(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stdout().lock(), "{text}")
}

/// The database that a command changes without a server.
#[derive(Debug, Args)]
pub(crate) struct Offline {
    /// Work on the SQLite database in this directory, without a server
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Work on this database, without a server: sqlite:<file> or postgres://...
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// Read the database URL from this file
    #[arg(long, value_name = "FILE")]
    pub(crate) database_url_file: Option<PathBuf>,
}

impl Offline {
    pub(crate) fn is_set(&self) -> bool {
        self.data_dir.is_some() || self.database_url.is_some() || self.database_url_file.is_some()
    }

    /// Opens the database of an installation. Refuses a database that no server has used: it is probably the wrong one.
    pub(crate) async fn open_existing(self, file: &File) -> anyhow::Result<Box<dyn Store>> {
        let url = self.url(file)?;
        match &url {
            DatabaseUrl::Sqlite(file) => drop(SqliteStore::open_read_only(file, Arc::new(SystemClock)).await?),
            DatabaseUrl::Postgres(url) => drop(PostgresStore::connect_read_only(url).await?),
        }
        Self::open(url).await
    }

    /// Opens the database, or creates it in a folder that exists: a folder that does not exist is probably a typo.
    async fn open_or_create(self, file: &File) -> anyhow::Result<Box<dyn Store>> {
        let flag = if self.data_dir.is_some() { "--data-dir" } else { "--database-url" };
        let url = self.url(file)?;
        if let DatabaseUrl::Sqlite(file) = &url {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
            if let Some(folder) = folder {
                let folder = folder.display();
                let remedy = format!("write the folder of the server's database, or create it: mkdir -m 700 {folder}");
                return Err(Failure::usage(format!("{flag}: there is no folder {folder}; {remedy}")).into());
            }
        }
        Self::open(url).await
    }

    fn url(self, file: &File) -> Result<DatabaseUrl, Failure> {
        let source = DatabaseSource { url: self.database_url, url_file: self.database_url_file };
        database(source, self.data_dir, file)
    }

    /// Opens the database, and migrates its schema.
    async fn open(url: DatabaseUrl) -> anyhow::Result<Box<dyn Store>> {
        Ok(match url {
            DatabaseUrl::Sqlite(file) => {
                Box::new(SqliteStore::open(file, Arc::new(SystemClock), Limits::default()).await?)
            }
            DatabaseUrl::Postgres(url) => {
                let options = PostgresOptions { connections_max: 1, transaction_pooler: true, ..Default::default() };
                Box::new(PostgresStore::connect(&url, options, Limits::default()).await?)
            }
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The name of the token, in lists and in the audit trail
    #[arg(value_name = "NAME")]
    name: String,
    /// What the token may do: viewer, operator, editor, admin, worker or instance
    #[arg(long, value_name = "ROLE")]
    role: Role,
    /// See only this queue, or the queues whose names match PREFIX*, and as a worker claim only their runs; repeatable
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// See and change only jobs whose names begin with this
    #[arg(long, value_name = "PREFIX")]
    job_prefix: Option<String>,
    /// Create a token that can only read
    #[arg(long)]
    read_only: bool,
    /// The token expires after this duration, or never [default: 90d]
    #[arg(long, value_name = "DURATION|never")]
    expires: Option<String>,
    /// Accept the token only from this network; repeatable
    #[arg(long, value_name = "CIDR")]
    allow_ip: Vec<String>,
    /// With an instance token: create the token in this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    offline: Offline,
}

impl Create {
    async fn online(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut body = json!({ "name": self.name, "role": self.role.name(), "read_only": self.read_only });
        let mut set = |name: &str, value: Option<Value>| {
            if let (Some(value), Some(fields)) = (value, body.as_object_mut()) {
                fields.insert(name.to_owned(), value);
            }
        };
        set("queues", (!self.queue.is_empty()).then(|| json!(self.queue)));
        set("job_prefix", self.job_prefix.map(Value::from));
        set("expires", self.expires.map(Value::from));
        set("allowed_ips", (!self.allow_ip.is_empty()).then(|| json!(self.allow_ip)));
        let answer = client.post(&["tokens"]).header_some(TENANT, self.tenant).json(&body)?.send().await?;
        // The server served a caller without a token, so this was the first one.
        if !client.has_credential() {
            note_closed();
        }
        print_new(&answer, out)
    }

    async fn offline(self, file: &File, out: Output) -> anyhow::Result<()> {
        if self.tenant.is_some() || !self.allow_ip.is_empty() {
            return Err(
                Failure::usage("--tenant and --allow-ip need a server, not --data-dir or --database-url").into()
            );
        }
        let wrong = |invalid: Invalid| Failure::usage(format!("--{}", by_flag(&invalid)));
        let queues = self.queue.into_iter().map(TryInto::try_into).collect::<Result<Vec<_>, String>>();
        let queues = queues.map_err(|wrong| Failure::usage(format!("--queue: {wrong}")))?;
        let queues = (!queues.is_empty()).then_some(queues);
        let tenant = (self.role != Role::Instance).then_some(TenantId::DEFAULT);
        let scope = Scope { queues, job_prefix: self.job_prefix, read_only: self.read_only };
        let grant = Grant { tenant, role: self.role, scope };
        grant.check().map_err(wrong)?;
        let asked = match self.expires.as_deref() {
            None => None,
            Some("never") => Some(Lifetime::Unlimited),
            Some(text) => {
                let span = text.parse::<Span>().map_err(|wrong| Failure::usage(format!("--expires: {wrong}")))?;
                Some(Lifetime::For(span))
            }
        };
        let lifetime = LifetimePolicy::default().lifetime(asked).map_err(wrong)?;
        let store = self.offline.open_or_create(file).await?;
        let (token, key) = new_token(store.now().await?, &OsEntropy)?;
        let new = NewToken { key, name: self.name, grant, allowed_ips: Vec::new(), lifetime };
        let made = store.create_token(&Actor::local("local"), &Creator::First, new).await;
        let made = made.map_err(|error| match error {
            StoreError::Invalid(found) => {
                let found: Vec<String> = found.iter().map(|wrong| format!("--{}", by_flag(wrong))).collect();
                Failure::usage(found.join("; "))
            }
            error => Failure::new(Exit::Conflict, error.to_string()),
        })?;
        if out.is_json() {
            let (id, role) = (made.id, made.grant.role);
            return Ok(out.json(&json!({ "token": token.expose(), "id": id, "name": made.name, "role": role }))?);
        }
        note_once();
        note_closed();
        Ok(println_secret(token.expose())?)
    }
}

/// The error with the name of the flag instead of the field.
fn by_flag(wrong: &Invalid) -> Invalid {
    let flag = match wrong.field.as_str() {
        "queues" => "queue".to_owned(),
        field => field.replace('_', "-"),
    };
    Invalid { field: flag, ..wrong.clone() }
}

/// Prints the token of an answer: on stdout only the token, for `token=$(...)`.
fn print_new(answer: &crate::client::Answer, out: Output) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct New {
        token: String,
    }
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    note_once();
    Ok(println_secret(&answer.read::<New>()?.token)?)
}

fn note_closed() {
    output::note_line("the server is closed now: every request needs a token; `everytick login` stores this one");
}

fn note_once() {
    output::note_line("store the token now: it is not shown again");
}

/// The fields of a token that the table shows.
#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    name: String,
    prefix: String,
    role: String,
    queues: Option<Vec<String>>,
    job_prefix: Option<String>,
    read_only: bool,
    expires_at: Option<String>,
    /// The token that this one replaced.
    rotated_from: Option<String>,
    last_used_at: Option<String>,
}

impl Listed {
    fn can_create_others(&self, now: DbTime) -> bool {
        let is_limited = self.read_only || self.job_prefix.is_some() || self.queues.is_some();
        let is_live = self.expires_at.as_deref().is_none_or(|at| at.parse().is_ok_and(|at: DbTime| at > now));
        ["admin", "instance"].contains(&self.role.as_str()) && !is_limited && is_live
    }

    fn scope(&self) -> String {
        let queues = self.queues.iter().flatten().map(|queue| format!("queue {queue}"));
        let jobs = self.job_prefix.iter().map(|prefix| format!("jobs {prefix}*"));
        let reads = self.read_only.then(|| "read only".to_owned());
        queues.chain(jobs).chain(reads).collect::<Vec<_>>().join(", ")
    }
}

const TOKENS_MAX: usize = 10_000;

async fn listed(client: &Client, tenant: Option<String>) -> anyhow::Result<crate::client::Page> {
    client.get(&["tokens"]).header_some(TENANT, tenant).list(TOKENS_MAX, None).await
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// With an instance token: list the tokens of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl List {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let page = listed(client, self.tenant).await?;
        if out.is_json() {
            return Ok(out.json(&page)?);
        }
        print_tokens(out, &page.read::<Listed>()?)
    }
}

const SCOPE_MIN: usize = 8;
/// The number of characters of a date.
const DATE_CHARS: usize = 10;

/// What a table of tokens shows. Names are whole, because commands accept them.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The whole instants; otherwise the date of the expiry, and the last use to the minute.
    instants: bool,
    prefix: bool,
    id: bool,
}

fn print_tokens(out: Output, tokens: &[Listed]) -> anyhow::Result<()> {
    let ids = ShortIds::of(tokens.iter().map(|token| token.id.as_str()));
    let used = tokens.iter().map(|token| token.last_used_at.as_deref().unwrap_or_default());
    let (zone, used) = fit::times_to(Precision::Minutes, out, used);
    let layout = |shown: Shown| {
        let at = |at: &Option<String>| out.time_of(at.as_ref());
        let date = |at: &Option<String>| {
            let shown = at.as_ref().map(|at| out.time(at)).unwrap_or_default();
            Text::plain(shown.get(..DATE_CHARS).unwrap_or(&shown))
        };
        let mut columns = vec![
            Column::whole("NAME", tokens.iter().map(|token| Text::strong(&token.name))),
            Column::whole("ROLE", tokens.iter().map(|token| Text::plain(&token.role))),
            Column::cut("SCOPE", SCOPE_MIN, tokens.iter().map(|token| Text::plain(token.scope()))).kept(),
        ];
        if shown.prefix {
            columns.push(Column::whole("TOKEN", tokens.iter().map(|token| Text::plain(format!("{}…", token.prefix)))));
        }
        if shown.instants {
            columns.push(Column::whole("EXPIRES", tokens.iter().map(|token| at(&token.expires_at))).kept());
            columns.push(Column::whole("LAST USED", tokens.iter().map(|token| at(&token.last_used_at))).kept());
        } else {
            columns.push(Column::whole("EXPIRES", tokens.iter().map(|token| date(&token.expires_at))).kept());
            columns.push(Column::whole(format!("USED{zone}"), used.iter().map(Text::plain)).kept());
        }
        if shown.id {
            columns.push(Column::whole("ID", tokens.iter().map(|token| Text::plain(ids.short(&token.id)))));
        }
        Layout::of(columns)
    };
    let all = Shown { instants: true, prefix: true, id: true };
    let short = Shown { instants: false, ..all };
    let no_prefix = Shown { prefix: false, ..short };
    let mut layouts = vec![all, short, no_prefix];
    let names: BTreeSet<&str> = tokens.iter().map(|token| token.name.as_str()).collect();
    // Tokens of one name differ only by their ids.
    if names.len() == tokens.len() {
        layouts.push(Shown { id: false, ..no_prefix });
    }
    fit::first_that_fits(out, layouts.into_iter().map(layout))
}

/// The tokens that a user names by an id or a name, the oldest first. During an overlap, several have one name.
async fn named(client: &Client, text: &str, tenant: Option<String>) -> anyhow::Result<Vec<Listed>> {
    let (mut tokens, others): (Vec<Listed>, Vec<Listed>) = listed(client, tenant)
        .await?
        .read::<Listed>()?
        .into_iter()
        .partition(|token| token.id == text || token.name == text);
    if tokens.is_empty() && ids::id(text).is_ok() {
        tokens = others.into_iter().filter(|token| token.id.starts_with(text)).collect();
        if tokens.len() > 1 {
            let message = format!("{text:?} is the beginning of the ids of several tokens; write more of the id");
            return Err(Failure::new(Exit::Conflict, message).into());
        }
    }
    if tokens.is_empty() {
        let message = format!("no token is named {text:?}; `everytick token list` lists them");
        return Err(Failure::new(Exit::NotFound, message).into());
    }
    Ok(tokens)
}

/// The only token of these that was not replaced by another one.
fn newest<'a>(tokens: &'a [Listed], text: &str) -> anyhow::Result<&'a Listed> {
    let is_replaced = |id: &String| tokens.iter().any(|other| other.rotated_from.as_ref() == Some(id));
    match tokens.iter().filter(|token| !is_replaced(&token.id)).collect::<Vec<_>>().as_slice() {
        [one] => Ok(one),
        _ => {
            let ids = tokens.iter().map(|token| token.id.as_str()).collect::<Vec<_>>().join(", ");
            Err(Failure::new(Exit::Conflict, format!("several tokens are named {text:?}; write one of {ids}")).into())
        }
    }
}

/// A revoked token and the others that ended with it.
#[derive(Debug, Deserialize)]
struct Ended {
    name: String,
    prefix: String,
    #[serde(default)]
    also_revoked: Vec<Ended>,
    id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The name or the id of the token, or a beginning of its id
    #[arg(value_name = "NAME|ID")]
    token: String,
    /// Revoke the token also if no valid token is left that can create others
    #[arg(long)]
    yes: bool,
    /// With an instance token: the tenant of the token
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

/// Whether these revocations leave no valid token that can create others, although there is one now.
fn locks_out(all: &[Listed], revoked: &[Listed], now: DbTime) -> bool {
    let mut ended: Vec<&str> = revoked.iter().map(|token| token.id.as_str()).collect();
    // A successor is listed after the token that it replaced.
    for token in all {
        if token.rotated_from.as_deref().is_some_and(|from| ended.contains(&from)) {
            ended.push(&token.id);
        }
    }
    let manages = |token: &&Listed| token.can_create_others(now);
    let (ending, left): (Vec<&Listed>, Vec<&Listed>) =
        all.iter().filter(manages).partition(|token| ended.contains(&token.id.as_str()));
    !ending.is_empty() && left.is_empty()
}

impl Revoke {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut ended: Vec<String> = Vec::new();
        let named = named(client, &self.token, self.tenant.clone()).await?;
        if !self.yes
            && locks_out(&listed(client, self.tenant.clone()).await?.read::<Listed>()?, &named, SystemClock.now())
        {
            let name = named.first().map(|token| token.name.as_str()).unwrap_or_default();
            return Err(Failure::new(
                Exit::Conflict,
                format!(
                    "{name:?} is the last valid token that can create others, of those that you may see: without one, only \
                     `everytick access reset` with the server's database opens the API again; create another admin token \
                     first, or revoke it with --yes"
                ),
            )
            .into());
        }
        for token in named {
            if ended.contains(&token.id) {
                continue;
            }
            let request = client.delete(&["tokens", &token.id]).header_some(TENANT, self.tenant.clone());
            let answer = request.send().await?;
            let revoked: Ended = answer.read()?;
            if out.is_json() {
                out.json(&answer)?;
            }
            for token in std::iter::once(&revoked).chain(&revoked.also_revoked) {
                if !out.is_json() {
                    output::note_line(&format!("revoked {} ({}…)", token.name, token.prefix));
                }
                ended.push(token.id.clone());
            }
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    /// The name or the id of the token, or a beginning of its id
    #[arg(value_name = "NAME|ID")]
    token: String,
    /// The old token stays valid for this long, at most 7d [default: 1d]
    #[arg(long, value_name = "DURATION")]
    overlap: Option<Span>,
    /// With an instance token: the tenant of the token
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl Rotate {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let tokens = named(client, &self.token, self.tenant.clone()).await?;
        let id = &newest(&tokens, &self.token)?.id;
        let request = client.post(&["tokens", id, "rotate"]).header_some(TENANT, self.tenant);
        let body = self.overlap.map_or_else(|| json!({}), |overlap| json!({ "overlap": overlap.to_string() }));
        print_new(&request.json(&body)?.send().await?, out)
    }
}
