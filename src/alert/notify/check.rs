//! What can be wrong with receivers beyond their plain values: templates, certificates, addresses
//! that requests may not go to. Reads the files they name, needs no network.

use reqwest::Url;
use serde_json::Value;

use super::guard;
use super::sandbox;
use super::target::Target;
use crate::config::{Problems, ReceiverConfig, WatchdogConfig};

/// Whether `source` is a template that can be rendered.
///
/// # Errors
/// Why not.
pub fn check_template(source: &str) -> Result<(), String> {
    sandbox::check(source)
}

/// Adds what is wrong with these receivers and the watchdog, whose plain values are sound.
pub fn check_receivers(
    receivers: &[ReceiverConfig],
    watchdog: &WatchdogConfig,
    problems: &mut Problems,
) {
    for (index, receiver) in receivers.iter().enumerate() {
        let place = format!("receivers.{index}");
        for (key, source) in [("title", &receiver.title), ("text", &receiver.text)] {
            if let Some(source) = source
                && let Err(message) = sandbox::check(source)
            {
                problems.add(format!("{place}.{key}"), message);
            }
        }
        if let Some(body) = &receiver.body {
            templates(body, &format!("{place}.body"), problems);
        }
        match Target::build(receiver) {
            Ok(target) => {
                let key = receiver.url_source().set_key();
                check_address(&target, &format!("{place}.{key}"), problems);
            }
            Err((key, message)) => problems.add(format!("{place}.{key}"), message),
        }
    }
    match Target::watchdog(watchdog) {
        Ok(None) => {}
        Ok(Some(target)) => {
            let key = watchdog.url_source().set_key();
            check_address(&target, &format!("watchdog.{key}"), problems);
        }
        Err((key, message)) => problems.add(format!("watchdog.{key}"), message),
    }
}

/// An address written as numbers can be judged now; a name is judged at every attempt.
fn check_address(target: &Target, key: &str, problems: &mut Problems) {
    let url = Url::parse(target.secrets.url.expose()).ok();
    let host = url.as_ref().and_then(|url| url.host_str());
    if let Some(address) = host.and_then(guard::literal)
        && let Err(denied) = guard::check(address, target.allowed())
    {
        problems.add(key, denied.to_string());
    }
}

fn templates(tree: &Value, place: &str, problems: &mut Problems) {
    match tree {
        Value::String(source) => {
            if let Err(message) = sandbox::check(source) {
                problems.add(place, message);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                templates(item, &format!("{place}.{index}"), problems);
            }
        }
        Value::Object(entries) => {
            for (key, item) in entries {
                templates(item, &format!("{place}.{key}"), problems);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ReceiverKind, Secret};

    fn keys(receiver: ReceiverConfig) -> Vec<String> {
        let mut problems = Problems::default();
        check_receivers(&[receiver], &WatchdogConfig::default(), &mut problems);
        problems.0.into_iter().map(|problem| problem.key).collect()
    }

    fn receiver(url: &str) -> ReceiverConfig {
        ReceiverConfig {
            name: "r".into(),
            url: Some(Secret::new(url)),
            ..ReceiverConfig::default()
        }
    }

    #[test]
    fn templates_are_compiled() {
        let mut one = receiver("https://example.com/");
        assert_eq!(keys(one.clone()), Vec::<String>::new());
        one.kind = ReceiverKind::Template;
        one.title = Some("{{ a".into());
        one.text = Some("{{ a }}".into());
        one.body =
            Some(serde_json::json!({ "a": ["{% if %}", { "b": "{{ x | nofilter" }], "c": 1 }));
        assert_eq!(
            keys(one),
            [
                "receivers.0.title",
                "receivers.0.body.a.0",
                "receivers.0.body.a.1.b"
            ]
        );
    }

    #[test]
    fn addresses_as_numbers_are_judged() {
        for url in [
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://2852039166/",
            "https://10.1.1.1/",
        ] {
            assert_eq!(keys(receiver(url)), ["receivers.0.url"], "{url}");
        }
        let mut allowed = receiver("https://10.1.1.1/");
        allowed.allow_cidrs = vec!["10.0.0.0/8".into()];
        assert_eq!(keys(allowed), Vec::<String>::new());
    }

    #[test]
    fn certificates_are_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"nothing").unwrap();
        let mut one = receiver("https://example.com/");
        one.ca_file = Some(file.path().to_owned());
        assert_eq!(keys(one), ["receivers.0.ca_file"]);
    }
}
