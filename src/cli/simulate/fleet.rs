//! What the devices say: topics and payloads.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;

use crate::config::streams::{Codec, Compression, StreamConfig, TimeUnit};
use crate::model::Timestamp;

/// Payloads that no stream stores, each for another reason.
const BAD: [&[u8]; 8] = [
    b"{\"temperature\":21.5",
    b"{\"temperature\":nan}",
    b"{\"temperature\":1,\"temperature\":2}",
    b"{\"temperature\":\"\xff\xfe\"}",
    b"{\"a\\u0000b\":1}",
    b"{\"litres\":1e999}",
    b"{\"temperature\":1} trailing",
    b"{}",
];

/// A fleet.
pub struct Fleet {
    topics: Vec<String>,
    time_key: Option<(String, TimeUnit)>,
    fields: u32,
    bad: f64,
    late: f64,
    out_of_order: f64,
    warming: Option<Duration>,
    began: OnceLock<Timestamp>,
    sequence: AtomicU64,
}

/// What the first device's temperature rises to and comes back from, where it does.
const WARM: std::ops::Range<f64> = 4.0..10.0;

/// One publish.
pub struct Publication<'a> {
    pub topic: &'a str,
    pub payload: Vec<u8>,
    pub bad: bool,
    /// Number of the device.
    pub device: usize,
    /// The time it says it has, where it is sound.
    pub time: Timestamp,
}

/// Whether payloads for the stream can be made here.
pub fn imitates(stream: &StreamConfig) -> bool {
    matches!(stream.codec, Codec::Json | Codec::JsonOrText)
        && stream.compression == Compression::None
}

impl Fleet {
    /// `shares`: bad, late, out of order. `warming`: how long the first device takes to get warm
    /// and cold again.
    pub fn new(
        stream: &StreamConfig,
        devices: u32,
        fields: u32,
        shares: (f64, f64, f64),
        warming: Option<Duration>,
    ) -> anyhow::Result<Self> {
        if !stream.values.is_empty() || !stream.readings.is_empty() || stream.pivot.is_some() {
            bail!(
                "stream {:?} takes its values from inside the payload: only flat payloads are imitated",
                stream.name
            );
        }
        let template = match (&stream.template, stream.topics.first()) {
            (template, _) if !template.is_empty() => template,
            (_, Some(filter)) => filter,
            _ => bail!("stream {:?} has neither template nor topics", stream.name),
        };
        let template = template
            .split('/')
            .skip(if template.starts_with("$share/") {
                2
            } else {
                0
            });
        let template: Vec<_> = template.collect();
        let topics = (0..devices)
            .map(|n| topic(&template, &name(n as usize)))
            .collect();
        let time_key = stream
            .time
            .path
            .0
            .first()
            .filter(|path| !path.contains(['/', '.']));
        let (bad, late, out_of_order) = shares;
        Ok(Self {
            topics,
            time_key: time_key.map(|key| (key.clone(), stream.time.unit)),
            fields,
            bad,
            late,
            out_of_order,
            warming,
            began: OnceLock::new(),
            sequence: AtomicU64::new(0),
        })
    }

    /// The next publish of the next device.
    pub fn next(&self, now: Timestamp) -> Publication<'_> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        // The remainder fits: it is below the number of topics.
        let device = (sequence % self.topics.len() as u64) as usize;
        let topic = &self.topics[device];
        if self.bad > 0.0 && fastrand::f64() < self.bad {
            let kind = fastrand::usize(..BAD.len());
            return Publication {
                topic,
                payload: BAD[kind].to_vec(),
                bad: true,
                device,
                time: now,
            };
        }
        let time = match self.time_key {
            Some(_) => self.shifted(now),
            None => now,
        };
        let mut payload = String::with_capacity(64 + self.fields as usize * 20);
        payload.push('{');
        if let Some((key, unit)) = &self.time_key {
            let time = time.millis();
            // Writing to a string cannot fail.
            let _ = match unit {
                TimeUnit::Iso => write!(payload, "\"{key}\":\"{}\",", Timestamp::from_millis(time)),
                TimeUnit::S => write!(payload, "\"{key}\":{}.{:03},", time / 1_000, time % 1_000),
                TimeUnit::Us => write!(payload, "\"{key}\":{time}000,"),
                TimeUnit::Ns => write!(payload, "\"{key}\":{time}000000,"),
                TimeUnit::Auto | TimeUnit::Epoch | TimeUnit::Ms => {
                    write!(payload, "\"{key}\":{time},")
                }
            };
        }
        let _ = write!(payload, "\"seq\":{sequence}");
        for field in 0..self.fields {
            let phase = (sequence as f64 / self.topics.len() as f64 / 60.0) + f64::from(field);
            let value = match self.warming {
                Some(span) if device == 0 && field == 0 => self.warmth(now, span),
                _ => 20.0 + 5.0 * phase.sin() + fastrand::f64() * 0.1,
            };
            let _ = match field {
                0 => write!(payload, ",\"temperature\":{value:.2}"),
                n => write!(payload, ",\"f{n}\":{value:.2}"),
            };
        }
        payload.push('}');
        Publication {
            topic,
            payload: payload.into_bytes(),
            bad: false,
            device,
            time,
        }
    }

    /// The temperature of a room that gets warm and cold again, over and over.
    fn warmth(&self, now: Timestamp, span: Duration) -> f64 {
        let began = *self.began.get_or_init(|| now);
        let turns = now.since(began).as_secs_f64() / span.as_secs_f64().max(0.001);
        let up_and_down = 1.0 - (turns.fract() * 2.0 - 1.0).abs();
        WARM.start + (WARM.end - WARM.start) * up_and_down
    }

    fn shifted(&self, now: Timestamp) -> Timestamp {
        let chance = fastrand::f64();
        let back = if chance < self.late {
            fastrand::i64(60_000..3_600_000)
        } else if chance < self.late + self.out_of_order {
            fastrand::i64(0..5_000)
        } else {
            0
        };
        Timestamp::from_millis(now.millis() - back)
    }
}

/// The device of a number.
pub fn name(device: usize) -> String {
    format!("sim-{device:05}")
}

/// A topic that the template reads `device` out of.
fn topic(template: &[&str], device: &str) -> String {
    let levels =
        template
            .iter()
            .filter(|level| **level != "#")
            .map(|level| match level.split_once('{') {
                Some((before, rest)) => {
                    let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
                    let name = name.trim_end_matches('.');
                    let value = if name == "deviceId" {
                        device
                    } else {
                        name.strip_prefix("tag.").unwrap_or(name)
                    };
                    format!("{before}{value}{after}")
                }
                None if *level == "+" => device.to_owned(),
                None => (*level).to_owned(),
            });
    levels.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_follow_the_template() {
        for (template, expected) in [
            ("devices/{deviceId}/telemetry", "devices/d/telemetry"),
            (
                "/plants/{tag.site}/s-{deviceId}/{type}",
                "/plants/site/s-d/type",
            ),
            ("a/+/#", "a/d"),
        ] {
            assert_eq!(
                topic(&template.split('/').collect::<Vec<_>>(), "d"),
                expected
            );
        }
    }
}
