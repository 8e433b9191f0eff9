//! All rules together, and the cheap handle by which writers ask whether a reading is wanted.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::index::{Entry, Index};
use super::rule::Rule;
use super::select::{Match, View};
use crate::config::RuleConfig;
use crate::config::rules::MAX_RULES;
use crate::model::{Reading, Selection};

/// A mistake in one rule, which is then left out; the others are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleProblem {
    /// Its place in the list.
    pub index: usize,
    /// Its id, as far as there is one.
    pub rule: String,
    /// The key within it.
    pub key: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Rules, compiled, in the order of their ids.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Vec<Arc<Rule>>,
    numbers: HashMap<Arc<str>, u32>,
    index: Index,
    /// Those that wait for readings that do not come.
    absence: Vec<u32>,
}

impl RuleSet {
    /// Compiles what is sound.
    pub fn compile(rules: &[RuleConfig]) -> (Self, Vec<RuleProblem>) {
        Self::compile_over(&Self::default(), rules)
    }

    /// The same; a rule that is not sound stays as it was in `previous`, if it was there.
    pub fn compile_over(previous: &RuleSet, rules: &[RuleConfig]) -> (Self, Vec<RuleProblem>) {
        let mut problems = Vec::new();
        let mut sound: HashMap<&str, Arc<Rule>> = HashMap::new();
        for (index, config) in rules.iter().enumerate() {
            let mut problem = |key: String, message: String| {
                problems.push(RuleProblem {
                    index,
                    rule: config.id.clone(),
                    key,
                    message,
                });
            };
            if sound.contains_key(config.id.as_str()) {
                problem("id".into(), "is the id of an earlier rule too".into());
                continue;
            }
            if sound.len() == MAX_RULES {
                problem("id".into(), format!("at most {MAX_RULES} rules are taken"));
                continue;
            }
            let unchanged = previous.get(&config.id).filter(|old| old.config == *config);
            let rule = match unchanged
                .map(Arc::clone)
                .map_or_else(|| Rule::compile(config).map(Arc::new), Ok)
            {
                Ok(rule) => rule,
                Err(mistakes) => {
                    for (key, message) in mistakes {
                        problem(key, message);
                    }
                    match previous.get(&config.id) {
                        Some(old) => Arc::clone(old),
                        None => continue,
                    }
                }
            };
            sound.insert(config.id.as_str(), rule);
        }
        let mut rules: Vec<_> = sound.into_values().collect();
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        (Self::new(rules), problems)
    }

    fn new(rules: Vec<Arc<Rule>>) -> Self {
        let numbered = || (0..).zip(&rules);
        let entries: Vec<_> = numbered()
            .filter(|(_, rule)| rule.config.enabled)
            .map(|(number, rule)| Entry {
                rule: number,
                field: rule.field(),
                select: &rule.config.select,
            })
            .collect();
        Self {
            index: Index::build(&entries),
            absence: numbered()
                .filter(|(_, rule)| rule.config.enabled && rule.is_absence())
                .map(|(number, _)| number)
                .collect(),
            numbers: numbered()
                .map(|(number, rule)| (Arc::clone(&rule.id), number))
                .collect(),
            rules,
        }
    }

    /// All, by number.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule of that id.
    pub fn get(&self, id: &str) -> Option<&Arc<Rule>> {
        self.rules.get(self.number(id)? as usize)
    }

    /// The number of that id.
    pub fn number(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// Numbers of the rules that wait for readings that do not come.
    pub(super) fn absence(&self) -> &[u32] {
        &self.absence
    }

    /// Puts the numbers of the rules that may match into `found`: in order, each once.
    pub fn candidates(&self, view: &View<'_>, found: &mut Vec<u32>) {
        found.clear();
        let _ = self.index.visit(view, &mut |rule| {
            found.push(rule);
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        found.dedup();
    }

    /// The rules that select a reading and find in it the field they look at.
    pub fn matching(&self, view: &View<'_>) -> Vec<&Arc<Rule>> {
        let mut found = Vec::new();
        self.candidates(view, &mut found);
        found
            .into_iter()
            .map(|number| &self.rules[number as usize])
            .filter(|rule| rule.selector.matches(view) != Match::No)
            .collect()
    }

    /// Whether any does.
    pub fn wants(&self, view: &View<'_>) -> bool {
        let mut ask = |number: u32| match self.rules[number as usize].selector.matches(view) {
            Match::No => ControlFlow::Continue(()),
            Match::Yes | Match::Perhaps => ControlFlow::Break(()),
        };
        self.index.visit(view, &mut ask).is_break()
    }
}

/// The rules in force, for whoever asks about each reading while they may be exchanged.
#[derive(Debug, Clone, Default)]
pub struct Rules(Arc<ArcSwap<RuleSet>>);

impl Rules {
    /// With these to begin with.
    pub fn new(rules: Arc<RuleSet>) -> Self {
        Self(Arc::new(ArcSwap::new(rules)))
    }

    /// Those in force.
    pub fn current(&self) -> Arc<RuleSet> {
        self.0.load_full()
    }

    /// Puts others in force.
    pub fn replace(&self, rules: Arc<RuleSet>) {
        self.0.store(rules);
    }
}

impl Selection for Rules {
    fn selects(&self, reading: &Reading, topic: &str, stream: &str) -> bool {
        let rules = self.0.load();
        rules.wants(&View::of_reading(reading, topic, stream))
    }
}
