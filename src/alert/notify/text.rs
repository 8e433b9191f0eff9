//! Text for people out of text from anywhere: device names, values and topics are whatever a device
//! sent. Control characters and those that turn the reading direction go, length is bounded, and
//! nothing is cut in the middle of a character.

use std::time::Duration;

/// `text` on one line, without characters that a terminal or a page would act on, at most
/// `most` characters long.
pub fn line(text: &str, most: usize) -> String {
    cut(
        &text
            .chars()
            .filter_map(|c| keep(c, false))
            .collect::<String>(),
        most,
    )
}

/// The same with line breaks kept.
pub fn lines(text: &str, most: usize) -> String {
    cut(
        &text
            .chars()
            .filter_map(|c| keep(c, true))
            .collect::<String>(),
        most,
    )
}

fn keep(c: char, breaks: bool) -> Option<char> {
    match c {
        '\n' if breaks => Some('\n'),
        '\n' | '\t' => Some(' '),
        // Marks, embeddings, overrides and isolates; and what looks like nothing at all.
        '\u{200e}'
        | '\u{200f}'
        | '\u{061c}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => None,
        '\u{2028}' | '\u{2029}' => Some(' '),
        '\u{feff}' | '\u{200b}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => None,
        c if c.is_control() => None,
        c => Some(c),
    }
}

/// At most `most` characters, the last of them an ellipsis where something is missing.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => {
            let end = text
                .char_indices()
                .nth(most.saturating_sub(1))
                .map_or(0, |(at, _)| at);
            format!("{}…", text[..end].trim_end())
        }
    }
}

/// At most `most` bytes, likewise.
pub fn cut_bytes(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", text[..end].trim_end())
}

/// A number as people write it: no more than four decimals, no trailing zeros.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".into();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".into()
    } else {
        text.into()
    }
}

/// A span of time in its two largest units: `45s`, `12m`, `3h 5m`, `2d 1h`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm'), (1, 's')];
    let Some(first) = units.iter().position(|(size, _)| seconds >= *size) else {
        return "0s".into();
    };
    let (size, unit) = units[first];
    let mut text = format!("{}{unit}", seconds / size);
    if let Some((next, unit)) = units.get(first + 1) {
        let rest = seconds % size / next;
        if rest > 0 {
            text.push_str(&format!(" {rest}{unit}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_send_cannot_steer_a_page() {
        for (from, to) in [
            ("plain", "plain"),
            ("a\r\nb\tc", "a b c"),
            ("\u{1b}[31mred\u{7}", "[31mred"),
            ("abc\u{202e}fed", "abcfed"),
            ("\u{2066}x\u{2069}\u{200f}", "x"),
            ("née 温度 🌡", "née 温度 🌡"),
        ] {
            assert_eq!(line(from, 100), to, "{from:?}");
        }
        assert_eq!(lines("a\r\nb\u{0}", 100), "a\nb");
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(cut("温度計", 3), "温度計");
        assert_eq!(cut("温度計測", 3), "温度…");
        assert_eq!(cut_bytes("温度計測", 9), "温度…");
        assert_eq!(cut_bytes("温度計測", 8), "温…");
        assert_eq!(cut_bytes("abc", 3), "abc");
    }

    #[test]
    fn numbers_and_spans_read_well() {
        for (value, text) in [
            (11.0, "11"),
            (-0.0, "0"),
            (11.25, "11.25"),
            (1.0 / 3.0, "0.3333"),
            (1e300, "1e300"),
            (0.000_01, "1e-5"),
            (f64::NAN, "n/a"),
        ] {
            assert_eq!(number(value), text);
        }
        for (seconds, text) in [
            (0, "0s"),
            (45, "45s"),
            (61, "1m 1s"),
            (720, "12m"),
            (11_100, "3h 5m"),
            (3_600, "1h"),
            (176_400, "2d 1h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
