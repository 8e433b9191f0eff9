//! `tidegate rules test`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;

use super::fixture;
use super::play::{Coverage, line, play};
use super::report::{Outcome, junit};
use crate::alert::rules::{ROWS, row_name};
use crate::config::rules::{Clock, LevelConfig, OnGap, OnNoData, RuleKind};
use crate::config::{RuleConfig, Span};

/// Run fixtures: readings at made-up times through the engine of the gateway
///
/// Exit code 1 when an expectation does not hold.
#[derive(Debug, Args)]
pub struct Test {
    /// Files of stories
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only stories whose name contains this
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Write the outcomes as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Show what each story told
    #[arg(long)]
    verbose: bool,
    /// Show which transitions no story takes, for each rule
    #[arg(long)]
    coverage: bool,
}

impl Test {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut outcomes = Vec::new();
        let mut coverage = Coverage::new();
        let mut rules = BTreeMap::new();
        for path in &self.files {
            let file = path.display().to_string();
            let fixture = fixture::read(path).with_context(|| file.clone())?;
            for rule in &fixture.rules {
                rules.insert(rule.id.clone(), rule.clone());
            }
            for case in &fixture.cases {
                let wanted = |text: &String| case.name.contains(text.as_str());
                if !self.name.as_ref().is_none_or(wanted) {
                    continue;
                }
                let begun = Instant::now();
                let played =
                    play(&fixture, case).with_context(|| format!("{file}: {:?}", case.name))?;
                let verdict = if played.failures.is_empty() {
                    "ok    "
                } else {
                    "FAILED"
                };
                println!("{verdict}  {file}: {}", case.name);
                if self.verbose {
                    for transition in &played.told {
                        println!("        {}", line(transition, fixture.start));
                    }
                }
                for failure in &played.failures {
                    println!("        {}", failure.replace('\n', "\n        "));
                }
                for (rule, rows) in &played.coverage {
                    let all = coverage.entry(rule.clone()).or_default();
                    all.iter_mut().zip(rows).for_each(|(all, n)| *all += n);
                }
                outcomes.push(Outcome {
                    file: file.clone(),
                    name: case.name.clone(),
                    failures: played.failures,
                    took: begun.elapsed(),
                });
            }
        }
        if self.coverage {
            show(&rules, &coverage);
        }
        if let Some(path) = &self.junit {
            std::fs::write(path, junit(&outcomes))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let failed = outcomes.iter().filter(|o| !o.failures.is_empty()).count();
        println!("{} stories, {failed} failed", outcomes.len());
        Ok(if failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn show(rules: &BTreeMap<String, RuleConfig>, coverage: &Coverage) {
    for (id, rule) in rules {
        let applying: Vec<u8> = (1..=ROWS).filter(|row| applies(rule, *row)).collect();
        let taken = |row: &u8| {
            coverage
                .get(id)
                .is_some_and(|rows| rows[usize::from(*row)] > 0)
        };
        let (done, never): (Vec<u8>, Vec<u8>) = applying.into_iter().partition(taken);
        println!(
            "{id}: {} of {} transitions taken",
            done.len(),
            done.len() + never.len()
        );
        for row in never {
            println!("  {row:>2} never  {}", row_name(row));
        }
    }
}

/// Whether a rule can take a row at all.
fn applies(rule: &RuleConfig, row: u8) -> bool {
    let ladder = rule.ladder();
    let any = |pick: fn(&LevelConfig) -> Option<Span>| {
        let mut spans = ladder.values().filter_map(pick);
        spans.any(|span| !span.0.is_zero())
    };
    let absence = rule.kind == RuleKind::Absence;
    let waits = any(|level| level.hold) && !absence;
    let recovers = any(|level| level.recover_for);
    let several = ladder.len() > 1;
    match row {
        1 => !absence,
        2 => {
            absence
                || ladder
                    .values()
                    .any(|l| l.hold.is_none_or(|span| span.0.is_zero()))
        }
        3..=5 => waits,
        6 => waits && rule.effective_max_gap().is_some() && rule.on_gap == OnGap::Restart,
        7 => several,
        8 => !absence,
        9 => several && !absence,
        10 => ladder
            .values()
            .any(|l| l.recover_for.is_none_or(|span| span.0.is_zero())),
        11 | 13 | 14 => recovers,
        12 => recovers && several,
        15 => !absence && (rule.stale_after.is_some() || rule.on_no_data != OnNoData::Keep),
        16 => !rule.field.is_empty(),
        17 => waits && rule.clock == Clock::Wall,
        _ => true,
    }
}
