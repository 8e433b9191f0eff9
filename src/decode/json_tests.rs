//! JSON: tables of what is refused and why, and `serde_json` as an oracle for the rest.
//!
//! The oracle accepts duplicate keys and deep nesting, and refuses numbers beyond a double; those
//! are the only differences allowed.

use proptest::prelude::*;

use super::*;

const STRICT: Options = Options {
    depth: 64,
    non_finite: NonFinite::DeadLetter,
};

fn refusal(text: &str) -> Refusal {
    parse(text, 0, STRICT).unwrap_err()
}

#[test]
fn syntax_errors_say_where_and_what_was_expected() {
    for (text, place, expected) in [
        (
            "{\"a\":-4,\"b\":1,}",
            "line 1, column 15 (offset 14)",
            "another item",
        ),
        (
            "{\"url\":\"x\ty\"}",
            "line 1, column 10",
            "control character",
        ),
        (
            "{\n  \"ü\" 1}",
            "line 2, column 7 (offset 9)",
            "`:` after a key",
        ),
        ("{\"v\":2,", "line 1, column 8", "the end of the payload"),
        ("{v:1}", "column 2", "a key in double quotes"),
        ("[1 2]", "column 4", "`,` or `]`"),
        ("{\"a\":1 \"b\":2}", "column 8", "`,` or `}`"),
        ("{\"a\":01}", "column 7", "a digit"),
        ("{\"a\":+1}", "column 6", "a value"),
        ("{\"a\":'x'}", "column 6", "a value"),
        ("{\"a\":tru}", "column 9", "a value"),
        ("{\"a\":nul}", "column 9", "a value"),
        ("{\"a\":\"\\x\"}", "column 8", "escape"),
        ("{\"a\":\"\\ud800\"}", "line 1", "surrogates"),
        ("{\"a\":\"x", "column 8", "closing"),
        ("   ", "column 4", "a value"),
        ("\u{1}", "column 1", "a value"),
    ] {
        let refusal = refusal(text);
        assert_eq!(
            refusal.reason,
            Reason::JsonSyntax,
            "{text}: {}",
            refusal.detail
        );
        let detail = &refusal.detail;
        assert!(
            detail.contains(place) && detail.contains(expected),
            "{text}: {detail}"
        );
    }
}

#[test]
fn stricter_than_most() {
    for (text, reason, part) in [
        (
            "{\"a\":{\"t\":nan}}",
            Reason::JsonNonFinite,
            "`nan` at offset 10",
        ),
        ("[NaN]", Reason::JsonNonFinite, "`NaN` at offset 1"),
        (
            "{\"a\":-Infinity,\"b\":2}",
            Reason::JsonNonFinite,
            "`-Infinity` at offset 5",
        ),
        ("-inf", Reason::JsonNonFinite, "`-inf` at offset 0"),
        ("{\"a\":INF}", Reason::JsonNonFinite, "`INF`"),
        ("{\"a\":1}\n{\"a\":2}", Reason::JsonTrailingData, "offset 8"),
        ("1 2", Reason::JsonTrailingData, "offset 2"),
        ("{\"t\":1,\"h\":2,\"t\":3}", Reason::JsonDuplicateKey, "`t`"),
        (
            "[{\"x\":{\"a\":1,\"\\u0061\":2}}]",
            Reason::JsonDuplicateKey,
            "`a`",
        ),
    ] {
        let refusal = refusal(text);
        assert_eq!(refusal.reason, reason, "{text}");
        assert!(refusal.detail.contains(part), "{text}: {}", refusal.detail);
    }
    let many: Vec<String> = (0..40).map(|n| format!("\"k{}\":1", n % 39)).collect();
    let refusal = refusal(&format!("{{{}}}", many.join(",")));
    assert_eq!(refusal.reason, Reason::JsonDuplicateKey);
    assert!(refusal.detail.contains("`k0`"));
}

#[test]
fn depth_is_bounded_for_arrays_and_objects() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
        assert!(parse(&nested(64), 0, STRICT).is_ok());
        for n in [65, 100_000] {
            let refusal = refusal(&nested(n));
            assert_eq!(refusal.reason, Reason::TooDeep);
            assert!(refusal.detail.contains("depth limit of 64"));
        }
    }
}

#[test]
fn non_finite_values_can_be_stepped_over() {
    let options = Options {
        non_finite: NonFinite::Drop,
        ..STRICT
    };
    let text = "{\"a\": nan ,\"b\":[-Infinity,1,NaN],\"c\\n\":2}";
    let value = parse(text, 0, options).unwrap();
    assert_eq!(value.get("a"), Some(&Value::NonFinite));
    let numbers = [
        Value::NonFinite,
        Value::Number("1".into()),
        Value::NonFinite,
    ];
    assert_eq!(value.get("b"), Some(&Value::Array(numbers.into())));
    assert_eq!(value.get("c\n").and_then(Value::as_word), Some("2"));
    let after = parse("{\"a\":nan,\"b\":}", 0, options).unwrap_err();
    assert!(
        after.detail.contains("column 14 (offset 13)"),
        "{}",
        after.detail
    );
}

#[test]
fn long_digit_runs_are_out_of_range() {
    assert_eq!(refusal(&"9".repeat(5_000)).reason, Reason::NumberOutOfRange);
}

#[test]
fn offsets_count_from_the_start_of_the_payload() {
    assert!(
        parse("{} x", 3, STRICT)
            .unwrap_err()
            .detail
            .contains("offset 6")
    );
}

/// Our tree as `serde_json` would have it.
fn oracle_value(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Null | Value::NonFinite => serde_json::Value::Null,
        Value::Bool(bool) => (*bool).into(),
        Value::Number(text) => serde_json::from_str(text).expect("in JSON grammar"),
        Value::Text(text) => text.clone().into_owned().into(),
        Value::Array(items) => items.iter().map(oracle_value).collect(),
        Value::Object(members) => {
            let pairs = members
                .iter()
                .map(|(k, v)| (k.clone().into_owned(), oracle_value(v)));
            serde_json::Value::Object(pairs.collect())
        }
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,12}".prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((".{0,6}", inner), 0..6)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Text that is nearly JSON: tokens in any order, or a document with one byte changed.
fn near_json() -> impl Strategy<Value = String> {
    let tokens = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"b\"",
        "\"\\u00e9\"",
        "\"",
        "1",
        "-",
        "0",
        "1.5",
        "e9",
        "01",
        "null",
        "nul",
        "true",
        "nan",
        "-Infinity",
        " ",
        "\n",
        "\\",
        "ü",
    ]);
    let soup = prop::collection::vec(tokens, 0..12).prop_map(|t| t.concat());
    let mutated =
        (any_json(), any::<prop::sample::Index>(), any::<char>()).prop_map(|(v, at, c)| {
            let text = v.to_string();
            let mut chars: Vec<char> = text.chars().collect();
            let n = at.index(chars.len());
            chars[n] = c;
            chars.into_iter().collect()
        });
    prop_oneof![soup, mutated]
}

proptest! {
    #[test]
    fn what_serde_json_writes_reads_alike(value in any_json(), pretty in any::<bool>()) {
        let text = match pretty {
            true => serde_json::to_string_pretty(&value).unwrap(),
            false => value.to_string(),
        };
        let parsed = parse(&text, 0, STRICT).map_err(|r| TestCaseError::fail(r.detail))?;
        // Read back, since a float is printed with the digits of its nearest neighbour.
        let oracle: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(oracle_value(&parsed), oracle);
    }

    #[test]
    fn both_refuse_the_same_text(text in near_json()) {
        let oracle = serde_json::from_str::<serde_json::Value>(&text);
        match parse(&text, 0, STRICT) {
            Ok(value) => {
                // `serde_json` refuses what no double holds; for us that is a matter of the field.
                let too_large = oracle.as_ref().is_err_and(|e| e.to_string().contains("out of range"));
                prop_assert!(oracle.is_ok() || too_large, "only we accept {}", text);
                if let Ok(oracle) = oracle {
                    prop_assert_eq!(oracle_value(&value), oracle);
                }
            }
            Err(refusal) => {
                let ours_alone = matches!(refusal.reason, Reason::JsonDuplicateKey | Reason::TooDeep);
                prop_assert!(oracle.is_err() || ours_alone, "{}: {}", text, refusal.detail);
            }
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,60}", drop in any::<bool>()) {
        let non_finite = if drop { NonFinite::Drop } else { NonFinite::DeadLetter };
        let _ = parse(&text, 0, Options { depth: 8, non_finite });
    }
}
