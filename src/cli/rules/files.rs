//! Rules from files of their own: TOML with `[[rules]]`, whatever else is in it is not looked at.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::rules::UNKNOWN_RECEIVER;
use crate::config::{Problem, RuleConfig, Sources, survey};

/// The rules of one file, and what is wrong or odd about them.
#[derive(Debug, Default)]
pub(super) struct RuleFile {
    /// Rules, the sound ones and those that are not.
    pub rules: Vec<RuleConfig>,
    /// Mistakes.
    pub mistakes: Vec<Finding>,
    /// What is hardly meant.
    pub warnings: Vec<Finding>,
}

/// One mistake or warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The file.
    pub file: String,
    /// The rule's id, if it has one.
    pub rule: Option<String>,
    /// The key: `rules.0.levels.warning.at`.
    pub key: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl Finding {
    /// On one line.
    pub fn line(&self) -> String {
        let rule = match &self.rule {
            Some(rule) => format!(" ({rule})"),
            None => String::new(),
        };
        let key = match self.key.as_str() {
            "" => String::new(),
            key => format!(" {key}{rule}:"),
        };
        format!("{}:{key} {}", self.file, self.message)
    }
}

/// Reads a file with rules.
pub(super) fn read(path: &Path) -> RuleFile {
    let sources = Sources {
        files: vec![path.to_owned()],
        environment: Vec::new(),
    };
    let mut file = read_all(&sources, &path.display().to_string(), true);
    if file.rules.is_empty() && file.mistakes.is_empty() {
        file.mistakes.push(Finding {
            file: path.display().to_string(),
            rule: None,
            key: String::new(),
            message: "holds no [[rules]]".into(),
        });
    }
    file
}

/// Reads the rules of a configuration. `alone`: receivers are elsewhere and cannot be checked.
pub(super) fn read_all(sources: &Sources, name: &str, alone: bool) -> RuleFile {
    let (loaded, problems) = survey(sources);
    let receivers = loaded
        .as_ref()
        .is_some_and(|loaded| !loaded.config.receivers.is_empty());
    let rules = loaded.map_or_else(Vec::new, |loaded| loaded.config.rules);
    let id = |key: &str| {
        let index = key.strip_prefix("rules.")?.split('.').next()?;
        let rule = rules.get(index.parse::<usize>().ok()?)?;
        Some(rule.id.clone()).filter(|id| !id.is_empty())
    };
    let about_rules = |problem: &Problem| {
        let elsewhere = alone && !receivers && problem.message.ends_with(UNKNOWN_RECEIVER);
        (problem.key.is_empty() || problem.key.starts_with("rules")) && !elsewhere
    };
    let finding = |file: Option<String>, key: String, message: String| Finding {
        file: file.unwrap_or_else(|| name.to_owned()),
        rule: id(&key),
        key,
        message,
    };
    let mistakes = problems
        .0
        .into_iter()
        .filter(about_rules)
        .map(|problem| finding(problem.source, problem.key, problem.message))
        .collect();
    let mut warnings = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        for (key, message) in rule.warnings() {
            warnings.push(finding(None, format!("rules.{index}.{key}"), message));
        }
    }
    RuleFile {
        rules,
        mistakes,
        warnings,
    }
}

/// The sound rules of several files.
///
/// # Errors
/// Every mistake, a line each.
pub(super) fn sound(paths: &[PathBuf]) -> anyhow::Result<Vec<RuleConfig>> {
    let mut rules = Vec::new();
    let mut lines = Vec::new();
    for path in paths {
        let file = read(path);
        lines.extend(file.mistakes.iter().map(Finding::line));
        rules.extend(file.rules);
    }
    if lines.is_empty() {
        Ok(rules)
    } else {
        Err(anyhow::anyhow!("{}", lines.join("\n  ")))
    }
}
