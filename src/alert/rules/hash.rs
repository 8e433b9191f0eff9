//! Hashes that are the same in every process and on every machine, since what they name is
//! stored: a reading within an instant, an alert's key, an episode, a device's bucket.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::model::{DeviceId, FieldValue};

/// Buckets that devices are divided into where many small marks share a document.
pub const BUCKETS: usize = 256;

/// Longest key in plain form, in bytes.
const MAX_KEY: usize = 200;

const SEED: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(SEED, step)
}

/// Mixes a word in; eight bytes at a time, since every reading of the feed comes through here.
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn words(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    let mut tail = [0; 8];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(hash ^ bytes.len() as u64, u64::from_le_bytes(tail))
}

/// Tells readings of one device and instant apart by what they say. The order of the fields does
/// not matter: it is not the same where a reading comes back from a series.
pub fn of_fields(fields: &[(String, FieldValue)]) -> i64 {
    let each = fields
        .iter()
        .map(|(name, value)| of_value(words(SEED, name.as_bytes()), value));
    each.fold(0, u64::wrapping_add).cast_signed()
}

fn of_value(hash: u64, value: &FieldValue) -> u64 {
    match value {
        FieldValue::Double(number) => mix(hash, (number + 0.0).to_bits()),
        // A whole number is the same one as a double, where a double can hold it.
        FieldValue::Int64(number) => match *number as f64 {
            double if double as i64 == *number => mix(hash, (double + 0.0).to_bits()),
            _ => mix(mix(hash, 1), number.cast_unsigned()),
        },
        FieldValue::Bool(truth) => mix(mix(hash, 2), u64::from(*truth)),
        FieldValue::Text(text) => words(mix(hash, 3), text.as_bytes()),
        FieldValue::Null => mix(hash, 4),
        FieldValue::Array(items) => items.iter().fold(mix(hash, 5), of_value),
        FieldValue::Object(entries) => entries.iter().fold(mix(hash, 6), |hash, (name, value)| {
            of_value(words(hash, name.as_bytes()), value)
        }),
    }
}

/// The device's bucket, below [`BUCKETS`].
pub fn bucket(device: &DeviceId) -> u8 {
    // The low bits of FNV alone are weak where ids differ in their last digit only.
    let hash = fnv(device.as_str().as_bytes());
    (hash ^ (hash >> 32) ^ (hash >> 16)) as u8
}

/// An alert's key: `<rule>:<device>`, or `h:` and a hash where that would not pass everywhere.
pub fn key(rule: &str, device: &DeviceId) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    let device = device.as_str();
    if rule.len() + 1 + device.len() <= MAX_KEY && device.chars().all(plain) {
        return format!("{rule}:{device}");
    }
    format!("h:{}", digest(&[rule, device]))
}

/// An episode's id: the same whenever the same cause is found for the same alert.
pub fn episode(key: &str, cause: &str) -> String {
    digest(&[key, cause])
}

/// Whether two configurations differ in some part.
pub fn print(text: &str) -> i64 {
    words(SEED, text.as_bytes()).cast_signed()
}

/// 32 hex digits.
fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut text = String::with_capacity(32);
    for byte in hasher.finalize().iter().take(16) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str) -> DeviceId {
        DeviceId::new(id).unwrap()
    }

    #[test]
    fn hashes_never_change() {
        // Stored: a change of these numbers is a change of format.
        let fields = vec![
            ("t".to_owned(), FieldValue::Double(21.5)),
            ("door".to_owned(), FieldValue::Text("open".into())),
        ];
        assert_eq!(
            (
                of_fields(&fields),
                bucket(&device("pump-17")),
                episode("r:d", "c").as_str(),
                key("r", &device("a b")).as_str(),
            ),
            (
                -160_146_077_238_373_648,
                117,
                "f8e7ba62152d7bdde1c7ff302947f9ad",
                "h:c0dd723d7991a361c2aa1e3931d5b19e"
            )
        );
    }

    #[test]
    fn a_reading_is_the_same_in_any_order_and_number_type() {
        let a = ("a".to_owned(), FieldValue::Double(3.0));
        let b = ("b".to_owned(), FieldValue::Double(-0.0));
        let a_int = ("a".to_owned(), FieldValue::Int64(3));
        let b_zero = ("b".to_owned(), FieldValue::Double(0.0));
        let one = of_fields(&[a.clone(), b.clone()]);
        assert_eq!(one, of_fields(&[b_zero, a_int]));
        assert_ne!(one, of_fields(&[a]));
    }

    #[test]
    fn keys_are_plain_where_they_can_be() {
        assert_eq!(key("cold", &device("cr-1")), "cold:cr-1");
        for odd in ["a b", "ü", "a/b", &"x".repeat(200)] {
            let key = key("cold", &device(odd));
            assert!(key.starts_with("h:") && key.len() == 34, "{key}");
        }
    }

    #[test]
    fn buckets_are_even() {
        let mut seen = [0_u32; BUCKETS];
        for n in 0..25_600 {
            seen[usize::from(bucket(&device(&format!("device-{n:05}"))))] += 1;
        }
        assert!(seen.iter().all(|n| (50..200).contains(n)), "{seen:?}");
    }
}
