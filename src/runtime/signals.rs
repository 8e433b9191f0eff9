//! The operator's signals: SIGTERM and SIGINT stop, SIGHUP reloads.

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What the operator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: stop in order; a second one leaves at once.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The installed handlers.
pub struct Signals {
    terminate: Stream,
    interrupt: Stream,
    hangup: Stream,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// Where the operating system refuses.
    pub fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            // Signal streams keep what arrives while nobody waits.
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }
}
