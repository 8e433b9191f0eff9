//! Stored readings, in order of time over all streams.

use anyhow::Context;

use crate::alert::rules::Sample;
use crate::config::Config;
use crate::config::streams::Action;
use crate::model::Timestamp;
use crate::store::{FeedReading, PastSeries, Store};

/// The history of one device or all, as far as the series keep it.
pub(super) struct Past {
    streams: Vec<Head>,
}

/// A stream's next reading.
struct Head {
    name: std::sync::Arc<str>,
    rows: PastSeries,
    next: Option<FeedReading>,
}

impl Past {
    /// From `from` until before `to`.
    pub async fn open(
        store: &Store,
        config: &Config,
        from: Timestamp,
        to: Timestamp,
        device: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut streams = Vec::new();
        for stream in config.streams.iter().filter(|s| s.action == Action::Store) {
            let mut rows = store
                .past_series(stream, from, to, device)
                .await
                .with_context(|| format!("cannot read {}", stream.collection))?;
            streams.push(Head {
                name: stream.name.as_str().into(),
                next: rows.next().await?,
                rows,
            });
        }
        Ok(Self { streams })
    }

    /// The next reading. It does not say on which topic it came, and counts as received at its own
    /// time.
    pub async fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let heads = self.streams.iter_mut().filter(|head| head.next.is_some());
        let Some(head) = heads.min_by_key(|head| head.next.as_ref().map(|reading| reading.at))
        else {
            return Ok(None);
        };
        let following = head.rows.next().await?;
        let reading = std::mem::replace(&mut head.next, following);
        let name = &head.name;
        Ok(reading.map(|reading| Sample {
            device: reading.device,
            kind: reading.kind,
            stream: std::sync::Arc::clone(name),
            topic: None,
            tags: reading.tags,
            at: reading.at,
            received: reading.received,
            fields: reading.fields,
        }))
    }
}
