//! A value that is used but never shown.

use std::fmt;
use std::path::PathBuf;

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

/// The ways one secret can be given: its value, a file or an environment variable.
#[derive(Debug, Clone, Copy)]
pub struct SecretSource<'a> {
    /// The key of the value; those of the others end in `_file` and `_env`.
    pub key: &'static str,
    value: Option<&'a Secret>,
    file: Option<&'a PathBuf>,
    variable: Option<&'a String>,
}

impl<'a> SecretSource<'a> {
    /// The three keys as they stand.
    pub const fn new(
        key: &'static str,
        value: Option<&'a Secret>,
        file: Option<&'a PathBuf>,
        variable: Option<&'a String>,
    ) -> Self {
        Self {
            key,
            value,
            file,
            variable,
        }
    }

    /// Whether any of them is set.
    pub fn is_set(&self) -> bool {
        self.count() > 0
    }

    /// How many of them are set.
    pub fn count(&self) -> usize {
        [
            self.value.is_some(),
            self.file.is_some(),
            self.variable.is_some(),
        ]
        .into_iter()
        .filter(|set| *set)
        .count()
    }

    /// The key that is set.
    pub fn set_key(&self) -> String {
        match (self.file, self.variable) {
            (Some(_), _) => format!("{}_file", self.key),
            (None, Some(_)) => format!("{}_env", self.key),
            (None, None) => self.key.to_owned(),
        }
    }

    /// The secret as it is now. A variable is read as raw text.
    ///
    /// # Errors
    /// A sentence naming file or variable, never the value.
    pub fn read(&self) -> Result<Option<Secret>, String> {
        match self.variable {
            Some(name) if self.file.is_none() => match std::env::var(name) {
                Ok(text) if !text.is_empty() => Ok(Some(Secret::new(text))),
                Ok(_) => Err(format!("the environment variable {name} is empty")),
                Err(_) => Err(format!("the environment variable {name} is not set")),
            },
            _ => value_or_file(&self.value.cloned(), &self.file.cloned()),
        }
    }
}

/// A secret given as a value or as a file that holds it (a trailing line break is cut).
///
/// # Errors
/// A sentence naming the file, where it cannot be read or is empty.
pub fn value_or_file(
    value: &Option<Secret>,
    file: &Option<PathBuf>,
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
