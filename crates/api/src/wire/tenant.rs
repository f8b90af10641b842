//! Tenants in requests and answers.

use everytick_domain::{
    invalid::Invalid,
    secret::HostPattern,
    tenant::{Quotas as Limits, TenantState, TenantWork, check_tenant_name},
    time::{DbTime, Span},
};
use everytick_engine::types::{NewTenant, TenantChange, TenantRecord};
use everytick_targets::{Ports, TenantEgress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::FieldErrors;

/// How many things a tenant may have. Absent: the default of the server; in the tenant's own quotas, no further limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quotas {
    /// Jobs that are not deleted. The default is 100000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    jobs: Option<u64>,
    /// The default is 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    calendars: Option<u64>,
    /// The default is 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    secrets: Option<u64>,
    /// Valid tokens. The default is 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    tokens: Option<u64>,
    /// The minimum distance between two ticks of one job, if it is larger than that of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "1m")]
    min_interval: Option<Span>,
}

impl Quotas {
    fn read(self, wrong: &mut FieldErrors) -> Limits {
        let Self { jobs, calendars, secrets, tokens, min_interval } = self;
        let limits = Limits { jobs, calendars, secrets, tokens, min_interval };
        wrong.extend(limits.problems().into_iter().map(|found| found.under("quotas")));
        limits
    }
}

impl From<Limits> for Quotas {
    fn from(limits: Limits) -> Self {
        let Limits { jobs, calendars, secrets, tokens, min_interval } = limits;
        Self { jobs, calendars, secrets, tokens, min_interval }
    }
}

/// Where the webhooks of a tenant may go. It narrows what the settings of the server allow.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Egress {
    /// The only hosts: `api.example.org`, `*.example.org:8443`. Absent or empty: every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000, example = json!(["*.example.org"]))]
    hosts: Vec<String>,
    /// The only ports, as `443` or as ranges such as `8000-8999`. Absent or empty: every port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000, example = json!(["443"]))]
    ports: Vec<String>,
    /// Only https.
    #[serde(default)]
    https_only: bool,
}

impl Egress {
    fn read(self, wrong: &mut FieldErrors) -> String {
        let hosts =
            self.hosts.iter().filter_map(|host| wrong.ok("egress.hosts", host.parse::<HostPattern>())).collect();
        let ports = self.ports.iter().filter_map(|port| wrong.ok("egress.ports", port.parse::<Ports>())).collect();
        let egress = TenantEgress { hosts, ports, https_only: self.https_only };
        wrong.extend(egress.problems().into_iter().map(|found| found.under("egress")));
        egress.to_text()
    }

    fn show(stored: &str) -> Self {
        let egress: TenantEgress = serde_json::from_str(stored).unwrap_or_default();
        let text = |ports: &Ports| ports.to_string();
        Self {
            hosts: egress.hosts.iter().map(ToString::to_string).collect(),
            ports: egress.ports.iter().map(text).collect(),
            https_only: egress.https_only,
        }
    }
}

/// A tenant to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "team-a", "quotas": {"jobs": 1000}, "egress": {"https_only": true}}))]
pub(crate) struct TenantDefinition {
    /// Letters, digits, `-`, `_` and `.`; starts with a letter, a digit or `_`.
    #[schema(example = "team-a", pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
    name: String,
    quotas: Option<Quotas>,
    egress: Option<Egress>,
    /// Whether its jobs may run commands, on nodes with `--enable-shell`. The default is `false`.
    shell: Option<bool>,
}

impl TenantDefinition {
    pub(crate) fn read(self) -> Result<NewTenant, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        wrong.extend(check_tenant_name(&self.name).err());
        let quotas = self.quotas.unwrap_or_default().read(&mut wrong);
        let egress = self.egress.unwrap_or_default().read(&mut wrong);
        let shell = self.shell.unwrap_or(false);
        wrong.end(Some(NewTenant { name: self.name, quotas, egress, shell }))
    }
}

/// The fields of a tenant to replace. `quotas` and `egress` are replaced as a whole.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"quotas": {"jobs": 2000}}))]
pub(crate) struct TenantPatch {
    quotas: Option<Quotas>,
    egress: Option<Egress>,
    shell: Option<bool>,
}

impl TenantPatch {
    pub(crate) fn read(self) -> Result<TenantChange, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let quotas = self.quotas.map(|quotas| quotas.read(&mut wrong));
        let egress = self.egress.map(|egress| egress.read(&mut wrong));
        wrong.end(Some(TenantChange { quotas, egress, shell: self.shell, ..TenantChange::default() }))
    }
}

/// The limits that a tenant's admins set for it. Both layers apply, so they cannot exceed what the operator allows. A field that is
/// given is replaced as a whole.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"egress": {"hosts": ["*.example.org"]}}))]
pub(crate) struct OwnTenantPatch {
    quotas: Option<Quotas>,
    egress: Option<Egress>,
}

impl OwnTenantPatch {
    pub(crate) fn read(self) -> Result<TenantChange, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let own_quotas = self.quotas.map(|quotas| quotas.read(&mut wrong));
        let own_egress = self.egress.map(|egress| egress.read(&mut wrong));
        wrong.end(Some(TenantChange { own_quotas, own_egress, ..TenantChange::default() }))
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuspendRequest {
    /// Cancel the open runs too. By default, runs in progress end normally.
    pub(crate) cancel: Option<bool>,
}

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tenant {
    #[schema(example = "team-a")]
    name: String,
    /// `active`, `suspended` or `deleting`.
    #[schema(value_type = String, example = "active")]
    state: TenantState,
    /// What remains to be done in the background: `pause`, `pause_and_cancel`, `resume` or `delete` its jobs.
    #[schema(required, example = "pause")]
    work: Option<&'static str>,
    /// How many jobs it has that are not deleted.
    jobs: u64,
    /// Set by the operator of the installation.
    quotas: Quotas,
    /// Set by the tenant's admins.
    own_quotas: Quotas,
    /// Set by the operator of the installation.
    egress: Egress,
    /// Set by the tenant's admins.
    own_egress: Egress,
    shell: bool,
    /// `null` for the tenant `default`, which every installation has.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    created_at: Option<DbTime>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    suspended_at: Option<DbTime>,
}

impl From<&TenantRecord> for Tenant {
    fn from(record: &TenantRecord) -> Self {
        Self {
            name: record.name.clone(),
            state: record.state,
            work: record.work.map(TenantWork::word),
            jobs: record.jobs,
            quotas: record.quotas.into(),
            own_quotas: record.own_quotas.into(),
            egress: Egress::show(&record.egress),
            own_egress: Egress::show(&record.own_egress),
            shell: record.shell,
            created_at: record.created_at,
            suspended_at: record.suspended_at,
        }
    }
}

/// A page of tenants, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantPage {
    pub(crate) items: Vec<Tenant>,
    /// Cursor of the next page; `null` on the last page.
    pub(crate) next_cursor: Option<String>,
}
