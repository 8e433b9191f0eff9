//! Payload bytes to text.
//!
//! UTF-8 or a refusal with the offset, never a replacement character; without the byte order mark
//! some senders put first and the NULs some leave at the end.

use super::refusal::Refusal;
use crate::model::Reason;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Text of a payload and where it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) origin: usize,
}

/// Reads a payload as text. Nothing but white space and NULs gives empty text.
pub(super) fn read(payload: &[u8]) -> Result<Text<'_>, Refusal> {
    let text = std::str::from_utf8(payload).map_err(|error| {
        let offset = error.valid_up_to();
        let hint = hint(payload).map(|h| format!("; {h}")).unwrap_or_default();
        let byte = payload.get(offset).copied().unwrap_or_default();
        Refusal::new(
            Reason::NotUtf8,
            format!("byte 0x{byte:02x} at offset {offset} is not UTF-8{hint}"),
        )
    })?;
    let (text, origin) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (rest, BYTE_ORDER_MARK.len()),
        None => (text, 0),
    };
    let text = text.trim_end_matches('\0');
    let empty = text
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .is_empty();
    Ok(Text {
        text: if empty { "" } else { text },
        origin,
    })
}

/// What the bytes look like, if they start like something known.
fn hint(payload: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 8] = [
        (
            b"\x1f\x8b",
            "it looks like gzip: set `compression = \"gzip\"`",
        ),
        (
            b"\x78\x01",
            "it looks like zlib, which is not supported: send gzip",
        ),
        (
            b"\x78\x9c",
            "it looks like zlib, which is not supported: send gzip",
        ),
        (
            b"\x78\xda",
            "it looks like zlib, which is not supported: send gzip",
        ),
        (b"\xff\xfe", "it looks like UTF-16: send UTF-8"),
        (b"\xfe\xff", "it looks like UTF-16: send UTF-8"),
        (b"\xff\xd8\xff", "it looks like a JPEG image"),
        (b"\x89PNG", "it looks like a PNG image"),
    ];
    MAGIC
        .iter()
        .find(|(magic, _)| payload.starts_with(magic))
        .map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_nuls_are_skipped() {
        for (payload, text, origin) in [
            (&b"\xef\xbb\xbf{}"[..], "{}", 3),
            (b"12\0\0", "12", 0),
            (b" 12\n", " 12\n", 0),
            (b"", "", 0),
            (b" \r\n", "", 0),
            (b"\0\0", "", 0),
            (b"\xef\xbb\xbf \0", "", 3),
        ] {
            assert_eq!(read(payload), Ok(Text { text, origin }), "{payload:?}");
        }
    }

    #[test]
    fn other_bytes_are_named() {
        for (payload, part) in [
            (&b"ab\xd1\x01"[..], "offset 2"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"\xff\xfe{\0", "UTF-16"),
            (b"\x89PNG", "PNG"),
            (b"\x78\x9c\xff", "zlib"),
        ] {
            let refusal = read(payload).unwrap_err();
            assert_eq!(refusal.reason, Reason::NotUtf8);
            assert!(refusal.detail.contains(part), "{}", refusal.detail);
        }
    }
}
