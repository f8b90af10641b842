//! `shell`: runs a command on the node, if its operator allows it.

mod deliver;
mod exec;
mod isolation;
mod orphans;
mod policy;
mod spec;
mod validate;

use async_trait::async_trait;
use everytick_domain::{
    invalid::Invalid,
    target::{Outcome, ShellTarget, TargetKind},
};
use tokio_util::sync::CancellationToken;

pub use self::{
    deliver::{ShellSettings, TERM_GRACE, THIS_PROGRAM},
    exec::exec_command,
    isolation::{Cgroup, CgroupPlace, CommandUser, Isolation, MissingRights, ProcessLimits, may_change_user},
    orphans::end_orphans,
    policy::{CommandPolicy, ProgramPattern},
    spec::Wire,
};
use crate::{Dispatch, Kind, KindInfo, LiveOutput, Needs, TargetError, TargetSettings, mask, shell::deliver::Runner};

/// `None` unless the operator enabled shell commands on this node.
#[derive(Debug)]
pub struct Shell(Option<Runner>);

#[async_trait]
impl Kind for Shell {
    type Spec = ShellTarget;

    const INFO: KindInfo = spec::INFO;

    fn validate(spec: &ShellTarget) -> Vec<Invalid> {
        validate::validate(spec)
    }

    fn forbidden(_: &ShellTarget, settings: &TargetSettings) -> Vec<Invalid> {
        let message = "is not enabled on this node; start a node that runs jobs with --enable-shell";
        if settings.shell.is_some() { Vec::new() } else { vec![Invalid::new("", message)] }
    }

    fn refused_receiver(spec: &ShellTarget, settings: &TargetSettings) -> Vec<Invalid> {
        let refused = settings.commands.refusal(spec);
        refused.map(|(field, why)| Invalid::new(field, why)).into_iter().collect()
    }

    fn inline_secrets(spec: &mut ShellTarget, each: &mut dyn FnMut(&str, &mut String)) {
        mask::each_inline("env", &mut spec.env, each);
    }

    fn needs(_: &ShellTarget) -> Option<Needs> {
        Some(Needs::Kind(TargetKind::Shell))
    }

    fn start(settings: &TargetSettings) -> Result<Self, TargetError> {
        Ok(Self(settings.shell.clone().map(|shell| Runner::new(shell, settings.commands.clone()))))
    }

    fn meets_need(&self) -> bool {
        self.0.is_some()
    }

    async fn deliver(
        &self,
        dispatch: &Dispatch,
        spec: &ShellTarget,
        live: &dyn LiveOutput,
        cancel: &CancellationToken,
    ) -> Outcome {
        match &self.0 {
            Some(runner) => runner.run(dispatch, spec, live, cancel).await,
            None => Outcome::NotHere {
                error: "shell targets are not enabled on this node; start it with --enable-shell".to_owned(),
                address: None,
            },
        }
    }
}
