//! What was decoded against what a case expects.
//!
//! Points are matched one to one; everything a case says about a point, a dead letter or a total
//! must hold. More values than expected may be there.

use serde_json::Value;
use tidegate::config::streams::StreamConfig;
use tidegate::decode::Decoded;
use tidegate::model::{IgnoreReason, Reading, TimeSource, Timestamp};

use super::lookup::Stored;

/// All messages of a case, decoded.
pub struct Judge<'d> {
    pub decoded: &'d [Decoded],
    pub config: &'d StreamConfig,
    pub received: &'d Value,
}

impl Judge<'_> {
    /// Checks everything an expectation says.
    pub fn expectation(&self, expect: &Value) -> Result<(), String> {
        for decoded in self.decoded {
            if decoded.readings.is_empty() && decoded.refused.is_none() && decoded.ignored.is_none()
            {
                return Err("a message without outcome".into());
            }
        }
        let outcome = self.outcome();
        if expect["outcome"] != outcome {
            return Err(format!("outcome is {outcome}: {}", self.story()));
        }
        self.points(expect)?;
        self.totals(expect)?;
        self.dead_letters(expect)?;
        self.ignored(expect)
    }

    fn outcome(&self) -> &'static str {
        let stored = self.readings().next().is_some();
        let refused = self.decoded.iter().any(|d| d.refused.is_some());
        match (stored, refused) {
            (true, false) => "stored",
            (true, true) => "partial",
            (false, true) => "dead_letter",
            (false, false) => "ignored",
        }
    }

    fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.decoded.iter().flat_map(|d| &d.readings)
    }

    /// Each expected point must match a reading of its own.
    pub fn points(&self, expect: &Value) -> Result<(), String> {
        let points: Vec<&Value> = expect["points"].as_array().into_iter().flatten().collect();
        let readings: Vec<&Reading> = self.readings().collect();
        let matching: Vec<Vec<usize>> = points
            .iter()
            .map(|point| {
                let all = 0..readings.len();
                all.filter(|n| self.point(point, readings[*n]).is_ok())
                    .collect()
            })
            .collect();
        if assign(&matching, &mut vec![false; readings.len()]) {
            return Ok(());
        }
        let unmatched = matching.iter().position(Vec::is_empty);
        let point = unmatched.map(|n| points[n]);
        let nearest = point.and_then(|p| self.point(p, readings.first()?).err());
        Err(format!(
            "no reading for {point:?} ({nearest:?}): {}",
            self.story()
        ))
    }

    fn point(&self, point: &Value, reading: &Reading) -> Result<(), String> {
        if point["device"] != reading.device.as_str() {
            return Err(format!("device is {}", reading.device));
        }
        let source = match reading.time_source {
            TimeSource::Device => "payload",
            TimeSource::Received => "received",
        };
        if point.get("ts_source").is_some_and(|s| *s != source) {
            return Err(format!("time is {source}"));
        }
        let tolerance = point["ts_tolerance_ms"].as_u64().unwrap_or(0);
        if let Some(ts) = point["ts"].as_str().map(millis)
            && ts.abs_diff(reading.timestamp.millis()) > tolerance
        {
            return Err(format!("time is {}", reading.timestamp));
        }
        self.values(point, reading)?;
        self.facts(point, reading)
    }

    fn values(&self, point: &Value, reading: &Reading) -> Result<(), String> {
        let stored = Stored {
            reading,
            config: self.config,
            tolerance: point["tolerance"].as_f64().unwrap_or(0.0),
        };
        for (path, expected) in point["values"].as_object().into_iter().flatten() {
            if !stored.has(path, expected) {
                return Err(format!("{path} is not {expected}"));
            }
        }
        for (path, expected) in point["errors"].as_object().into_iter().flatten() {
            if !stored.has(&format!("errors/{path}"), expected) {
                return Err(format!("errors/{path} is not {expected}"));
            }
        }
        let absent = point["absent"].as_array().into_iter().flatten();
        match absent
            .filter_map(Value::as_str)
            .find(|path| !stored.lacks(path))
        {
            Some(path) => Err(format!("{path} is there")),
            None => Ok(()),
        }
    }

    fn facts(&self, point: &Value, reading: &Reading) -> Result<(), String> {
        for flag in point["flags"].as_array().into_iter().flatten() {
            if !reading.flags.names().any(|name| flag == name) {
                return Err(format!("flag {flag} is missing"));
            }
        }
        let claimed = reading.claimed.as_deref().unwrap_or_default();
        if let Some(ts) = point["claimed_ts"].as_str()
            && claimed.parse::<Timestamp>().map(Timestamp::millis).ok() != Some(millis(ts))
        {
            return Err(format!("claimed time is {claimed}"));
        }
        let kind = reading.kind.as_deref();
        if point.get("type").is_some_and(|t| t.as_str() != kind) {
            return Err(format!("type is {kind:?}"));
        }
        for (name, expected) in point["meta"].as_object().into_iter().flatten() {
            let tag = reading.tags.iter().find(|(n, _)| n == name);
            let found = match name.as_str() {
                "type" => kind,
                _ => tag.map(|(_, value)| value.as_str()),
            };
            let same = match expected {
                Value::String(text) => found == Some(text),
                other => found == Some(&other.to_string()),
            };
            if !same {
                return Err(format!("tag {name} is {found:?}"));
            }
        }
        Ok(())
    }

    fn totals(&self, expect: &Value) -> Result<(), String> {
        let points = self.readings().count() as u64;
        let dead = self.decoded.iter().filter(|d| d.refused.is_some()).count() as u64;
        let at = |key: &str| expect[key].as_u64();
        let wrong = at("points_total").is_some_and(|n| n != points)
            || at("points_min").is_some_and(|n| n > points)
            || at("points_max").is_some_and(|n| n < points)
            || at("dead_letters_total").is_some_and(|n| n != dead);
        match wrong {
            true => Err(format!(
                "{points} points and {dead} dead letters: {}",
                self.story()
            )),
            false => Ok(()),
        }
    }

    fn dead_letters(&self, expect: &Value) -> Result<(), String> {
        let refused = || self.decoded.iter().filter_map(|d| d.refused.as_ref());
        if let Some(expected) = expect["dead_letters"].as_array() {
            let found: Vec<&str> = refused().map(|r| r.reason.code()).collect();
            let expected: Vec<&str> = expected
                .iter()
                .map(|d| d["reason"].as_str().unwrap_or("?"))
                .collect();
            if found != expected {
                return Err(format!("dead letters are {found:?}: {}", self.story()));
            }
        }
        let said: String = refused().map(|r| r.detail.to_lowercase() + "\n").collect();
        for word in expect["error_says"].as_array().into_iter().flatten() {
            let word = word.as_str().unwrap_or_default().to_lowercase();
            if !said.contains(&word) {
                return Err(format!("`{word}` is not said: {said}"));
            }
        }
        Ok(())
    }

    fn ignored(&self, expect: &Value) -> Result<(), String> {
        let found: Vec<IgnoreReason> = self.decoded.iter().filter_map(|d| d.ignored).collect();
        let one = expect["ignored_reason"].as_str();
        let list = expect["ignored"].as_array().into_iter().flatten();
        let expected = one.into_iter().chain(list.filter_map(Value::as_str));
        for word in expected {
            if !found.iter().any(|reason| reason.code() == our_word(word)) {
                return Err(format!("ignored as {found:?}"));
            }
        }
        Ok(())
    }

    fn story(&self) -> String {
        format!(
            "{:?} (received {})",
            self.decoded
                .iter()
                .map(|d| (&d.readings, &d.refused, d.ignored))
                .collect::<Vec<_>>(),
            self.received
        )
    }
}

/// The catalogue has finer words for topics and contents that a stream leaves out.
fn our_word(word: &str) -> &str {
    if IgnoreReason::ALL.iter().any(|reason| reason.code() == word) {
        return word;
    }
    match word.ends_with("_topic") {
        true => IgnoreReason::IgnoredTopic.code(),
        false => IgnoreReason::IgnoredContent.code(),
    }
}

/// Whether each list can be given a position of its own.
fn assign(matching: &[Vec<usize>], taken: &mut Vec<bool>) -> bool {
    let Some((first, rest)) = matching.split_first() else {
        return true;
    };
    for n in first {
        if !taken[*n] {
            taken[*n] = true;
            if assign(rest, taken) {
                return true;
            }
            taken[*n] = false;
        }
    }
    false
}

fn millis(ts: &str) -> i64 {
    ts.parse::<Timestamp>()
        .expect("times in a case are RFC 3339")
        .millis()
}
