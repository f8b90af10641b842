//! What a kind of target consists of. `for_each_target_kind!` of the domain lists the kinds. Each has a folder here with a
//! type of the kind's name that implements [`Kind`], and a type `Wire`, its form in the API. API, CLI, metrics and the
//! reference page are built from these, so they contain no list of kinds.

use async_trait::async_trait;
use everytick_domain::{
    invalid::Invalid,
    target::{Outcome, TargetKind},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Dispatch, LiveOutput, Needs, TargetError, TargetSettings};

/// One kind of target: its checks and its delivery.
#[async_trait]
pub trait Kind: Sized + Send + Sync {
    /// The stored form.
    type Spec;

    const INFO: KindInfo;

    /// All errors of a definition, by field; empty when it can be delivered.
    fn validate(spec: &Self::Spec) -> Vec<Invalid>;

    /// Why the operator of this node does not permit the definition, by field.
    fn forbidden(_: &Self::Spec, _: &TargetSettings) -> Vec<Invalid> {
        Vec::new()
    }

    /// Why the operator permits no delivery to this receiver, or no command of this program, by field.
    fn refused_receiver(_: &Self::Spec, _: &TargetSettings) -> Vec<Invalid> {
        Vec::new()
    }

    /// Calls `each` with the field and the value of every credential that the definition contains as a value, instead of a reference
    /// to a secret.
    fn inline_secrets(_: &mut Self::Spec, _each: &mut dyn FnMut(&str, &mut String)) {}

    /// What a delivery needs that not every node provides; `None` if the definition does not show such a need.
    fn needs(_: &Self::Spec) -> Option<Needs> {
        None
    }

    /// Makes the client of this node.
    fn start(settings: &TargetSettings) -> Result<Self, TargetError>;

    /// Whether this node meets [`Needs::Kind`] of this kind. Only kinds whose `needs` returns this need implement it:
    /// nodes that do not deliver the kind then leave its runs to nodes that do.
    fn meets_need(&self) -> bool {
        false
    }

    /// Delivers once; see [`crate::Target::deliver`].
    async fn deliver(
        &self,
        dispatch: &Dispatch,
        spec: &Self::Spec,
        live: &dyn LiveOutput,
        cancel: &CancellationToken,
    ) -> Outcome;
}

/// The form of a definition in the API.
pub trait WireForm: DeserializeOwned + Serialize {
    /// The stored form.
    type Spec;

    /// Converts a definition that a client sent. `old` is the stored definition, which provides masked values. Adds an error
    /// for each field that cannot be read, under its name in this form.
    fn read(self, old: Option<&Self::Spec>, errors: &mut Vec<Invalid>) -> Option<Self::Spec>;

    /// The definition as answers show it, with credentials masked.
    fn show(spec: &Self::Spec) -> Self;
}

/// The texts about a kind that CLI, API and documents show.
#[derive(Clone, Copy, Debug)]
pub struct KindInfo {
    pub kind: TargetKind,
    /// A definition in the form of the API. Valid, and with the default `timeout` and `retry` of most jobs of the kind.
    pub example: &'static str,
    /// The cell of the reference page that names the fields, in Markdown.
    pub reference: &'static str,
    pub flags: &'static [Flag],
    /// One line for lists, from the form that the API answers.
    pub summary: fn(&Value) -> Option<String>,
    /// Further facts for the view of one job, from the same form: name and value. Values that may be credentials are left out.
    pub details: fn(&Value) -> Vec<(&'static str, String)>,
}

/// The [`KindInfo::details`] of a kind that has no facts beyond its summary.
pub(crate) fn no_details(_: &Value) -> Vec<(&'static str, String)> {
    Vec::new()
}

/// A flag of `everytick job create` and `job update` that sets a field of the target.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name without dashes.
    pub name: &'static str,
    pub value_name: &'static str,
    pub help: &'static str,
    /// The path of the field below the kind. An entry of a map, such as a header, is set below this path.
    pub field: &'static [&'static str],
    pub value: FlagValue,
    /// Whether the flag chooses the kind. A job has one such flag, and an update with it removes the other kinds.
    pub chooses: bool,
    /// A field that an update with this flag removes.
    pub replaces: Option<&'static [&'static str]>,
}

/// How the text of a flag becomes JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlagValue {
    Text,
    UpperCase,
    /// A text, or `@file` for the content of a file.
    Secret,
    /// `NAME: VALUE`, repeatable.
    Header,
    /// `NAME=VALUE`, repeatable.
    Pair,
    /// All words after `--`.
    Words,
    /// The name of an entry that an update removes, repeatable. Not a flag of `job create`.
    Remove,
}

impl Flag {
    /// A flag that sets `field` to its text.
    #[must_use]
    pub const fn new(
        name: &'static str,
        value_name: &'static str,
        field: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, value_name, help, field, value: FlagValue::Text, chooses: false, replaces: None }
    }

    /// The same flag, which chooses the kind.
    #[must_use]
    pub const fn choosing(self) -> Self {
        Self { chooses: true, ..self }
    }

    #[must_use]
    pub const fn of(self, value: FlagValue) -> Self {
        Self { value, ..self }
    }

    #[must_use]
    pub const fn replacing(self, field: &'static [&'static str]) -> Self {
        Self { replaces: Some(field), ..self }
    }
}
