//! The target of a job as its definition names it. Each kind has a file here, with its stored form and the rules that the
//! domain needs: defaults, limits, queue and destination. The rest of a kind is in its folder of the targets crate: the form
//! in the API, checks, CLI flags, delivery.

mod destination;
mod http;
mod outcome;
mod queue;
mod shell;

use serde::{Deserialize, Serialize};

pub use self::{
    destination::Destination,
    http::{HTTP_TIMEOUT_MAX, HttpMethod, HttpTarget},
    outcome::{Outcome, Retry},
    queue::QueueTarget,
    shell::{Command, ShellTarget},
};
use crate::{
    retry::RetryPolicy,
    secret::{Host, Text},
    time::Span,
};

/// The registry of targets: one line per kind, with its variant of [`TargetSpec`], its stored form and its name. The name is
/// the key in JSON, the label in metrics and the module of the targets crate. Calls `$callback!` with all lines; the API and
/// the targets crate build their parts of every kind from it.
#[macro_export]
macro_rules! for_each_target_kind {
    ($callback:ident) => {
        $callback! {
            Http(HttpTarget) http,
            Shell(ShellTarget) shell,
            Queue(QueueTarget) queue,
        }
    };
}

/// What the domain must know about a kind of target. The defaults suit a kind that passes its runs on to another system.
pub(crate) trait TargetRules {
    /// The `timeout` of a job that sets none.
    fn timeout_default(&self) -> Span {
        Span::hours(1)
    }

    /// The longest `timeout` that a new definition may have; `None`: only the limit for all jobs applies.
    fn timeout_max(&self) -> Option<Span> {
        None
    }

    /// The `retry` of a job that sets none: enough for a receiver that is down for 20 minutes.
    fn retry_default(&self) -> RetryPolicy {
        RetryPolicy::with_retries(10)
    }

    /// The retry policy of a compact definition that omits it. It never changes, so that stored jobs keep their retries.
    fn retry_when_omitted(&self) -> RetryPolicy {
        RetryPolicy::first_default(3)
    }

    /// The host and port that a node connects to; `None` if no host is shared with other jobs.
    fn destination(&self) -> Option<Destination> {
        None
    }

    /// The queue in which the runs wait for workers; `None` if a node delivers them.
    fn queue(&self) -> Option<&str> {
        None
    }

    /// The host that receives a delivery, and so its secrets; `None` if the node itself does.
    fn host(&self) -> Option<Host> {
        None
    }

    /// Calls `each` with every text in which a user may write a reference to a secret, valid or not.
    fn texts<'a>(&'a self, _each: &mut dyn FnMut(Text<'a>)) {}
}

macro_rules! define {
    ($($variant:ident($spec:ident) $name:ident,)*) => {
        /// Where a job's runs are delivered.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum TargetSpec {
            $($variant($spec),)*
        }

        /// The kinds of targets.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum TargetKind {
            $($variant,)*
        }

        impl TargetKind {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            #[must_use]
            pub const fn of(spec: &TargetSpec) -> Self {
                match spec { $(TargetSpec::$variant(_) => Self::$variant,)* }
            }

            /// The name of this kind in the API, the CLI and the metrics.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => stringify!($name),)* }
            }
        }

        impl TargetSpec {
            fn rules(&self) -> &dyn TargetRules {
                match self { $(Self::$variant(spec) => spec,)* }
            }
        }
    };
}
for_each_target_kind!(define);

impl TargetKind {
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The position in [`Self::ALL`], for tables by kind.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl TargetSpec {
    /// The name of this kind in the API, the CLI and the metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        TargetKind::of(self).word()
    }

    /// The longest `timeout` that a new definition may have; `None`: only the limit for all jobs applies.
    #[must_use]
    pub fn timeout_max(&self) -> Option<Span> {
        self.rules().timeout_max()
    }

    /// The `timeout` of a job that does not set one.
    #[must_use]
    pub fn timeout_default(&self) -> Span {
        self.rules().timeout_default()
    }

    /// The `retry` of a job that does not set it.
    #[must_use]
    pub fn retry_default(&self) -> RetryPolicy {
        self.rules().retry_default()
    }

    pub(crate) fn retry_when_omitted(&self) -> RetryPolicy {
        self.rules().retry_when_omitted()
    }

    /// The host and port that a node connects to; `None` if the node opens no connection to deliver.
    #[must_use]
    pub fn destination(&self) -> Option<Destination> {
        self.rules().destination()
    }

    /// The queue in which the runs wait for workers; `None` if a node delivers them.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        self.rules().queue()
    }

    /// The host that receives a delivery, and so its secrets; `None` if the node itself does.
    #[must_use]
    pub fn host(&self) -> Option<Host> {
        self.rules().host()
    }

    /// Calls `each` with every text in which a user may write a reference to a secret, valid or not.
    pub fn texts<'a>(&'a self, each: &mut dyn FnMut(Text<'a>)) {
        self.rules().texts(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_target_has_the_name_of_its_kind() {
        for (kind, stored) in TargetKind::ALL.iter().zip([
            r#"{"http":{"url":"http://a/","method":"POST","headers":{},"secret":null}}"#,
            r#"{"shell":{"command":{"argv":["true"]},"env":{},"workdir":null}}"#,
            r#"{"queue":{"name":"q"}}"#,
        ]) {
            let spec: TargetSpec = serde_json::from_str(stored).unwrap();
            assert_eq!(TargetKind::of(&spec), *kind);
            assert_eq!(TargetKind::from_word(spec.kind()), Some(*kind));
            assert_eq!(serde_json::to_string(&spec).unwrap(), stored, "definitions of earlier releases stay readable");
        }
        assert_eq!(TargetKind::from_word("ftp"), None);
    }

    /// The key in JSON is made from the variant, the name from the module. Both must be equal for every kind.
    #[test]
    fn the_key_in_json_is_the_name_of_the_kind() {
        for kind in TargetKind::ALL {
            let error = serde_json::from_str::<TargetSpec>(&format!(r#"{{"{}":0}}"#, kind.word())).unwrap_err();
            assert!(!error.to_string().contains("unknown variant"), "{error}");
        }
    }
}
