//! `tidegate rules`: check rules, try them on made-up, recorded or stored readings, ask why one
//! fires. Only what is about stored readings needs the database; nothing needs a broker.

mod backtest;
mod explain;
mod files;
mod fixture;
mod generate;
mod past;
mod play;
mod report;
mod telling;
mod test;
mod validate;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Check rules, run their fixtures, ask why one fires, see what they would have told
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
    Backtest(backtest::Backtest),
}

impl RulesCommand {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Validate(command) => command.run(),
            Action::Test(command) => command.run(),
            Action::Explain(command) => command.run(),
            Action::Backtest(command) => command.run(),
        }
    }
}
