//! `everytick secret`: values that jobs refer to. A value is read from a file or from stdin, never from an argument, which
//! other users of the machine could read.

mod keys;

use std::{
    io::{IsTerminal as _, Read as _},
    path::PathBuf,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use everytick_domain::{
    secret::{SECRET_BYTES_MAX, check_secret_name},
    time::Span,
    wrong_input::os_error,
};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{fit, job::PageFlags, run};
use crate::{
    client::{Answer, Client},
    config::File,
    failure::{Exit, Failure, is_not_found},
    output::{self, Output, Text},
};

const SET_HELP: &str = "\
Examples:
  everytick secret set billing-api --host api.example.org < token
  everytick secret set db-password --kind shell --file /run/secrets/db
  everytick secret set billing-api --file new-token
  everytick job create bill --every 1h --url https://api.example.org/bill --header 'Authorization: Bearer {{ secrets.billing-api }}'

The value is read from --file or from stdin, and one line end at its end is removed. Without --host, --kind and --description, an
existing secret keeps them. A delivery gets the value that is current when its attempt begins.";

const LIST_HELP: &str = "\
Examples:
  everytick secret list
  everytick secret list -o json | jq -r '.items[].name'";

const GET_HELP: &str = "\
Examples:
  everytick secret get billing-api

Shows hosts, kinds and the jobs that use the secret. No command shows its value.";

const DELETE_HELP: &str = "\
Examples:
  everytick secret delete billing-api
  everytick secret delete billing-api --force

A secret that jobs use is deleted only with --force. Their attempts then fail until it is created again.";

const ROTATE_HELP: &str = "\
Examples:
  everytick secret rotate hook-key
  everytick secret rotate hook-key --overlap 7d

Replaces a signing key (whsec_...) by a random one and prints it once. Until the overlap has passed, deliveries have two
signatures, so the receivers can change the key meanwhile.";

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Create a secret, or replace its value
    #[command(after_help = SET_HELP)]
    Set(Set),
    /// List secrets by name, without their values
    #[command(after_help = LIST_HELP)]
    List(PageFlags),
    /// Show one secret, without its value
    #[command(after_help = GET_HELP)]
    Get(SecretName),
    /// Delete a secret
    #[command(after_help = DELETE_HELP)]
    Delete(Delete),
    /// Replace a signing key by a random one and print it
    #[command(after_help = ROTATE_HELP)]
    Rotate(Rotate),
    /// Create a key file, with which a server encrypts secrets
    #[command(after_help = keys::KEYGEN_HELP)]
    Keygen(keys::Keygen),
    /// Encrypt all secrets with the first key file, in the database itself
    #[command(after_help = keys::REKEY_HELP)]
    Rekey(keys::Rekey),
    /// Move credentials out of jobs into secrets, in the database itself
    #[command(after_help = keys::IMPORT_HELP)]
    ImportInline(keys::ImportInline),
}

impl SecretCommand {
    /// Whether the command works on a database, or without any server.
    pub(crate) fn is_offline(&self) -> bool {
        matches!(self, Self::Keygen(_) | Self::Rekey(_) | Self::ImportInline(_))
    }

    pub(crate) async fn run_offline(self, file: &File, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Keygen(keygen) => keygen.run(out),
            Self::Rekey(rekey) => rekey.run(file, out).await,
            Self::ImportInline(import) => import.run(file, out).await,
            _ => Err(Failure::usage("this command needs a server").into()),
        }
    }

    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Set(set) => set.run(client, out).await,
            Self::List(page) => list(client, out, page).await,
            Self::Get(SecretName { name }) => {
                let answer = client.get(&["secrets", &name]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print(out, &answer.read()?) }
            }
            Self::Delete(delete) => delete.run(client, out).await,
            Self::Rotate(rotate) => rotate.run(client, out).await,
            Self::Keygen(_) | Self::Rekey(_) | Self::ImportInline(_) => {
                Err(Failure::usage("this command needs no server").into())
            }
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SecretName {
    /// The secret's name
    #[arg(value_name = "NAME", value_parser = secret_name)]
    name: String,
}

fn secret_name(text: &str) -> Result<String, String> {
    check_secret_name(text).map(|()| text.to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    secret: SecretName,
    /// Read the value from this file [default: stdin]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep a line end at the end of the value
    #[arg(long)]
    keep_line_end: bool,
    /// Allow http jobs to send the value to this host, such as api.example.org or *.example.org:8443; repeatable
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Allow jobs of this kind to use it: http or shell; repeatable [default: http]
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Describe the secret with this text
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Change the secret only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION", value_parser = super::number::whole::<i64>(1..=i64::MAX))]
    if_version: Option<i64>,
}

impl Set {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let value = self.value()?;
        let name = &self.secret.name;
        let old = match client.get(&["secrets", name]).send().await {
            Ok(answer) => answer.read::<SecretView>()?,
            Err(error) if is_not_found(&error) => SecretView::default(),
            Err(error) => return Err(error),
        };
        let or_old = |given: Vec<String>, old: Vec<String>| if given.is_empty() { old } else { given };
        let mut body = json!({
            "hosts": or_old(self.host, old.hosts),
            "description": self.description.unwrap_or(old.description),
        });
        let kinds = or_old(self.kind, old.kinds);
        if !kinds.is_empty() {
            body["kinds"] = json!(kinds);
        }
        let (field, text) = match std::str::from_utf8(&value) {
            Ok(text) => ("value", text.to_owned()),
            Err(_) => ("value_base64", STANDARD.encode(&value)),
        };
        body[field] = Value::String(text);
        let request = client.put(&["secrets", name]).header_some("if-match", self.if_version.map(tag));
        let answer = request.json(&body)?.send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let set: SecretView = answer.read()?;
        for warning in &set.warnings {
            output::note_line(&format!("warning: {}", warning.message));
        }
        Ok(out.line(&format!("{} set, version {}{}", set.name, set.version, users(set.jobs)))?)
    }

    fn value(&self) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        // Two more bytes than allowed: a line end may be removed, and a longer value must be noticed.
        let limit = SECRET_BYTES_MAX as u64 + 2;
        let mut value = Zeroizing::new(Vec::new());
        match &self.file {
            Some(path) => {
                let failed = |error| Failure::usage(format!("--file: {}: {}", path.display(), os_error(&error)));
                let file = std::fs::File::open(path).map_err(failed)?;
                file.take(limit + 1).read_to_end(&mut value).map_err(failed)?;
            }
            None => {
                if std::io::stdin().is_terminal() {
                    let message = "the value is read from stdin: write `< FILE` or pipe it, or set --file";
                    return Err(Failure::usage(message).into());
                }
                std::io::stdin().lock().take(limit + 1).read_to_end(&mut value)?;
            }
        }
        if !self.keep_line_end {
            for end in [b'\n', b'\r'] {
                if value.last() == Some(&end) {
                    value.pop();
                }
            }
        }
        everytick_domain::secret::check_value(&value).map_err(|wrong| Failure::usage(format!("the value {wrong}")))?;
        Ok(value)
    }
}

fn tag(version: i64) -> String {
    format!("\"{version}\"")
}

fn users(jobs: u64) -> String {
    match jobs {
        0 => String::new(),
        1 => "; 1 job uses it".to_owned(),
        many => format!("; {many} jobs use it"),
    }
}

/// The fields of the API's answer that commands show.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SecretView {
    name: String,
    version: i64,
    hosts: Vec<String>,
    kinds: Vec<String>,
    description: String,
    jobs: u64,
    used_by: Vec<String>,
    previous_until: Option<String>,
    updated_at: String,
    updated_by: String,
    warnings: Vec<Warning>,
}

#[derive(Debug, Deserialize)]
struct Warning {
    message: String,
}

const HOSTS_MIN: usize = 12;

async fn list(client: &Client, out: Output, page: PageFlags) -> anyhow::Result<()> {
    let answer = client.get(&["secrets"]).list(page.limit, page.cursor).await?;
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let secrets: Vec<SecretView> = answer.read()?;
    if secrets.is_empty() {
        output::note_line("no secrets");
        return Ok(());
    }
    let rows = secrets.iter().map(|secret| {
        vec![
            Text::strong(&secret.name),
            Text::plain(secret.kinds.join(", ")),
            Text::plain(secret.hosts.join(", ")),
            Text::number(secret.jobs.to_string()),
            Text::number(secret.version.to_string()),
            Text::plain(out.time(&secret.updated_at)),
        ]
    });
    fit::table(out, &["NAME", "KINDS", "HOSTS", "JOBS", "VERSION", "UPDATED"], rows.collect(), &[(2, HOSTS_MIN)])?;
    run::note_more(&answer);
    Ok(())
}

fn print(out: Output, secret: &SecretView) -> anyhow::Result<()> {
    let more = secret.jobs.saturating_sub(secret.used_by.len() as u64);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    Ok(out.facts(vec![
        ("Name", Text::strong(&secret.name)),
        ("Description", Text::plain(&secret.description)),
        ("Kinds", Text::plain(secret.kinds.join(", "))),
        ("Hosts", Text::plain(secret.hosts.join("\n"))),
        ("Used by", Text::plain(format!("{}{more}", secret.used_by.join("\n")))),
        ("Version", Text::plain(secret.version.to_string())),
        ("Old key until", out.time_of(secret.previous_until.as_ref())),
        ("Updated", Text::plain(format!("{} by {}", out.time(&secret.updated_at), secret.updated_by))),
    ])?)
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    secret: SecretName,
    /// Delete the secret although jobs use it
    #[arg(long)]
    force: bool,
    /// Delete the secret only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION", value_parser = super::number::whole::<i64>(1..=i64::MAX))]
    if_version: Option<i64>,
}

impl Delete {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let request = client.delete(&["secrets", &self.secret.name]);
        let request = request.query_some("force", self.force.then_some(true));
        let answer = request.header_some("if-match", self.if_version.map(tag)).send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        let deleted: SecretView = answer.read()?;
        Ok(out.line(&format!("{} deleted{}", deleted.name, users(deleted.jobs)))?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    secret: SecretName,
    /// Also sign with the old key for this long, at most 30d [default: 1d]
    #[arg(long, value_name = "DURATION")]
    overlap: Option<Span>,
}

impl Rotate {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Rotated {
            value: String,
        }
        let request = client.post(&["secrets", &self.secret.name, "rotate"]);
        let body = self.overlap.map_or_else(|| json!({}), |overlap| json!({ "overlap": overlap.to_string() }));
        let answer: Answer = request.json(&body)?.send().await?;
        if out.is_json() {
            return Ok(out.json(&answer)?);
        }
        output::note_line("give the new key to the receivers now: it is not shown again");
        Ok(out.line(&answer.read::<Rotated>()?.value)?)
    }
}

/// An error of an operator's command.
fn refused(message: impl std::fmt::Display) -> anyhow::Error {
    Failure::new(Exit::Conflict, message.to_string()).into()
}
