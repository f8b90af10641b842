//! Checks a target's definition before anything is sent.

use everytick_domain::{invalid::Invalid, target::TargetSpec};

use crate::{http::validate::validate_http, queue::validate::validate_queue, shell::validate::validate_shell};

/// All errors of `spec`, by field; empty when it can be delivered.
#[must_use]
pub fn validate(spec: &TargetSpec) -> Vec<Invalid> {
    let found = match spec {
        TargetSpec::Http(http) => validate_http(http),
        TargetSpec::Shell(shell) => validate_shell(shell),
        TargetSpec::Queue(queue) => validate_queue(queue),
    };
    found.into_iter().map(|invalid| invalid.under(spec.kind()).under("target")).collect()
}
