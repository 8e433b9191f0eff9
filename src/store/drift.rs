//! Where a collection differs from the configuration, and what to do about it. Pure.

use std::time::Duration;

use mongodb::options::{CreateCollectionOptions, TimeseriesGranularity};

use super::document::names;
use crate::config::StreamConfig;
use crate::config::streams::Granularity;

/// Where the collection differs from the configuration, each as a sentence with the remedy.
pub(super) fn series_drift(stream: &StreamConfig, found: &CreateCollectionOptions) -> Vec<String> {
    let mut drift = Vec::new();
    if let Some(options) = &found.timeseries {
        if options.time_field != names::TIMESTAMP {
            drift.push(format!(
                "timeField is {:?}, not {:?}; it cannot be changed: use another collection",
                options.time_field,
                names::TIMESTAMP
            ));
        }
        if options.meta_field.as_deref() != Some(names::METADATA) {
            drift.push(format!(
                "metaField is {:?}, not {:?}; it cannot be changed: use another collection",
                options.meta_field,
                names::METADATA
            ));
        }
        let wanted = granularity(stream.granularity);
        if options.granularity.is_some() && options.granularity.as_ref() != Some(&wanted) {
            drift.push(format!("granularity is {:?}, configured {wanted:?}; coarser can be applied with collMod, finer needs a new collection", options.granularity));
        }
    }
    let (found, wanted) = (found.expire_after_seconds, stream.ttl.map(|ttl| ttl.0));
    if found != wanted {
        let seconds = |ttl: Option<Duration>| {
            ttl.map_or("off".to_owned(), |ttl| format!("{} s", ttl.as_secs()))
        };
        drift.push(format!(
            "expireAfterSeconds is {}, configured {}; apply with db.runCommand({{collMod: {:?}, expireAfterSeconds: {}}})",
            seconds(found),
            seconds(wanted),
            stream.collection,
            wanted.map_or("\"off\"".to_owned(), |ttl| ttl.as_secs().to_string()),
        ));
    }
    drift
}

/// The driver's form.
pub(super) fn granularity(granularity: Granularity) -> TimeseriesGranularity {
    match granularity {
        Granularity::Seconds => TimeseriesGranularity::Seconds,
        Granularity::Minutes => TimeseriesGranularity::Minutes,
        Granularity::Hours => TimeseriesGranularity::Hours,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::options::TimeseriesOptions;

    use super::*;

    #[test]
    fn drift_names_both_sides_and_the_remedy() {
        let stream = StreamConfig {
            ttl: Some(crate::config::Span::days(1)),
            ..StreamConfig::telemetry()
        };
        let found = CreateCollectionOptions::builder()
            .timeseries(
                TimeseriesOptions::builder()
                    .time_field("t")
                    .granularity(TimeseriesGranularity::Hours)
                    .build(),
            )
            .build();
        let drift = series_drift(&stream, &found).join("\n");
        for word in ["timeField", "metaField", "granularity", "86400", "collMod"] {
            assert!(drift.contains(word), "{word} not in {drift}");
        }
    }
}
