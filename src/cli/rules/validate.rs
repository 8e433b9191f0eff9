//! `tidegate rules validate`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::files::{Finding, RuleFile, read, read_all};
use crate::cli::Usage;
use crate::config::Sources;

/// Check rules: every mistake at once, with file, key and what was expected
///
/// Exit code 1 when anything is wrong, 2 on wrong usage.
#[derive(Debug, Args)]
pub struct Validate {
    /// Files with [[rules]]; other sections in them are not looked at
    files: Vec<PathBuf>,
    /// Check the rules of this configuration, receivers included; may be repeated
    #[arg(long = "config", short = 'c', value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Validate {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.files.is_empty() && self.config.is_empty() {
            return Err(Usage("say which: files with rules, or --config").into());
        }
        let mut found: Vec<RuleFile> = self.files.iter().map(|path| read(path)).collect();
        let mut names: Vec<String> = self
            .files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if !self.config.is_empty() {
            let name = "configuration".to_owned();
            found.push(read_all(&Sources::new(self.config.clone()), &name, false));
            names.push(name);
        }
        twins(&names, &mut found);
        let sound = found.iter().all(|file| file.mistakes.is_empty());
        if self.json {
            let all = |pick: fn(&RuleFile) -> &Vec<Finding>| {
                found.iter().flat_map(pick).collect::<Vec<_>>()
            };
            println!(
                "{}",
                json!({
                    "valid": sound,
                    "rules": found.iter().map(|file| file.rules.len()).sum::<usize>(),
                    "problems": all(|file| &file.mistakes),
                    "warnings": all(|file| &file.warnings),
                })
            );
        } else {
            for (name, file) in names.iter().zip(&found) {
                for warning in &file.warnings {
                    eprintln!("warning: {}", warning.line());
                }
                for mistake in &file.mistakes {
                    eprintln!("{}", mistake.line());
                }
                if file.mistakes.is_empty() {
                    let count = file.rules.len();
                    let noun = if count == 1 { "rule" } else { "rules" };
                    println!("{name}: {count} {noun}, sound");
                }
            }
        }
        Ok(if sound {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// Files are deployed together: an id may be in one of them only.
fn twins(names: &[String], files: &mut [RuleFile]) {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for (place, file) in files.iter_mut().enumerate() {
        for (index, rule) in file.rules.iter().enumerate() {
            let earlier = *first.entry(rule.id.clone()).or_insert(place);
            if earlier != place && !rule.id.is_empty() {
                file.mistakes.push(Finding {
                    file: names[place].clone(),
                    rule: Some(rule.id.clone()),
                    key: format!("rules.{index}.id"),
                    message: format!("is the id of a rule in {} too", names[earlier]),
                });
            }
        }
    }
}
