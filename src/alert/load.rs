//! What the terms before have left: read whole, or not at all.

use super::Transition;
use super::draft::Draft;
use super::notify::plan::{Doc, Planner, Saved, Silence};
use super::own::{OwnAlert, OwnAlerts, PREFIX};
use super::rules::{Engine, InstanceDocument, MarkBucket, StreamClock};
use super::term::Setting;
use crate::runtime::now;
use crate::store::{Checkpoint, SilenceRecord, words};

/// The id of the stream clock among the marks; the buckets are numbers.
pub(super) const CLOCK: &str = "clock";

/// What is known at the start of a term.
pub(super) struct Known {
    pub checkpoint: Option<Checkpoint>,
    pub engine: Engine,
    pub planner: Planner,
    pub own: OwnAlerts,
    /// What follows from rules that have changed meanwhile.
    pub draft: Draft,
}

/// Reads it.
pub(super) async fn load(setting: &Setting) -> Result<Known, String> {
    // First what operators say: without the rules of the database their alerts would be taken for
    // orphans, and without the silences what they keep back would be told.
    let controls = setting.controls.clone();
    let looking = tokio::spawn(async move { controls.look().await });
    match looking.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(words(&error)),
        Err(error) => return Err(error.to_string()),
    }
    let (store, names) = (setting.store.clone(), setting.store.names().clone());
    // In a task of its own: a driver call is never dropped half way.
    let reading = tokio::spawn(async move {
        let own = store.kept_as::<OwnAlert>(&names.state, |id| id.starts_with(PREFIX));
        let own = own.await?;
        let instances =
            store.kept_as::<InstanceDocument>(&names.state, |id| !id.starts_with(PREFIX));
        let instances = instances.await?;
        let marks = store
            .kept_as::<MarkBucket>(&names.marks, |id| id != CLOCK)
            .await?;
        let clock = store
            .kept_as::<StreamClock>(&names.marks, |id| id == CLOCK)
            .await?;
        let notices = store.kept_as::<Doc>(&names.notices, |_| true).await?;
        // The checkpoint last: it is never behind what was read before it was.
        let checkpoint = store.checkpoint().await.map_err(|error| words(&error))?;
        Ok::<_, String>((own, instances, marks, clock, notices, checkpoint))
    });
    let read = reading.await.map_err(|error| error.to_string())?;
    let (own, instances, marks, clock, notices, checkpoint) = read?;

    let now = now();
    let mut transitions: Vec<Transition> = Vec::new();
    let mut engine = Engine::new(setting.controls.rules());
    engine.load(
        instances.into_iter().map(|(_, document)| document),
        marks.into_iter().map(|(_, bucket)| bucket),
        clock
            .into_iter()
            .map(|(_, clock)| clock)
            .next()
            .unwrap_or_default(),
        now,
        &mut transitions,
    );
    let told = setting.controls.told();
    let mut planner = Planner::new(&told.0, &told.1);
    planner.load(Saved {
        docs: notices.into_iter().map(|(_, doc)| doc).collect(),
    });
    planner.silences(silences(setting.controls.silences()));
    let mut draft = Draft::default();
    for transition in &transitions {
        planner.transition(transition, now);
        draft
            .transition(transition, None)
            .map_err(|error| error.to_string())?;
    }
    Ok(Known {
        checkpoint,
        engine,
        planner,
        own: OwnAlerts::load(own),
        draft,
    })
}

/// Silences as the planner knows them; one that cannot be read is told and left out.
pub(super) fn silences(records: Vec<SilenceRecord>) -> Vec<Silence> {
    let silence = |record: SilenceRecord| {
        let matchers = record.matchers.iter().map(|matcher| matcher.parse());
        match matchers.collect::<Result<Vec<_>, _>>() {
            Ok(matchers) => Some(Silence {
                id: record.id,
                matchers,
                starts: record.starts,
                ends: record.ends,
                author: record.author,
                comment: record.comment,
            }),
            Err(error) => {
                tracing::error!(silence = record.id, %error, "A silence cannot be read; it holds nothing back");
                None
            }
        }
    };
    records.into_iter().filter_map(silence).collect()
}
