//! `everytick tenant`: creates, changes, suspends and deletes tenants. All but `update --own` needs an instance token.

use clap::{Args, Subcommand};
use everytick_domain::{tenant::check_tenant_name, time::Span};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{job::PageFlags, run};
use crate::{
    client::{Answer, Client},
    failure::Failure,
    output::{Output, Text},
};

const CREATE_HELP: &str = "\
Examples:
  everytick tenant create team-a
  everytick tenant create team-a --max-jobs 500 --host '*.example.org' --https-only
  everytick token create admin --role admin --tenant team-a

Tenants see nothing of each other. The last example creates the first token of the tenant.
All commands of `everytick tenant` but `update --own` need a token with the role instance.";

const LIST_HELP: &str = "\
Examples:
  everytick tenant list
  everytick tenant list -o json | jq -r '.items[].name'";

const GET_HELP: &str = "\
Examples:
  everytick tenant get team-a";

const UPDATE_HELP: &str = "\
Examples:
  everytick tenant update team-a --shell true
  everytick tenant update team-a --max-jobs 2000 --max-tokens 50
  everytick tenant update --own --host api.example.org --https-only

A flag for quotas replaces all quotas, and a flag for webhooks all rules for webhooks. With --own, an admin sets further limits for the
own tenant. They apply beside those of the operator, so they only narrow them.";

const SUSPEND_HELP: &str = "\
Examples:
  everytick tenant suspend team-a
  everytick tenant suspend team-a --cancel-runs

The requests of the tenant are refused. Its jobs are paused in the background, with the note \"tenant suspended\".";

const RESUME_HELP: &str = "\
Examples:
  everytick tenant resume team-a

Resumes exactly the jobs that the suspension paused.";

const DELETE_HELP: &str = "\
Examples:
  everytick tenant delete team-a
  everytick tenant delete team-a --force

The tenant must be suspended: for 7 days, or with --force for any time. Its rows are removed in the background. Its audit trail stays.";

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant
    #[command(after_help = CREATE_HELP)]
    Create(Create),
    /// List tenants by name
    #[command(after_help = LIST_HELP)]
    List(PageFlags),
    /// Show one tenant
    #[command(after_help = GET_HELP)]
    Get(TenantName),
    /// Change the quotas and rules of a tenant
    #[command(after_help = UPDATE_HELP)]
    Update(Update),
    /// Refuse the requests of a tenant and pause its jobs
    #[command(after_help = SUSPEND_HELP)]
    Suspend(Suspend),
    /// End the suspension of a tenant
    #[command(after_help = RESUME_HELP)]
    Resume(TenantName),
    /// Delete a suspended tenant
    #[command(after_help = DELETE_HELP)]
    Delete(Delete),
}

#[derive(Debug, Args)]
pub(crate) struct TenantName {
    /// The tenant's name
    #[arg(value_name = "NAME", value_parser = tenant_name)]
    name: String,
}

fn tenant_name(text: &str) -> Result<String, String> {
    check_tenant_name(text).map(|()| text.to_owned()).map_err(|invalid| invalid.message)
}

/// The limits of a tenant.
#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// Allow at most this many jobs [default: that of the server]
    #[arg(long, value_name = "COUNT")]
    max_jobs: Option<u64>,
    /// Allow at most this many calendars [default: that of the server]
    #[arg(long, value_name = "COUNT")]
    max_calendars: Option<u64>,
    /// Allow at most this many secrets [default: that of the server]
    #[arg(long, value_name = "COUNT")]
    max_secrets: Option<u64>,
    /// Allow at most this many valid tokens [default: that of the server]
    #[arg(long, value_name = "COUNT")]
    max_tokens: Option<u64>,
    /// Refuse jobs whose ticks are closer, such as 1m [default: that of the server]
    #[arg(long, value_name = "DURATION")]
    min_interval: Option<Span>,
    /// Allow webhooks only to this host, such as *.example.org:8443; repeatable
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Allow webhooks only to this port or range, such as 8000-8999; repeatable
    #[arg(long, value_name = "PORT")]
    port: Vec<String>,
    /// Allow webhooks only by https
    #[arg(long)]
    https_only: bool,
}

impl Limits {
    /// The fields `quotas` and `egress`, where a flag sets them.
    fn fields(self) -> Map<String, Value> {
        let counts = [
            ("jobs", self.max_jobs),
            ("calendars", self.max_calendars),
            ("secrets", self.max_secrets),
            ("tokens", self.max_tokens),
        ];
        let counts = counts.into_iter().filter_map(|(name, count)| Some((name.to_owned(), json!(count?))));
        let interval = self.min_interval.map(|span| ("min_interval".to_owned(), json!(span)));
        let quotas: Map<String, Value> = counts.chain(interval).collect();
        let mut fields = Map::new();
        if !quotas.is_empty() {
            fields.insert("quotas".to_owned(), Value::Object(quotas));
        }
        if !self.host.is_empty() || !self.port.is_empty() || self.https_only {
            let egress = json!({ "hosts": self.host, "ports": self.port, "https_only": self.https_only });
            fields.insert("egress".to_owned(), egress);
        }
        fields
    }
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    tenant: TenantName,
    #[command(flatten)]
    limits: Limits,
    /// Let the tenant's jobs run commands, on nodes with --enable-shell
    #[arg(long)]
    shell: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Update {
    /// The tenant's name
    #[arg(value_name = "NAME", value_parser = tenant_name, required_unless_present = "own", conflicts_with = "own")]
    name: Option<String>,
    /// Narrow the limits of the own tenant, as its admin
    #[arg(long)]
    own: bool,
    #[command(flatten)]
    limits: Limits,
    /// Whether the tenant's jobs may run commands, on nodes with --enable-shell
    #[arg(long, value_name = "BOOL", conflicts_with = "own")]
    shell: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct Suspend {
    #[command(flatten)]
    tenant: TenantName,
    /// Cancel the open runs too; by default, runs in progress end normally
    #[arg(long)]
    cancel_runs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    tenant: TenantName,
    /// Delete the tenant although it was suspended less than 7 days ago
    #[arg(long)]
    force: bool,
}

/// The fields of the API's answer that tables show.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TenantView {
    name: String,
    state: String,
    work: Option<String>,
    jobs: u64,
    quotas: Map<String, Value>,
    own_quotas: Map<String, Value>,
    egress: EgressView,
    own_egress: EgressView,
    shell: bool,
    created_at: Option<String>,
    suspended_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EgressView {
    hosts: Vec<String>,
    ports: Vec<String>,
    https_only: bool,
}

impl TenantCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Create(Create { tenant: TenantName { name }, limits, shell }) => {
                let mut body = limits.fields();
                body.insert("name".to_owned(), json!(name));
                body.insert("shell".to_owned(), json!(shell));
                done(out, &client.post(&["tenants"]).json(&body)?.send().await?, "created")
            }
            Self::List(page) => list(client, out, page).await,
            Self::Get(TenantName { name }) => {
                let answer = client.get(&["tenants", &name]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print(out, answer.read()?) }
            }
            Self::Update(update) => update.run(client, out).await,
            Self::Suspend(Suspend { tenant: TenantName { name }, cancel_runs }) => {
                let body = json!({ "cancel": cancel_runs });
                done(out, &client.post(&["tenants", &name, "suspend"]).json(&body)?.send().await?, "suspended")
            }
            Self::Resume(TenantName { name }) => {
                done(out, &client.post(&["tenants", &name, "resume"]).send().await?, "resumed")
            }
            Self::Delete(Delete { tenant: TenantName { name }, force }) => {
                let request = client.delete(&["tenants", &name]).query_some("force", force.then_some(true));
                done(out, &request.send().await?, "is being deleted")
            }
        }
    }
}

impl Update {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        let mut body = self.limits.fields();
        if let Some(shell) = self.shell {
            body.insert("shell".to_owned(), json!(shell));
        }
        if body.is_empty() {
            return Err(Failure::usage("nothing to change; set a flag such as --max-jobs or --shell").into());
        }
        let request = match &self.name {
            Some(name) => client.patch(&["tenants", name]),
            None => client.patch(&["tenant"]),
        };
        done(out, &request.json(&body)?.send().await?, "updated")
    }
}

fn done(out: Output, answer: &Answer, verb: &str) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let tenant: TenantView = answer.read()?;
    Ok(out.line(&format!("{} {verb}", tenant.name))?)
}

async fn list(client: &Client, out: Output, page: PageFlags) -> anyhow::Result<()> {
    let answer = client.get(&["tenants"]).list(page.limit, page.cursor).await?;
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let tenants: Vec<TenantView> = answer.read()?;
    let rows = tenants.into_iter().map(|tenant| {
        vec![
            Text::strong(&tenant.name),
            Text::plain(&tenant.state),
            Text::number(tenant.jobs.to_string()),
            Text::plain(if tenant.shell { "yes" } else { "no" }),
            Text::plain(tenant.created_at.map(|at| out.time(at)).unwrap_or_default()),
        ]
    });
    out.table(&["NAME", "STATE", "JOBS", "SHELL", "CREATED"], rows.collect())?;
    run::note_more(&answer);
    Ok(())
}

fn print(out: Output, tenant: TenantView) -> anyhow::Result<()> {
    let state = match (&tenant.suspended_at, &tenant.work) {
        (Some(at), Some(work)) => format!("{} since {}; in progress: {work}", tenant.state, out.time(at)),
        (Some(at), None) => format!("{} since {}", tenant.state, out.time(at)),
        (None, Some(work)) => format!("{}; in progress: {work}", tenant.state),
        (None, None) => tenant.state.clone(),
    };
    Ok(out.facts(vec![
        ("Name", Text::strong(&tenant.name)),
        ("State", Text::plain(state)),
        ("Jobs", Text::plain(tenant.jobs.to_string())),
        ("Quotas", Text::plain(quotas(&tenant.quotas))),
        ("Own quotas", Text::plain(quotas(&tenant.own_quotas))),
        ("Webhooks", Text::plain(egress(&tenant.egress))),
        ("Own rules", Text::plain(egress(&tenant.own_egress))),
        ("Commands", Text::plain(if tenant.shell { "allowed" } else { "not allowed" })),
        ("Created", Text::plain(tenant.created_at.map(|at| out.time(at)).unwrap_or_default())),
    ])?)
}

fn quotas(quotas: &Map<String, Value>) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    quotas.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect::<Vec<_>>().join(", ")
}

fn egress(rules: &EgressView) -> String {
    let mut parts = Vec::new();
    if rules.https_only {
        parts.push("only https".to_owned());
    }
    if !rules.hosts.is_empty() {
        parts.push(format!("hosts {}", rules.hosts.join(", ")));
    }
    if !rules.ports.is_empty() {
        parts.push(format!("ports {}", rules.ports.join(", ")));
    }
    parts.join("; ")
}
