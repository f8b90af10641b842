//! Completion scripts, made from the command line's own definition.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Cli;
use crate::output::{Format, Output};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  everytick completions bash > ~/.local/share/bash-completion/completions/everytick
  everytick completions zsh > ~/.zfunc/_everytick
  everytick completions fish > ~/.config/fish/completions/everytick.fish";

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell to complete for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Into memory first: the generator panics when its writer fails.
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "everytick", &mut script);
        Ok(Output::new(Format::Table).bytes(&script)?)
    }
}
