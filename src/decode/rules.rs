//! Which fields a stream takes and what it calls them, compiled for one walk over a reading.
//!
//! A rule is found by the payload path of a node (a tree, stepped down key by key) or by the name
//! the node would be stored under (a map, empty for most streams, so that nothing is looked up).

use std::collections::{BTreeMap, HashMap};

use super::path::Path;
use crate::config::streams::{Nested, Numbers, StreamConfig};

/// All that turns a tree into fields.
#[derive(Debug, Clone)]
pub(super) struct FieldRules {
    pub(super) paths: Node,
    pub(super) names: HashMap<Box<str>, Rule>,
    /// No `include`: everything is taken.
    pub(super) all: bool,
    pub(super) nested: Nested,
    pub(super) numbers: Numbers,
    pub(super) booleans: BTreeMap<String, bool>,
    pub(super) missing: Vec<String>,
    pub(super) coerce: bool,
    pub(super) max_fields: usize,
    pub(super) max_key: usize,
}

/// What is said about a node and all below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Rule {
    pub(super) drop: bool,
    pub(super) include: bool,
    pub(super) rename: Option<Box<str>>,
}

/// A step in the tree of paths.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) rule: Rule,
    children: Vec<(Box<str>, Node)>,
}

impl Node {
    /// The node below, if any rule is there.
    pub(super) fn child(&self, key: &str) -> Option<&Node> {
        self.children
            .iter()
            .find(|(k, _)| &**k == key)
            .map(|(_, n)| n)
    }

    /// The node a path leads to.
    pub(super) fn descend(&self, path: &Path) -> Option<&Node> {
        path.segments
            .iter()
            .try_fold(self, |node, key| node.child(key))
    }

    /// The rule of a path, made if it is not there.
    pub(super) fn rule_mut(&mut self, path: &Path) -> &mut Rule {
        let mut node = self;
        for key in &path.segments {
            let at = match node.children.iter().position(|(k, _)| k == key) {
                Some(at) => at,
                None => {
                    node.children.push((key.clone(), Node::default()));
                    node.children.len() - 1
                }
            };
            node = &mut node.children[at].1;
        }
        &mut node.rule
    }
}

impl FieldRules {
    /// Compiles what a stream says about its fields. Paths that are consumed for another purpose
    /// are not stored again.
    pub(super) fn build<'a>(
        config: &StreamConfig,
        values: Option<&Path>,
        consumed: impl Iterator<Item = &'a Path>,
    ) -> Self {
        let mut paths = Node::default();
        let mut names: HashMap<Box<str>, Rule> = HashMap::new();
        let mut set = |entry: &str, change: &dyn Fn(&mut Rule)| {
            change(names.entry(entry.into()).or_default());
            if let Ok(path) = Path::parse(entry)
                && !path.segments.is_empty()
            {
                change(paths.rule_mut(&path));
            }
        };
        for entry in &config.fields.include {
            set(entry, &|rule| rule.include = true);
        }
        for entry in &config.fields.exclude {
            set(entry, &|rule| rule.drop = true);
        }
        for (from, to) in &config.fields.rename {
            set(from, &|rule| rule.rename = Some(to.as_str().into()));
        }
        for path in consumed {
            paths.rule_mut(path).drop = true;
        }
        // What is said about something above the fields' object holds for the object.
        if let Some(values) = values {
            let above = (0..values.segments.len()).map(|n| &values.segments[..n]);
            let included = above.into_iter().filter(|s| !s.is_empty()).any(|segments| {
                let mut node = Some(&paths);
                for key in segments {
                    node = node.and_then(|n| n.child(key));
                }
                node.is_some_and(|n| n.rule.include)
            });
            if included {
                paths.rule_mut(values).include = true;
            }
        }
        Self {
            paths,
            names,
            all: config.fields.include.is_empty(),
            nested: config.nested,
            numbers: config.numbers,
            booleans: config.booleans.clone(),
            missing: config.missing.clone(),
            coerce: config.coerce_numbers,
            max_fields: config.limits.fields,
            max_key: config.limits.key,
        }
    }

    /// Whether a word stands for "no value" in this stream.
    pub(super) fn is_missing(&self, word: &str) -> bool {
        self.missing.iter().any(|m| m.eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_count_as_names_and_as_paths() {
        let mut config = StreamConfig::default();
        config.fields.exclude = vec!["a/b".into(), "c_d".into()];
        config.fields.include = vec!["state".into()];
        let values = Path::parse("state/reported").unwrap();
        let time = Path::parse("ts").unwrap();
        let rules = FieldRules::build(&config, Some(&values), [&time].into_iter());
        let rule = |path| {
            rules
                .paths
                .descend(&Path::parse(path).unwrap())
                .map(|n| &n.rule)
        };
        assert!(rule("a/b").unwrap().drop && rule("ts").unwrap().drop);
        assert!(!rule("a").unwrap().drop && rule("x").is_none());
        assert!(rules.names["c_d"].drop);
        // What holds above the fields' object holds for the object.
        assert!(rule("state/reported").unwrap().include && !rules.all);
    }
}
