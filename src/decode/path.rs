//! Paths into a payload: `a/b`, `a.b`, or a JSON pointer (`/wk.day`) where a key holds a dot or
//! slash. An array position is its number.
//!
//! Parsed at start; a lookup walks the tree and copies nothing.

use super::value::Value;

/// A parsed path; without segments it means the whole reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) segments: Vec<Box<str>>,
    text: Box<str>,
}

impl Path {
    /// Reads a path, or says what to write instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let segments = match text.strip_prefix('/') {
            _ if text.is_empty() => Vec::new(),
            Some(pointer) => pointer
                .split('/')
                .map(|segment| segment.replace("~1", "/").replace("~0", "~").into())
                .collect(),
            None => {
                if text.split(['/', '.']).any(str::is_empty) {
                    return Err(format!(
                        "path `{text}` has an empty part; write `a/b` or `a.b`, and a key that \
                         holds a dot or slash as a JSON pointer such as `/wk.day`"
                    ));
                }
                text.split(['/', '.']).map(Into::into).collect()
            }
        };
        Ok(Self {
            segments,
            text: text.into(),
        })
    }

    /// What the path leads to; a null is there.
    pub(super) fn find<'v, 'a>(&self, value: &'v Value<'a>) -> Option<&'v Value<'a>> {
        self.segments.iter().try_fold(value, |v, key| v.get(key))
    }

    /// The last key, which names a lone value.
    pub(super) fn last(&self) -> Option<&str> {
        self.segments.last().map(AsRef::as_ref)
    }

    /// As configured.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_three_spellings() {
        for (text, segments) in [
            ("", &[][..]),
            ("ts", &["ts"]),
            ("a/b", &["a", "b"]),
            ("a.b.0", &["a", "b", "0"]),
            ("/wk.day", &["wk.day"]),
            ("/a~1b/~01", &["a/b", "~1"]),
            ("/", &[""]),
        ] {
            let path = Path::parse(text).unwrap();
            let found: Vec<&str> = path.segments.iter().map(AsRef::as_ref).collect();
            assert_eq!(found, segments, "{text}");
        }
        for bad in ["a//b", "a/", ".a"] {
            assert!(
                Path::parse(bad).unwrap_err().contains("empty part"),
                "{bad}"
            );
        }
    }
}
