//! A value that is used but never shown.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Text that prints, logs and serialises as `***`; only [`Secret::expose`] gives it away.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// A secret given as a value or as a file that holds it (a trailing line break is cut).
///
/// # Errors
/// A sentence naming the file, where it cannot be read or is empty.
pub fn value_or_file(
    value: &Option<Secret>,
    file: &Option<std::path::PathBuf>,
) -> Result<Option<Secret>, String> {
    let Some(path) = file else {
        return Ok(value.clone());
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(format!("{} is empty", path.display()));
    }
    Ok(Some(Secret::new(text)))
}
