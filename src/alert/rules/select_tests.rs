//! Selectors and the index over them: they must agree on every reading.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::alert::rules::index::{Entry, Index};

fn select(toml: &str) -> SelectConfig {
    toml::from_str(toml).unwrap()
}

const FIELDS: &[(String, FieldValue)] = &[];

fn view<'a>(device: &'a str, tags: &'a [(String, String)]) -> View<'a> {
    View {
        device,
        kind: Some("probe"),
        tags,
        stream: Some("telemetry"),
        topic: Some("plant/a/cold/1"),
        fields: FIELDS,
    }
}

fn tags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
    pairs.iter().map(owned).collect()
}

#[test]
fn every_part_given_must_hold() {
    let own = tags(&[("site", "ams1"), ("tier", "prod")]);
    for (toml, expected) in [
        ("all = true", Match::Yes),
        ("types = ['probe', 'pump']", Match::Yes),
        ("types = ['pump']", Match::No),
        ("devices = ['cr-1']", Match::Yes),
        ("devices = ['cr-*']", Match::Yes),
        ("devices = ['cr-?']", Match::Yes),
        ("devices = ['*-2', 'x']", Match::No),
        ("tags = { site = 'ams1' }", Match::Yes),
        ("tags = { site = ['ams1', 'ams2'] }", Match::Yes),
        ("tags = { site = 'ams*' }", Match::Yes),
        ("tags = { site = 'fra1' }", Match::No),
        ("tags = { tier = '!=test' }", Match::Yes),
        ("tags = { tier = ['!=test', '!=prod'] }", Match::No),
        ("tags = { site = ['ams*', '!=ams1'] }", Match::No),
        ("tags = { absent = '!=x' }", Match::Yes),
        ("tags = { absent = '*' }", Match::No),
        ("topics = ['plant/+/cold/#']", Match::Yes),
        ("topics = ['plant/+/warm/#']", Match::No),
        ("streams = ['telemetry']", Match::Yes),
        ("streams = ['other']", Match::No),
        ("types = ['probe']\ndevices = ['cr-2']", Match::No),
    ] {
        let selector = Selector::new(&select(toml));
        assert_eq!(selector.matches(&view("cr-1", &own)), expected, "{toml}");
    }
}

#[test]
fn a_topic_that_is_not_known_leaves_the_answer_open() {
    let unknown = View {
        topic: None,
        ..view("cr-1", &[])
    };
    let selector = Selector::new(&select("topics = ['a/#']"));
    assert_eq!(selector.matches(&unknown), Match::Perhaps);
    let selector = Selector::new(&select("topics = ['a/#']\ntypes = ['pump']"));
    assert_eq!(selector.matches(&unknown), Match::No);
}

fn selects() -> impl Strategy<Value = SelectConfig> {
    let some = |words: &'static [&'static str]| {
        proptest::collection::vec(proptest::sample::select(words), 0..3)
            .prop_map(|words| words.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    (
        some(&["probe", "pump"]),
        some(&["d1", "d2", "d*", "*1", "e-?"]),
        some(&["x", "y", "!=x", "x*"]),
        some(&["a/+", "a/#", "#", "+/b", "a/b"]),
        some(&["s", "t"]),
    )
        .prop_map(|(types, devices, site, topics, streams)| SelectConfig {
            all: false,
            types,
            devices,
            tags: match site.is_empty() {
                true => Default::default(),
                false => [("site".to_owned(), crate::config::rules::Words::Many(site))].into(),
            },
            topics,
            streams,
        })
}

proptest! {
    #[test]
    fn the_index_misses_no_rule_that_matches(
        selects in proptest::collection::vec((selects(), any::<bool>()), 1..20),
        device in proptest::sample::select(vec!["d1", "d2", "d31", "e-1", "z"]),
        kind in proptest::option::of(proptest::sample::select(vec!["probe", "pump", "x"])),
        site in proptest::option::of(proptest::sample::select(vec!["x", "y", "xx"])),
        topic in proptest::option::of(proptest::sample::select(vec!["a", "a/b", "a/b/c", "$a/b"])),
        stream in proptest::sample::select(vec!["s", "t", "u"]),
    ) {
        let fields = vec![("v".to_owned(), FieldValue::Int64(1))];
        let own: Vec<_> = site.iter().map(|site| ("site".to_owned(), (*site).to_owned())).collect();
        let view = View { device, kind, tags: &own, stream: Some(stream), topic, fields: &fields };
        let entries: Vec<_> = selects.iter().enumerate().map(|(n, (select, field))| Entry {
            rule: n as u32,
            field: field.then_some("v"),
            select,
        }).collect();
        let mut found = Vec::new();
        let _ = Index::build(&entries).visit(&view, &mut |n| {
            found.push(n);
            ControlFlow::Continue(())
        });
        for (n, (select, _)) in selects.iter().enumerate() {
            if Selector::new(select).matches(&view) != Match::No {
                prop_assert!(found.contains(&(n as u32)), "{select:?}");
            }
        }
    }
}

#[test]
fn rules_that_share_a_type_are_found_by_what_tells_them_apart() {
    let selects: Vec<_> = (0..1_000)
        .map(|n| select(&format!("types = ['probe']\ntags = {{ site = 's{n}' }}")))
        .collect();
    let entries: Vec<_> = selects
        .iter()
        .enumerate()
        .map(|(n, select)| Entry {
            rule: n as u32,
            field: None,
            select,
        })
        .collect();
    let index = Index::build(&entries);
    let mut found = Vec::new();
    let own = tags(&[("site", "s7")]);
    let _ = index.visit(&view("cr-1", &own), &mut |n| {
        found.push(n);
        ControlFlow::Continue(())
    });
    assert_eq!(found, [7]);
}
