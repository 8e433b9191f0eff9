//! `[watchdog]`: a sign of life to a service outside, which calls for help when it stays away.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Problems;
use super::receivers::check::{check_cidrs, check_source, check_url};
use super::secret::{Secret, SecretSource};
use super::units::Span;

/// The sign of life; without an address there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchdogConfig {
    /// Where it goes, or `url_file`, `url_env`. Only its host is ever shown.
    pub url: Option<Secret>,
    /// File that holds it.
    pub url_file: Option<PathBuf>,
    /// Environment variable that holds it.
    pub url_env: Option<String>,
    /// How it is asked for.
    pub method: WatchdogMethod,
    /// Time between two of them.
    pub interval: Span,
    /// Whether `http://` is good enough.
    pub allow_http: bool,
    /// Private, loopback or link-local networks that it may go to.
    pub allow_cidrs: Vec<String>,
    /// PEM file with further authorities to trust, beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// How the watchdog's address is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchdogMethod {
    /// POST with a small JSON body.
    Post,
    /// GET.
    Get,
}

impl Default for WatchdogConfig {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            url_env: None,
            method: WatchdogMethod::Post,
            interval: Span::secs(60),
            allow_http: false,
            allow_cidrs: Vec::new(),
            ca_file: None,
        }
    }
}

impl WatchdogConfig {
    /// Where the address comes from.
    pub fn url_source(&self) -> SecretSource<'_> {
        SecretSource::new(
            "url",
            self.url.as_ref(),
            self.url_file.as_ref(),
            self.url_env.as_ref(),
        )
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        let source = self.url_source();
        if let Some(url) = check_source("watchdog", source, problems)
            && let Err(message) = check_url(url.expose(), self.allow_http)
        {
            problems.add(format!("watchdog.{}", source.set_key()), message);
        }
        if !(Span::secs(5)..=Span::secs(86_400)).contains(&self.interval) {
            problems.add(
                "watchdog.interval",
                format!("is {}: expected 5s to 1d", self.interval),
            );
        }
        check_cidrs("watchdog", &self.allow_cidrs, problems);
        problems.file("watchdog.ca_file", &self.ca_file);
    }
}
