//! The rules that a reader relies on, kept by a test and not by memory: which folder may use
//! which, how long files are, which calls are made in one place only, and that the shipped
//! configuration is what the program does when nothing is said.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate::config::{Config, Sources, load};

/// What each folder of `src` may use. Stages never use each other.
const MAY_USE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("runtime", &["model"]),
    ("telemetry", &["model"]),
    ("config", &["model", "runtime", "telemetry"]),
    ("decode", &["config", "model"]),
    ("lane", &["config", "model", "runtime", "telemetry"]),
    ("store", &["config", "model", "runtime", "telemetry"]),
    (
        "source",
        &["decode", "lane", "config", "model", "runtime", "telemetry"],
    ),
    ("spool", &["config", "model", "runtime", "telemetry"]),
    (
        "devices",
        &["store", "config", "model", "runtime", "telemetry"],
    ),
    (
        "sink",
        &[
            "devices",
            "lane",
            "store",
            "config",
            "model",
            "runtime",
            "telemetry",
        ],
    ),
    ("admin", &["config", "model", "runtime", "telemetry"]),
    (
        "alert",
        &[
            "devices",
            "store",
            "config",
            "model",
            "runtime",
            "telemetry",
        ],
    ),
    (
        "app",
        &[
            "admin",
            "alert",
            "devices",
            "sink",
            "source",
            "spool",
            "store",
            "lane",
            "decode",
            "config",
            "model",
            "runtime",
            "telemetry",
        ],
    ),
    (
        "cli",
        &[
            "app",
            "alert",
            "source",
            "store",
            "decode",
            "config",
            "model",
            "runtime",
            "telemetry",
        ],
    ),
];

/// Calls that are made in one place only, and why elsewhere is wrong.
const CALLS: &[(&str, &[&str], &str)] = &[
    (
        "SystemTime::now",
        &["runtime/clock.rs"],
        "decisions take the time as an argument",
    ),
    ("process::exit", &[], "an exit code is returned to main"),
    (
        "std::thread::sleep",
        &[],
        "it blocks every task of the thread",
    ),
    (
        "println!",
        &["cli/", "main.rs"],
        "only commands write to standard output",
    ),
    (
        "mongodb::",
        &[
            "store/",
            "sink/",
            "app/replay.rs",
            "cli/dead_letters.rs",
            "config/",
        ],
        "only store and sink talk to the database",
    ),
    (
        "rumqttc::",
        &["source/", "cli/simulate/"],
        "only sources talk to the broker",
    ),
    (
        "redb::",
        &["spool/store.rs"],
        "only the spool has a store of its own",
    ),
    (".unwrap()", &[], "say with expect why it cannot fail"),
];

/// Names that say nothing about what is inside.
const VAGUE: &[&str] = &[
    "utils", "util", "helpers", "helper", "common", "manager", "misc",
];

fn source_files() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| {
            (
                path.strip_prefix(&root).unwrap().to_owned(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect()
}

/// The file without its tests.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

fn is_test_file(path: &Path) -> bool {
    path.file_stem()
        .is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"))
}

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for (path, text) in source_files() {
        let folder = path
            .iter()
            .next()
            .unwrap()
            .to_string_lossy()
            .trim_end_matches(".rs")
            .to_owned();
        if folder == "main" || folder == "lib" || is_test_file(&path) {
            continue;
        }
        let (_, allowed) = MAY_USE
            .iter()
            .find(|(name, _)| *name == folder)
            .unwrap_or_else(|| panic!("src/{folder} has no row in the table"));
        let used: BTreeSet<&str> = production(&text)
            .split("crate::")
            .skip(1)
            .filter_map(|rest| {
                rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
            })
            .collect();
        for other in used {
            if other != folder
                && !allowed.contains(&other)
                && MAY_USE.iter().any(|(name, _)| *name == other)
            {
                wrong.push(format!("src/{} uses crate::{other}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "imports against the direction:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn banned_calls_are_made_where_they_belong() {
    let mut wrong = Vec::new();
    for (path, text) in source_files() {
        if is_test_file(&path) {
            continue;
        }
        let name = path.to_string_lossy().into_owned();
        for (call, places, why) in CALLS {
            let allowed = places.iter().any(|place| name.starts_with(place));
            let lines = production(&text).lines().enumerate();
            for (number, line) in lines
                .filter(|(_, line)| line.contains(call) && !line.trim_start().starts_with("//"))
            {
                if !allowed {
                    wrong.push(format!(
                        "src/{name}:{}: {} ({why})",
                        number + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "calls out of place:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn files_are_short_headed_and_named_for_what_they_hold() {
    let mut lengths = Vec::new();
    for (path, text) in source_files() {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            !VAGUE.contains(&stem.as_str()),
            "src/{}: a name that says nothing",
            path.display()
        );
        assert!(
            text.starts_with("//!"),
            "src/{}: no head that says what it is for",
            path.display()
        );
        if !is_test_file(&path) {
            lengths.push((production(&text).lines().count(), path));
        }
    }
    lengths.sort();
    let median = lengths[lengths.len() / 2].0;
    println!("{} files, median {median} lines, longest:", lengths.len());
    for (lines, path) in lengths.iter().rev().take(5) {
        println!("{lines:5}  src/{}", path.display());
    }
    let (longest, path) = lengths.last().unwrap();
    assert!(
        *longest <= 400,
        "src/{} has {longest} lines: split it by role",
        path.display()
    );
}

#[test]
fn the_shipped_configuration_equals_the_defaults() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tidegate.toml");
    let sources = Sources {
        files: vec![file.clone()],
        environment: Vec::new(),
    };
    let loaded = load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config, Config::default());

    // Every key is shown, those without a default as comments.
    let text = fs::read_to_string(file).unwrap();
    let shown: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim_start_matches("# ").split_once(" ="))
        .map(|(key, _)| key.trim())
        .collect();
    let sections = [
        "mqtt",
        "streams",
        "mongodb",
        "sink",
        "spool",
        "feed",
        "devices",
        "alerts",
        "rules",
        "receivers",
        "watchdog",
        "admin",
        "log",
        "tls",
        "time",
        "fields",
        "limits",
        "write_concern",
        "storm",
        "flap",
        "quiet",
        "collections",
        "select",
        "levels",
    ];
    let mut missing = Vec::new();
    for key in all_keys() {
        if !shown.contains(key.as_str()) && !sections.contains(&key.as_str()) {
            missing.push(key);
        }
    }
    assert!(
        missing.is_empty(),
        "not in config/tidegate.toml: {missing:?}"
    );
}

#[test]
fn every_shipped_example_is_sound() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("config")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|e| e == "toml") {
            let sources = Sources {
                files: vec![file.clone()],
                environment: Vec::new(),
            };
            if let Err(problems) = tidegate::app::prepare(&sources) {
                panic!("{}: {problems}", file.display());
            }
        }
    }
}

/// Every key the program knows, from what it says about an unknown one.
fn all_keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for section in [
        "",
        "mqtt.",
        "mqtt.tls.",
        "streams.",
        "mongodb.",
        "sink.",
        "spool.",
        "feed.",
        "devices.",
        "alerts.",
        "alerts.storm.",
        "alerts.flap.",
        "alerts.quiet.",
        "alerts.collections.",
        "rules.",
        "receivers.",
        "watchdog.",
        "admin.",
        "log.",
        "time.",
        "fields.",
        "limits.",
        "write_concern.",
        "rules.select.",
        "rules.levels.warning.",
    ] {
        let text = match section {
            "" => "zzzzzzzzzz = 1".to_owned(),
            "streams." | "rules." | "receivers." | "alerts.quiet." => {
                format!("[[{}]]\nzzzzzzzzzz = 1", section.trim_end_matches('.'))
            }
            "time." | "fields." | "limits." | "write_concern." => {
                format!(
                    "[[streams]]\n[streams.{}]\nzzzzzzzzzz = 1",
                    section.trim_end_matches('.')
                )
            }
            "rules.select." | "rules.levels.warning." => format!(
                "[[rules]]\n[{}]\nzzzzzzzzzz = 1",
                section.trim_end_matches('.')
            ),
            section => format!("[{}]\nzzzzzzzzzz = 1", section.trim_end_matches('.')),
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let sources = Sources {
            files: vec![file.path().to_owned()],
            environment: Vec::new(),
        };
        let problems = load(&sources).unwrap_err();
        let (_, list) = problems.0[0]
            .message
            .split_once("known here: ")
            .expect("the message lists the keys");
        keys.extend(list.split(", ").map(str::to_owned));
    }
    keys
}
