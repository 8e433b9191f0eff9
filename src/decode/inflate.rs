//! Decompression with a bound on the result.
//!
//! A small message may inflate to anything, so reading stops at the stream's payload limit and
//! never allocates far beyond it.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;

use super::refusal::Refusal;
use crate::model::Reason;

/// Inflates gzip of one or more members, up to `limit` bytes.
pub(super) fn gunzip(payload: &[u8], limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let result = MultiGzDecoder::new(payload)
        .take(bound)
        .read_to_end(&mut out);
    if out.len() > limit {
        return Err(Refusal::new(
            Reason::TooLarge,
            format!(
                "{} bytes inflate to more than the limit of {limit} bytes (`limits.payload`)",
                payload.len()
            ),
        ));
    }
    match result {
        Ok(_) => Ok(out),
        Err(error) if payload.starts_with(&[0x1f, 0x8b]) => Err(Refusal::new(
            Reason::DecompressFailed,
            format!(
                "gzip data is broken after {} inflated bytes: {error}",
                out.len()
            ),
        )),
        Err(_) => Err(Refusal::new(
            Reason::DecompressFailed,
            "the payload does not start like gzip (1f 8b); if it is not compressed, set \
             `compression = \"none\"`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn inflates_up_to_the_limit() {
        let data = vec![b'x'; 1_000];
        assert_eq!(gunzip(&gzip(&data), 1_000).unwrap(), data);
        assert_eq!(
            gunzip(&gzip(&data), 999).unwrap_err().reason,
            Reason::TooLarge
        );
        let twice = [gzip(b"a"), gzip(b"b")].concat();
        assert_eq!(gunzip(&twice, 10).unwrap(), b"ab");
    }

    #[test]
    fn broken_or_plain_data_is_refused() {
        let whole = gzip(&[b'x'; 1_000]);
        for bad in [&whole[..whole.len() - 3], b"{\"v\":1}", b"\x1f\x8b"] {
            let refusal = gunzip(bad, 10_000).unwrap_err();
            assert_eq!(refusal.reason, Reason::DecompressFailed);
        }
    }
}
