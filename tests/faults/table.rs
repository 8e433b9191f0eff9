//! What a run amounts to, as a table.

use std::time::Duration;

use crate::end::Report;
use crate::tally::Tally;

/// Bars of the issue for recovery.
pub const PRIMARY: Duration = Duration::from_secs(5);
pub const BROKER: Duration = Duration::from_secs(3);

pub fn print(tally: &Tally, reports: &[Report], seed: u64) {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    println!();
    println!(
        "faults: seed {seed}, {:.1} minutes, {build} build",
        tally.elapsed().as_secs_f64() / 60.0
    );
    println!();
    println!("{:<22}{:>6}{:>12}", "scenario", "runs", "seconds");
    for (name, (runs, time)) in &tally.runs {
        println!("{name:<22}{runs:>6}{:>12.1}", time.as_secs_f64());
    }
    println!();
    println!(
        "{:<8}{:>12}{:>6}{:>9}{:>10}{:>8}{:>9}{:>12}{:>20}{:>8}{:>10}",
        "world",
        "PUBACKed",
        "lost",
        "doubled",
        "(no time)",
        "poison",
        "letters+",
        "scrapes",
        "MiB first/most/last",
        "alerts",
        "requests"
    );
    for report in reports {
        let verdict = &report.verdict;
        let memory = report.seen.first();
        let memory = memory.map_or_else(String::new, |seen| {
            format!(
                "{}/{}/{}",
                seen.warm_memory >> 20,
                seen.most_memory >> 20,
                seen.last_memory >> 20
            )
        });
        println!(
            "{:<8}{:>12}{:>6}{:>9}{:>10}{:>8}{:>9}{:>12}{memory:>20}{:>8}{:>10}",
            format!("{:?}", report.place).to_lowercase(),
            verdict.acknowledged(),
            verdict.lost.len(),
            verdict.doubled.len(),
            verdict.plain_copies,
            verdict.poison,
            verdict.poison_copies,
            report.seen.iter().map(|seen| seen.scrapes).sum::<u64>(),
            report.episodes,
            report.told,
        );
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let kills = tally.kills;
    println!();
    let rows = [
        (
            "messages PUBACKed",
            sum(|report| report.verdict.acknowledged()).to_string(),
        ),
        (
            "lost",
            sum(|report| report.verdict.lost.len() as u64).to_string(),
        ),
        (
            "doubled, of readings with their own time",
            sum(|report| report.verdict.doubled.len() as u64).to_string(),
        ),
        (
            "copies of readings without (allowed)",
            sum(|report| report.verdict.plain_copies).to_string(),
        ),
        (
            "kill -9",
            format!(
                "{} (gateway {}, mongod {}, broker {})",
                kills.gateway + kills.mongod + kills.broker,
                kills.gateway,
                kills.mongod,
                kills.broker
            ),
        ),
        (
            "leader of the alerts killed, cut off, deposed",
            tally.leaders.map(|count| count.to_string()).join(", "),
        ),
        (
            "scrapes in which the ledger does not balance",
            format!(
                "{} of {}",
                sum(|report| report.seen.iter().map(|s| s.unbalanced.len() as u64).sum()),
                sum(|report| report.seen.iter().map(|s| s.scrapes).sum())
            ),
        ),
        (
            "new primary to first acknowledgement",
            spread(&tally.primary, PRIMARY),
        ),
        ("broker back to subscribed", spread(&tally.broker, BROKER)),
    ];
    for (name, value) in rows {
        println!("{name:<48}{value}");
    }
    for note in &tally.notes {
        println!("note: {note}");
    }
    println!();
}

fn spread(times: &[Duration], bar: Duration) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let Some(most) = sorted.last() else {
        return "not measured".into();
    };
    format!(
        "median {:.2} s, most {:.2} s of {} (bar {} s)",
        sorted[sorted.len() / 2].as_secs_f64(),
        most.as_secs_f64(),
        sorted.len(),
        bar.as_secs()
    )
}
