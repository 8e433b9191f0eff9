//! Alerts as they are kept, for whoever asks from outside: the leader's memory is in the database.

use serde::Serialize;

use super::Episode;
use super::load::silences;
use super::notify::plan::{Doc, Planner, Saved, Standing};
use super::own::{OwnAlert, PREFIX};
use super::rules::{InstanceDocument, State};
use crate::config::Config;
use crate::runtime::now;
use crate::store::{Store, words};

/// One alert.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// `ok`, `pending`, `firing` or `recovering`.
    pub state: &'static str,
    /// The rule.
    pub rule: String,
    /// The device.
    pub device: String,
    /// Somebody knows: no reminders.
    pub acked: bool,
    /// Its episode, open or the last one; none while it has not fired.
    pub episode: Option<Episode>,
}

/// All alerts that are more than at rest, or were within the day, by key.
///
/// # Errors
/// Where the database does not answer, or a document cannot be read.
pub async fn inventory(store: &Store) -> Result<Vec<Listed>, String> {
    let state = &store.names().state;
    let own = store.kept_as::<OwnAlert>(state, |id| id.starts_with(PREFIX));
    let own = own.await?.into_iter().map(|(key, alert)| {
        let episode = alert.episode;
        Listed {
            key,
            state: match episode.ended {
                None => State::Firing.name(),
                Some(_) => State::Ok.name(),
            },
            rule: episode.rule.clone(),
            device: episode.device.clone(),
            acked: false,
            episode: Some(episode),
        }
    });
    let instances = store.kept_as::<InstanceDocument>(state, |id| !id.starts_with(PREFIX));
    let instances = instances.await?.into_iter().map(|(key, document)| Listed {
        key,
        episode: document.episode(),
        state: document.track.state.name(),
        rule: document.rule,
        device: document.device,
        acked: document.track.ack.is_some(),
    });
    let mut all: Vec<_> = own.chain(instances).collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(all)
}

/// How an alert stands with each receiver: who was told what, and what holds the next message back.
///
/// # Errors
/// Where the database does not answer, or a document cannot be read.
pub async fn standing(store: &Store, config: &Config, key: &str) -> Result<Vec<Standing>, String> {
    let docs = store
        .kept_as::<Doc>(&store.names().notices, |_| true)
        .await?;
    let mut planner = Planner::new(&config.alerts, &config.receivers);
    planner.load(Saved {
        docs: docs.into_iter().map(|(_, doc)| doc).collect(),
    });
    let records = store.kept_silences().await.map_err(|error| words(&error))?;
    planner.silences(silences(records));
    // What holds a message back is not kept, but follows; what follows beside it is not sent.
    let _ = planner.plan(now());
    Ok(planner.suppressed(key))
}
