//! Query and path parameters; errors name the parameter. A parameter that the route does not know is refused, so that a
//! misspelled filter does not mean "no filter".

use std::{convert::Infallible, fmt::Display, ops::RangeInclusive, str::FromStr, sync::Arc};

use axum::{
    extract::{FromRequestParts, Path},
    http::{Method, request::Parts},
};
use everytick_domain::{
    ids::{BackfillId, JobId, RunId, TokenId},
    invalid::Invalid,
    job::check_name,
    queue::check_queue,
    secret::check_secret_name,
    time::DbTime,
    wrong_input::nearest,
};
use everytick_engine::types::JobRef;

use crate::{
    Api,
    auth::State,
    error::{ApiError, Result},
    prefix,
};

pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    /// The parameters that the route has read.
    known: Vec<String>,
    wrong: Vec<Invalid>,
}

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ok(Self { pairs, known: Vec::new(), wrong: Vec::new() })
    }
}

impl Params {
    /// For a path without parameters.
    pub(crate) const fn none() -> Self {
        Self { pairs: Vec::new(), known: Vec::new(), wrong: Vec::new() }
    }

    /// Every value of a parameter that may be repeated.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        self.known.push(name.to_owned());
        let (taken, rest) = std::mem::take(&mut self.pairs).into_iter().partition(|(key, _)| key == name);
        self.pairs = rest;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    pub(crate) fn one(&mut self, name: &str) -> Option<String> {
        let mut values = self.all(name);
        if values.len() > 1 {
            self.refuse(name, "occurs more than once; write it once");
        }
        values.pop()
    }

    pub(crate) fn parsed<T: FromStr<Err: Display>>(&mut self, name: &str) -> Option<T> {
        let value = self.one(name)?;
        value.parse().map_err(|message| self.refuse(name, format!("{message}"))).ok()
    }

    /// `from` and `to` of a list: from the first instant, and before the second.
    pub(crate) fn period(&mut self) -> (Option<DbTime>, Option<DbTime>) {
        let (from, to) = (self.parsed::<DbTime>("from"), self.parsed::<DbTime>("to"));
        if let (Some(from), Some(to)) = (from, to)
            && to <= from
        {
            self.refuse("to", format!("{to} is not after from ({from}); the period ends before to"));
        }
        (from, to)
    }

    /// Every `key` or `key=value` of a filter by label.
    pub(crate) fn labels(&mut self) -> Vec<(String, Option<String>)> {
        let label = |text: String| match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text, None),
        };
        let labels: Vec<_> = self.all("label").into_iter().map(label).collect();
        if labels.iter().any(|(key, _)| key.is_empty()) {
            self.refuse("label", "has no key; write it like \"team\" or \"team=billing\"");
        }
        labels
    }

    /// The words of a parameter that is repeated or separated by commas, each read by `read`. `what` is the noun for one word in error
    /// messages.
    pub(crate) fn words<T>(
        &mut self,
        name: &str,
        what: &str,
        known: &[&str],
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for word in self.all(name).iter().flat_map(|words| words.split(',')) {
            match read(word) {
                Some(value) => found.push(value),
                None => {
                    let known = known.join(", ");
                    self.refuse(name, format!("{word:?} is not a {what}; write one or more of {known}"));
                }
            }
        }
        found
    }

    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        match self.one(name)?.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            other => {
                self.refuse(name, format!("{other:?} is neither true nor false; write one of them"));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<usize>, default: usize) -> usize {
        let Some(value) = self.one(name) else { return default };
        match value.parse() {
            Ok(number) if range.contains(&number) && value.bytes().all(|byte| byte.is_ascii_digit()) => number,
            _ => {
                self.refuse(
                    name,
                    format!("{value:?} is not allowed; write a whole number from {} to {}", range.start(), range.end()),
                );
                default
            }
        }
    }

    pub(crate) fn refuse(&mut self, name: &str, message: impl Into<String>) {
        self.wrong.push(Invalid::new(name, message));
    }

    fn unknown(&self, name: &str) -> String {
        let known = || self.known.iter().map(String::as_str);
        match (nearest(name, known()), self.known.is_empty()) {
            (Some(meant), _) => format!("is not a parameter of this path; did you mean {meant}?"),
            (None, true) => "is not a parameter; this path has none, remove it".to_owned(),
            (None, false) => {
                format!("is not a parameter of this path; it has {}", known().collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Returns every error found. A parameter that was not read until now is unknown, so call this after reading all parameters.
    pub(crate) fn finish(mut self) -> Result<()> {
        for (name, _) in std::mem::take(&mut self.pairs) {
            let name: String = name.chars().take(100).collect();
            let message = self.unknown(&name);
            self.refuse(&name, message);
        }
        if self.wrong.is_empty() { Ok(()) } else { Err(ApiError::Malformed(self.wrong)) }
    }
}

/// The `{job}` of a path: a name or an id.
pub(crate) struct JobPath(pub(crate) JobRef);

impl FromRequestParts<Arc<Api>> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self> {
        let text = segment(parts, api, "job").await?;
        if let JobRef::Name(name) = job_ref(&text) {
            named("job", check_name(&name))?;
        }
        let State(call) = State::from_request_parts(parts, api).await?;
        prefix::job(&call, &text).await.map(Self)
    }
}

/// The `{name}` of a calendar's path.
pub(crate) struct CalendarPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for CalendarPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let name = segment(parts, state, "name").await?;
        named("name", check_name(&name))?;
        Ok(Self(name))
    }
}

/// The `{name}` of a secret's path.
pub(crate) struct SecretPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for SecretPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let name = segment(parts, state, "name").await?;
        named("name", check_secret_name(&name))?;
        Ok(Self(name))
    }
}

/// The `{name}` of a tenant's path.
pub(crate) struct TenantPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TenantPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let name = segment(parts, state, "name").await?;
        named("name", check_name(&name))?;
        Ok(Self(name))
    }
}

/// A text that parses as an id is an id: the domain refuses names that look like ids.
pub(crate) fn job_ref(text: &str) -> JobRef {
    text.parse::<JobId>().map_or_else(|_| JobRef::Name(text.to_owned()), JobRef::Id)
}

/// The `{id}` of a token's path. Accepts only whole ids, so that a short id never selects the wrong token.
pub(crate) struct TokenPath(pub(crate) TokenId);

impl<S: Send + Sync> FromRequestParts<S> for TokenPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let text = segment(parts, state, "id").await?;
        named("id", text.parse()).map(Self)
    }
}

/// The `{id}` of a run's path.
pub(crate) struct RunPath(pub(crate) RunId);

impl FromRequestParts<Arc<Api>> for RunPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self> {
        let text = segment(parts, api, "id").await?;
        let State(call) = State::from_request_parts(parts, api).await?;
        prefix::run(&call, &text).await.map(Self)
    }
}

/// The `{id}` of a flow's path. To read a flow, the id of any of its runs is accepted. A cancel or rerun needs the id
/// of the flow itself.
pub(crate) struct FlowPath(pub(crate) RunId);

impl FromRequestParts<Arc<Api>> for FlowPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self> {
        let text = segment(parts, api, "id").await?;
        let State(call) = State::from_request_parts(parts, api).await?;
        if parts.method == Method::GET {
            return prefix::flow_or_its_run(&call, &text).await.map(Self);
        }
        prefix::flow(&call, &text).await.map(Self)
    }
}

/// The `{id}` of a backfill's path.
pub(crate) struct BackfillPath(pub(crate) BackfillId);

impl FromRequestParts<Arc<Api>> for BackfillPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self> {
        let text = segment(parts, api, "id").await?;
        let State(call) = State::from_request_parts(parts, api).await?;
        prefix::backfill(&call, &text).await.map(Self)
    }
}

/// The `{queue}` of a path.
pub(crate) struct QueuePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let name = segment(parts, state, "queue").await?;
        named("queue", check_queue(&name))?;
        Ok(Self(name))
    }
}

/// A text that cannot be a name or an id is answered 404, without a query.
fn named<T>(field: &'static str, read: Result<T, String>) -> Result<T> {
    read.map_err(|message| ApiError::NotAName { field, message })
}

async fn segment<S: Send + Sync>(parts: &mut Parts, state: &S, name: &'static str) -> Result<String> {
    let text = Path::<String>::from_request_parts(parts, state).await;
    named(name, text.map(|Path(text)| text).map_err(|rejection| rejection.body_text()))
}
