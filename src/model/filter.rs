//! Topic filters: what they match, and how two of them relate.
//!
//! A filter that starts with a wildcard never matches a topic that starts with `$`. The prefix
//! `$share/<group>/` belongs to the subscription, not to the topic, and is kept aside.

use std::fmt;

/// A valid topic filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub group: Option<Box<str>>,
    pub levels: Vec<Level>,
}

/// One level of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    Literal(Box<str>),
    /// `+`
    One,
    /// `#`: this level and all below, and none.
    Rest,
}

impl Filter {
    /// Reads a filter, or says what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (group, filter) = match text.strip_prefix("$share/") {
            None => (None, text),
            Some(shared) => match shared.split_once('/') {
                Some((group, rest)) if !group.is_empty() && !group.contains(['+', '#']) => {
                    (Some(group.into()), rest)
                }
                _ => {
                    return Err(format!(
                        "shared filter `{text}` must read `$share/<group>/<filter>`"
                    ));
                }
            },
        };
        if filter.is_empty() {
            return Err("a topic filter may not be empty; `#` takes all topics".into());
        }
        if filter.contains('\0') || filter.len() > 65_535 {
            return Err("a topic filter may not hold a NUL or exceed 65,535 bytes".into());
        }
        let count = filter.split('/').count();
        let levels = filter
            .split('/')
            .enumerate()
            .map(|(n, level)| match level {
                "+" => Ok(Level::One),
                "#" if n + 1 == count => Ok(Level::Rest),
                "#" => Err(format!("`#` must be the last level of `{filter}`")),
                _ if level.contains(['+', '#']) => Err(format!(
                    "level `{level}` of `{filter}`: `+` and `#` must stand alone in their level"
                )),
                _ => Ok(Level::Literal(level.into())),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { group, levels })
    }

    /// Whether a topic matches.
    pub fn matches(&self, topic: &str) -> bool {
        if topic.starts_with('$') && self.starts_wild() {
            return false;
        }
        let mut rest = topic.split('/');
        for level in &self.levels {
            let fits = match level {
                Level::Rest => return true,
                Level::One => rest.next().is_some(),
                Level::Literal(text) => rest.next() == Some(text),
            };
            if !fits {
                return false;
            }
        }
        rest.next().is_none()
    }

    /// Whether every topic that `other` matches also matches here.
    pub fn covers(&self, other: &Filter) -> bool {
        if self.starts_wild() && other.starts_dollar() {
            return false;
        }
        for (n, mine) in self.levels.iter().enumerate() {
            let covered = match (mine, other.levels.get(n)) {
                (Level::Rest, _) => return true,
                (_, None | Some(Level::Rest)) => false,
                (Level::One, Some(_)) => true,
                (Level::Literal(_), theirs) => Some(mine) == theirs,
            };
            if !covered {
                return false;
            }
        }
        self.levels.len() == other.levels.len()
    }

    /// Whether some topic matches both.
    pub fn overlaps(&self, other: &Filter) -> bool {
        if (self.starts_wild() && other.starts_dollar())
            || (other.starts_wild() && self.starts_dollar())
        {
            return false;
        }
        let mut n = 0;
        loop {
            match (self.levels.get(n), other.levels.get(n)) {
                (None, None) | (Some(Level::Rest), _) | (_, Some(Level::Rest)) => return true,
                (None, _) | (_, None) => return false,
                (Some(Level::Literal(a)), Some(Level::Literal(b))) if a != b => return false,
                _ => n += 1,
            }
        }
    }

    /// A filter wide enough for both: their common beginning, then `#`.
    pub fn join(&self, other: &Filter) -> Filter {
        let common = self.levels.iter().zip(&other.levels);
        let mut levels: Vec<Level> = common
            .take_while(|(a, b)| a == b && **a != Level::Rest)
            .map(|(a, _)| a.clone())
            .collect();
        levels.push(Level::Rest);
        Filter {
            group: self.group.clone(),
            levels,
        }
    }

    fn starts_wild(&self) -> bool {
        !matches!(self.levels.first(), Some(Level::Literal(_)))
    }

    fn starts_dollar(&self) -> bool {
        matches!(self.levels.first(), Some(Level::Literal(text)) if text.starts_with('$'))
    }
}

impl fmt::Display for Filter {
    /// As subscribed, with the group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(group) = &self.group {
            write!(f, "$share/{group}/")?;
        }
        for (n, level) in self.levels.iter().enumerate() {
            if n > 0 {
                f.write_str("/")?;
            }
            f.write_str(match level {
                Level::Literal(text) => text,
                Level::One => "+",
                Level::Rest => "#",
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Filter {
        Filter::parse(text).unwrap()
    }

    #[test]
    fn matches_as_the_protocol_says() {
        for (text, topic, expected) in [
            ("a/+/c", "a/b/c", true),
            ("a/+/c", "a//c", true),
            ("a/+", "a", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("#", "a", true),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("/a", "/a", true),
            ("+/a", "/a", true),
            ("a", "a/", false),
            ("$share/g/s/+", "s/1", true),
        ] {
            assert_eq!(filter(text).matches(topic), expected, "{text} {topic}");
        }
    }

    #[test]
    fn refuses_what_a_broker_would() {
        for bad in [
            "",
            "a/#/b",
            "a/b+",
            "#a",
            "$share/g",
            "$share//a",
            "$share/+/a",
            "$share/g/",
        ] {
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(filter("$share/g/a/+/#").to_string(), "$share/g/a/+/#");
    }

    #[test]
    fn covering_and_overlap() {
        for (a, b, covers, overlaps) in [
            ("#", "a/b", true, true),
            ("#", "$SYS/a", false, false),
            ("a/#", "a", true, true),
            ("a/+", "a/#", false, true),
            ("a/+", "a/b", true, true),
            ("a/+/c", "a/b/+", false, true),
            ("a/+/c", "a/b/d", false, false),
            ("a", "a/#", false, true),
            ("+/+", "a/+", true, true),
            ("a/b", "a/b", true, true),
            ("a/b/c", "a/b", false, false),
        ] {
            assert_eq!(filter(a).covers(&filter(b)), covers, "{a} covers {b}");
            assert_eq!(filter(a).overlaps(&filter(b)), overlaps, "{a} overlaps {b}");
            assert_eq!(filter(b).overlaps(&filter(a)), overlaps, "{b} overlaps {a}");
        }
        assert_eq!(filter("a/+/c").join(&filter("a/b/+")).to_string(), "a/#");
    }
}
