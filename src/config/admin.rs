//! `[admin]`: the HTTP side for operators and Prometheus.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Problems;
use super::secret::Secret;

/// Where operators look in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Address and port; loopback by default. Port 0 takes a free one and logs it.
    pub listen: SocketAddr,
    /// Bearer token asked for on everything but `/livez` and `/readyz`; needed off loopback.
    pub token: Option<Secret>,
    /// File that holds the token.
    pub token_file: Option<PathBuf>,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            token: None,
            token_file: None,
        }
    }
}

impl AdminConfig {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if self.token.is_some() && self.token_file.is_some() {
            problems.add(
                "admin.token_file",
                "set either admin.token or admin.token_file, not both",
            );
        }
        problems.file("admin.token_file", &self.token_file);
        if !self.listen.ip().is_loopback() && self.token.is_none() && self.token_file.is_none() {
            problems.add(
                "admin.token_file",
                format!(
                    "must be set because admin.listen ({}) is not loopback",
                    self.listen
                ),
            );
        }
    }
}
