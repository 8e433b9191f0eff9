//! `tidegate run`

use std::process::ExitCode;

use clap::Args;

use super::{ConfigArgs, block_on};
use crate::app::{App, prepare};
use crate::config::LogFormat;
use crate::runtime::Verdict;
use crate::telemetry::init_log;

/// Run the gateway until SIGTERM or Ctrl-C
///
/// The first signal stops in order: no new messages, writes finished, acknowledgements sent. A
/// second one leaves at once; whatever was not acknowledged comes again. SIGHUP reloads the
/// streams.
#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Run {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let sources = self.config.sources();
        let prepared = prepare(&sources)?;
        let log = &prepared.loaded.config.log;
        init_log(&log.level, log.format == LogFormat::Json);
        for warning in &prepared.loaded.warnings {
            tracing::warn!(warning, "Configuration");
        }
        let verdict = block_on(async { Ok(App::build(prepared, sources).await?.run().await) })?;
        match verdict {
            Verdict::Clean => {
                tracing::info!("Stopped; everything acknowledged is stored, or in the spool");
                Ok(ExitCode::SUCCESS)
            }
            Verdict::Failed(reason) => {
                tracing::error!(error = reason, "Stopped because of a failure");
                Ok(ExitCode::FAILURE)
            }
            Verdict::Abandoned(stragglers) => {
                tracing::error!(
                    unfinished = stragglers.join(", "),
                    "Stopped before everything was finished; what was not acknowledged comes again"
                );
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
