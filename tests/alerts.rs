//! From a reading to a page: a real broker, a real database, and what a receiver is told.

mod support;

use std::collections::BTreeSet;

use mongodb::bson::{Document, doc};

use support::alerting::{SECOND, assert_sound, leads, measure, plan};
use support::eventually;
use support::plan::now_ms;
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
