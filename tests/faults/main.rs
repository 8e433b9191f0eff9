//! The promise from outside, while everything is killed, cut, frozen, filled and forgotten under load: each message that
//! the broker acknowledged to the publisher is in MongoDB afterwards, readings with their own time exactly once; every alert that
//! was told as firing ends, once; and at every moment each message is accounted for.
//!
//! `cargo test --test faults` runs a selection of about three minutes. Arguments after `--`:
//! `--for 10m` everything, shuffled, as long as asked; `--seed N` the same again; `--only NAME,NAME` these alone, once or for as
//! long as asked; `--list`; `--rate N` messages a second; `--devices N`; `--logs FOLDER` keeps the logs of the gateways.

mod end;
mod load;
mod publisher;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod tally;
mod verdict;
mod watch;
mod world;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use end::Report;
use scenarios::Scenario;
use support::mongod::Mongod;
use tally::Tally;
use world::{Place, Settings, World};

/// What the selection may take before its last world ends.
const SELECTION: Duration = Duration::from_secs(150);

/// The longest a scenario may take.
const PATIENCE: Duration = Duration::from_secs(240);

#[derive(Debug)]
struct Arguments {
    /// Everything, for so long; else the selection, or the named ones, once.
    time: Option<Duration>,
    seed: u64,
    only: Vec<String>,
    list: bool,
    /// Where the gateways' logs go at the end.
    logs: Option<std::path::PathBuf>,
    settings: Settings,
}

/// Reads ours and ignores what `cargo test` adds for its own harness; a name without dashes is a filter, as there.
fn arguments() -> Arguments {
    let mut found = Arguments {
        time: None,
        seed: fastrand::u64(..1_000_000),
        only: Vec::new(),
        list: false,
        logs: None,
        settings: Settings {
            rate: if cfg!(debug_assertions) { 2_000 } else { 2_500 },
            devices: 200,
            patient: false,
        },
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let mut value = || {
            let value = inline.clone().or_else(|| words.next());
            value.unwrap_or_else(|| panic!("{name} needs a value"))
        };
        match name.as_str() {
            "--for" => {
                let text = value();
                let time = humantime::parse_duration(&text);
                found.time = Some(time.unwrap_or_else(|error| panic!("--for {text}: {error}")));
            }
            "--seed" => found.seed = number(&name, &value()),
            "--rate" => found.settings.rate = number(&name, &value()),
            "--devices" => found.settings.devices = number(&name, &value()),
            "--only" => found.only.extend(value().split(',').map(str::to_owned)),
            "--logs" => found.logs = Some(value().into()),
            "--list" => found.list = true,
            "--test-threads" | "--format" | "--color" | "--skip" | "--logfile" | "-Z" => {
                let _ = value();
            }
            _ if name.starts_with('-') => {}
            _ => found.only.push(name),
        }
    }
    found.settings.patient = found.time.is_some() || !found.only.is_empty();
    found
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> T {
    let parsed = text.parse();
    parsed.unwrap_or_else(|_| panic!("{name} {text}: not a number"))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "publisher") {
        publisher::run(publisher::Order {
            port: number("port", &words[1]),
            root: words[2].clone(),
            log: words[3].clone(),
            rate: number("rate", &words[4]),
            devices: number("devices", &words[5]),
            wave: Duration::from_millis(number("wave", &words[6])),
        });
        return ExitCode::SUCCESS;
    }
    let arguments = arguments();
    let chosen = chosen(&arguments);
    if arguments.list || chosen.is_empty() {
        for scenario in &chosen {
            println!("{}: test", scenario.name);
        }
        println!("{} scenarios", chosen.len());
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(run(&arguments, &chosen))
}

fn chosen(arguments: &Arguments) -> Vec<Scenario> {
    let all = scenarios::ALL.iter();
    let fits = |scenario: &&Scenario| {
        if arguments.only.is_empty() {
            arguments.list || arguments.time.is_some() || scenario.quick
        } else {
            let mut only = arguments.only.iter();
            only.any(|name| scenario.name == name || name == "faults")
        }
    };
    all.filter(fits).copied().collect()
}

async fn run(arguments: &Arguments, chosen: &[Scenario]) -> ExitCode {
    let seed = arguments.seed;
    println!("faults: --seed {seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut tally = Tally::new();
    let mut places: Vec<Place> = Place::ALL.to_vec();
    places.retain(|place| chosen.iter().any(|scenario| scenario.place == *place));
    if scenarios::clock::library().is_none() {
        let note = "the clock was left alone: the package libfaketime is not installed";
        tally.notes.push(note.into());
        places.retain(|place| *place != Place::Clock);
    }
    chance.shuffle(&mut places);
    let end = match arguments.time {
        Some(time) => Some(Instant::now() + time),
        None => arguments
            .only
            .is_empty()
            .then(|| Instant::now() + SELECTION),
    };
    let mut reports = Vec::new();
    let mut mongod = None;
    for (number, place) in places.iter().enumerate() {
        let mut mine: Vec<Scenario> = chosen
            .iter()
            .filter(|s| s.place == *place)
            .copied()
            .collect();
        // What is left, by weight: most of it belongs to the main world.
        let until = end.map(|end| {
            if arguments.time.is_none() {
                return end;
            }
            let left = end.saturating_duration_since(Instant::now());
            let weight = |place: &Place| if *place == Place::Main { 5.0 } else { 1.0 };
            let rest: f64 = places[number..].iter().map(weight).sum();
            Instant::now() + left.mul_f64(weight(place) / rest)
        });
        let servers = match mongod.take() {
            Some(servers) => servers,
            None => Mongod::start_replica_set(3).await,
        };
        let fork = chance.fork();
        let lived = live(*place, servers, arguments, fork, tally, &mut mine, until).await;
        tally = lived.1;
        mongod = lived.2;
        reports.extend(lived.0);
    }
    for (times, bar, what) in [
        (
            &tally.primary,
            table::PRIMARY,
            "new primary to first acknowledgement",
        ),
        (&tally.broker, table::BROKER, "broker back to subscribed"),
    ] {
        // The selection is a test, and runs wherever tests do: there the times are only printed.
        let over = |most: &&Duration| arguments.time.is_some() && **most > bar;
        if let Some(most) = times.iter().max().filter(over) {
            let text = format!("{what}: {most:.1?}, the bar is {bar:?}");
            tally.violations.push(text);
        }
    }
    table::print(&tally, &reports, seed);
    if tally.violations.is_empty() {
        println!("test result: ok. {} passed; 0 failed", tally.runs.len());
        return ExitCode::SUCCESS;
    }
    for violation in &tally.violations {
        println!("VIOLATION: {violation}");
    }
    let mut words = Vec::new();
    if let Some(time) = arguments.time {
        words.push(format!("--for {}", humantime::format_duration(time)));
    }
    if !arguments.only.is_empty() {
        words.push(format!("--only {}", arguments.only.join(",")));
    }
    println!(
        "again: cargo test --test faults -- --seed {seed} {}",
        words.join(" ")
    );
    ExitCode::FAILURE
}

/// One world from its beginning to its verdict.
async fn live(
    place: Place,
    servers: Mongod,
    arguments: &Arguments,
    chance: fastrand::Rng,
    tally: Tally,
    scenarios: &mut [Scenario],
    until: Option<Instant>,
) -> (Option<Report>, Tally, Option<Mongod>) {
    let mut world = World::start(place, servers, arguments.settings, chance, tally).await;
    let repeats = arguments.time.is_some();
    let mut left_out = Vec::new();
    let whole = async {
        loop {
            let mut order = scenarios.to_vec();
            world.chance.shuffle(&mut order);
            for scenario in order {
                if until.is_some_and(|until| Instant::now() > until) && !repeats {
                    world
                        .tally
                        .say(format!("  no time left for {}", scenario.name));
                    left_out.push(scenario.name);
                    continue;
                }
                let began = Instant::now();
                world.tally.say(scenario.name);
                let run = (scenario.run)(&mut world);
                if tokio::time::timeout(PATIENCE, run).await.is_err() {
                    world.complain(
                        0,
                        &format!("is not over {} within {PATIENCE:?}", scenario.name),
                    );
                    world.heal().await;
                }
                world.caught_up().await;
                let run = world.tally.runs.entry(scenario.name).or_default();
                run.0 += 1;
                run.1 += began.elapsed();
                if repeats && until.is_some_and(|until| Instant::now() > until) {
                    return;
                }
            }
            if !repeats {
                return;
            }
        }
    };
    let lived = AssertUnwindSafe(whole).catch_unwind().await;
    if let Err(panic) = lived {
        world
            .tally
            .violation(format!("a scenario: {}", words(&*panic)));
    }
    if !left_out.is_empty() {
        let note = format!(
            "no time was left for {}: --only runs them",
            left_out.join(", ")
        );
        world.tally.notes.push(note);
    }
    let judged = AssertUnwindSafe(end::judge(&mut world))
        .catch_unwind()
        .await;
    let report = match judged {
        Ok(report) => Some(report),
        Err(panic) => {
            world
                .tally
                .violation(format!("the end: {}", words(&*panic)));
            None
        }
    };
    if let Some(folder) = &arguments.logs {
        for (number, member) in world.members.iter().enumerate() {
            let file = folder.join(format!("{place:?}-{number}.log").to_lowercase());
            std::fs::write(file, member.gateway.process.log()).expect("--logs names a folder");
        }
    }
    let (mongod, tally, _) = world.end();
    (report, tally, Some(mongod))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic without words".into())
}
