//! What commands print that is not theirs to choose, and who runs them.

/// Text from outside, made safe for one line of a terminal.
pub(super) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Who says so: as told, else the user.
pub(super) fn whoever(by: Option<String>) -> String {
    by.or_else(|| std::env::var("USER").ok())
        .filter(|name| !name.trim().is_empty())
        .unwrap_or_else(|| "operator".to_owned())
}
