//! A notice in each receiver's words, one file per kind. Pure: the same notice and configuration
//! give the same text, and no secret is in it, because rows are stored.

mod alertmanager;
mod context;
mod generic;
mod ntfy;
mod opsgenie;
mod pagerduty;
mod slack;
mod template;
mod view;
mod wording;

use serde_json::Value;

use crate::alert::Notice;
use crate::config::{ReceiverConfig, ReceiverKind};
use view::View;

/// What a row carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The body, but for secrets.
    pub body: String,
    /// The body for a receiver that does not take that one; `None`: there is nothing to leave out.
    pub minimal: Option<String>,
    /// What is wrong with the templates involved; the message goes out all the same.
    pub flaws: Vec<String>,
}

/// Puts `notice` in the words of the receiver `config`. Done once, when the row is made.
pub fn render(config: &ReceiverConfig, notice: &Notice, environment: &str) -> Rendered {
    let view = View::new(config, notice, environment);
    let body = body(&view).to_string();
    let minimal = self::body(&view.brief()).to_string();
    Rendered {
        minimal: (minimal.len() < body.len()).then_some(minimal),
        body,
        flaws: view.flaws,
    }
}

fn body(view: &View<'_>) -> Value {
    match view.config.kind {
        ReceiverKind::Generic => generic::body(view),
        ReceiverKind::Pagerduty => pagerduty::body(view),
        ReceiverKind::Slack => slack::body(view),
        ReceiverKind::Alertmanager => alertmanager::body(view),
        ReceiverKind::Opsgenie => opsgenie::body(view),
        ReceiverKind::Ntfy => ntfy::body(view),
        ReceiverKind::Template => template::body(view),
    }
}

#[cfg(test)]
mod tests;
