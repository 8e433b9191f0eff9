//! `tidegate rules`: check rules, try them on made-up or recorded readings, ask why one fires.
//! None of it needs a broker or a database.

mod explain;
mod files;
mod fixture;
mod generate;
mod play;
mod report;
mod test;
mod validate;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Check rules, run their fixtures, ask why one fires
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct RulesCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Validate(validate::Validate),
    Test(test::Test),
    Explain(explain::Explain),
}

impl RulesCommand {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Validate(command) => command.run(),
            Action::Test(command) => command.run(),
            Action::Explain(command) => command.run(),
        }
    }
}
