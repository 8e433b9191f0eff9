//! Rules as written: what is taken, what is refused and under which key, and that the file, JSON
//! and BSON read alike.

use super::*;

fn rule(body: &str) -> RuleConfig {
    let toml = format!("id = 'r'\n{body}");
    toml::from_str(&toml).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}

/// A sound threshold rule with `change` put over it.
fn threshold(change: &str) -> RuleConfig {
    let base: toml::Table =
        toml::from_str("id = 'r'\nselect = { all = true }\nfield = 't'\nop = '>'\nat = 5\n")
            .unwrap();
    let mut table = base;
    for (key, value) in change.parse::<toml::Table>().unwrap() {
        match value.as_str() {
            Some("(none)") => drop(table.remove(&key)),
            _ => drop(table.insert(key, value)),
        }
    }
    toml::Value::Table(table).try_into().unwrap()
}

fn keys(rule: &RuleConfig) -> Vec<String> {
    rule.validate_one()
        .into_iter()
        .map(|(key, _)| key)
        .collect()
}

#[test]
fn sound_rules_have_no_mistakes() {
    for body in [
        "select = { all = true }\nfield = 't'\nop = '>'\nat = 5",
        "select = { all = true }\nfield = 't'\nop = 'gt'\nvalue = 5\nclear = 4.5\nfor = '10m'",
        "select = { types = ['probe'] }\nfield = 't'\nop = '<='\nlevels = { warning = { at = 5, clear = 6 }, critical = { at = 1 } }",
        "select = { all = true }\nfield = 't'\nop = 'outside'\nlow = 2\nhigh = 8\nband = 0.5",
        "select = { all = true }\nfield = 't'\nop = 'inside'\nat = [2, 8]\nclear = [1, 9]",
        "select = { all = true }\nfield = 't'\nop = 'outside'\nlevels = { warning = { at = [2, 8] }, critical = { at = [0, 10], band = 1 } }",
        "select = { all = true }\nfield = 's'\nop = '=='\nvalue = 'fault'",
        "select = { all = true }\nfield = 's'\nop = '!='\nvalue = true",
        "select = { all = true }\nfield = 's'\nop = '=='\nvalue = 0.3\nepsilon = 0.01",
        "select = { all = true }\nkind = 'rate'\nfield = 't'\nop = '>'\nat = 2\nper = '1m'\nwindow = '10m'",
        "select = { all = true }\nkind = 'count'\nfield = 't'\nop = 'inside'\nlow = 1\nhigh = 2\nwindow = '10m'\nat_least = 5\nclear_n = 0",
        "select = { all = true }\nkind = 'count'\nfield = 't'\nop = '=='\nvalue = 'open'\nwindow = '10m'\nlevels = { warning = { at = 5 }, critical = { at = 20, clear = 10 } }",
        "select = { all = true }\nkind = 'absence'\ntimeout = '10m'",
        "select = { all = true }\nkind = 'absence'\nfield = 't'\ntimeout = '10m'\nlevels = { warning = {}, critical = { for = '1h' } }",
    ] {
        assert_eq!(rule(body).validate_one(), [], "{body}");
    }
}

#[test]
fn every_mistake_is_told_by_its_key() {
    for (change, expected) in [
        ("id = ''", "id"),
        ("id = 'a b'", "id"),
        ("id = 'tidegate.x'", "id"),
        ("select = {}", "select"),
        ("select = { all = true, types = ['x'] }", "select.all"),
        ("select = { devices = [''] }", "select.devices"),
        ("select = { topics = ['a/#/b'] }", "select.topics"),
        ("select = { topics = ['$share/g/a'] }", "select.topics"),
        ("select = { tags = { site = [] } }", "select.tags.site"),
        ("select = { tags = { site = '!=' } }", "select.tags.site"),
        ("field = ''", "field"),
        ("op = '(none)'", "op"),
        ("at = '(none)'", "at"),
        ("at = 'warm'", "at"),
        ("at = true", "at"),
        ("at = [1, 2]", "at"),
        ("at = nan", "at"),
        ("value = 5", "at"),
        ("op = 'inside'", "at"),
        ("op = 'outside'\nat = [8, 2]", "at"),
        ("clear = 6", "clear"),
        ("op = '<'\nclear = 4", "clear"),
        ("op = '=='\nclear = 4", "clear"),
        ("op = 'outside'\nat = [2, 8]\nclear = [1, 9]", "clear"),
        ("op = 'inside'\nat = [2, 8]\nclear = [3, 7]", "clear"),
        ("band = 1", "band"),
        ("op = 'outside'\nat = [2, 8]\nband = 4", "band"),
        ("epsilon = 1", "epsilon"),
        ("op = '=='\nepsilon = -1", "epsilon"),
        ("low = 1", "high"),
        ("levels = { warning = { at = 5 } }", "at"),
        (
            "at = '(none)'\nlevels = { warning = { at = 5 }, critical = { at = 4 } }",
            "levels.critical.at",
        ),
        (
            "at = '(none)'\nop = '<'\nlevels = { warning = { at = 5 }, critical = { at = 6 } }",
            "levels.critical.at",
        ),
        (
            "at = '(none)'\nlevels = { warning = { at = 5, clear = 6 } }",
            "levels.warning.clear",
        ),
        (
            "at = '(none)'\nlevels = { warning = {} }",
            "levels.warning.at",
        ),
        (
            "at = '(none)'\nlevels = { warning = { at = 5 } }\nseverity = 'error'",
            "severity",
        ),
        ("window = '1m'", "window"),
        ("timeout = '1m'", "timeout"),
        ("counter = true", "counter"),
        ("presence = 'fresh'", "presence"),
        ("max_instances = 0", "max_instances"),
        ("max_age = '0s'", "max_age"),
        (
            "expected_interval = '1m'\nmax_gap = '1m'\nfor = '5m'",
            "max_gap",
        ),
        (
            "stale_after = '1h'\non_no_data = { resolve_after = '10m' }",
            "stale_after",
        ),
        (
            "on_no_data = { resolve_after = '0s' }",
            "on_no_data.resolve_after",
        ),
        ("repeat = { warning = '1s' }", "repeat.warning"),
        ("labels = { 'a b' = 'x' }", "labels.a b"),
        ("kind = 'absence'\nop = '(none)'\nat = '(none)'", "timeout"),
        (
            "kind = 'absence'\ntarget = 'device'\ntimeout = '1m'\nop = '(none)'\nat = '(none)'",
            "field",
        ),
        (
            "kind = 'count'\nat = '(none)'\nwindow = '1m'\nat_least = 3",
            "value",
        ),
        (
            "kind = 'count'\nat = '(none)'\nvalue = 1\nwindow = '1m'",
            "at_least",
        ),
        (
            "kind = 'count'\nat = '(none)'\nvalue = 1\nwindow = '1m'\nat_least = 3\nclear_n = 3",
            "clear_n",
        ),
        (
            "kind = 'count'\nat = '(none)'\nvalue = 1\nwindow = '25h'\nat_least = 3",
            "window",
        ),
        (
            "kind = 'count'\nat = '(none)'\nvalue = 1\nwindow = '1m'\nat_least = 10001",
            "at_least",
        ),
        ("kind = 'rate'\nwindow = '1m'", "per"),
        (
            "kind = 'rate'\nper = '1m'\nwindow = '1m'\nmin_span = '2m'",
            "min_span",
        ),
        ("kind = 'rate'\nper = '1m'\nwindow = '1m'\nop = '=='", "op"),
    ] {
        assert_eq!(keys(&threshold(change)), [expected], "{change}");
    }
}

#[test]
fn mistakes_do_not_hide_each_other() {
    let rule = threshold("id = ''\nfield = ''\nclear = 6\nwindow = '1m'");
    assert_eq!(keys(&rule), ["id", "window", "field", "clear"]);
}

#[test]
fn what_is_hardly_meant_is_a_warning() {
    let warned = |rule: &RuleConfig| {
        assert_eq!(rule.validate_one(), []);
        let keys = rule.warnings().into_iter().map(|(key, _)| key);
        keys.collect::<Vec<_>>()
    };
    assert_eq!(
        warned(&threshold("for = '10s'\nexpected_interval = '1m'")),
        ["for"]
    );
    assert_eq!(warned(&threshold("op = '=='\nat = 0.3")), ["epsilon"]);
    assert_eq!(warned(&threshold("")), [""; 0]);
    let count = "select = { all = true }\nkind = 'count'\nfield = 't'\nop = '>'\nvalue = 1\nwindow = '1m'\nat_least = 3";
    assert_eq!(warned(&rule(count)), ["on_no_data"]);
    let absence =
        "select = { all = true }\nkind = 'absence'\ntimeout = '1m'\nexpected_interval = '1m'";
    assert_eq!(warned(&rule(absence)), ["timeout"]);
    let short = "select = { all = true }\nkind = 'absence'\ntimeout = '5s'";
    assert_eq!(warned(&rule(short)), ["timeout"]);
}

#[test]
fn a_list_is_checked_for_twins_and_receivers() {
    let rules = [threshold(""), threshold("receivers = ['oncall', 'nobody']")];
    let receivers = [ReceiverConfig {
        name: "oncall".into(),
        ..ReceiverConfig::default()
    }];
    let mut problems = Problems::default();
    RuleConfig::validate_all(&rules, &receivers, &mut problems);
    let keys: Vec<_> = problems
        .0
        .iter()
        .map(|problem| problem.key.as_str())
        .collect();
    assert_eq!(keys, ["rules.1.id", "rules.1.receivers"]);
}

#[test]
fn file_json_and_bson_read_alike() {
    let rule = rule(
        "name = 'Cold room'\nselect = { types = ['probe'], tags = { site = ['a', '!=b'], tier = 'x' } }\nfield = 't'\nop = 'outside'\n\
         levels = { warning = { at = [2, 8.5], for = '10m' }, critical = { at = [0, 10], band = 1 } }\n\
         on_no_data = { resolve_after = '1h' }\nrepeat = { critical = '1h' }\nlabels = { team = 'x' }",
    );
    let toml = toml::to_string(&rule).unwrap();
    assert_eq!(toml::from_str::<RuleConfig>(&toml).unwrap(), rule);
    let json = serde_json::to_string(&rule).unwrap();
    assert_eq!(serde_json::from_str::<RuleConfig>(&json).unwrap(), rule);
    let bson = mongodb::bson::to_document(&rule).unwrap();
    assert_eq!(
        mongodb::bson::from_document::<RuleConfig>(bson).unwrap(),
        rule
    );
    assert!(serde_json::from_str::<RuleConfig>(r#"{"id": "r", "treshold": 1}"#).is_err());
    // Whole numbers of any width, as a shell or a driver writes them.
    let shell = mongodb::bson::doc! {
        "id": "r", "select": { "all": true }, "field": "t", "op": ">", "at": 5_i32, "max_instances": 7_i64,
    };
    let read: RuleConfig = mongodb::bson::from_document(shell).unwrap();
    assert_eq!(
        (read.at, read.max_instances),
        (Some(Operand::Integer(5)), 7)
    );
}
