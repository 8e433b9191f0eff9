//! `tidegate check`

use std::process::ExitCode;

use clap::Args;

use super::ConfigArgs;
use crate::config::streams::Action;

/// Check the configuration: every mistake at once, with file, key and what was expected
///
/// Needs neither broker nor database. Exit code 1 when anything is wrong.
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the configuration in force, defaults included, secrets hidden
    #[arg(long)]
    print: bool,
}

impl Check {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let prepared = self.config.prepare()?;
        let config = &prepared.loaded.config;
        if self.print {
            print!("{}", toml::to_string(config)?);
            return Ok(ExitCode::SUCCESS);
        }
        println!("The configuration is sound.");
        println!(
            "  broker      {} as {:?}",
            config.mqtt.url, config.mqtt.client_id
        );
        println!("  subscribes  {}", prepared.router.filters().join(" "));
        for stream in &config.streams {
            match stream.action {
                Action::Store => println!(
                    "  stream      {} -> {}.{}",
                    stream.name, config.mongodb.database, stream.collection
                ),
                Action::Ignore => println!("  stream      {} (ignored)", stream.name),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
