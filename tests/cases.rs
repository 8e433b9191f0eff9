//! The catalogue of payloads and public bug reports, decoded.
//!
//! Each case says in neutral words how a route is set up, what arrives and what must come of it.
//! `adapt` turns the words into a stream's configuration, `compare` checks what was decoded. Cases
//! come from `tests/data/cases-dev.jsonl`, or from the file that `TIDEGATE_CASES` names. Cases with
//! scripted faults are decoded here all the same; their delivery is tested against real services.

#[path = "cases/adapt.rs"]
mod adapt;
#[path = "cases/compare.rs"]
mod compare;
#[path = "cases/lookup.rs"]
mod lookup;

use std::collections::BTreeMap;
use std::io::Write as _;

use base64::Engine as _;
use serde_json::Value;
use tidegate::config::streams::{Nested, Unrouted};
use tidegate::decode::{Decoded, Router, decode};
use tidegate::model::{Message, QoS, Spooled, Timestamp};

const FORMATS: [&str; 5] = ["json", "json_or_text", "text", "number", "bool"];

#[test]
fn every_case_decodes_as_the_catalogue_says() {
    let path = std::env::var("TIDEGATE_CASES").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cases-dev.jsonl").into()
    });
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut passes: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut report = String::new();
    let mut failures = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Value = serde_json::from_str(line).expect("a case is one JSON object a line");
        let name = case["name"].as_str().unwrap_or("?");
        if !in_scope(&case["route"]) {
            continue;
        }
        if let Some(why) = skipped(&case) {
            report += &format!("skipped {name}: {why}\n");
            continue;
        }
        if case.get("steps").is_some() {
            report += &format!("{name}: decoded only; delivery is tested against real services\n");
        }
        let kind = case["kind"].as_str().unwrap_or("?").to_owned();
        let count = passes.entry(kind).or_default();
        count.1 += 1;
        let problems: Vec<String> = [Nested::Flatten, Nested::Keep]
            .into_iter()
            .filter_map(|nested| run(&case, nested).err().map(|e| format!("{nested:?}: {e}")))
            .collect();
        match problems.is_empty() {
            true => count.0 += 1,
            false => failures.push(format!("{name}: {}", problems.join("\n    "))),
        }
    }
    report += "kind                             passed   of\n";
    for (kind, (passed, of)) in &passes {
        report += &format!("{kind:32} {passed:6} {of:4}\n");
    }
    // Straight to the handle: the harness would swallow the table of a passing run.
    let _ = write!(std::io::stderr(), "\n{report}");
    assert!(!passes.is_empty(), "{path} holds no case to decode");
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn in_scope(route: &Value) -> bool {
    route["action"] == "ignore"
        || route["format"]
            .as_str()
            .is_some_and(|f| FORMATS.contains(&f))
}

fn skipped(case: &Value) -> Option<String> {
    if case["optional"] == true {
        return Some("optional".into());
    }
    let mut routes = std::iter::once(&case["route"]).chain(also_routes(case));
    routes.find_map(adapt::unsupported)
}

fn also_routes(case: &Value) -> impl Iterator<Item = &Value> {
    case["also_routes"].as_array().into_iter().flatten()
}

fn run(case: &Value, nested: Nested) -> Result<(), String> {
    let mut streams = Vec::new();
    for (n, route) in std::iter::once(&case["route"])
        .chain(also_routes(case))
        .enumerate()
    {
        streams.push(adapt::stream(route, n, nested)?);
    }
    let unrouted = match case["route"].get("subscribed_by") {
        Some(_) => Unrouted::DeadLetter,
        None => Unrouted::Ignore,
    };
    let expect = &case["expect"];
    let router = match Router::build(&streams, unrouted) {
        Ok(router) => router,
        Err(_) if expect["outcome"] == "config_error" => return Ok(()),
        Err(problems) => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(format!("configuration refused: {}", problems.join("; ")));
        }
    };
    let decoded: Vec<Decoded> = messages(case).iter().map(|m| decode(&router, m)).collect();
    let scripted = case["steps"]
        .as_array()
        .is_some_and(|steps| steps.iter().any(|step| step["do"] == "mongo_refuse"));
    let judge = compare::Judge {
        decoded: &decoded,
        config: &streams[0],
        received: &case["received_at"],
    };
    if scripted {
        // What the database refuses is decoded like the rest.
        return judge.points(expect);
    }
    let first = judge.expectation(expect);
    let alternatives = expect["alt"].as_array().into_iter().flatten();
    match first {
        Err(_)
            if alternatives
                .into_iter()
                .any(|alt| judge.expectation(alt).is_ok()) =>
        {
            Ok(())
        }
        result => result,
    }
}

fn messages(case: &Value) -> Vec<Message> {
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let repeat = case["repeat_message"].as_u64().unwrap_or(1);
    let main = (0..repeat).map(|_| case.clone());
    let all = list("before").into_iter().chain(main).chain(list("after"));
    all.map(|m| message(&m, &case["received_at"])).collect()
}

fn message(case: &Value, received_at: &Value) -> Message {
    let at = case.get("received_at").unwrap_or(received_at);
    let at = at.as_str().unwrap_or("2026-03-14T09:15:30.250Z");
    let received_at: Timestamp = at.parse().expect("received_at is RFC 3339");
    let topic = match case["topic_b64"].as_str() {
        Some(encoded) => bytes(encoded),
        None => case["topic"].as_str().unwrap_or_default().into(),
    };
    Message {
        topic: topic.into(),
        payload: payload(case).into(),
        cut_from: None,
        qos: QoS::AtLeastOnce,
        retain: case["retain"] == true,
        dup: case["dup"] == true,
        spooled: Spooled::No,
        received_at,
    }
}

fn payload(case: &Value) -> Vec<u8> {
    if let Some(text) = case["payload_utf8"].as_str() {
        return text.into();
    }
    if let Some(encoded) = case["payload_b64"].as_str() {
        return bytes(encoded);
    }
    let part = |key: &str| case["payload_gen"][key].as_str().unwrap_or_default();
    let count = case["payload_gen"]["count"].as_u64().unwrap_or(0);
    let unit = part("unit").repeat(usize::try_from(count).expect("a count fits in memory"));
    format!("{}{unit}{}", part("prefix"), part("suffix")).into()
}

fn bytes(encoded: &str) -> Vec<u8> {
    let engine = base64::engine::general_purpose::STANDARD;
    engine.decode(encoded).expect("base64 in a case is valid")
}
