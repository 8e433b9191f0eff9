//! How outcomes are shown: a unified diff for people, JUnit XML for machines.

use std::fmt::Write;
use std::time::Duration;

/// A unified diff of two lists of lines, the second of which may fit an entry of the first in
/// other words; `None`: they agree.
pub(super) fn diff(
    expected: &[String],
    found: &[String],
    fits: impl Fn(usize, usize) -> bool,
) -> Option<String> {
    let (rows, columns) = (expected.len(), found.len());
    // Length of the longest common rest, from each pair of places on.
    let mut common = vec![vec![0_usize; columns + 1]; rows + 1];
    for e in (0..rows).rev() {
        for f in (0..columns).rev() {
            common[e][f] = if fits(e, f) {
                common[e + 1][f + 1] + 1
            } else {
                common[e + 1][f].max(common[e][f + 1])
            };
        }
    }
    if common[0][0] == rows && rows == columns {
        return None;
    }
    let mut text = String::new();
    let (mut e, mut f) = (0, 0);
    while e < rows || f < columns {
        // Writing to a string cannot fail.
        if e < rows && f < columns && fits(e, f) {
            let _ = writeln!(text, "  {}", found[f]);
            e += 1;
            f += 1;
        } else if f == columns || (e < rows && common[e + 1][f] >= common[e][f + 1]) {
            let _ = writeln!(text, "- {}", expected[e]);
            e += 1;
        } else {
            let _ = writeln!(text, "+ {}", found[f]);
            f += 1;
        }
    }
    text.truncate(text.trim_end().len());
    Some(text)
}

/// One story's outcome.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The file it is in.
    pub file: String,
    /// Its name.
    pub name: String,
    /// What did not hold; empty: all did.
    pub failures: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// All outcomes as JUnit XML.
pub(super) fn junit(outcomes: &[Outcome]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let failed = |outcomes: &[&Outcome]| outcomes.iter().filter(|o| !o.failures.is_empty()).count();
    let all: Vec<_> = outcomes.iter().collect();
    let _ = writeln!(
        text,
        "<testsuites tests=\"{}\" failures=\"{}\">",
        all.len(),
        failed(&all)
    );
    let mut files: Vec<&str> = outcomes.iter().map(|o| o.file.as_str()).collect();
    files.dedup();
    for file in files {
        let own: Vec<_> = outcomes.iter().filter(|o| o.file == file).collect();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\">",
            escaped(file),
            own.len(),
            failed(&own)
        );
        for outcome in own {
            let _ = write!(
                text,
                "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
                escaped(file),
                escaped(&outcome.name),
                outcome.took.as_secs_f64()
            );
            if outcome.failures.is_empty() {
                text.push_str("/>\n");
                continue;
            }
            text.push_str(">\n");
            for failure in &outcome.failures {
                let first = failure.lines().next().unwrap_or_default();
                let _ = writeln!(
                    text,
                    "      <failure message=\"{}\">{}</failure>",
                    escaped(first),
                    escaped(failure)
                );
            }
            text.push_str("    </testcase>\n");
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

/// Text as XML content or attribute; what XML cannot hold at all is left out.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => {}
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_agrees_has_no_diff() {
        let both = lines("a b c");
        assert_eq!(diff(&both, &both, |e, f| both[e] == both[f]), None);
        assert_eq!(diff(&[], &[], |_, _| false), None);
    }

    #[test]
    fn a_diff_shows_what_is_missing_and_what_is_too_much() {
        let (expected, found) = (lines("a b c d"), lines("a x c d y"));
        let diff = diff(&expected, &found, |e, f| expected[e] == found[f]).unwrap();
        assert_eq!(diff, "  a\n- b\n+ x\n  c\n  d\n+ y");
    }

    #[test]
    fn junit_is_escaped() {
        let outcome = Outcome {
            file: "a.toml".into(),
            name: "x < y & \"z\"".into(),
            failures: vec!["first\nsecond\u{1b}".into()],
            took: Duration::from_millis(5),
        };
        let xml = junit(&[outcome]);
        assert!(
            xml.contains("name=\"x &lt; y &amp; &quot;z&quot;\" time=\"0.005\""),
            "{xml}"
        );
        assert!(
            xml.contains("<failure message=\"first\">first\nsecond</failure>"),
            "{xml}"
        );
    }
}
