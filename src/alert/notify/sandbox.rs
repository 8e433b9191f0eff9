//! Templates that operators write into rules and receivers. A template sees the data it is given
//! and nothing else: no files, no environment, no other template. Steps and output are bounded.
//! What is missing prints as `n/a`; what fails is an error for the caller, who has a built-in text.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

use super::text;

/// Steps of one template; a loop over a hundred alerts takes about two thousand.
const FUEL: u64 = 50_000;

/// Bytes of one template's output; the rest is cut.
pub const MOST_OUTPUT: usize = 8 << 10;

/// What a template made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The text.
    pub text: String,
    /// Whether it asked for something that is not there.
    pub missing: bool,
}

/// Renders `source` with `data`.
///
/// # Errors
/// Why it cannot be rendered.
pub fn render(source: &str, data: &serde_json::Value) -> Result<Made, String> {
    let template = environment()
        .template_from_str(source)
        .map_err(|error| error.to_string())?;
    let mut output = Bounded::default();
    let captured = template
        .render_captured_to(Value::from(Serde(data)), &mut output)
        .map_err(|error| error.to_string())?;
    let missing = captured.state().get_temp(MISSING).is_some();
    let text = String::from_utf8_lossy(&output.0);
    Ok(Made {
        text: if output.0.len() > MOST_OUTPUT {
            text::cut_bytes(text.trim_end_matches('\u{fffd}'), MOST_OUTPUT)
        } else {
            text.into_owned()
        },
        missing,
    })
}

/// Whether `source` is a template at all.
///
/// # Errors
/// Why not, with the line.
pub fn check(source: &str) -> Result<(), String> {
    let checked = environment().template_from_str(source);
    checked.map(drop).map_err(|error| match error.line() {
        Some(line) => format!("is not a template: {error} (line {line})"),
        None => format!("is not a template: {error}"),
    })
}

/// Set in a template's state when it asked for what is not there.
const MISSING: &str = "missing";

/// Keeps one byte more than allowed, to tell that there was more.
#[derive(Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (MOST_OUTPUT + 1).saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment() -> &'static Environment<'static> {
    static MADE: OnceLock<Environment<'static>> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut made = Environment::new();
        made.set_fuel(Some(FUEL));
        made.set_recursion_limit(50);
        made.set_undefined_behavior(UndefinedBehavior::Chainable);
        made.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        made.set_formatter(|out, state, value| {
            if value.is_undefined() || value.is_none() {
                state.set_temp(MISSING, Value::from(true));
                return out.write_str("n/a").map_err(Error::from);
            }
            match as_f64(value) {
                // As people write it: 21.3, not 21.299999999999997.
                Some(number) if value.kind() == ValueKind::Number && !value.is_integer() => {
                    out.write_str(&text::number(number)).map_err(Error::from)
                }
                _ => write!(out, "{value}").map_err(Error::from),
            }
        });
        // A rule's data is not a debugger's business.
        made.remove_global("debug");
        made.add_filter("default", default);
        made.add_filter("d", default);
        made.add_filter("round", round);
        made.add_filter("unit", unit);
        made.add_filter("duration", duration);
        made.add_filter("truncate", truncate);
        made.add_filter("time", time);
        made
    })
}

fn as_f64(value: &Value) -> Option<f64> {
    f64::try_from(value.clone()).ok()
}

/// What is not there, null or not a number, as something else.
fn default(value: Value, other: Option<Value>) -> Value {
    if value.is_undefined() || value.is_none() {
        other.unwrap_or_else(|| Value::from(""))
    } else {
        value
    }
}

/// A number with so many decimals; anything else as it is.
fn round(value: Value, decimals: Option<u32>) -> Value {
    match (value.kind(), as_f64(&value)) {
        (ValueKind::Number, Some(number)) => {
            let decimals = usize::try_from(decimals.unwrap_or(0).min(12)).unwrap_or(0);
            Value::from(format!("{number:.decimals$}"))
        }
        _ => value,
    }
}

/// With its unit behind it, where both are there.
fn unit(value: Value, unit: Value) -> Value {
    if value.is_undefined() || value.is_none() || unit.as_str().is_none_or(str::is_empty) {
        return value;
    }
    match (value.kind(), as_f64(&value)) {
        (ValueKind::Number, Some(number)) => {
            Value::from(format!("{} {unit}", text::number(number)))
        }
        _ => Value::from(format!("{value} {unit}")),
    }
}

/// Seconds as `3h 5m`.
fn duration(value: Value) -> Value {
    match as_f64(&value) {
        Some(seconds) if (0.0..1e15).contains(&seconds) => {
            Value::from(text::span(Duration::from_secs_f64(seconds)))
        }
        _ => value,
    }
}

/// At most so many characters.
fn truncate(value: Value, most: Option<usize>) -> Value {
    match value.as_str() {
        Some(whole) => Value::from(text::cut(whole, most.unwrap_or(255))),
        None => value,
    }
}

/// An RFC 3339 time in a time zone, `2026-03-14 10:15:30 CET`, or in the given format.
fn time(value: Value, zone: Option<String>, options: Kwargs) -> Result<Value, Error> {
    let format: Option<String> = options.get("format")?;
    options.assert_all_used()?;
    let Some(at) = value
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok())
    else {
        return Ok(value);
    };
    let zone = zone.unwrap_or_else(|| "UTC".into());
    let zone = jiff::tz::TimeZone::get(&zone)
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "no such time zone"))?;
    let format = format.unwrap_or_else(|| "%Y-%m-%d %H:%M:%S %Z".into());
    let shown = jiff::fmt::strtime::format(&format, &at.to_zoned_datetime(zone))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "not a format of times"))?;
    Ok(Value::from(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn made(source: &str) -> String {
        let data = json!({
            "value": 11.257, "unit": "degC", "device": { "id": "cr-7", "tags": { "site": "ams1" } },
            "started_at": "2026-03-14T09:15:30.250Z", "duration": 11_100, "nothing": null, "whole": 7,
            "alerts": [1, 2, 3],
        });
        match render(source, &data) {
            Ok(made) => made.text,
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn filters_and_what_is_missing() {
        for (source, text) in [
            (
                "{{ device.id }} at {{ value | round(1) }} {{ unit }}",
                "cr-7 at 11.3 degC",
            ),
            ("{{ value | unit(unit) }} {{ whole }}", "11.257 degC 7"),
            ("{{ device.tags.site }}", "ams1"),
            (
                "{{ device.tags.nowhere }} {{ what.is.that }} {{ nothing }}",
                "n/a n/a n/a",
            ),
            (
                "{{ nothing | default('none') }} {{ gone | d('x') }}",
                "none x",
            ),
            ("{{ duration | duration }}", "3h 5m"),
            (
                "{{ started_at | time('Europe/Amsterdam') }}",
                "2026-03-14 10:15:30 CET",
            ),
            (
                "{{ started_at | time('Europe/Amsterdam', format='%H:%M') }}",
                "10:15",
            ),
            ("{{ 'abcdef' | truncate(4) }}", "abc…"),
            ("{% if value > 10 %}hot{% else %}cold{% endif %}", "hot"),
            ("{% for a in alerts %}{{ a }},{% endfor %}", "1,2,3,"),
            ("{% for a in gone %}{{ a }}{% endfor %}.", "."),
            ("{{ 0.1 + 0.2 }} <&>", "0.3 <&>"),
        ] {
            assert_eq!(made(source), text, "{source}");
        }
        assert!(render("{{ gone }}", &json!({})).unwrap().missing);
        assert!(!render("{{ 1 }}", &json!({})).unwrap().missing);
    }

    #[test]
    fn a_template_cannot_get_out_or_run_for_ever() {
        for source in [
            "{% include 'x' %}",
            "{% import '/etc/passwd' as p %}",
            "{% extends 'x' %}",
            "{{ env('HOME') }}",
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
            "{{ 'x' * 10000000000 }}",
            "{{ value | nofilter }}",
            "{{ started_at | time('Mars/Base') }}",
        ] {
            assert!(
                made(source).starts_with("error"),
                "{source}: {}",
                made(source)
            );
        }
        let long = made("{% for a in range(4000) %}温{% endfor %}");
        assert!(
            long.len() <= MOST_OUTPUT && long.ends_with('…'),
            "{}",
            long.len()
        );
    }

    #[test]
    fn mistakes_are_found_before_they_matter() {
        assert!(check("{{ a | round(1) }}").is_ok());
        assert!(check("{{ a ").unwrap_err().contains("not a template"));
        assert!(check("{% include 'x' %}").is_err());
    }
}
