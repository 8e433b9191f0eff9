//! `tidegate provision`

use std::process::ExitCode;

use clap::Args;

use super::{ConfigArgs, block_on};
use crate::store::{Store, provision};

/// Create the collections and indexes the configuration asks for, and report drift
///
/// Changes nothing that exists; may be run at any time, also while the gateway runs.
#[derive(Debug, Args)]
pub struct Provision {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Provision {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.prepare()?.loaded.config;
        block_on(async {
            let store = Store::connect(&config).await?;
            for finding in provision(&store, &config).await? {
                println!("{finding}");
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}
