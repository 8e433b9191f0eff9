//! Names that stay the same: keys of incidents and ids of rows.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

/// The longest key that every receiver takes.
const KEY_BYTES: usize = 200;

/// The key of an alert's incident: `<environment>:<key>`.
pub(super) fn alert_key(environment: &str, key: &str) -> String {
    bounded(environment, key)
}

/// The key of a group's incident, from the labels that make it.
pub(super) fn group_key(
    environment: &str,
    receiver: &str,
    labels: &BTreeMap<String, String>,
) -> String {
    let mut text = String::new();
    for (label, value) in labels {
        // Lengths keep apart what separators would not.
        let _ = write!(text, "{}:{label}{}:{value}", label.len(), value.len());
    }
    let rest = format!("{receiver}:{}", hash128(&text));
    bounded(&format!("group:{environment}"), &rest)
}

/// The key of a storm's incident; no rule: of all rules.
pub(super) fn storm_key(environment: &str, receiver: &str, rule: Option<&str>) -> String {
    let prefix = format!("storm:{environment}");
    match rule {
        // Where it would not be clear which is which.
        _ if receiver.contains(':') => {
            let rest = format!("{}:{receiver}{rule:?}", receiver.len());
            format!("{prefix}:h:{}", hash128(&rest))
        }
        Some(rule) => bounded(&prefix, &format!("{receiver}:{rule}")),
        None => bounded(&prefix, receiver),
    }
}

/// The id of a row.
pub(super) fn row_id(receiver: &str, key: &str, sequence: u64) -> String {
    hash128(&format!(
        "{}:{receiver}{}:{key}{sequence}",
        receiver.len(),
        key.len()
    ))
}

/// `<prefix>:<rest>`, hashed where it is too long or not plain.
fn bounded(prefix: &str, rest: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    let key = format!("{prefix}:{rest}");
    if key.len() <= KEY_BYTES && key.chars().all(plain) {
        return key;
    }
    format!("{prefix}:h:{}", hash128(rest))
}

/// 32 hex digits.
fn hash128(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let mut hex = String::with_capacity(32);
    for byte in &digest[..16] {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// A number for jitter.
pub(super) fn hash64(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_plain_short_and_apart() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            pairs.collect::<BTreeMap<String, String>>()
        };
        let group = |pairs: &[(&str, &str)]| group_key("prod", "ops", &labels(pairs));
        let keys = [
            alert_key("prod", "cold:dev-1"),
            alert_key("prod", "Kühlraum:1"),
            alert_key("prod", &"x".repeat(300)),
            group(&[("a", "b"), ("c", "d")]),
            group(&[("a", "bc"), ("", "d")]),
            group(&[("a", "d"), ("c", "b")]),
            group_key("prod", "night shift", &labels(&[])),
            storm_key("prod", "ops", Some("cold")),
            storm_key("prod", "ops", None),
            storm_key("prod", "ops:cold", None),
            storm_key("prod", "ops:cold", Some("")),
        ];
        assert_eq!(keys[0], "prod:cold:dev-1");
        assert_eq!(keys[7], "storm:prod:ops:cold");
        for (index, key) in keys.iter().enumerate() {
            assert!(key.len() <= 200, "{key}");
            assert!(
                key.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_.:-".contains(c))
            );
            assert!(!keys[..index].contains(key), "{key} twice");
        }
        assert_eq!(row_id("a", "k", 1).len(), 32);
        assert_ne!(row_id("a", "bk", 1), row_id("ab", "k", 1));
    }
}
