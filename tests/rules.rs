//! Rules as an operator meets them: what is checked, what fixtures show, what is explained, and
//! that the rules we ship do what they say.

mod support;

use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use support::gateway::tidegate;
use support::process::temp_dir;

/// Files in a folder of their own.
struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = temp_dir("rules");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

fn shipped(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("config/rules").join(name).display().to_string()
}

fn run(arguments: &[&str]) -> Output {
    tidegate().args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const WARM: &str = "[[rules]]
id = 'warm'
name = 'Too warm'
select = { types = ['probe'] }
field = 't'
unit = 'degC'
op = '>'
levels = { warning = { at = 6, clear = 5, for = '10m' }, critical = { at = 10 } }
";

// --- what we ship ------------------------------------------------------------------------------

#[test]
fn the_shipped_rules_are_sound_and_their_stories_hold() {
    let output = run(&["rules", "validate", &shipped("examples.toml")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "", "not even a warning");
    let output = run(&[
        "rules",
        "test",
        &shipped("examples.test.toml"),
        "--coverage",
    ]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(" 0 failed"), "{said}");
}

// --- validate ----------------------------------------------------------------------------------

#[test]
fn validate_tells_every_mistake_of_every_rule() {
    let folder = Folder::new(&[
        (
            "bad.toml",
            "[[rules]]\nid = 'a b'\nselect = {}\nfield = 't'\nop = '>'\nat = 5\nclear = 6\n\
             [[rules]]\nid = 'x'\nselect = { all = true }\nfeild = 't'\nop = '>>'\nat = 5\n",
        ),
        ("warm.toml", WARM),
        ("twin.toml", WARM),
        ("none.toml", "[log]\nlevel = 'info'\n"),
        ("torn.toml", "[[rules]\n"),
    ]);
    let output = run(&[
        "rules",
        "validate",
        &folder.path("bad.toml"),
        &folder.path("warm.toml"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    for expected in [
        "rules.0.id (a b)",
        "rules.0.select",
        "rules.0.clear",
        "rules.1.feild",
        "did you mean \"field\"",
        "rules.1.op",
        "bad.toml",
    ] {
        assert!(errors.contains(expected), "{expected} not in {errors}");
    }
    assert!(text(&output.stdout).contains("warm.toml: 1 rule, sound"));
    for (file, expected) in [
        ("twin.toml", "rules.0.id (warm): is the id of a rule in"),
        ("none.toml", "holds no [[rules]]"),
        ("torn.toml", "is not TOML (line 1)"),
        ("absent.toml", "cannot be read"),
    ] {
        let output = run(&[
            "rules",
            "validate",
            &folder.path("warm.toml"),
            &folder.path(file),
        ]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        let errors = text(&output.stderr);
        assert!(errors.contains(expected), "{expected} not in {errors}");
    }
    for usage in [
        vec!["rules"],
        vec!["rules", "validate"],
        vec!["rules", "test"],
    ] {
        assert_eq!(run(&usage).status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn validate_prints_json_and_warns() {
    let odd = WARM.replace("field = 't'", "field = 't'\nexpected_interval = '1h'");
    let folder = Folder::new(&[("odd.toml", &odd)]);
    let output = run(&["rules", "validate", "--json", &folder.path("odd.toml")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["valid"], json!(true));
    assert_eq!(said["rules"], json!(1));
    assert_eq!(said["problems"], json!([]));
    assert_eq!(said["warnings"][0]["key"], json!("rules.0.for"));
    assert_eq!(said["warnings"][0]["rule"], json!("warm"));
}

#[test]
fn receivers_are_checked_where_they_are_known() {
    let rules = format!("{WARM}receivers = ['nobody']\n");
    let rules = rules.replace("levels = {", "at = 6\n# levels = {");
    let folder = Folder::new(&[("rules.toml", &rules)]);
    let alone = run(&["rules", "validate", &folder.path("rules.toml")]);
    assert_eq!(alone.status.code(), Some(0), "{alone:?}");
    let whole = run(&["rules", "validate", "--config", &folder.path("rules.toml")]);
    assert_eq!(whole.status.code(), Some(1), "{whole:?}");
    assert!(
        text(&whole.stderr).contains("rules.0.receivers"),
        "{whole:?}"
    );
}

// --- test --------------------------------------------------------------------------------------

const STORY: &str = "rules = 'warm.toml'
[[cases]]
name = 'it warms up'
steps = [
    { at = '0s', device = 'd1', type = 'probe', ramp = { field = 't', from = 5, to = 12, over = '20m', every = '1m' } },
]
expect = [{ at = '10m', rule = 'warm', device = 'd1', state = 'STATE' }]
transitions = [
    { at = '13m', rule = 'warm', device = 'd1', change = 'fired', level = 'warning' },
    { at = 'AT', change = 'escalated' },
]
never = [{ change = 'NEVER' }]
";

fn story(state: &str, at: &str, never: &str) -> String {
    let story = STORY
        .replace("STATE", state)
        .replace("AT'", &format!("{at}'"));
    story.replace("NEVER", never)
}

#[test]
fn a_story_that_holds_and_one_that_does_not() {
    let folder = Folder::new(&[
        ("warm.toml", WARM),
        ("good.toml", &story("pending", "15m", "resolved")),
        ("bad.toml", &story("firing", "14m", "escalated")),
    ]);
    let output = run(&["rules", "test", &folder.path("good.toml")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let junit = folder.path("out.xml");
    let both = [folder.path("good.toml"), folder.path("bad.toml")];
    let output = run(&["rules", "test", &both[0], &both[1], "--junit", &junit]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    for expected in [
        "at 10m warm d1: expected firing, found pending",
        "  13m warm d1 fired warning",
        "- 14m * * escalated *",
        "+ 15m warm d1 escalated critical",
        "was never to happen: 15m warm d1 escalated critical",
        "2 stories, 1 failed",
    ] {
        assert!(said.contains(expected), "{expected} not in {said}");
    }
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(
        xml.contains("<testsuites tests=\"2\" failures=\"1\">"),
        "{xml}"
    );
    assert_eq!(xml.matches("<failure").count(), 3, "{xml}");
}

#[test]
fn a_story_that_makes_no_sense_says_where() {
    for (change, expected) in [
        ("type = 'probe', ramp", "type = 'probe', slope"),
        ("at = '0s'", "at = 'soon'"),
        ("every = '1m'", "every = '0s'"),
        ("rules = 'warm.toml'", "rules = 'absent.toml'"),
        ("name = 'it warms up'", "name = 'x'\nonly = ['cold']"),
    ] {
        let text_of = story("pending", "15m", "resolved").replace(change, expected);
        let folder = Folder::new(&[("warm.toml", WARM), ("story.toml", &text_of)]);
        let output = run(&["rules", "test", &folder.path("story.toml")]);
        assert_eq!(output.status.code(), Some(1), "{expected}");
        assert!(text(&output.stderr).contains("story.toml"), "{output:?}");
    }
}

// --- explain -----------------------------------------------------------------------------------

#[test]
fn a_rule_is_explained_from_recorded_readings() {
    let line = |minute: u32, t: f64| {
        json!({
            "deviceId": "d1", "type": "probe", "timestamp": format!("2026-03-14T09:{minute:02}:00Z"),
            "tags": {}, "fields": { "t": t },
        })
        .to_string()
    };
    let mut lines: Vec<_> = (0..5).map(|minute| line(minute, 7.0)).collect();
    lines.push(line(2, 30.0));
    lines.push(line(4, 7.0).replace("d1", "d2"));
    let folder = Folder::new(&[("warm.toml", WARM), ("readings.jsonl", &lines.join("\n"))]);
    let rules = folder.path("warm.toml");
    let readings = folder.path("readings.jsonl");
    let arguments = [
        "rules",
        "explain",
        "warm",
        "--rules",
        &rules,
        "--readings",
        &readings,
    ];
    let output = run(&[&arguments[..], &["--device", "d1"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    for expected in [
        "warm: Too warm",
        "selected  yes",
        "state     pending",
        "7.0 degC at 2026-03-14T09:04:00.000Z",
        "warning: breached, since 2026-03-14T09:00:00.000Z, 6m of for = 10m left",
        "critical: clear",
        "6 of the device: 5 breach, 1 late",
    ] {
        assert!(said.contains(expected), "{expected} not in {said}");
    }
    let unknown = run(&[
        "rules",
        "explain",
        "cold",
        "--rules",
        &rules,
        "--readings",
        &readings,
        "--device",
        "d1",
    ]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn explain_names_the_rules_that_look_at_a_reading() {
    let rules = format!(
        "{WARM}[[rules]]\nid = 'silent'\nkind = 'absence'\ntimeout = '5m'\nselect = {{ topics = ['devices/#'] }}\n\
         [[rules]]\nid = 'other'\nselect = {{ types = ['pump'] }}\nfield = 't'\nop = '>'\nat = 1\n"
    );
    let config = format!(
        "[[streams]]\nname = 's'\ntopics = ['devices/+/+']\ntemplate = 'devices/{{deviceId}}/{{type}}'\n{rules}"
    );
    let folder = Folder::new(&[("tidegate.toml", &config)]);
    let path = folder.path("tidegate.toml");
    let arguments = [
        "explain",
        "--config",
        &path,
        "--topic",
        "devices/d1/probe",
        "--payload",
        "{\"t\": 7}",
    ];
    let output = run(&[&arguments[..], &["--json"]].concat());
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        said["rules"],
        json!([
            { "id": "silent", "reading": 0, "kind": "absence", "level": null },
            { "id": "warm", "reading": 0, "kind": "threshold", "level": "warning" },
        ])
    );
    let said = text(&run(&arguments).stdout);
    assert!(
        said.contains("rule       warm (threshold, breaches warning)"),
        "{said}"
    );
}
