//! Tenants: their states and their quotas. Everything of an installation but its nodes belongs to one tenant. The limits of a
//! tenant have two layers: those that the operator of the installation sets, and those that the tenant's own admins set. Both
//! apply, so admins can only narrow what the operator allows.

use serde::{Deserialize, Serialize};

use crate::{invalid::Invalid, job::check_name, time::Span};

/// The note of jobs that the suspension of their tenant pauses.
pub const SUSPENDED_NOTE: &str = "tenant suspended";
/// A tenant can be deleted without `force` when it has been suspended for this long.
pub const DELETED_AFTER: Span = Span::days(7);
/// Jobs or runs that one step of a suspension, resumption or deletion processes.
pub const TENANT_BATCH: usize = 1_000;
/// The largest value of a quota.
pub const QUOTA_MAX: u64 = 1_000_000_000;

/// Whether the requests of a tenant are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantState {
    Active,
    /// Its jobs are paused and its requests are refused.
    Suspended,
    /// The same, for good: its rows are removed in the background.
    Deleting,
}

impl TenantState {
    pub const ALL: [Self; 3] = [Self::Active, Self::Suspended, Self::Deleting];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Deleting => "deleting",
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// What remains to be done in the background after a tenant has changed its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TenantWork {
    /// Pause its jobs.
    Pause,
    /// The same, and cancel their runs.
    PauseAndCancel,
    /// Resume the jobs that the suspension paused.
    Resume,
    /// Remove its rows.
    Delete,
}

impl TenantWork {
    pub const ALL: [Self; 4] = [Self::Pause, Self::PauseAndCancel, Self::Resume, Self::Delete];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::PauseAndCancel => "pause_and_cancel",
            Self::Resume => "resume",
            Self::Delete => "delete",
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.word() == word)
    }
}

/// How many things a tenant may have. `None`: the default of the installation, or in the layer of the tenant's admins, no
/// further limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// Jobs that are not deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calendars: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets: Option<u64>,
    /// Valid tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The minimum distance between two ticks of one job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_interval: Option<Span>,
}

impl Quotas {
    /// Both limits together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            jobs: least(self.jobs, other.jobs),
            calendars: least(self.calendars, other.calendars),
            secrets: least(self.secrets, other.secrets),
            tokens: least(self.tokens, other.tokens),
            min_interval: self.min_interval.into_iter().chain(other.min_interval).max(),
        }
    }

    /// These quotas, with the values of `defaults` where they have none.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            jobs: self.jobs.or(defaults.jobs),
            calendars: self.calendars.or(defaults.calendars),
            secrets: self.secrets.or(defaults.secrets),
            tokens: self.tokens.or(defaults.tokens),
            min_interval: self.min_interval.or(defaults.min_interval),
        }
    }

    /// All errors, by field.
    #[must_use]
    pub fn problems(self) -> Vec<Invalid> {
        let counts =
            [("jobs", self.jobs), ("calendars", self.calendars), ("secrets", self.secrets), ("tokens", self.tokens)];
        let wrong = counts.into_iter().filter_map(|(field, value)| {
            let value = value.filter(|value| *value > QUOTA_MAX)?;
            Some(Invalid::new(field, format!("{value} is out of range; it must be 0 to {QUOTA_MAX}")))
        });
        let interval = self.min_interval.filter(|span| *span < Span::seconds(1) || *span > Span::days(366));
        let interval = interval.map(|span| {
            Invalid::new("min_interval", format!("{span} is out of range; it must be 1s to 366d, such as \"1m\""))
        });
        wrong.chain(interval).collect()
    }
}

/// Checks the name of a tenant. Names follow the rules of job names.
pub fn check_tenant_name(name: &str) -> Result<(), Invalid> {
    check_name(name).map_err(|why| Invalid::new("name", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_and_each_work_reads_back_from_its_word() {
        for state in TenantState::ALL {
            assert_eq!(TenantState::from_word(state.word()), Some(state));
        }
        for work in TenantWork::ALL {
            assert_eq!(TenantWork::from_word(work.word()), Some(work));
        }
        assert_eq!((TenantState::from_word("gone"), TenantWork::from_word("gone")), (None, None));
    }

    #[test]
    fn the_narrower_of_two_layers_applies_and_the_default_only_without_a_value() {
        let operator = Quotas { jobs: Some(10), min_interval: Some(Span::seconds(10)), ..Quotas::default() };
        let own =
            Quotas { jobs: Some(20), calendars: Some(1), min_interval: Some(Span::seconds(60)), ..Quotas::default() };
        let defaults = Quotas { jobs: Some(5), tokens: Some(7), calendars: Some(9), ..Quotas::default() };
        let both = operator.or(defaults).and(own);
        let expected = Quotas {
            jobs: Some(10),
            calendars: Some(1),
            secrets: None,
            tokens: Some(7),
            min_interval: Some(Span::seconds(60)),
        };
        assert_eq!(both, expected);
        assert_eq!(own.and(operator), operator.and(own));
    }

    #[test]
    fn a_quota_out_of_range_is_refused_by_its_field() {
        let fields = |quotas: Quotas| quotas.problems().into_iter().map(|wrong| wrong.field).collect::<Vec<_>>();
        assert_eq!(fields(Quotas { jobs: Some(QUOTA_MAX), tokens: Some(0), ..Quotas::default() }), [""; 0]);
        let wrong = Quotas { secrets: Some(QUOTA_MAX + 1), min_interval: Some(Span::millis(999)), ..Quotas::default() };
        assert_eq!(fields(wrong), ["secrets", "min_interval"]);
    }

    #[test]
    fn a_tenant_has_a_name_like_a_job() {
        assert!(check_tenant_name("team-a.2").is_ok());
        for name in ["", "a b", "-a", "*"] {
            assert_eq!(check_tenant_name(name).unwrap_err().field, "name", "{name:?}");
        }
    }
}
