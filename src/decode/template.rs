//! Topic templates: how the levels of a topic name things.
//!
//! `plants/{tag.site}/{deviceId}/{type}`: `{x}` takes one level (text may stand around it),
//! `{x...}` the rest joined by slashes, `+` and `#` match without a name. Filters decide which
//! topics a stream claims; the text around a capture narrows that, so that `th-{id}` and
//! `pm-{id}` can be two streams. A topic that ends early leaves the later captures without value.

use crate::model::{Filter, Level as FilterLevel};

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    text: Box<str>,
    levels: Vec<Level>,
    captures: Vec<Capture>,
    narrows: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    Literal(Box<str>),
    One,
    /// A capture with text around it.
    Part {
        prefix: Box<str>,
        suffix: Box<str>,
    },
    Rest {
        named: bool,
    },
}

/// A named part of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Capture {
    pub(super) name: Box<str>,
    level: usize,
    rest: bool,
}

impl Template {
    /// Reads a template, or says everything that is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut captures: Vec<Capture> = Vec::new();
        let mut levels = Vec::new();
        if text.starts_with("$share/") {
            problems
                .push("leave `$share/<group>/` out of the template; it goes in `topics`".into());
        }
        let count = text.split('/').count();
        for (n, level) in text.split('/').enumerate() {
            match parse_level(level, n, n + 1 == count) {
                Ok((level, capture)) => {
                    levels.push(level);
                    captures.extend(capture);
                }
                Err(problem) => problems.push(problem),
            }
        }
        for (n, capture) in captures.iter().enumerate() {
            if captures[..n].iter().any(|c| c.name == capture.name) {
                problems.push(format!(
                    "`{{{}}}` stands twice; name each capture once",
                    capture.name
                ));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let narrows = levels.iter().any(|l| {
            matches!(l, Level::Part { prefix, suffix } if !(prefix.is_empty() && suffix.is_empty()))
        });
        Ok(Self {
            text: text.into(),
            levels,
            captures,
            narrows,
        })
    }

    /// The widest filter whose topics fit.
    pub(super) fn filter(&self) -> Filter {
        let levels = self.levels.iter().map(|level| match level {
            Level::Literal(text) => FilterLevel::Literal(text.clone()),
            Level::One | Level::Part { .. } => FilterLevel::One,
            Level::Rest { .. } => FilterLevel::Rest,
        });
        Filter {
            group: None,
            levels: levels.collect(),
        }
    }

    /// Whether all topics of a filter have the template's shape; if not, why.
    pub(super) fn check_shape(&self, filter: &Filter) -> Result<(), String> {
        let mut n = 0;
        let why = loop {
            match (self.levels.get(n), filter.levels.get(n)) {
                (None, None) => return Ok(()),
                (Some(Level::Rest { named: false }), _) => return Ok(()),
                (Some(Level::Rest { .. }), Some(_)) => return Ok(()),
                (Some(Level::Rest { .. }), None) => {
                    break "the filter has no level left for it to take";
                }
                (None, Some(_)) => break "the template has fewer levels",
                (Some(_), None) => break "the template has more levels",
                (Some(Level::Literal(_)), Some(FilterLevel::One | FilterLevel::Rest)) => {
                    break "the filter takes more topics than the template's fixed text";
                }
                (Some(Level::Literal(a)), Some(FilterLevel::Literal(b))) if a != b => {
                    break "fixed levels differ";
                }
                (Some(part @ Level::Part { .. }), Some(FilterLevel::Literal(b)))
                    if part.take(b).is_none() =>
                {
                    break "a fixed level lacks the text around a capture";
                }
                (Some(_), Some(FilterLevel::Rest)) => return self.check_open_end(n, filter),
                _ => n += 1,
            }
        };
        Err(self.shape_problem(filter, why))
    }

    /// The filter ends in `#` at level `n`, where the template goes on.
    fn check_open_end(&self, n: usize, filter: &Filter) -> Result<(), String> {
        let tail = &self.levels[n..];
        let fixed = tail.iter().any(|l| matches!(l, Level::Literal(_)));
        let open = matches!(tail.last(), Some(Level::Rest { .. }));
        match (fixed, open) {
            (false, true) => Ok(()),
            (true, _) => Err(self.shape_problem(
                filter,
                "the filter takes more topics than the template's fixed text",
            )),
            (false, false) => Err(self.shape_problem(
                filter,
                "the filter takes deeper topics; end the template in `/#` or `{name...}`",
            )),
        }
    }

    fn shape_problem(&self, filter: &Filter, why: &str) -> String {
        format!(
            "template `{}` does not have the shape of topic filter `{filter}`: {why}; the template \
             alone would subscribe to `{}`",
            self.text,
            self.filter()
        )
    }

    /// The captures, in the order of the template.
    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// The capture of that name.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        self.captures.iter().position(|c| &*c.name == name)
    }

    /// Whether the text around captures is there, for a topic that one of the filters matches.
    pub(super) fn fits(&self, topic: &str) -> bool {
        !self.narrows
            || self
                .levels
                .iter()
                .zip(topic.split('/'))
                .all(|(level, text)| level.take(text).is_some())
    }

    /// What a capture takes from a topic; `None` where the topic ends before it.
    pub(super) fn value<'t>(&self, capture: usize, topic: &'t str) -> Option<&'t str> {
        let Capture { level, rest, .. } = *self.captures.get(capture)?;
        if rest {
            return match level {
                0 => Some(topic),
                _ => topic
                    .match_indices('/')
                    .nth(level - 1)
                    .map(|(slash, _)| &topic[slash + 1..]),
            };
        }
        self.levels.get(level)?.take(topic.split('/').nth(level)?)
    }
}

impl Level {
    /// What stands for the capture in one level of a topic; all of it where there is none.
    fn take<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            // Most captures take the whole level; comparing with an empty text in the heap costs more
            // than all the rest of the lookup (its address is no memory).
            Level::Part { prefix, suffix } if prefix.is_empty() && suffix.is_empty() => Some(text),
            Level::Part { prefix, suffix } => text
                .strip_prefix(&**prefix)
                .and_then(|t| t.strip_suffix(&**suffix)),
            _ => Some(text),
        }
    }
}

fn parse_level(text: &str, n: usize, last: bool) -> Result<(Level, Option<Capture>), String> {
    match text {
        "+" => return Ok((Level::One, None)),
        "#" if last => return Ok((Level::Rest { named: false }, None)),
        "#" => return Err("`#` must be the last level of the template".into()),
        _ => {}
    }
    let Some((prefix, after)) = text.split_once('{') else {
        if text.contains(['}', '+', '#']) {
            return Err(format!(
                "level `{text}`: `}}`, `+` and `#` may not stand inside a level"
            ));
        }
        return Ok((Level::Literal(text.into()), None));
    };
    let Some((name, suffix)) = after.split_once('}') else {
        return Err(format!("level `{text}`: `{{` is not closed"));
    };
    if [prefix, suffix]
        .iter()
        .any(|t| t.contains(['{', '}', '+', '#']))
    {
        return Err(format!(
            "level `{text}`: one capture a level, with plain text around it"
        ));
    }
    let (name, rest) = match name.strip_suffix("...") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let known = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if name.is_empty() || name == "tag." || !known {
        return Err(format!(
            "`{{{name}}}` is no name; use deviceId, type, field, tag.NAME, properties, or a name \
             of letters, digits, `_`, `-` that an expression refers to"
        ));
    }
    if rest && !(last && prefix.is_empty() && suffix.is_empty()) {
        return Err(format!(
            "`{{{name}...}}` must be the whole last level of the template"
        ));
    }
    let capture = Capture {
        name: name.into(),
        level: n,
        rest,
    };
    let level = match rest {
        true => Level::Rest { named: true },
        false => Level::Part {
            prefix: prefix.into(),
            suffix: suffix.into(),
        },
    };
    Ok((level, Some(capture)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_levels_parts_and_the_rest() {
        let template = Template::parse("a/{x}/th-{id}.v1/+/{rest...}").unwrap();
        assert_eq!(template.filter().to_string(), "a/+/+/+/#");
        let topic = "a//th-7.v1/z/r/s";
        assert!(template.fits(topic) && !template.fits("a/b/pm-7.v1/z/r"));
        let values: Vec<_> = (0..4).map(|n| template.value(n, topic)).collect();
        assert_eq!(values, [Some(""), Some("7"), Some("r/s"), None]);
        assert_eq!(template.value(2, "a/b/th-7.v1/z"), None);
        assert_eq!(template.index_of("rest"), Some(2));
        let whole = Template::parse("{all...}").unwrap();
        assert_eq!(whole.value(0, "/x/y"), Some("/x/y"));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("a/{x", "not closed"),
            ("a/{}", "no name"),
            ("a/{tag.}", "no name"),
            ("a/{x y}", "no name"),
            ("{x}/{x}", "twice"),
            ("{x...}/a", "last level"),
            ("#/a", "last level"),
            ("a/b+", "inside a level"),
            ("{a}{b}", "one capture"),
            ("$share/g/{x}", "leave `$share"),
        ] {
            let problems = Template::parse(text).unwrap_err();
            assert!(problems[0].contains(part), "{text}: {problems:?}");
        }
    }

    #[test]
    fn shapes() {
        for (template, filter, fits) in [
            ("a/{x}", "a/+", true),
            ("a/{x}", "a/b", true),
            ("a/{x}", "a/#", false),
            ("a/{x}/#", "a/#", true),
            ("a/{x}/{y}/#", "a/#", true),
            ("a/{x...}", "a/#", true),
            ("a/{x...}", "a", false),
            ("a/#", "a", true),
            ("a/{x}/c", "a/#", false),
            ("a/b", "a/+", false),
            ("a/th-{x}", "a/th-1", true),
            ("a/th-{x}", "a/pm-1", false),
            ("a/{x}", "a/+/c", false),
            ("a/{x}/c", "a/+", false),
            ("{x...}", "$share/g/#", true),
        ] {
            let result = Template::parse(template)
                .unwrap()
                .check_shape(&Filter::parse(filter).unwrap());
            assert_eq!(result.is_ok(), fits, "{template} {filter} {result:?}");
        }
    }
}
