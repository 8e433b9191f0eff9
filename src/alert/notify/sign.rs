//! Standard Webhooks: what a request is signed with, and how a receiver checks it.
//!
//! Signed are id, time of the attempt and the exact bytes of the body, by HMAC-SHA256. While a
//! secret is being changed, requests carry a signature by each.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::Timestamp;

/// How far a request's time may be from the receiver's.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Header names.
pub mod headers {
    /// The message; the same in every attempt.
    pub const ID: &str = "webhook-id";
    /// Seconds since 1970 of this attempt.
    pub const TIMESTAMP: &str = "webhook-timestamp";
    /// `v1,<base64>`, one or more, with spaces between.
    pub const SIGNATURE: &str = "webhook-signature";
}

/// Why a request is not what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The secret is not one.
    #[error("the secret is not whsec_ and base64")]
    Secret,
    /// The time is not a number of seconds.
    #[error("webhook-timestamp is not a number of seconds")]
    Timestamp,
    /// Too old: it may be a repeat by somebody else.
    #[error("webhook-timestamp is more than 5 minutes ago")]
    TooOld,
    /// From the future.
    #[error("webhook-timestamp is more than 5 minutes ahead")]
    TooNew,
    /// No signature fits.
    #[error("no signature fits: another secret, or the body was changed")]
    Signature,
}

/// A signing secret.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl Key {
    /// From `whsec_<base64>`; the prefix may be left out.
    ///
    /// # Errors
    /// Where it is not base64.
    pub fn parse(secret: &str) -> Result<Self, Rejected> {
        let secret = secret.trim();
        let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
        let bytes = STANDARD.decode(encoded).map_err(|_| Rejected::Secret)?;
        if bytes.is_empty() {
            return Err(Rejected::Secret);
        }
        Ok(Self(bytes))
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

/// The value of `webhook-signature`: one signature for each key.
pub fn sign(keys: &[Key], id: &str, seconds: i64, body: &[u8]) -> String {
    let timestamp = seconds.to_string();
    let signatures: Vec<String> = keys
        .iter()
        .map(|key| {
            let code = key.mac(id, &timestamp, body).finalize().into_bytes();
            format!("v1,{}", STANDARD.encode(code))
        })
        .collect();
    signatures.join(" ")
}

/// Whether a request is from somebody who knows one of `keys`, and recent.
///
/// # Errors
/// Why not.
pub fn verify(
    keys: &[Key],
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<(), Rejected> {
    let seconds: i64 = timestamp.parse().map_err(|_| Rejected::Timestamp)?;
    let sent = Timestamp::from_millis(seconds.saturating_mul(1_000));
    if now.since(sent) > TOLERANCE {
        return Err(Rejected::TooOld);
    }
    if sent.since(now) > TOLERANCE {
        return Err(Rejected::TooNew);
    }
    for signature in signatures.split_ascii_whitespace() {
        let Some(encoded) = signature.strip_prefix("v1,") else {
            continue;
        };
        let Ok(code) = STANDARD.decode(encoded) else {
            continue;
        };
        // `verify_slice` takes the same time whatever differs.
        let fits = |key: &Key| key.mac(id, timestamp, body).verify_slice(&code).is_ok();
        if keys.iter().any(fits) {
            return Ok(());
        }
    }
    Err(Rejected::Signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The vector that the specification's reference libraries test themselves with.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SECONDS: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn keys(secrets: &[&str]) -> Vec<Key> {
        secrets
            .iter()
            .map(|secret| Key::parse(secret).unwrap())
            .collect()
    }

    fn check(secrets: &[&str], signature: &str, body: &[u8], late: i64) -> Result<(), Rejected> {
        let now = Timestamp::from_millis((SECONDS + late) * 1_000);
        verify(
            &keys(secrets),
            ID,
            &SECONDS.to_string(),
            signature,
            body,
            now,
        )
    }

    #[test]
    fn the_published_vector() {
        assert_eq!(sign(&keys(&[SECRET]), ID, SECONDS, BODY), SIGNATURE);
        assert_eq!(check(&[SECRET], SIGNATURE, BODY, 0), Ok(()));
        assert_eq!(check(&[&SECRET[6..]], SIGNATURE, BODY, 0), Ok(()));
    }

    #[test]
    fn both_secrets_of_a_change_are_good() {
        let new = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
        let both = sign(&keys(&[new, SECRET]), ID, SECONDS, BODY);
        assert!(both.ends_with(SIGNATURE) && both.split(' ').count() == 2);
        for secrets in [&[new][..], &[SECRET], &[SECRET, new]] {
            assert_eq!(check(secrets, &both, BODY, 0), Ok(()));
        }
    }

    #[test]
    fn whatever_is_changed_is_refused() {
        let signature = Err(Rejected::Signature);
        for (secrets, sent, body, late, expected) in [
            (&[SECRET][..], SIGNATURE, &b"{}"[..], 0, signature),
            (&["whsec_AAEC"], SIGNATURE, BODY, 0, signature),
            (&[SECRET], "", BODY, 0, signature),
            (
                &[SECRET],
                "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
                BODY,
                0,
                signature,
            ),
            (&[SECRET], "v1,AAAA v1,!!", BODY, 0, signature),
            (&[SECRET], SIGNATURE, BODY, 300, Ok(())),
            (&[SECRET], SIGNATURE, BODY, 301, Err(Rejected::TooOld)),
            (&[SECRET], SIGNATURE, BODY, -300, Ok(())),
            (&[SECRET], SIGNATURE, BODY, -301, Err(Rejected::TooNew)),
        ] {
            assert_eq!(check(secrets, sent, body, late), expected, "{sent} {late}");
        }
        let key = keys(&[SECRET]);
        let now = Timestamp::from_millis(SECONDS * 1_000);
        assert_eq!(
            verify(&key, ID, "soon", SIGNATURE, BODY, now),
            Err(Rejected::Timestamp)
        );
        assert_eq!(
            verify(
                &key,
                "msg_other",
                &SECONDS.to_string(),
                SIGNATURE,
                BODY,
                now
            ),
            signature
        );
        assert_eq!(Key::parse("whsec_%%").err(), Some(Rejected::Secret));
        assert_eq!(Key::parse("whsec_").err(), Some(Rejected::Secret));
    }
}
