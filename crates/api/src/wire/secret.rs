//! Secrets in requests and answers. Only the answer to a rotation contains a value.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use everytick_domain::{
    ids::Version,
    invalid::Invalid,
    secret::{HostPattern, SECRET_DESCRIPTION_BYTES_MAX, SecretKind, SecretRules, check_value, value_warning},
    time::{DbTime, Span},
};
use everytick_engine::{commands::SecretRequest, types::SecretRecord};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::{FieldError, FieldErrors};

/// The name of a secret. Letters, digits, `-`, `_` and `.`; starts with a letter, a digit or `_`.
#[derive(ToSchema)]
#[schema(pattern = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}$", example = "billing-api")]
#[expect(dead_code, reason = "only the OpenAPI document uses it")]
pub(crate) struct SecretName(String);

/// A value, the jobs that may use it, and the hosts to which it may be sent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"value": "hunter2-hunter2", "hosts": ["api.example.org"], "description": "Token of the billing API"}))]
#[expect(dead_code, reason = "fields that only answers have are accepted and ignored")]
pub(crate) struct SecretDefinition {
    /// The value as text: 1 byte to 32 KiB. Write-only. Set exactly one of `value` and `value_base64`.
    #[schema(example = "hunter2-hunter2")]
    value: Option<String>,
    /// The value in base64, for bytes that are not text.
    value_base64: Option<String>,
    /// The hosts to which http jobs may send the value: `api.example.org`, `*.example.org`, `10.0.0.5:8443`. A host
    /// without a port allows every port. Required if `kinds` has `http`.
    #[schema(max_items = 50, example = json!(["api.example.org"]))]
    hosts: Option<Vec<String>>,
    /// The kinds of jobs that may use it: `http`, `shell`. Default: `http`.
    #[schema(example = json!(["http"]))]
    kinds: Option<Vec<String>>,
    #[schema(max_length = 1024, default = "")]
    description: Option<String>,

    // Fields that only answers have. Accepted and ignored, so that a client can send an answer back with a value.
    #[schema(ignore)]
    name: Option<IgnoredAny>,
    #[schema(ignore)]
    version: Option<IgnoredAny>,
    #[schema(ignore)]
    jobs: Option<IgnoredAny>,
    #[schema(ignore)]
    used_by: Option<IgnoredAny>,
    #[schema(ignore)]
    previous_until: Option<IgnoredAny>,
    #[schema(ignore)]
    created_at: Option<IgnoredAny>,
    #[schema(ignore)]
    created_by: Option<IgnoredAny>,
    #[schema(ignore)]
    updated_at: Option<IgnoredAny>,
    #[schema(ignore)]
    updated_by: Option<IgnoredAny>,
    #[schema(ignore)]
    warnings: Option<IgnoredAny>,
}

/// Prints no value.
impl fmt::Debug for SecretDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretDefinition").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl SecretDefinition {
    /// The request, and warnings about the value.
    pub(crate) fn read(
        self,
        name: String,
        if_match: Option<Version>,
    ) -> Result<(SecretRequest, Vec<FieldError>), Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let value = match (self.value, self.value_base64) {
            (Some(text), None) => Some(("value", Zeroizing::new(text.into_bytes()))),
            (None, Some(base64)) => {
                let base64 = Zeroizing::new(base64);
                let bytes = STANDARD.decode(base64.as_bytes());
                let bytes = wrong.ok("value_base64", bytes.map_err(|_| "is not base64 with padding".to_owned()));
                bytes.map(|bytes| ("value_base64", Zeroizing::new(bytes)))
            }
            (None, None) => {
                wrong.add("value", "is missing; write value, or value_base64 for bytes that are not text");
                None
            }
            (Some(_), Some(_)) => {
                wrong.add("value_base64", "is given beside value; write only one of them");
                None
            }
        };
        let value = value.and_then(|(field, value)| wrong.ok(field, check_value(&value).map(|()| (field, value))));
        let given = self.hosts.unwrap_or_default();
        let hosts: Vec<_> = given.iter().filter_map(|host| wrong.ok("hosts", host.parse::<HostPattern>())).collect();
        let given_kinds = self.kinds.unwrap_or_else(|| vec![SecretKind::Http.word().to_owned()]);
        let kinds: Vec<_> = given_kinds.iter().filter_map(|kind| wrong.ok("kinds", read_kind(kind))).collect();
        let all_read = hosts.len() == given.len() && kinds.len() == given_kinds.len();
        let description = self.description.unwrap_or_default();
        wrong.no_nul("description", &description);
        if description.len() > SECRET_DESCRIPTION_BYTES_MAX {
            let bytes = description.len();
            wrong.add("description", format!("has {bytes} bytes; at most {SECRET_DESCRIPTION_BYTES_MAX} are allowed"));
        }
        let rules = SecretRules { name, hosts, kinds };
        if all_read {
            wrong.extend(rules.problems());
        }
        let (field, value) = wrong.end(value)?;
        let warnings = value_warning(&value).map(|warning| FieldError::new(field, &warning));
        Ok((SecretRequest { rules, description, value, if_match }, warnings.into_iter().collect()))
    }
}

fn read_kind(text: &str) -> Result<SecretKind, String> {
    let found = SecretKind::ALL.into_iter().find(|kind| kind.word() == text);
    found.ok_or_else(|| format!("{text:?} is not a kind of job that uses secrets; write http or shell"))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretRotation {
    /// How long deliveries are also signed with the old key: 0s to 30d, default 24h.
    #[schema(value_type = Option<String>, example = "24h")]
    pub(crate) overlap: Option<Span>,
}

/// A secret, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Secret {
    #[schema(value_type = SecretName)]
    name: String,
    /// Also the secret's `ETag`, in quotes.
    #[schema(value_type = i64)]
    version: Version,
    #[schema(value_type = Vec<String>, example = json!(["api.example.org"]))]
    hosts: Vec<HostPattern>,
    #[schema(value_type = Vec<String>, example = json!(["http"]))]
    kinds: Vec<SecretKind>,
    description: String,
    /// How many jobs refer to it.
    jobs: u64,
    /// The names of jobs that refer to it, up to 100. Only in the answer to `GET` of one secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_by: Option<Vec<String>>,
    /// After a rotation: until when deliveries are signed with the old key too.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    previous_until: Option<DbTime>,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    created_by: String,
    #[schema(value_type = String, format = DateTime)]
    updated_at: DbTime,
    updated_by: String,
    /// Only in the answer to `PUT`. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

impl From<SecretRecord> for Secret {
    fn from(record: SecretRecord) -> Self {
        Self {
            name: record.rules.name,
            version: record.version,
            hosts: record.rules.hosts,
            kinds: record.rules.kinds,
            description: record.description,
            jobs: record.jobs,
            used_by: None,
            previous_until: record.previous_until,
            created_at: record.created_at,
            created_by: record.created_by,
            updated_at: record.updated_at,
            updated_by: record.updated_by,
            warnings: Vec::new(),
        }
    }
}

impl Secret {
    pub(crate) fn used_by(self, jobs: Vec<String>) -> Self {
        Self { used_by: Some(jobs), ..self }
    }

    pub(crate) fn with_warnings(self, warnings: Vec<FieldError>) -> Self {
        Self { warnings, ..self }
    }
}

/// A rotated signing key. No other answer has its value.
#[derive(Serialize, ToSchema)]
pub(crate) struct RotatedSecret {
    /// The new signing key.
    #[schema(example = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")]
    value: String,
    #[serde(flatten)]
    secret: Secret,
}

impl RotatedSecret {
    pub(crate) fn of(record: SecretRecord, value: &Zeroizing<String>) -> Self {
        Self { value: value.to_string(), secret: record.into() }
    }
}

impl fmt::Debug for RotatedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatedSecret").field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// A page of secrets, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SecretPage {
    pub(crate) items: Vec<Secret>,
    /// Cursor of the next page; `null` on the last page.
    pub(crate) next_cursor: Option<String>,
}
