//! What happened and what was measured, for the table; each line is also printed as it comes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::plan::now_ms;

#[derive(Debug, Default, Clone, Copy)]
pub struct Kills {
    pub gateway: u32,
    pub mongod: u32,
    pub broker: u32,
}

#[derive(Debug)]
pub struct Tally {
    began: Instant,
    pub kills: Kills,
    /// From a new primary to the first new acknowledgement.
    pub primary: Vec<Duration>,
    /// From a broker that listens to the subscription.
    pub broker: Vec<Duration>,
    /// Runs and time spent, by scenario.
    pub runs: BTreeMap<&'static str, (u32, Duration)>,
    /// How often the leader of the alerts was killed, cut off and deposed.
    pub leaders: [u32; 3],
    pub violations: Vec<String>,
    /// What happened when, by the clock of this machine.
    journal: Vec<(i64, String)>,
    pub notes: Vec<String>,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            began: Instant::now(),
            kills: Kills::default(),
            primary: Vec::new(),
            broker: Vec::new(),
            runs: BTreeMap::new(),
            leaders: [0; 3],
            violations: Vec::new(),
            journal: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        println!("{:7.1} s  {line}", self.began.elapsed().as_secs_f64());
        self.journal.push((now_ms(), line));
    }

    pub fn violation(&mut self, line: impl Into<String>) {
        let line = line.into();
        self.say(format!("VIOLATION: {line}"));
        self.violations.push(line);
    }

    /// What was going on at this time: the lines from a few seconds before to one after.
    pub fn around(&self, at: i64) -> String {
        let near = |(time, _): &&(i64, String)| (at - 6_000..at + 3_000).contains(time);
        let lines = self.journal.iter().filter(near);
        let lines = lines.map(|(time, line)| format!("    {:+6} ms  {line}", time - at));
        lines.collect::<Vec<_>>().join("\n")
    }
}
