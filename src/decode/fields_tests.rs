//! Fields: names, filters, collisions and limits.
//!
//! Tables over JSON payloads, since that is how the cases read best; numbers and words are kept
//! apart from the walk that places them.

use super::*;
use crate::config::streams::{NonFinite, Numbers};
use crate::decode::json::{self, Options};
use crate::decode::test_support::field_rules;

fn take(rules: &FieldRules, text: &str) -> Result<Vec<(String, FieldValue)>, Refusal> {
    let options = Options {
        depth: 64,
        non_finite: NonFinite::Drop,
    };
    let value = json::parse(text, 0, options).unwrap();
    let Value::Object(members) = &value else {
        panic!("{text} is no object")
    };
    let mut fields = Fields::new(rules, false);
    fields.take_members(members, None)?;
    assert_eq!(fields.collision(), None);
    Ok(fields.out)
}

/// Fields as `name=value` text.
fn print(rules: &FieldRules, text: &str) -> String {
    let fields = take(rules, text).unwrap();
    let all = fields.iter().map(|(name, value)| match value {
        FieldValue::Double(n) => format!("{name}={n}"),
        FieldValue::Text(t) => format!("{name}='{t}'"),
        FieldValue::Bool(b) => format!("{name}={b}"),
        other => format!("{name}={other:?}"),
    });
    all.collect::<Vec<_>>().join(" ")
}

#[test]
fn nested_values_are_flattened() {
    for (text, expected) in [
        (r#"{"a":1,"b":"x","c":true,"d":null}"#, "a=1 b='x' c=true"),
        (
            r#"{"a":{"b":{"c":1}},"d":[1,"x",null,2]}"#,
            "a_b_c=1 d_0=1 d_1='x' d_3=2",
        ),
        (
            r#"{"a":[{"b":1},{"b":2}],"e":[],"o":{}}"#,
            "a_0_b=1 a_1_b=2",
        ),
        (
            r#"{"wk.day":1,"$set":2,"":3,"100%":4}"#,
            "wk%2Eday=1 %24set=2 %=3 100%25=4",
        ),
        (
            r#"{"_id":1,"timestamp":2,"a":{"_id":3}}"#,
            "%_id=1 %timestamp=2 a__id=3",
        ),
        (r#"{"a":nan,"b":1}"#, "b=1"),
    ] {
        assert_eq!(print(&field_rules(), text), expected, "{text}");
    }
}

#[test]
fn structure_can_be_kept() {
    let rules = FieldRules {
        nested: Nested::Keep,
        numbers: Numbers::Preserve,
        ..field_rules()
    };
    let fields = take(&rules, r#"{"a":{"b.c":1,"n":null},"d":[1,null,{"e":2}]}"#).unwrap();
    let int = FieldValue::Int64;
    let object = |key: &str, n| FieldValue::Object(vec![(key.into(), int(n))]);
    let expected = [
        ("a".into(), object("b%2Ec", 1)),
        (
            "d".into(),
            FieldValue::Array(vec![int(1), FieldValue::Null, object("e", 2)]),
        ),
    ];
    assert_eq!(fields, expected);
}

fn with(change: impl FnOnce(&mut FieldRules)) -> FieldRules {
    let mut rules = field_rules();
    change(&mut rules);
    rules
}

fn path_rule(rules: &mut FieldRules, path: &str, change: impl FnOnce(&mut Rule)) {
    change(rules.paths.rule_mut(&Path::parse(path).unwrap()));
}

#[test]
fn rules_apply_by_path_or_name_and_to_all_below() {
    const TEXT: &str = r#"{"ENERGY":{"Power":1,"Total":2},"Power":3,"x":[4,5]}"#;
    let include = with(|r| {
        r.all = false;
        r.names.insert(
            "x".into(),
            Rule {
                include: true,
                ..Rule::default()
            },
        );
        path_rule(r, "ENERGY/Total", |rule| rule.include = true);
    });
    assert_eq!(print(&include, TEXT), "ENERGY_Total=2 x_0=4 x_1=5");
    let exclude = with(|r| {
        r.names.insert(
            "ENERGY_Power".into(),
            Rule {
                drop: true,
                ..Rule::default()
            },
        );
        path_rule(r, "x/0", |rule| rule.drop = true);
    });
    assert_eq!(print(&exclude, TEXT), "ENERGY_Total=2 Power=3 x_1=5");
    let rename = with(|r| {
        path_rule(r, "ENERGY", |rule| rule.rename = Some("e".into()));
        r.names.insert(
            "Power".into(),
            Rule {
                rename: Some("p".into()),
                ..Rule::default()
            },
        );
    });
    assert_eq!(print(&rename, TEXT), "e_Power=1 e_Total=2 p=3 x_0=4 x_1=5");
    for (rules, expected) in [
        (
            include,
            "ENERGY=Object([(\"Total\", Double(2.0))]) x=Array([Double(4.0), Double(5.0)])",
        ),
        (
            exclude,
            "ENERGY=Object([(\"Total\", Double(2.0))]) Power=3 x=Array([Null, Double(5.0)])",
        ),
    ] {
        let keep = FieldRules {
            nested: Nested::Keep,
            ..rules
        };
        assert_eq!(print(&keep, TEXT), expected);
    }
}

#[test]
fn words_become_values_only_where_the_stream_says_so() {
    const TEXT: &str = r#"{"a":"ON","b":"97.00","c":"007","d":"--","e":"NaN"}"#;
    assert_eq!(
        print(&field_rules(), TEXT),
        "a='ON' b='97.00' c='007' d='--' e='NaN'"
    );
    let rules = with(|r| {
        r.booleans.insert("ON".into(), true);
        r.missing.push("--".into());
        r.coerce = true;
    });
    assert_eq!(print(&rules, TEXT), "a=true b=97 c='007'");
}

#[test]
fn what_cannot_be_stored_is_named() {
    let long = format!(r#"{{"{}":1}}"#, "k".repeat(65));
    let many: Vec<String> = (0..101).map(|n| format!("\"k{n}\":1")).collect();
    for (text, reason, part) in [
        (r#"{"o":{"a\u0000b":1}}"#, Reason::BadKey, "NUL"),
        (&long, Reason::BadKey, "65 bytes"),
        (
            r#"{"o":[{"litres":1e500}]}"#,
            Reason::NumberOutOfRange,
            "`1e500` at `o/0/litres`",
        ),
        (
            r#"{"n":9223372036854775808}"#,
            Reason::NumberOutOfRange,
            "`9223372036854775808` at `n`",
        ),
        (
            &format!("{{{}}}", many.join(",")),
            Reason::TooManyFields,
            "100 fields",
        ),
    ] {
        let refusal = take(&field_rules(), text).unwrap_err();
        assert_eq!(refusal.reason, reason, "{text}");
        assert!(refusal.detail.contains(part), "{}", refusal.detail);
    }
}
