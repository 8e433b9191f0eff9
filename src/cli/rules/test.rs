//! `tidegate rules test`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;

use super::fixture;
use super::play::{Coverage, line, play};
use super::report::{Outcome, junit};
use crate::alert::rules::{ROWS, row_name};

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
        for path in &self.files {
            let file = path.display().to_string();
            let fixture = fixture::read(path).with_context(|| file.clone())?;
            for rule in &fixture.rules {
                coverage.entry(rule.id.clone()).or_default();
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
            show(&coverage);
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

fn show(coverage: &Coverage) {
    for (rule, rows) in coverage {
        let never: Vec<u8> = (1..=ROWS).filter(|n| rows[usize::from(*n)] == 0).collect();
        println!(
            "{rule}: {} of {ROWS} transitions taken",
            usize::from(ROWS) - never.len()
        );
        for number in never {
            println!("  {number:>2} never  {}", row_name(number));
        }
    }
}
