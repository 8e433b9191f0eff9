//! A publisher's log: lines in, device and time out. Pure.
//!
//! NDJSON: `{"device": "d1", "time": "2026-01-31T12:00:00.250Z", "count": 1}`, the time as RFC 3339
//! or milliseconds since 1970, the count optional. CSV: `device,time`, with or without that header;
//! a device with a comma or quotation mark stands in quotation marks. Which of the two it is
//! follows from each line.

use std::borrow::Cow;

use serde::Deserialize;

use crate::model::Timestamp;

/// One published reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published<'a> {
    pub device: Cow<'a, str>,
    pub at: Timestamp,
    /// How often it was published.
    pub count: u32,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    device: Cow<'a, str>,
    time: Time<'a>,
    #[serde(default = "one")]
    count: u32,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time<'a> {
    Millis(i64),
    Text(#[serde(borrow)] Cow<'a, str>),
}

fn one() -> u32 {
    1
}

/// Smaller numbers of milliseconds would be in 1973 or before: seconds, most likely.
const LEAST_MILLIS: i64 = 100_000_000_000;

/// Reads a line; `None`: an empty one, or the header.
///
/// # Errors
/// A sentence.
pub fn parse(line: &str) -> Result<Option<Published<'_>>, String> {
    let line = line.trim();
    if line.is_empty() || line == "device,time" {
        return Ok(None);
    }
    if line.starts_with('{') {
        let Line {
            device,
            time,
            count,
        } = serde_json::from_str(line).map_err(|error| {
            format!("expected {{\"device\": TEXT, \"time\": RFC 3339 or milliseconds}}: {error}")
        })?;
        let at = match time {
            Time::Millis(millis) => from_millis(millis)?,
            Time::Text(text) => read_time(&text)?,
        };
        return published(device, at, count);
    }
    let (device, time) = line
        .rsplit_once(',')
        .ok_or("expected a JSON object, or device,time")?;
    published(unquote(device)?, read_time(time.trim())?, 1)
}

fn published(
    device: Cow<'_, str>,
    at: Timestamp,
    count: u32,
) -> Result<Option<Published<'_>>, String> {
    if device.is_empty() {
        return Err("the device is empty".to_owned());
    }
    Ok(Some(Published { device, at, count }))
}

fn read_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(millis) = text.parse() {
        return from_millis(millis);
    }
    let wrong = |_| format!("{text:?} is no time: expected RFC 3339 or milliseconds since 1970");
    text.parse().map_err(wrong)
}

fn from_millis(millis: i64) -> Result<Timestamp, String> {
    if millis.abs() < LEAST_MILLIS {
        return Err(format!(
            "{millis} as a time: expected milliseconds since 1970, this looks like seconds"
        ));
    }
    Ok(Timestamp::from_millis(millis))
}

fn unquote(device: &str) -> Result<Cow<'_, str>, String> {
    let device = device.trim();
    let Some(open) = device.strip_prefix('"') else {
        return Ok(device.into());
    };
    let inner = open
        .strip_suffix('"')
        .ok_or("the quotation mark before the device is not closed")?;
    Ok(inner.replace("\"\"", "\"").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let at = 1_773_479_730_250;
        let ok = [
            (r#"{"device":"d","time":"2026-03-14T09:15:30.25Z"}"#, "d", 1),
            (r#"{"time":1773479730250,"device":"d","count":3}"#, "d", 3),
            (r#"{"device":"a\"b","time":1773479730250,"x":1}"#, "a\"b", 1),
            ("d,2026-03-14T09:15:30.25Z", "d", 1),
            (" d , 1773479730250 \r", "d", 1),
            (r#""a,""b""",1773479730250"#, "a,\"b\"", 1),
        ];
        for (line, device, count) in ok {
            let read = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let expected = Published {
                device: device.into(),
                at: Timestamp::from_millis(at),
                count,
            };
            assert_eq!(read, Some(expected), "{line}");
        }
        for nothing in ["", "  ", "device,time\r"] {
            assert_eq!(parse(nothing), Ok(None));
        }
        for (bad, word) in [
            ("d", "device,time"),
            ("d,yesterday", "RFC 3339"),
            ("d,1773479730", "seconds"),
            (r#"{"device":"d"}"#, "time"),
            (r#"{"device":"","time":1773479730250}"#, "empty"),
            (r#""d,1773479730250"#, "not closed"),
            ("{", "expected"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
