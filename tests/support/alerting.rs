//! What tests of the alerts have in common: a rule, a receiver that remembers, and what must hold of what it was told.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::process::Output;
use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::gateway::{Gateway, tidegate};
use super::mongod::Mongod;
use super::mosquitto::Mosquitto;
use super::plan::{Plan, Stored, now_ms};
use super::publisher::publish_all;
use super::receiver::{Receiver, Told};

pub const SECOND: Duration = Duration::from_secs(1);

/// A rule that fires above 8 and clears at 5.
pub const HOT: &str = "[[rules]]\nid = \"hot\"\nfield = \"t\"\nselect = { devices = [\"room-*\"] }\n\
                       op = \">\"\nseverity = \"critical\"\nat = 8.0\nclear = 5.0\n";

/// Leadership and places in the feed change hands within a test's patience.
pub const BRISK: &str =
    "[alerts]\ncooldown = \"0s\"\nlease = \"2s\"\ncheckpoint_every = \"500ms\"\n";

/// Each alert is told by itself, however many there are and however often they come and go.
pub const ONE_BY_ONE: &str =
    "[alerts.storm]\nopen = 100000\numbrella = 100000\n[alerts.flap]\nhigh = 0\nlow = 0\n";

pub const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// A gateway with that rule, which tells that receiver.
pub async fn plan(receiver: &Receiver) -> (Plan, Stored, u16) {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    plan_on(mongod, broker, receiver).await
}

pub async fn plan_on(
    mongod: &Mongod,
    broker: &Mosquitto,
    receiver: &Receiver,
) -> (Plan, Stored, u16) {
    let plan = Plan::new(broker.url(), mongod.uri())
        .section(BRISK)
        .section(HOT)
        .section(&receiver.section("oncall", &format!("secret = {SECRET:?}")));
    let stored = plan.stored_in(mongod.client().await);
    (plan, stored, broker.port)
}

/// The device says these values, a millisecond apart.
pub async fn measure(plan: &Plan, port: u16, device: &str, values: &[f64]) {
    let messages: Vec<_> = values
        .iter()
        .enumerate()
        .map(|(n, value)| {
            let time = now_ms() + i64::try_from(n).expect("a few values");
            (
                plan.topic(device),
                format!("{{\"ts\":{time},\"t\":{value}}}"),
            )
        })
        .collect();
    publish_all(port, messages).await;
}

/// Waits until this gateway evaluates the rules.
pub async fn leads(gateway: &Gateway) {
    gateway
        .wait_metrics(30 * SECOND, "it evaluates the rules", |metrics| {
            metrics.count("tidegate_alert_leader", &[]) == 1
        })
        .await;
}

/// Devices whose alert of this rule is open, as the database has it.
pub async fn open_alerts(stored: &Stored, rule: &str) -> BTreeSet<String> {
    let filter = doc! { "rule": rule, "track.state": { "$in": ["firing", "recovering"] } };
    let mut found = BTreeSet::new();
    let Ok(mut cursor) = stored.collection("alert_state").find(filter).await else {
        return found;
    };
    while cursor.advance().await.unwrap_or(false) {
        let alert: Document = cursor.deserialize_current().expect("alerts are documents");
        found.insert(
            alert
                .get_str("device")
                .expect("an alert has a device")
                .into(),
        );
    }
    found
}

/// Runs `tidegate` with the configuration of that gateway.
pub fn cli(gateway: &Gateway, arguments: &[&str]) -> Output {
    let (commands, rest) = arguments.split_at(2.min(arguments.len()));
    tidegate()
        .args(commands)
        .arg("--config")
        .arg(gateway.config_file())
        .args(rest)
        .output()
        .expect("it starts")
}

/// What a command that must succeed writes to standard output.
pub fn cli_says(gateway: &Gateway, arguments: &[&str]) -> String {
    let output = cli(gateway, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// No id with two bodies; what was taken of each alert alternates between firing and resolved. Returns those that
/// fire by what the receiver knows.
pub fn assert_sound(receiver: &Receiver) -> BTreeSet<String> {
    let mut bodies: BTreeMap<String, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for told in receiver.told() {
        let id = told.header("webhook-id").to_owned();
        bodies.entry(id).or_default().insert(told.body.to_vec());
    }
    for (id, bodies) in bodies {
        assert_eq!(bodies.len(), 1, "{id} came with {} bodies", bodies.len());
    }
    let (mut firing, mut refused) = (BTreeSet::new(), BTreeSet::new());
    let mut seen = HashSet::new();
    for told in receiver.told() {
        let key = key(&told);
        let (taken, kind) = (told.status < 300, told.kind());
        // What was taken, but whose answer was lost, comes again under its id.
        if taken && !seen.insert(told.header("webhook-id").to_owned()) {
            continue;
        }
        let sound = match (kind.as_str(), taken) {
            ("alert.firing", true) => firing.insert(key.clone()),
            ("alert.firing", false) => {
                refused.insert(key.clone());
                true
            }
            // Also of what was refused: whoever asked may have died before it heard so.
            ("alert.resolved", true) => firing.remove(&key) | refused.remove(&key),
            _ => true,
        };
        assert!(sound, "{kind} of {key} twice:\n{}", tale(receiver, &key));
    }
    firing
}

/// All requests about one alert, one a line.
pub fn tale(receiver: &Receiver, about: &str) -> String {
    let told = receiver.told();
    let lines = told.iter().filter(|told| key(told) == about).map(|told| {
        let id = told.header("webhook-id");
        let lost = if told.lost { ", answer lost" } else { "" };
        format!(
            "{:?} {id} {} {}{lost}: {}\n",
            told.at,
            told.kind(),
            told.status,
            told.json()
        )
    });
    lines.collect()
}

/// The key of the alert that a request is about, or that of the storm or group.
pub fn key(told: &Told) -> String {
    let body = told.json();
    let key = body["data"]["alert"]["key"]
        .as_str()
        .or(body["data"]["key"].as_str());
    key.unwrap_or_else(|| panic!("{body} names its alert"))
        .to_owned()
}
