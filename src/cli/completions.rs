//! `everytick completions`: prints a completion script that clap generates from the definition of the command line.

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
    /// Print the script for this shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Generate into memory: the generator panics if its writer fails.
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), "everytick", &mut script);
        Ok(Output::new(Format::Table).bytes(&script)?)
    }
}
