//! From a reading to a page: a real broker, a real database, and what a receiver is told.

mod support;

use std::collections::BTreeSet;

use futures_util::StreamExt;
use mongodb::bson::{Document, doc};

use support::alerting::{
    BRISK, HOT, SECOND, SECRET, assert_sound, cli, cli_says, key, leads, measure, plan, plan_on,
};
use support::eventually;
use support::gate::Gate;
use support::gateway::Gateway;
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, now_ms, wait_reason};
use support::publisher::publish_all;
use support::receiver::{Receiver, Told};

#[tokio::test]
async fn a_breach_is_told_and_so_is_its_end() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[4.0, 9.0]).await;
    let told = receiver.wait(20 * SECOND, 1).await;
    assert_eq!(told[0].kind(), "alert.firing");
    let body = told[0].json();
    assert_eq!(body["data"]["rule"]["id"], "hot", "{body}");
    assert_eq!(body["data"]["device"]["id"], "room-1", "{body}");
    assert_eq!(body["data"]["severity"], "critical", "{body}");
    assert_eq!(body["data"]["value"], 9.0, "{body}");
    // Between clear and at: nothing happens. Then it is over.
    measure(&plan, port, "room-1", &[6.0]).await;
    measure(&plan, port, "room-1", &[4.0]).await;
    let told = receiver.wait(20 * SECOND, 2).await;
    assert_eq!(told[1].kind(), "alert.resolved");
    assert_eq!(told[1].json()["data"]["reason"], "condition_cleared");
    assert_sound(&receiver);
    // Another series is none of the rule's business, and does not even get into the feed.
    measure(&plan, port, "pump-1", &[99.0]).await;
    stored.wait_rows(5).await;
    let fed = stored.collection("feed");
    let pumps = fed
        .count_documents(doc! { "readings.d": "pump-1" })
        .await
        .unwrap();
    let rooms = fed
        .count_documents(doc! { "readings.d": "room-1" })
        .await
        .unwrap();
    assert_eq!((pumps, rooms > 0), (0, true));
    assert_eq!(receiver.told().len(), 2);
    eventually(10 * SECOND, "both rows are delivered", async || {
        let rows = stored.collection("alert_outbox");
        let delivered = rows.count_documents(doc! { "state": "delivered" }).await;
        (delivered.unwrap() == 2).then_some(())
    })
    .await;
    let history = stored.collection("alert_history");
    for what in ["fired", "resolved", "accepted"] {
        let line = history.find_one(doc! { "what": what }).await.unwrap();
        assert!(line.is_some(), "{what}");
    }
}

#[tokio::test]
async fn a_receiver_that_fails_is_told_again_under_the_same_id() {
    let receiver = Receiver::start().await;
    let (plan, _, port) = plan(&receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    receiver.answer(&[503, 500]);
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(30 * SECOND, 1).await;
    let told = receiver.told();
    assert_eq!(told.len(), 3);
    let ids: BTreeSet<_> = told
        .iter()
        .map(|t| t.header("webhook-id").to_owned())
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    measure(&plan, port, "room-1", &[1.0]).await;
    receiver.wait(30 * SECOND, 2).await;
    assert_sound(&receiver);
}

#[tokio::test]
async fn a_restart_neither_forgets_nor_repeats() {
    let receiver = Receiver::start().await;
    let (plan, _, port) = plan(&receiver).await;
    let mut gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(20 * SECOND, 1).await;
    gateway.restart();
    gateway.wait_ready().await;
    leads(&gateway).await;
    // It is known to fire; another high value is nothing new.
    measure(&plan, port, "room-1", &[10.0]).await;
    measure(&plan, port, "room-2", &[10.0]).await;
    receiver.wait(20 * SECOND, 2).await;
    measure(&plan, port, "room-1", &[1.0]).await;
    let told = receiver.wait(20 * SECOND, 3).await;
    let kinds: Vec<_> = told.iter().map(Told::kind).collect();
    assert_eq!(kinds, ["alert.firing", "alert.firing", "alert.resolved"]);
    assert_sound(&receiver);
}

#[tokio::test]
async fn of_two_gateways_one_evaluates_and_the_other_takes_over() {
    let receiver = Receiver::start().await;
    let (plan, _, port) = plan(&receiver).await;
    let mut first = plan.start_ready().await;
    leads(&first).await;
    let mut other = plan.clone();
    other.client_id = support::unique("gateway");
    // Another session of its own; both take every message, and the series tells copies apart.
    let second = other.start_ready().await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(20 * SECOND, 1).await;
    assert_eq!(
        second.metrics().await.count("tidegate_alert_leader", &[]),
        0
    );
    first.kill();
    leads(&second).await;
    measure(&plan, port, "room-1", &[1.0]).await;
    let told = receiver.wait(20 * SECOND, 2).await;
    assert_eq!(told[1].kind(), "alert.resolved");
    assert_sound(&receiver);
}

#[tokio::test]
async fn rules_of_the_database_come_and_go_while_it_runs() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    let rules = stored.collection("alert_rules");
    let rule = doc! { "_id": "wet", "field": "h", "select": { "devices": ["cellar"] }, "op": ">",
    "severity": "warning", "at": 80, "clear": 70 };
    rules.insert_one(rule).await.unwrap();
    let rules_in_force = async |count: u64| {
        gateway
            .wait_metrics(20 * SECOND, "rules in force", |metrics| {
                metrics.count("tidegate_alert_rules", &[]) == count
            })
            .await
    };
    rules_in_force(2).await;
    let wet = async |value: u32| {
        let payload = format!("{{\"ts\":{},\"h\":{value}}}", now_ms());
        publish_all(port, [(plan.topic("cellar"), payload)]).await;
    };
    wet(90).await;
    let told = receiver.wait(20 * SECOND, 1).await;
    assert_eq!(told[0].json()["data"]["rule"]["id"], "wet");
    // A mistake leaves the former version in force, and is counted.
    let set = |update: Document| doc! { "$set": update };
    rules
        .update_one(doc! {}, set(doc! { "op": "??" }))
        .await
        .unwrap();
    gateway
        .wait_metrics(20 * SECOND, "the mistake is counted", |metrics| {
            metrics.count("tidegate_alert_rules_refused", &[]) == 1
        })
        .await;
    rules_in_force(2).await;
    // A rule that is gone does not leave its alert behind.
    rules.delete_one(doc! {}).await.unwrap();
    let told = receiver.wait(20 * SECOND, 2).await;
    assert_eq!(told[1].kind(), "alert.resolved");
    assert_eq!(told[1].json()["data"]["reason"], "rule_deleted");
    rules_in_force(1).await;
    assert_sound(&receiver);
}

#[tokio::test]
async fn the_registry_enters_devices_and_its_tags_reach_rows_and_rules() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let plan = plan.section(
        "[[rules]]\nid = \"north\"\nfield = \"t\"\nselect = { tags = { site = \"north\" } }\nop = \"<\"\n\
         severity = \"warning\"\nat = -20.0\n",
    );
    let _gateway = plan.start_ready().await;
    leads(&_gateway).await;
    measure(&plan, port, "box-1", &[1.0]).await;
    let devices = stored.collection("devices");
    let entry = eventually(20 * SECOND, "the device is entered", async || {
        devices.find_one(doc! { "_id": "box-1" }).await.unwrap()
    })
    .await;
    assert!(entry.get_datetime("firstSeen").is_ok() && entry.get_datetime("lastSeen").is_ok());
    let tags = doc! { "$set": { "tags": { "site": "north" }, "type": "freezer" } };
    devices
        .update_one(doc! { "_id": "box-1" }, tags)
        .await
        .unwrap();
    // In force within moments.
    eventually(20 * SECOND, "the tags are joined in", async || {
        measure(&plan, port, "box-1", &[-30.0]).await;
        let filter = doc! { "metadata.site": "north", "metadata.type": "freezer" };
        let row = stored
            .collection("readings")
            .find_one(filter)
            .await
            .unwrap();
        row.map(drop)
    })
    .await;
    let told = receiver.wait(20 * SECOND, 1).await;
    assert_eq!(told[0].json()["data"]["rule"]["id"], "north");
    assert_eq!(told[0].json()["data"]["device"]["tags"]["site"], "north");
}

#[tokio::test]
async fn a_device_that_never_came_is_missed_and_found() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let plan = plan.section(
        "[[rules]]\nid = \"silent\"\nkind = \"absence\"\nselect = { types = [\"probe\"] }\n\
         severity = \"critical\"\ntimeout = \"2s\"\n",
    );
    let ghost = doc! { "_id": "ghost", "type": "probe", "enabled": true };
    stored
        .collection("devices")
        .insert_one(ghost)
        .await
        .unwrap();
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    let told = receiver.wait(30 * SECOND, 1).await;
    assert_eq!(told[0].json()["data"]["device"]["id"], "ghost");
    assert_eq!(told[0].kind(), "alert.firing");
    measure(&plan, port, "ghost", &[1.0]).await;
    let told = receiver.wait(30 * SECOND, 2).await;
    assert_eq!(told[1].kind(), "alert.resolved");
    assert_sound(&receiver);
}

#[tokio::test]
async fn a_restart_takes_the_backlog_with_what_the_registry_says() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let plan = plan.section(
        "[[rules]]\nid = \"north\"\nfield = \"t\"\nselect = { tags = { site = \"north\" } }\nop = \"<\"\n\
         severity = \"critical\"\nat = -20.0\n",
    );
    let devices = stored.collection("devices");
    // Many, so that reading them takes a while.
    let entry = |n| doc! { "_id": format!("box-{n}"), "tags": { "site": "north" } };
    devices.insert_many((0..20_000).map(entry)).await.unwrap();
    let mut gateway = plan.start_ready().await;
    leads(&gateway).await;
    gateway.kill();
    measure(&plan, port, "box-19999", &[-30.0]).await;
    measure(&plan, port, "box-1", &[-30.0]).await;
    gateway.restart();
    let told = receiver.wait(30 * SECOND, 2).await;
    assert_eq!(told[0].json()["data"]["rule"]["id"], "north");
    for row in stored.wait_rows(2).await {
        let metadata = row.get_document("metadata").unwrap();
        assert_eq!(metadata.get_str("site"), Ok("north"), "{row}");
    }
}

// --- what operators say ------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_silence_keeps_back_what_fires_and_nothing_else() {
    let receiver = Receiver::start().await;
    let (plan, _, port) = plan(&receiver).await;
    let mut gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-0", &[9.0]).await;
    receiver.wait(20 * SECOND, 1).await;
    let said = cli_says(
        &gateway,
        &[
            "silences",
            "add",
            "device=~room-[01]",
            "--for",
            "1h",
            "--comment",
            "works",
            "--author",
            "ann",
        ],
    );
    assert!(said.contains("; 1 open alerts match"), "{said}");
    let id = said.split_whitespace().next().unwrap().to_owned();
    let listed = cli_says(&gateway, &["silences", "list"]);
    assert!(
        listed.contains(&id) && listed.contains("active"),
        "{listed}"
    );
    assert!(
        listed.contains("device=~\"room-[01]\"") && listed.contains("ann: works"),
        "{listed}"
    );
    // Done by the leader, which hears of silences on the same way.
    cli_says(&gateway, &["alerts", "ack", "hot:room-0"]);

    measure(&plan, port, "room-1", &[9.0]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    receiver.wait(20 * SECOND, 2).await;
    let held = eventually(20 * SECOND, "it is held back", async || {
        let shown = cli(&gateway, &["alerts", "show", "hot:room-1"]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        shown.contains("silence").then_some(shown)
    });
    let held = held.await;
    assert!(
        held.contains("firing") && held.contains("oncall: not told"),
        "{held}"
    );
    // Another leader knows of it from the first moment on.
    gateway.restart();
    gateway.wait_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-3", &[9.0]).await;
    receiver.wait(20 * SECOND, 3).await;
    // What was told before is resolved in spite of it.
    measure(&plan, port, "room-0", &[1.0]).await;
    let told = receiver.wait(20 * SECOND, 4).await;
    assert_eq!(
        (told[3].kind().as_str(), key(&told[3]).as_str()),
        ("alert.resolved", "hot:room-0")
    );
    assert!(
        told.iter().all(|told| key(told) != "hot:room-1"),
        "{told:?}"
    );

    let said = cli_says(&gateway, &["silences", "expire", &id]);
    assert!(said.contains("has ended"), "{said}");
    let told = receiver.wait(20 * SECOND, 5).await;
    assert_eq!(
        (told[4].kind().as_str(), key(&told[4]).as_str()),
        ("alert.firing", "hot:room-1")
    );
    assert_sound(&receiver);
    assert!(!cli_says(&gateway, &["silences", "list"]).contains(&id));
    let listed = cli_says(&gateway, &["silences", "list", "--all"]);
    assert!(listed.contains(&id) && listed.contains("ended"), "{listed}");
    // Twice is a slip, an id nobody knows an error.
    assert_eq!(
        cli(&gateway, &["silences", "expire", &id]).status.code(),
        Some(2)
    );
    assert_eq!(
        cli(&gateway, &["silences", "expire", "s0"]).status.code(),
        Some(1)
    );
}

#[tokio::test]
async fn silences_are_looked_at_before_they_are_added() {
    let receiver = Receiver::start().await;
    let (plan, _, port) = plan(&receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(20 * SECOND, 1).await;
    let add = |more: &[&str]| {
        let all = [
            &[
                "silences",
                "add",
                "rule=hot",
                "--for",
                "1h",
                "--comment",
                "c",
            ],
            more,
        ]
        .concat();
        cli(&gateway, &all)
    };
    let preview = add(&["--preview"]);
    let preview = String::from_utf8_lossy(&preview.stdout).into_owned();
    assert!(
        preview.contains("hot:room-1") && preview.contains("nothing was added"),
        "{preview}"
    );
    assert_eq!(cli_says(&gateway, &["silences", "list", "--all"]), "");
    // One that is to come, and is called off.
    let later = add(&["--starts", "2199-01-01T00:00:00Z"]);
    assert_eq!(later.status.code(), Some(0), "{later:?}");
    let listed = cli_says(&gateway, &["silences", "list"]);
    assert!(listed.contains("to come"), "{listed}");
    let id = listed.split_whitespace().next().unwrap().to_owned();
    cli_says(&gateway, &["silences", "expire", &id]);
    assert_eq!(cli_says(&gateway, &["silences", "list"]), "");
    let listed = cli_says(&gateway, &["silences", "list", "--all"]);
    assert!(listed.contains("ended"), "{listed}");

    let wrong: [(&[&str], i32); 5] = [
        (&["silences", "add", "rule=hot", "--for", "1h"], 2),
        (
            &["silences", "add", "hot", "--for", "1h", "--comment", "c"],
            2,
        ),
        (
            &[
                "silences",
                "add",
                "rule=hot",
                "--for",
                "soon",
                "--comment",
                "c",
            ],
            2,
        ),
        (
            &[
                "silences",
                "add",
                "rule=~.*",
                "--for",
                "1h",
                "--comment",
                "c",
            ],
            1,
        ),
        (
            &[
                "silences",
                "add",
                "rule=hot",
                "--for",
                "900d",
                "--comment",
                "c",
            ],
            1,
        ),
    ];
    for (arguments, code) in wrong {
        let output = cli(&gateway, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {output:?}");
    }
}

#[tokio::test]
async fn alerts_are_listed_acknowledged_and_ended_by_hand() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let mut gateway = plan.start_ready().await;
    leads(&gateway).await;
    assert_eq!(cli_says(&gateway, &["alerts", "list"]), "0 of 0\n");
    measure(&plan, port, "room-1", &[9.5]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    receiver.wait(20 * SECOND, 2).await;
    let listed = cli_says(&gateway, &["alerts", "list"]);
    assert!(
        listed.contains("firing") && listed.contains("critical"),
        "{listed}"
    );
    assert!(
        listed.contains("hot:room-1") && listed.contains("hot:room-2"),
        "{listed}"
    );
    let listed = cli_says(
        &gateway,
        &["alerts", "list", "--device", "room-1", "--json"],
    );
    let listed: Vec<serde_json::Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["key"], &listed[0]["state"]),
        (&"hot:room-1".into(), &"firing".into())
    );
    assert_eq!(listed[0]["episode"]["value"], 9.5, "{}", listed[0]);
    for nothing in [
        ["--rule", "cold"],
        ["--state", "pending"],
        ["--label", "site=north"],
    ] {
        let listed = cli_says(&gateway, &[&["alerts", "list"], &nothing[..]].concat());
        assert_eq!(listed, "0 of 2\n", "{nothing:?}");
    }
    let shown = cli_says(&gateway, &["alerts", "show", "hot:room-1"]);
    for word in ["hot:room-1", "critical", "t = 9.5", "oncall: told at"] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    let shown = cli_says(&gateway, &["alerts", "show", "hot:room-1", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["device"], "room-1");

    assert_eq!(
        cli_says(&gateway, &["alerts", "ack", "hot:room-1", "--by", "ann"]),
        "done\n"
    );
    let listed = cli_says(&gateway, &["alerts", "list", "--device", "room-1"]);
    assert!(listed.contains("acked"), "{listed}");
    assert_eq!(
        cli_says(
            &gateway,
            &["alerts", "resolve", "hot:room-1", "--by", "bob"]
        ),
        "done\n"
    );
    let told = receiver.wait(20 * SECOND, 3).await;
    assert_eq!(told[2].kind(), "alert.resolved");
    assert_eq!(told[2].json()["data"]["reason"], "manual");
    // Not again before it was clear once.
    measure(&plan, port, "room-1", &[10.0]).await;
    measure(&plan, port, "room-3", &[9.0]).await;
    let told = receiver.wait(20 * SECOND, 4).await;
    assert_eq!(key(&told[3]), "hot:room-3");
    measure(&plan, port, "room-1", &[1.0, 9.0]).await;
    let told = receiver.wait(20 * SECOND, 5).await;
    assert_eq!(
        (told[4].kind().as_str(), key(&told[4]).as_str()),
        ("alert.firing", "hot:room-1")
    );
    assert_sound(&receiver);
    let listed = cli_says(&gateway, &["alerts", "list", "--device", "room-1"]);
    assert!(!listed.contains("acked"), "{listed}");

    let history = eventually(20 * SECOND, "all of it is in the history", async || {
        let history = cli_says(&gateway, &["alerts", "history", "hot:room-1"]);
        (history.matches("  accepted ").count() == 3).then_some(history)
    });
    let history = history.await;
    for word in [
        "fired",
        "acked",
        "by=ann",
        "resolved",
        "reason=manual",
        "by=bob",
        "receiver=oncall",
    ] {
        assert!(history.contains(word), "{word} in {history}");
    }
    let newest = cli_says(&gateway, &["alerts", "history", "--limit", "1", "--json"]);
    assert_eq!(newest.lines().count(), 1);
    let newest: serde_json::Value = serde_json::from_str(&newest).unwrap();
    assert!(
        newest["at"].as_str().is_some_and(|at| at.ends_with('Z')),
        "{newest}"
    );
    let none = cli_says(
        &gateway,
        &["alerts", "history", "--since", "2199-01-01T00:00:00Z"],
    );
    assert_eq!(none, "");

    for (arguments, code) in [
        (&["alerts", "show", "hot:nobody"][..], 1),
        (&["alerts", "ack", "hot:nobody"], 1),
        (&["alerts", "resolve", "hot:nobody"], 1),
        (&["alerts", "ack", "hot:room-1", "--for", "soon"], 2),
        (&["alerts", "list", "--state", "bad"], 2),
        (&["alerts", "list", "--label", "site"], 2),
    ] {
        let output = cli(&gateway, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {output:?}");
    }
    // Nobody evaluates: the wish is kept, and the operator told so.
    gateway.kill();
    let output = cli(&gateway, &["alerts", "resolve", "hot:room-1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let asked = stored.collection("alert_requests");
    assert_eq!(asked.count_documents(doc! {}).await.unwrap(), 1);
    gateway.restart();
    let told = receiver.wait(30 * SECOND, 6).await;
    assert_eq!(
        told[5].json()["data"]["reason"],
        "manual",
        "{}",
        gateway.process.log()
    );
}

#[tokio::test]
async fn a_reload_changes_rules_and_receivers() {
    let (first, second) = (Receiver::start().await, Receiver::start().await);
    let (plan, _, port) = plan(&first).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    measure(&plan, port, "room-2", &[30.0]).await;
    first.wait(20 * SECOND, 2).await;

    // Higher: one of the two is over by that. And a rule more.
    let toml = plan
        .toml()
        .replace("at = 8.0\nclear = 5.0", "at = 20.0\nclear = 15.0")
        + "[[rules]]\nid = \"cold\"\nfield = \"t\"\nselect = { devices = [\"box\"] }\nop = \"<\"\n\
           severity = \"critical\"\nat = 0.0\n";
    reload(&gateway, &toml);
    let told = first.wait(20 * SECOND, 3).await;
    assert_eq!(
        (told[2].kind().as_str(), key(&told[2]).as_str()),
        ("alert.resolved", "hot:room-1")
    );
    assert_eq!(told[2].json()["data"]["reason"], "rule_changed");
    eventually(20 * SECOND, "the new rule sees", async || {
        measure(&plan, port, "box", &[-1.0]).await;
        (first.accepted().len() >= 4).then_some(())
    })
    .await;
    assert_eq!(key(&first.accepted()[3]), "cold:box");

    // Another receiver takes over; the first is owed the end of what it was told.
    let toml = toml.replace(
        &first.section("oncall", &format!("secret = {SECRET:?}")),
        &second.section("others", ""),
    );
    reload(&gateway, &toml);
    eventually(20 * SECOND, "the second is told", async || {
        measure(&plan, port, "room-3", &[30.0, 1.0]).await;
        (!second.accepted().is_empty()).then_some(())
    })
    .await;
    measure(&plan, port, "room-2", &[1.0]).await;
    measure(&plan, port, "box", &[1.0]).await;
    eventually(30 * SECOND, "the first is told of the ends", async || {
        assert_sound(&first).is_empty().then_some(())
    })
    .await;
    // A mistake changes nothing.
    reload(&gateway, &toml.replace("op = \"<\"", "op = \"~\""));
    eventually(20 * SECOND, "it is refused", async || {
        gateway
            .process
            .log()
            .contains("Configuration not reloaded")
            .then_some(())
    })
    .await;
    assert_eq!(
        gateway.metrics().await.count("tidegate_alert_rules", &[]),
        2
    );
    measure(&plan, port, "room-4", &[30.0]).await;
    eventually(20 * SECOND, "it goes on", async || {
        second
            .accepted()
            .iter()
            .any(|told| key(told) == "hot:room-4")
            .then_some(())
    })
    .await;
}

fn reload(gateway: &Gateway, toml: &str) {
    std::fs::write(gateway.config_file(), toml).expect("the folder is ours");
    gateway.process.signal("HUP");
}

// --- the feed ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_feed_of_all_readings_can_be_followed_by_anybody() {
    let mongod = Mongod::shared().await;
    let broker = Mosquitto::shared().await;
    let plan = Plan::new(broker.url(), mongod.uri())
        .section("[feed]\nmode = \"all\"\ndocument_bytes = \"16KiB\"\n");
    let stored = plan.stored_in(mongod.client().await);
    let site = doc! { "_id": "d-1", "type": "probe", "tags": { "site": "north" } };
    stored.collection("devices").insert_one(site).await.unwrap();
    let _gateway = plan.start_ready().await;
    let feed = stored.collection("feed");
    let mut follow = feed.watch().await.unwrap();
    let time = now_ms();
    let messages = (0..400).map(|n| {
        let text = "x".repeat(100);
        let payload = format!(
            "{{\"ts\":{},\"t\":{n},\"s\":\"{text}\",\"b\":true}}",
            time + n
        );
        (plan.topic(&format!("d-{}", n % 7)), payload)
    });
    publish_all(broker.port, messages.collect::<Vec<_>>()).await;

    let mut seen = BTreeSet::new();
    while seen.len() < 400 {
        let event = tokio::time::timeout(20 * SECOND, follow.next()).await;
        let event = event.expect("all come").unwrap().unwrap();
        let document = event.full_document.unwrap();
        assert_eq!(document.get_i32("v"), Ok(1));
        assert_eq!(document.get_str("gateway"), Ok(plan.client_id.as_str()));
        assert!(document.get_datetime("at").is_ok() && document.get_object_id("_id").is_ok());
        assert!(mongodb::bson::to_vec(&document).unwrap().len() <= 16 << 10);
        let readings = document.get_array("readings").unwrap();
        if let Ok(beat) = document.get_document("beat") {
            assert!(beat.get_datetime("low").is_ok() && beat.get_bool("linked").is_ok());
            assert!(readings.is_empty());
            continue;
        }
        assert_eq!(document.get_str("stream"), Ok("telemetry"));
        assert!(document.get_i32("lane").is_ok());
        for reading in readings {
            let reading = reading.as_document().unwrap();
            let device = reading.get_str("d").unwrap();
            assert_eq!(reading.get_str("p"), Ok(plan.topic(device).as_str()));
            assert!(reading.get_datetime("rt").is_ok());
            let fields = reading.get_document("f").unwrap();
            assert_eq!(fields.get_bool("b"), Ok(true));
            let n = fields.get_f64("t").unwrap() as i64;
            assert_eq!(
                reading.get_datetime("t").unwrap().timestamp_millis(),
                time + n
            );
            if device == "d-1" {
                assert_eq!(reading.get_str("y"), Ok("probe"));
                assert_eq!(
                    reading.get_document("g").unwrap(),
                    &doc! { "site": "north" }
                );
            }
            assert!(seen.insert((device.to_owned(), n)), "{device} {n} twice");
        }
    }
    stored.wait_rows(400).await;
}

#[tokio::test]
async fn without_a_feed_nothing_is_evaluated() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let plan = plan.section("[feed]\nmode = \"off\"\n");
    let mut gateway = plan.start_ready().await;
    measure(&plan, port, "room-1", &[9.0]).await;
    stored.wait_rows(1).await;
    assert!(gateway.terminate().await.success());
    let names = stored.database().list_collection_names().await.unwrap();
    for absent in ["feed", "alert_state", "leases"] {
        assert!(!names.iter().any(|name| name == absent), "{names:?}");
    }
    assert!(receiver.told().is_empty());
}

#[tokio::test]
async fn what_others_put_into_the_feed_is_passed_over() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    let feed = stored.collection("feed");
    for odd in [doc! {}, doc! { "v": 2 }, doc! { "v": 1, "readings": 7 }] {
        feed.insert_one(odd).await.unwrap();
    }
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(20 * SECOND, 1).await;
    let metrics = gateway.metrics().await;
    assert_eq!(
        metrics.count("tidegate_alert_events_undecodable_total", &[]),
        3
    );
    assert_eq!(metrics.count("tidegate_alert_gaps_total", &[]), 0);
}

#[tokio::test]
async fn a_message_is_acknowledged_when_the_feed_has_it_too() {
    let receiver = Receiver::start().await;
    let mongod = Mongod::shared().await;
    let gate = Gate::start(mongod.nodes[0].port).await;
    let broker = Mosquitto::shared().await;
    let plan = Plan::new(broker.url(), gate.uri())
        // A canary behind the message would wait with it.
        .mqtt("canary = \"0s\"")
        .section(BRISK)
        .section(HOT)
        .section(&receiver.section("oncall", ""));
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    gate.hold("insert\0\u{5}\0\0\0feed\0");
    measure(&plan, broker.port, "room-1", &[9.0]).await;
    stored.wait_rows(1).await;
    let reason = wait_reason(&gateway, 60 * SECOND, &["feed"]).await;
    println!("{reason}");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("tidegate_source_unacked_messages", &[]), 1);
    assert_eq!(receiver.told().len(), 0);
    gate.open();
    gateway
        .wait_metrics(30 * SECOND, "it is acknowledged", |metrics| {
            metrics.count("tidegate_source_unacked_messages", &[]) == 0
        })
        .await;
    receiver.wait(30 * SECOND, 1).await;
    assert_eq!(stored.row_count().await, 1);
}

// --- devices -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_device_that_is_deleted_or_out_of_service_fires_no_longer() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let plan = plan.section("[devices]\nlast_seen_every = \"1s\"\n");
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    let devices = stored.collection("devices");
    measure(&plan, port, "room-1", &[9.0]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    measure(&plan, port, "room-3", &[9.0]).await;
    receiver.wait(20 * SECOND, 3).await;
    eventually(20 * SECOND, "they are entered", async || {
        (devices.count_documents(doc! {}).await.unwrap() == 3).then_some(())
    })
    .await;

    // Tags are edited: the episode goes on, and ends where it began.
    let tags = doc! { "$set": { "tags": { "site": "north" } } };
    devices
        .update_one(doc! { "_id": "room-3" }, tags)
        .await
        .unwrap();
    devices.delete_one(doc! { "_id": "room-1" }).await.unwrap();
    let told = receiver.wait(20 * SECOND, 4).await;
    assert_eq!(
        (told[3].kind().as_str(), key(&told[3]).as_str()),
        ("alert.resolved", "hot:room-1")
    );
    assert_eq!(told[3].json()["data"]["reason"], "device_deleted");
    let off = doc! { "$set": { "enabled": false } };
    devices
        .update_one(doc! { "_id": "room-2" }, off)
        .await
        .unwrap();
    let told = receiver.wait(20 * SECOND, 5).await;
    assert_eq!(
        (told[4].kind().as_str(), key(&told[4]).as_str()),
        ("alert.resolved", "hot:room-2")
    );
    assert_eq!(told[4].json()["data"]["reason"], "out_of_scope");
    // Out of service: not judged. In service again: judged again.
    measure(&plan, port, "room-2", &[10.0]).await;
    measure(&plan, port, "room-3", &[10.0, 1.0]).await;
    let told = receiver.wait(20 * SECOND, 6).await;
    assert_eq!(
        (told[5].kind().as_str(), key(&told[5]).as_str()),
        ("alert.resolved", "hot:room-3")
    );
    let on = doc! { "$set": { "enabled": true } };
    devices
        .update_one(doc! { "_id": "room-2" }, on)
        .await
        .unwrap();
    eventually(20 * SECOND, "it is judged again", async || {
        measure(&plan, port, "room-2", &[1.0, 9.0]).await;
        receiver
            .accepted()
            .iter()
            .skip(6)
            .any(|told| key(told) == "hot:room-2")
            .then_some(())
    })
    .await;
    assert_sound(&receiver);
    // What was deleted is entered again only when it is heard from.
    let ghost = devices.find_one(doc! { "_id": "room-1" }).await.unwrap();
    assert_eq!(ghost, None);
    measure(&plan, port, "room-1", &[1.0]).await;
    eventually(20 * SECOND, "it is entered again", async || {
        devices
            .find_one(doc! { "_id": "room-1" })
            .await
            .unwrap()
            .map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_device_that_was_deleted_is_not_entered_by_what_it_said_before() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let mut gateway = plan.start_ready().await;
    let devices = stored.collection("devices");
    measure(&plan, port, "room-1", &[1.0]).await;
    gateway
        .wait_metrics(20 * SECOND, "it is known", |metrics| {
            metrics.count("tidegate_devices_known", &[]) == 1
        })
        .await;
    // Noted with the next `lastSeen`, in half a minute.
    measure(&plan, port, "room-1", &[1.0]).await;
    stored.wait_rows(2).await;
    devices.delete_one(doc! { "_id": "room-1" }).await.unwrap();
    gateway
        .wait_metrics(20 * SECOND, "it is forgotten", |metrics| {
            metrics.count("tidegate_devices_known", &[]) == 0
        })
        .await;
    // Writes all that is still to be written.
    assert!(gateway.terminate().await.success());
    assert_eq!(devices.count_documents(doc! {}).await.unwrap(), 0);
}

#[tokio::test]
async fn without_registration_nothing_is_entered() {
    let receiver = Receiver::start().await;
    let (plan, stored, port) = plan(&receiver).await;
    let plan = plan.section("[devices]\nregister = false\nlast_seen_every = \"1s\"\n");
    let devices = stored.collection("devices");
    devices.insert_one(doc! { "_id": "room-2" }).await.unwrap();
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    receiver.wait(20 * SECOND, 2).await;
    eventually(20 * SECOND, "it is noted that it was seen", async || {
        let seen = doc! { "_id": "room-2", "lastSeen": { "$exists": true } };
        devices.find_one(seen).await.unwrap().map(drop)
    })
    .await;
    assert_eq!(devices.count_documents(doc! {}).await.unwrap(), 1);
}

#[tokio::test]
async fn silence_of_a_device_is_not_told_from_silence_of_the_broker_until_it_can_be() {
    let receiver = Receiver::start().await;
    let mut broker = Mosquitto::start(&[]).await;
    let (plan, _, port) = plan_on(Mongod::shared().await, &broker, &receiver).await;
    let plan = plan.section(
        "[[rules]]\nid = \"silent\"\nkind = \"absence\"\nselect = { devices = [\"probe\"] }\n\
         severity = \"critical\"\ntimeout = \"10s\"\n",
    );
    let mut gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "probe", &[1.0]).await;
    gateway
        .wait_metrics(20 * SECOND, "it is judged", |metrics| {
            metrics.count("tidegate_sink_readings_fed_total", &[]) == 1
        })
        .await;
    broker.process.kill();
    let told = receiver.wait(60 * SECOND, 1).await;
    assert_eq!(
        key(&told[0]),
        "tidegate.ingest_stalled:gateway",
        "{}",
        gateway.process.log()
    );
    // Another leader finds it raised, and ends it.
    gateway.kill();
    broker.restart().await;
    gateway.restart();
    let told = receiver.wait(60 * SECOND, 3).await;
    let told: Vec<_> = told.iter().map(|told| (key(told), told.kind())).collect();
    let told: Vec<_> = told
        .iter()
        .map(|(key, kind)| (key.as_str(), kind.as_str()))
        .collect();
    assert_eq!(
        told[1..],
        [
            ("tidegate.ingest_stalled:gateway", "alert.resolved"),
            ("silent:probe", "alert.firing")
        ]
    );
    measure(&plan, port, "probe", &[1.0]).await;
    receiver.wait(20 * SECOND, 4).await;
    assert_sound(&receiver);
}
