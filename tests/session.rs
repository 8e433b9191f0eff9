//! The MQTT session at its edges, seen from a broker that misbehaves on demand: what is acknowledged, when, and on which
//! connection; what the gateway says about it; how it comes back. Each story holds for both protocol versions.

mod support;

use std::time::{Duration, Instant};

use support::gate::Gate;
use support::gateway::Gateway;
use support::mongod::Mongod;
use support::packets::{self, Publish, Received};
use support::plan::{Plan, Stored, device, now_ms, reasons, wait_reason};
use support::scripted_broker::{Connection, ScriptedBroker};

const SECOND: Duration = Duration::from_secs(1);
const A_MOMENT: Duration = Duration::from_millis(300);

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
    a_late_ack_never_confirms_another_message
    what_a_broken_batch_delivered_is_stored_and_acked_once
    a_redelivery_on_the_live_connection_is_one_row_and_one_ack
    a_message_stored_while_the_link_was_down_is_acked_at_once_when_it_comes_again
    a_message_in_flight_while_the_link_was_down_is_acked_once_when_it_is_stored
    what_an_earlier_process_stored_is_not_stored_again
    acks_leave_in_arrival_order
    a_lost_session_is_an_alarm_and_resubscribed
    an_unanswered_subscribe_is_noticed_and_sent_again
    a_refused_filter_is_named_while_the_others_flow
    a_filter_granted_at_qos_0_is_named
    big_messages_do_not_end_the_connection
    readings_in_memory_are_bounded_whatever_the_payload
    refused_credentials_are_named_without_a_storm_or_the_password
    silence_is_noticed_and_mended
    a_broker_that_hangs_up_is_tried_less_and_less_often
    the_connection_is_that_of_a_persistent_session
}

/// A gateway between a scripted broker and a database behind a gate.
struct Scene {
    broker: ScriptedBroker,
    gate: Gate,
    gateway: Gateway,
    plan: Plan,
    stored: Stored,
}

impl Scene {
    async fn start(protocol: &str) -> Scene {
        Scene::start_with(protocol, |plan| plan).await
    }

    async fn start_with(protocol: &str, adapt: impl FnOnce(Plan) -> Plan) -> Scene {
        let mongod = Mongod::shared().await;
        let gate = Gate::start(mongod.nodes[0].port).await;
        let broker = ScriptedBroker::start().await;
        // Canaries have a connection of their own, and a test of their own: tests/stall.rs.
        let plan = Plan::new(broker.url(), gate.uri()).mqtt("canary = \"0s\"");
        let plan = adapt(plan.protocol(protocol));
        let gateway = plan.start();
        Scene {
            broker,
            gate,
            gateway,
            stored: plan.stored_in(mongod.client().await),
            plan,
        }
    }

    /// A reading of this device with a time of its own.
    fn publish(&self, pkid: u16, device: &str) -> Publish {
        let payload = format!("{{\"ts\":{},\"n\":{pkid}}}", now_ms() - i64::from(pkid));
        Publish::new(pkid, self.plan.topic(device), payload)
    }

    async fn wait_count(&self, metric: &str, labels: &[(&str, &str)], count: u64) {
        let what = format!("{metric} {labels:?} is {count}");
        self.gateway
            .wait_metrics(20 * SECOND, &what, |metrics| {
                metrics.count(metric, labels) == count
            })
            .await;
    }

    async fn wait_received(&self, count: u64) {
        self.wait_count("tidegate_messages_received_total", &[], count)
            .await;
    }

    /// The gateway has noticed the end of this many connections.
    async fn wait_disconnects(&self, count: u64) {
        self.wait_count("tidegate_source_disconnects_total", &[], count)
            .await;
    }

    async fn wait_ready(&mut self) {
        self.gateway.wait_ready().await;
    }
}

async fn a_late_ack_never_confirms_another_message(protocol: &str) {
    let scene = Scene::start(protocol).await;
    let mut first = scene.broker.accept_session(false).await;
    scene.gate.hold("dev-a");
    first.send_publish(scene.publish(1, "dev-a")).await;
    scene.wait_received(1).await;
    first.close().await;
    scene.wait_disconnects(1).await;

    // The broker has forgotten everything and gives the same packet id to another message.
    let mut second = scene.broker.accept_session(false).await;
    second.send_publish(scene.publish(1, "dev-b")).await;
    scene.wait_received(2).await;
    // Lets the first one pass and holds the second.
    scene.gate.hold("dev-b");
    let rows = scene.stored.wait_rows(1).await;
    assert_eq!(device(&rows[0]), "dev-a");
    second.expect_quiet(A_MOMENT).await;

    scene.gate.open();
    second.expect_puback(1).await;
    let rows = scene.stored.rows().await;
    assert_eq!(
        rows.iter().map(device).collect::<Vec<_>>(),
        ["dev-a", "dev-b"]
    );
    second.expect_quiet(A_MOMENT).await;
    assert_eq!(scene.broker.pubacks(), [(2, 1)]);
}

async fn what_a_broken_batch_delivered_is_stored_and_acked_once(protocol: &str) {
    let broken = async |garbage: &[u8], patience: Duration| {
        let scene = Scene::start(protocol).await;
        let mut first = scene.broker.accept_session(false).await;
        let messages: Vec<_> = (1..=3).map(|n| scene.publish(n, "dev-a")).collect();
        let mut batch: Vec<u8> = messages
            .iter()
            .flat_map(|message| message.encode(first.level))
            .collect();
        batch.extend(garbage);
        first.send_bytes(&batch).await;
        if garbage.is_empty() {
            first.close().await;
        } else {
            first.expect_closed().await;
        }
        scene.wait_disconnects(1).await;

        let mut second = scene
            .broker
            .accept_within(patience)
            .await
            .expect("the gateway comes back");
        second.expect_connect().await;
        second.send_connack(true, 0).await;
        second.grant_subscription().await;
        // Nothing of the first connection is acknowledged on this one.
        second.expect_quiet(A_MOMENT).await;
        for message in &messages {
            second.send_publish(message.clone().again()).await;
        }
        for pkid in 1..=3 {
            second.expect_puback(pkid).await;
        }
        second.expect_quiet(A_MOMENT).await;
        assert_eq!(scene.stored.rows().await.len(), 3);
        let on_second = scene.broker.pubacks();
        let on_second = on_second.iter().filter(|(connection, _)| *connection == 2);
        assert_eq!(on_second.count(), 3);
    };
    // After a violation of the protocol the gateway keeps away for up to half a minute.
    tokio::join!(
        broken(&[], 20 * SECOND),
        broken(&[0xFF; 8], 40 * SECOND),
        // The beginning of a fourth message, then the end of the connection.
        broken(&[0xF0, 0x02, 0x00, 0x00], 40 * SECOND),
    );
}

async fn a_redelivery_on_the_live_connection_is_one_row_and_one_ack(protocol: &str) {
    let scene = Scene::start(protocol).await;
    let mut connection = scene.broker.accept_session(false).await;
    scene.gate.hold("dev-a");
    let message = scene.publish(1, "dev-a");
    connection.send_publish(message.clone()).await;
    connection.send_publish(message.again()).await;
    scene
        .wait_count("tidegate_source_redeliveries_folded_total", &[], 1)
        .await;
    connection.expect_quiet(A_MOMENT).await;

    scene.gate.open();
    connection.expect_puback(1).await;
    connection.expect_quiet(A_MOMENT).await;
    assert_eq!(scene.stored.rows().await.len(), 1);
    scene.wait_received(1).await;
}

async fn a_message_stored_while_the_link_was_down_is_acked_at_once_when_it_comes_again(
    protocol: &str,
) {
    let scene = Scene::start(protocol).await;
    let mut first = scene.broker.accept_session(false).await;
    scene.gate.hold("dev-a");
    let message = scene.publish(7, "dev-a");
    first.send_publish(message.clone()).await;
    scene.wait_received(1).await;
    first.close().await;
    scene.wait_disconnects(1).await;
    scene.gate.open();
    scene.stored.wait_rows(1).await;

    let mut second = scene.broker.accept_session(true).await;
    second.expect_quiet(A_MOMENT).await;
    // Were it written again, the acknowledgement could not come.
    scene.gate.hold("dev-a");
    second.send_publish(message.again()).await;
    second.expect_puback(7).await;
    scene.gate.open();
    second.expect_quiet(A_MOMENT).await;
    assert_eq!(scene.stored.rows().await.len(), 1);
    assert_eq!(scene.broker.pubacks(), [(2, 7)]);
}

async fn a_message_in_flight_while_the_link_was_down_is_acked_once_when_it_is_stored(
    protocol: &str,
) {
    let scene = Scene::start(protocol).await;
    let mut first = scene.broker.accept_session(false).await;
    scene.gate.hold("dev-a");
    let message = scene.publish(7, "dev-a");
    first.send_publish(message.clone()).await;
    scene.wait_received(1).await;
    first.close().await;

    let mut second = scene.broker.accept_session(true).await;
    second.send_publish(message.again()).await;
    scene
        .wait_count("tidegate_source_redeliveries_folded_total", &[], 1)
        .await;
    second.expect_quiet(A_MOMENT).await;
    scene.gate.open();
    second.expect_puback(7).await;
    second.expect_quiet(A_MOMENT).await;
    assert_eq!(scene.stored.rows().await.len(), 1);
    assert_eq!(scene.broker.pubacks(), [(2, 7)]);
}

async fn what_an_earlier_process_stored_is_not_stored_again(protocol: &str) {
    let mut scene = Scene::start(protocol).await;
    let mut first = scene.broker.accept_session(false).await;
    let message = scene.publish(7, "dev-a");
    first.send_publish(message.clone()).await;
    // Had the process been killed before this left, the broker would repeat the message.
    first.expect_puback(7).await;
    scene.gateway.restart();

    let mut second = scene.broker.accept_session(true).await;
    second.send_publish(message.clone().again()).await;
    second.expect_puback(7).await;
    scene
        .wait_count("tidegate_sink_readings_already_stored_total", &[], 1)
        .await;
    assert_eq!(scene.stored.rows().await.len(), 1);

    // The same device and time, but another value: kept, and counted.
    let mut other = message.clone().again();
    let payload = String::from_utf8(other.payload).unwrap();
    other.payload = payload.replace("\"n\":7", "\"n\":8").into_bytes();
    second.send_publish(other).await;
    second.expect_puback(7).await;
    scene
        .wait_count("tidegate_sink_readings_conflicting_total", &[], 1)
        .await;
    assert_eq!(scene.stored.rows().await.len(), 2);

    // A device that sends a reading again is not told from a broker that does.
    second.send_publish(message).await;
    second.expect_puback(7).await;
    scene
        .wait_count("tidegate_sink_readings_already_stored_total", &[], 2)
        .await;
    assert_eq!(scene.stored.rows().await.len(), 2);
}

async fn acks_leave_in_arrival_order(protocol: &str) {
    let scene = Scene::start(protocol).await;
    let mut connection = scene.broker.accept_session(false).await;
    scene.gate.hold("slow-one");
    connection.send_publish(scene.publish(1, "slow-one")).await;
    scene.wait_received(1).await;
    // Enough devices for some to be on other lanes.
    for pkid in 2..=20 {
        let device = format!("fast-{pkid}");
        connection.send_publish(scene.publish(pkid, &device)).await;
    }
    let rows = scene.stored.wait_rows(1).await;
    assert!(rows.iter().all(|row| device(row) != "slow-one"));
    connection.expect_quiet(A_MOMENT).await;

    scene.gate.open();
    for pkid in 1..=20 {
        connection.expect_puback(pkid).await;
    }
    assert_eq!(scene.stored.rows().await.len(), 20);
}

async fn a_lost_session_is_an_alarm_and_resubscribed(protocol: &str) {
    let mut scene = Scene::start(protocol).await;
    let first = scene.broker.accept_session(false).await;
    scene.wait_ready().await;
    scene
        .wait_count("tidegate_source_sessions_lost_total", &[], 0)
        .await;
    first.close().await;

    let mut second = scene.broker.accept().await;
    second.expect_connect().await;
    second.send_connack(false, 0).await;
    let subscribe = second.grant_subscription().await;
    assert_eq!(subscribe.filters[0].path, scene.plan.topic("+"));
    scene
        .wait_count("tidegate_source_sessions_lost_total", &[], 1)
        .await;
    scene.wait_ready().await;
    let log = scene.gateway.process.log();
    let alarm = log
        .lines()
        .find(|line| line.contains("forgot the session"))
        .unwrap_or_else(|| panic!("no alarm in {log}"));
    assert!(alarm.contains("ERROR"), "{alarm}");
}

async fn an_unanswered_subscribe_is_noticed_and_sent_again(protocol: &str) {
    // Pings would come much later than the limit of 10 s: it must not hang on them.
    let mut scene = Scene::start_with(protocol, |plan| plan.mqtt("keep_alive = \"60s\"")).await;
    let mut first = scene.broker.accept().await;
    first.expect_connect().await;
    first.send_connack(false, 0).await;
    first.expect_subscribe().await;
    let asked = Instant::now();
    wait_reason(
        &scene.gateway,
        5 * SECOND,
        &["mqtt", "not answered", "subscription"],
    )
    .await;
    first.expect_closed().await;
    let waited = asked.elapsed();
    assert!(
        waited > 8 * SECOND && waited < 15 * SECOND,
        "given up after {waited:?}"
    );

    // Also where the broker has kept the session.
    let mut second = scene.broker.accept().await;
    second.expect_connect().await;
    second.send_connack(true, 0).await;
    let subscribe = second.expect_subscribe().await;
    let mqtt = wait_reason(&scene.gateway, 5 * SECOND, &["mqtt"]).await;
    assert!(mqtt.contains("subscription"), "{mqtt}");
    second.send_suback(subscribe.pkid, &[1]).await;
    scene.wait_ready().await;
}

/// A second stream beside `telemetry`.
const EVENTS: &str = "[[streams]]\nname = \"events\"\ntopics = [\"ROOT/+/events\"]\n\
    template = \"ROOT/{deviceId}/events\"\n";

async fn answered_with(protocol: &str, codes: &[u8]) -> (Scene, Connection) {
    let scene = Scene::start_with(protocol, |plan| plan.section(EVENTS)).await;
    let mut connection = scene.broker.accept().await;
    connection.expect_connect().await;
    connection.send_connack(false, 0).await;
    let subscribe = connection.expect_subscribe().await;
    let paths: Vec<_> = subscribe.filters.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            scene.plan.topic("+"),
            format!("{}/+/events", scene.plan.root)
        ]
    );
    connection.send_suback(subscribe.pkid, codes).await;
    (scene, connection)
}

async fn a_refused_filter_is_named_while_the_others_flow(protocol: &str) {
    let refusal = if protocol == "5" { 0x87 } else { 0x80 };
    let (scene, mut connection) = answered_with(protocol, &[1, refusal]).await;
    let reason = wait_reason(&scene.gateway, 10 * SECOND, &["refused", "/+/events"]).await;
    assert!(!reason.contains("/+/telemetry"), "{reason}");
    if protocol == "5" {
        assert!(reason.contains("NotAuthorized"), "{reason}");
    }
    connection.send_publish(scene.publish(1, "dev-a")).await;
    connection.expect_puback(1).await;
    assert_eq!(scene.stored.rows().await.len(), 1);
    assert_eq!(scene.gateway.get("/readyz").await.0, 503);
    scene
        .wait_count("tidegate_source_refused_filters_total", &[], 1)
        .await;
    assert!(scene.gateway.process.log().contains("/+/events: "));
}

async fn a_filter_granted_at_qos_0_is_named(protocol: &str) {
    let (scene, mut connection) = answered_with(protocol, &[0, 1]).await;
    let reason = wait_reason(&scene.gateway, 10 * SECOND, &["QoS 0", "/+/telemetry"]).await;
    assert!(!reason.contains("/+/events"), "{reason}");
    let message = Publish::new(1, format!("{}/d/events", scene.plan.root), "{\"x\":1}");
    connection.send_publish(message).await;
    connection.expect_puback(1).await;
}

async fn big_messages_do_not_end_the_connection(protocol: &str) {
    let scene = Scene::start(protocol).await;
    let mut connection = scene.broker.accept_session(false).await;
    let topic = scene.plan.topic("dev-a");
    // Beyond the library's own limit, within ours.
    let text = "x".repeat(12 * 1024);
    let payload = format!("{{\"text\":\"{text}\"}}");
    connection
        .send_publish(Publish::new(1, topic.as_str(), payload))
        .await;
    connection.expect_puback(1).await;
    let rows = scene.stored.rows().await;
    assert_eq!(rows[0].get_str("text"), Ok(text.as_str()));

    // Beyond ours.
    let huge = vec![b'7'; 3 * 1024 * 1024];
    connection
        .send_publish(Publish::new(2, topic.as_str(), huge.clone()))
        .await;
    connection.expect_puback(2).await;
    let letters = scene.stored.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].get_str("reason"), Ok("packet_too_large"));
    assert_eq!(letters[0].get_str("topic"), Ok(topic.as_str()));
    let detail = letters[0].get_str("detail").expect("there is a detail");
    assert!(detail.contains("3145728"), "{detail}");
    assert_eq!(letters[0].get_binary_generic("payload"), Ok(&huge));

    connection.send_publish(scene.publish(3, "dev-a")).await;
    connection.expect_puback(3).await;
    assert!(scene.broker.accept_within(A_MOMENT).await.is_none());
}

async fn readings_in_memory_are_bounded_whatever_the_payload(protocol: &str) {
    let scene = Scene::start_with(protocol, |plan| {
        plan.mqtt("max_inflight = \"8MiB\"\nkeep_alive = \"5s\"")
    })
    .await;
    let mut first = scene.broker.accept_session(false).await;
    scene.gate.hold_all();
    let before = scene.gateway.process.resident_bytes();
    // Decoded, it takes some fifty times as much.
    let payload = format!("[{}{{\"a\":1}}]", "{\"a\":1},".repeat(2_000));
    for pkid in 1..=400 {
        let message = Publish::new(pkid, scene.plan.topic("dev-a"), payload.as_str());
        first.send_publish(message).await;
    }
    first.expect_closed().await;
    let grown = scene.gateway.process.resident_bytes() - before;
    assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    wait_reason(&scene.gateway, 5 * SECOND, &["wait for MongoDB"]).await;

    scene.gate.open();
    let mut second = scene.broker.accept_session(true).await;
    let message = Publish::new(1, scene.plan.topic("dev-a"), payload.as_str());
    second.send_publish(message.again()).await;
    second.expect_puback(1).await;
}

async fn refused_credentials_are_named_without_a_storm_or_the_password(protocol: &str) {
    let scene = Scene::start_with(protocol, |plan| {
        plan.mqtt("username = \"gateway\"\npassword = \"s3cr3t-word\"")
            .section("[log]\nlevel = \"trace\"")
    })
    .await;
    let mut first = scene.broker.accept().await;
    let connect = first.expect_connect().await;
    assert_eq!(connect.username.as_deref(), Some("gateway"));
    assert_eq!(connect.password.as_deref(), Some("s3cr3t-word"));
    let refusal = if protocol == "5" { 0x86 } else { 4 };
    first.send_connack(false, refusal).await;
    let reason = wait_reason(&scene.gateway, 10 * SECOND, &["refused the connection"]).await;
    assert!(reason.contains("BadUserNamePassword"), "{reason}");

    let began = Instant::now();
    let mut connects = 1;
    while let Some(left) = (5 * SECOND).checked_sub(began.elapsed()) {
        if let Some(mut next) = scene.broker.accept_within(left).await {
            connects += 1;
            next.expect_connect().await;
            next.send_connack(false, refusal).await;
        }
    }
    assert!(connects <= 2, "{connects} attempts in 5 s");
    let log = scene.gateway.process.log();
    assert!(log.contains("BadUserNamePassword"), "{log}");
    assert!(!log.contains("s3cr3t-word"), "{log}");
}

async fn silence_is_noticed_and_mended(protocol: &str) {
    let mut scene = Scene::start_with(protocol, |plan| plan.mqtt("keep_alive = \"5s\"")).await;
    let mut first = scene.broker.accept_session(false).await;
    scene.wait_ready().await;
    first.silence();
    let silent = Instant::now();
    first.expect_closed().await;
    let noticed = silent.elapsed();
    assert!(noticed < 12 * SECOND, "noticed after {noticed:?}");
    assert_ne!(reasons(&scene.gateway).await.len(), 0);
    scene
        .wait_count(
            "tidegate_source_disconnects_total",
            &[("cause", "silence")],
            1,
        )
        .await;

    let mut second = scene.broker.accept_session(true).await;
    scene.wait_ready().await;
    second.send_publish(scene.publish(1, "dev-a")).await;
    second.expect_puback(1).await;
}

async fn a_broker_that_hangs_up_is_tried_less_and_less_often(protocol: &str) {
    let scene = Scene::start_with(protocol, |plan| plan.mqtt("reconnect_max = \"4s\"")).await;
    let mut arrivals = Vec::new();
    for _ in 0..5 {
        let connection = scene.broker.accept().await;
        arrivals.push(Instant::now());
        connection.close().await;
    }
    let gaps: Vec<_> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // 200 ms doubled three times, each shortened by up to half.
    assert!(gaps[0] < 2 * SECOND, "{gaps:?}");
    assert!(gaps[3] > gaps[0] && gaps[3] > SECOND / 2, "{gaps:?}");
    let reason = wait_reason(&scene.gateway, SECOND, &["mqtt"]).await;
    assert!(reason.contains(&scene.broker.url()), "{reason}");
    // Attempts that differ in nothing are one line, not one line each.
    let log = scene.gateway.process.log();
    let lines = log.matches("No connection to the broker").count();
    assert!((1..=2).contains(&lines), "{lines} lines in {log}");
}

async fn the_connection_is_that_of_a_persistent_session(protocol: &str) {
    let scene = Scene::start_with(protocol, |plan| {
        plan.mqtt("receive_maximum = 777\nsession_expiry = \"3h\"\nkeep_alive = \"9s\"")
    })
    .await;
    let mut connection = scene.broker.accept().await;
    let connect = connection.expect_connect().await;
    assert!(!connect.clean_start);
    assert!(!connect.has_will);
    assert_eq!(connect.client_id, scene.plan.client_id);
    assert_eq!(connect.keep_alive, 9);
    if protocol == "5" {
        assert_eq!(connect.level, 5);
        assert_eq!(connect.session_expiry, Some(3 * 3_600));
        assert_eq!(connect.receive_maximum, Some(777));
        assert!(connect.topic_alias_maximum.is_none_or(|most| most == 0));
        assert!(
            connect
                .max_packet_size
                .is_none_or(|most| most >= 268_435_455)
        );
    } else {
        assert_eq!(connect.level, 4);
    }
    connection.send_connack(false, 0).await;
    let subscribe = connection.grant_subscription().await;
    assert!(subscribe.filters.iter().all(|filter| filter.qos == 1));
    // Without canaries there is nothing else: no filter, no connection, no message.
    assert_eq!(subscribe.filters.len(), 1);
    connection.expect_quiet(2 * SECOND).await;
    assert!(scene.broker.accept_within(A_MOMENT).await.is_none());
}

#[tokio::test]
async fn a_session_taken_over_names_the_client_id() {
    let scene = Scene::start("5").await;
    let mut connection = scene.broker.accept_session(false).await;
    connection.send_disconnect(0x8E).await;
    connection.close().await;
    let words = ["another client", scene.plan.client_id.as_str()];
    wait_reason(&scene.gateway, 10 * SECOND, &words).await;
    assert!(
        scene.broker.accept_within(5 * SECOND).await.is_none(),
        "two clients would take the session from each other without end"
    );
    assert!(scene.gateway.process.log().contains("another client"));
}

#[tokio::test]
async fn a_topic_that_is_not_utf_8_is_a_dead_letter() {
    let scene = Scene::start("5").await;
    let mut connection = scene.broker.accept_session(false).await;
    let topic = [scene.plan.root.as_bytes(), b"/\xff\xfe/telemetry"].concat();
    let mut body = u16::try_from(topic.len()).unwrap().to_be_bytes().to_vec();
    body.extend(&topic);
    body.extend([0, 9, 0]);
    body.extend(b"21.5");
    connection.send_bytes(&packets::packet(0x32, &body)).await;
    connection.expect_puback(9).await;
    let letters = scene.stored.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].get_str("reason"), Ok("bad_topic"));
    assert_eq!(letters[0].get_binary_generic("topicBytes"), Ok(&topic));

    connection.send_publish(scene.publish(1, "dev-a")).await;
    connection.expect_puback(1).await;
    let others = scene.broker.log();
    let connects = others
        .iter()
        .filter(|entry| matches!(entry.packet, Received::Connect(_)));
    assert_eq!(connects.count(), 1);
}
