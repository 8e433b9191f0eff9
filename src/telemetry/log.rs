//! Log lines on standard error: for people by default, JSON by option.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Installs the subscriber; later calls do nothing. `level` is a level or a list of directives.
pub fn init(level: &str, json: bool) {
    // The MQTT client repeats on its own logger what the session reports with context.
    let directives = format!("{level},rumqttc=off");
    let filter = EnvFilter::try_new(&directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let result = if json {
        builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init()
    } else {
        builder
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .try_init()
    };
    // Tests start several gateways in one process; the first one's subscriber serves all.
    drop(result);
}
