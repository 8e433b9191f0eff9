//! No stall goes unseen: canaries come back on a real broker, a broker that takes everything and delivers nothing is noticed
//! within 15 s and the connection rebuilt, a write that takes long is named, and a broker that does not allow canaries
//! costs a reason in `/readyz` and nothing else.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::eventually;
use support::gate::Gate;
use support::gateway::Gateway;
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::packets::{Publish, Received};
use support::plan::{Plan, now_ms, reasons, wait_reason};
use support::process::temp_dir;
use support::publisher::publish_all;
use support::scripted_broker::{Connection, ScriptedBroker};

const SECOND: Duration = Duration::from_secs(1);

/// Two tests of each story: MQTT 5 and MQTT 3.1.1.
macro_rules! for_both_protocols {
    ($($story:ident)+) => { $(
        mod $story {
            #[tokio::test]
            async fn mqtt_5() {
                super::$story("5").await;
            }

            #[tokio::test]
            async fn mqtt_3_1_1() {
                super::$story("3.1.1").await;
            }
        }
    )+ };
}

for_both_protocols! {
    a_canary_comes_back_and_is_no_message
    a_broker_that_lost_the_subscription_is_noticed_and_the_connection_rebuilt
    canaries_that_are_not_allowed_cost_a_reason_and_no_message
    a_write_that_takes_long_is_named_and_no_reason_to_reconnect
}

fn reading(n: u32) -> String {
    format!("{{\"ts\":{},\"n\":{n}}}", now_ms() + i64::from(n))
}

async fn wait_canaries(gateway: &Gateway, more_than: u64) {
    gateway
        .wait_metrics(20 * SECOND, "canaries come back", |metrics| {
            metrics.count("tidegate_source_canary_seconds_count", &[]) > more_than
        })
        .await;
}

async fn a_canary_comes_back_and_is_no_message(protocol: &str) {
    let mongod = Mongod::shared().await;
    let broker = Mosquitto::start(&[]).await;
    // Everything is subscribed, by a group of two, and nothing may be ignored in silence.
    let plan = Plan::new(broker.url(), mongod.uri())
        .protocol(protocol)
        .mqtt("canary = \"1s\"\nconnections = 2\nshare_group = \"g\"\nunrouted = \"dead_letter\"")
        .section("[[streams]]\nname = \"all\"\ntopics = [\"#\"]\ntemplate = \"{deviceId}/#\"");
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    wait_canaries(&gateway, 5).await;
    publish_all(
        broker.port,
        (0..50).map(|n| (plan.topic("dev"), reading(n))),
    )
    .await;
    stored.wait_rows(50).await;
    wait_canaries(&gateway, 12).await;
    let metrics = gateway.metrics().await;
    for connection in ["0", "1"] {
        let of = [("connection", connection)];
        assert!(metrics.count("tidegate_source_canary_seconds_count", &of) > 1);
        assert_eq!(metrics.count("tidegate_source_canary_overdue", &of), 0);
        assert_eq!(metrics.count("tidegate_source_connects_total", &of), 1);
    }
    assert_eq!(metrics.count("tidegate_source_canary_disconnected", &[]), 0);
    assert_eq!(metrics.count("tidegate_source_rebuilds_total", &[]), 0);
    assert_eq!(metrics.count("tidegate_messages_received_total", &[]), 50);
    assert_eq!(metrics.count("tidegate_messages_ignored_total", &[]), 0);
    assert!(stored.letters().await.is_empty());
    assert_eq!(reasons(&gateway).await.len(), 0);
}

/// A session and the connection of its canaries.
struct Pair {
    session: Connection,
    canary: Connection,
}

/// Takes the next two connections, in whatever order they come.
async fn accept_pair(broker: &ScriptedBroker) -> Pair {
    let (mut session, mut canary) = (None, None);
    while session.is_none() || canary.is_none() {
        let mut connection = broker.accept().await;
        let connect = connection.expect_connect().await;
        connection.send_connack(false, 0).await;
        if connect.client_id.ends_with("-canary") {
            assert!(connect.clean_start);
            canary = Some(connection);
        } else {
            connection.grant_subscription().await;
            session = Some(connection);
        }
    }
    Pair {
        session: session.expect("looked for"),
        canary: canary.expect("looked for"),
    }
}

/// Takes the next canary and confirms it, without delivering it.
async fn take(canary: &mut Connection) -> Publish {
    let publish = canary.expect_publish().await;
    canary.send_puback(publish.pkid).await;
    publish
}

async fn a_broker_that_lost_the_subscription_is_noticed_and_the_connection_rebuilt(protocol: &str) {
    let mongod = Mongod::shared().await;
    let broker = ScriptedBroker::start().await;
    let plan = Plan::new(broker.url(), mongod.uri()).protocol(protocol);
    let mut gateway = plan.start();
    let Pair {
        mut session,
        mut canary,
    } = accept_pair(&broker).await;
    gateway.wait_ready().await;
    let first = take(&mut canary).await;
    assert_eq!(first.topic, format!("tidegate/canary/{}", plan.client_id));
    session
        .send_publish(Publish::new(1, first.topic.clone(), first.payload))
        .await;
    session.expect_puback(1).await;
    let stalled = Instant::now();
    wait_canaries(&gateway, 0).await;

    // From now on everything is confirmed, pings are answered, and nothing is delivered.
    let taking = tokio::spawn(async move {
        loop {
            match canary.next_within(60 * SECOND).await {
                Some(Received::Publish(publish)) => canary.send_puback(publish.pkid).await,
                _ => return canary,
            }
        }
    });
    let words = ["canary", first.topic.as_str(), "does not deliver"];
    wait_reason(&gateway, 16 * SECOND, &words).await;
    let seen = stalled.elapsed();
    assert!(seen < 15 * SECOND, "seen after {seen:?}");
    session.expect_closed().await;
    let metrics = gateway.metrics().await;
    let of = [("reason", "canary")];
    assert_eq!(metrics.count("tidegate_source_rebuilds_total", &of), 1);

    // Rebuilt, and red until something is delivered.
    taking.abort();
    let mut second = broker.accept().await;
    while second.expect_connect().await.client_id != plan.client_id {
        // The connection of the canaries, which this test has just dropped.
        second.send_connack(false, 0).await;
        second = broker.accept().await;
    }
    second.send_connack(true, 0).await;
    second.grant_subscription().await;
    wait_reason(&gateway, 5 * SECOND, &["canary"]).await;
    second
        .send_publish(Publish::new(2, plan.topic("dev"), reading(1)))
        .await;
    second.expect_puback(2).await;
    gateway.wait_ready().await;
    assert!(gateway.process.log().contains("Messages flow again"));
}

async fn canaries_that_are_not_allowed_cost_a_reason_and_no_message(protocol: &str) {
    let mongod = Mongod::shared().await;
    let plan = Plan::new("mqtt://127.0.0.1:1", mongod.uri());
    let folder = temp_dir("acl");
    let acl = folder.path().join("acl");
    fs::write(&acl, format!("topic readwrite {}/#\n", plan.root)).expect("the folder is ours");
    let acl = acl.display().to_string();
    let broker = Mosquitto::start(&[("acl_file", &acl)]).await;
    let plan = plan
        .mqtt("canary = \"1s\"")
        .protocol(protocol)
        .broker(broker.url());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start();
    let started = Instant::now();
    let topic = format!("tidegate/canary/{}", plan.client_id);
    let words = [topic.as_str(), "may publish to and subscribe", "\"0s\""];
    wait_reason(&gateway, 20 * SECOND, &words).await;
    assert!(started.elapsed() < 18 * SECOND, "{:?}", started.elapsed());

    // Messages flow, and nothing else is tried: neither while they do nor while it is quiet.
    publish_all(
        broker.port,
        (0..50).map(|n| (plan.topic("dev"), reading(n))),
    )
    .await;
    stored.wait_rows(50).await;
    eventually(10 * SECOND, "started", async || {
        (reasons(&gateway).await.len() == 1).then_some(())
    })
    .await;
    let until = Instant::now() + 12 * SECOND;
    while Instant::now() < until {
        let reasons = reasons(&gateway).await;
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        tokio::time::sleep(SECOND).await;
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("tidegate_source_connects_total", &[]), 1);
    assert_eq!(metrics.count("tidegate_source_rebuilds_total", &[]), 0);
    assert_eq!(metrics.count("tidegate_messages_received_total", &[]), 50);
    if protocol == "5" {
        assert!(gateway.process.log().contains("publishing is refused"));
    }
}

async fn a_write_that_takes_long_is_named_and_no_reason_to_reconnect(protocol: &str) {
    let mongod = Mongod::shared().await;
    let broker = Mosquitto::shared().await;
    let gate = Gate::start(mongod.nodes[0].port).await;
    let plan = Plan::new(broker.url(), gate.uri()).protocol(protocol);
    let stored = plan.stored_in(mongod.client().await);
    let mut gateway = plan.start_ready().await;
    gate.hold("dev-slow");
    let held = Instant::now();
    publish_all(broker.port, [(plan.topic("dev-slow"), reading(1))]).await;
    let client_id = plan.client_id.as_str();
    let words = [client_id, "un-acknowledged", "MongoDB or the writer"];
    wait_reason(&gateway, 16 * SECOND, &words).await;
    assert!(held.elapsed() < 15 * SECOND, "{:?}", held.elapsed());
    gate.open();
    stored.wait_rows(1).await;
    gateway.wait_ready().await;
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("tidegate_source_connects_total", &[]), 1);
    assert_eq!(metrics.count("tidegate_source_rebuilds_total", &[]), 0);
}

#[tokio::test]
async fn a_refused_canary_topic_is_told_apart_from_refused_filters() {
    let mongod = Mongod::shared().await;
    let broker = ScriptedBroker::start().await;
    let plan = Plan::new(broker.url(), mongod.uri());
    let gateway = plan.start();
    let mut session = broker.accept().await;
    while session.expect_connect().await.client_id != plan.client_id {
        session.send_connack(false, 0).await;
        session = broker.accept().await;
    }
    session.send_connack(false, 0).await;
    let subscribe = session.expect_subscribe().await;
    let topic = format!("tidegate/canary/{}", plan.client_id);
    let paths: Vec<_> = subscribe.filters.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(paths, [plan.topic("+"), topic.clone()]);
    session.send_suback(subscribe.pkid, &[1, 0x87]).await;
    let words = [topic.as_str(), "subscribing is refused", "NotAuthorized"];
    wait_reason(&gateway, 10 * SECOND, &words).await;
    session
        .send_publish(Publish::new(1, plan.topic("dev"), reading(1)))
        .await;
    session.expect_puback(1).await;
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("tidegate_source_subscribed", &[]), 1);
    assert_eq!(
        metrics.count("tidegate_source_refused_filters_total", &[]),
        0
    );
}
