//! `tidegate simulate`

use std::process::ExitCode;

use clap::Args;

use super::ConfigArgs;

/// Publish like a fleet of devices
#[derive(Debug, Args)]
pub struct Simulate {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Simulate {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
