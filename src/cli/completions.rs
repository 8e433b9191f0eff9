//! `tidegate completions`

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;

/// Print a completion script: tidegate completions bash > /etc/bash_completion.d/tidegate
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        clap_complete::generate(
            self.shell,
            &mut Cli::command(),
            "tidegate",
            &mut std::io::stdout(),
        );
        Ok(ExitCode::SUCCESS)
    }
}
