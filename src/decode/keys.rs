//! Device keys to field names that BSON takes: an escape that can be undone, since two inputs must
//! never land on one name.
//!
//! `%` becomes `%25`, `.` becomes `%2E`, a leading `$` becomes `%24`, an empty key a lone `%`. A
//! field named like a key of the document itself gets a `%` in front.

use std::borrow::Cow;
use std::collections::HashMap;

/// Keys of a stored reading that are ours.
const RESERVED: [&str; 5] = ["_id", "timestamp", "metadata", "_flags", "_claimed"];

/// One key, escaped; nearly all need nothing.
pub(super) fn escape(key: &str) -> Cow<'_, str> {
    let bytes = key.as_bytes();
    if !bytes.is_empty() && bytes[0] != b'$' && !bytes.iter().any(|b| matches!(b, b'%' | b'.')) {
        return Cow::Borrowed(key);
    }
    if key.is_empty() {
        return Cow::Borrowed("%");
    }
    let (mut out, rest) = match key.strip_prefix('$') {
        Some(rest) => (String::from("%24"), rest),
        None => (String::new(), key),
    };
    for c in rest.chars() {
        match c {
            '%' => out.push_str("%25"),
            '.' => out.push_str("%2E"),
            _ => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether the name is one of the document's own keys.
pub(super) fn is_reserved(name: &str) -> bool {
    matches!(name.as_bytes().first(), Some(b'_' | b't' | b'm')) && RESERVED.contains(&name)
}

/// The name at the top of the document.
pub(super) fn at_top(name: String) -> String {
    match is_reserved(&name) {
        true => format!("%{name}"),
        false => name,
    }
}

/// The positions of two items of one name. For few items a 64-bit sketch of the names seen settles
/// nearly all without comparing any two.
pub(super) fn repeated<T>(items: &[T], name: impl Fn(&T) -> &str) -> Option<(usize, usize)> {
    const FEW: usize = 16;
    if items.len() > FEW {
        let mut seen = HashMap::with_capacity(items.len());
        let mut numbered = items.iter().enumerate();
        return numbered.find_map(|(n, item)| Some((seen.insert(name(item), n)?, n)));
    }
    let mut sketch = 0_u64;
    for (n, item) in items.iter().enumerate() {
        let bytes = name(item).as_bytes();
        let first = bytes.first().copied().map_or(0, usize::from);
        let last = bytes.last().copied().map_or(0, usize::from);
        let bit = 1 << ((first * 7 + last * 13 + bytes.len() * 31) % 64);
        if sketch & bit != 0
            && let Some(same) = items[..n].iter().position(|i| name(i) == name(item))
        {
            return Some((same, n));
        }
        sketch |= bit;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_can_be_undone() {
        for (key, escaped) in [
            ("temp", "temp"),
            ("wk.day", "wk%2Eday"),
            ("$set", "%24set"),
            ("a$b", "a$b"),
            ("100%", "100%25"),
            ("%2E", "%252E"),
            ("", "%"),
            ("%", "%25"),
            ("ü.ß", "ü%2Eß"),
            ("switch:0", "switch:0"),
        ] {
            assert_eq!(escape(key), escaped, "{key}");
        }
        assert_eq!(at_top("_id".into()), "%_id");
        assert_eq!(at_top("time".into()), "time");
    }

    #[test]
    fn repeated_names_are_found_among_few_and_many() {
        for n in [2, 16, 17, 100] {
            let mut names: Vec<String> = (0..n).map(|n| format!("k{n}")).collect();
            assert_eq!(repeated(&names, |name| name), None);
            names[n - 1] = "k0".into();
            assert_eq!(repeated(&names, |name| name), Some((0, n - 1)));
        }
    }
}
