//! The harness itself: what it says about a client, a server or a process must be true before a test may lean on it.

mod support;

use std::time::Duration;

use mongodb::bson::{Document, doc};
use rumqttc::v5::{self, mqttbytes::QoS as QoS5};
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use support::gateway::Metrics;
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::packets::{self, Publish, Received};
use support::publisher::{Message, publish_all, publish_messages};
use support::scripted_broker::ScriptedBroker;
use support::wire::{Way, Wire};
use support::{eventually, unique};

const SECOND: Duration = Duration::from_secs(1);

/// A 3.1.1 client that subscribes on each connection and acknowledges all it gets, until stopped.
fn client_v4(port: u16) -> tokio::task::JoinHandle<()> {
    let mut options = MqttOptions::new("fours", "127.0.0.1", port);
    options
        .set_clean_session(false)
        .set_credentials("user", "secret");
    options.set_keep_alive(Duration::from_secs(5));
    let (client, mut connection) = AsyncClient::new(options, 100);
    tokio::spawn(async move {
        loop {
            match connection.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(_))) => {
                    client
                        .try_subscribe("devices/+/telemetry", QoS::AtLeastOnce)
                        .expect("the queue is empty");
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
}

/// The same in version 5.
fn client_v5(port: u16) -> tokio::task::JoinHandle<()> {
    let mut options = v5::MqttOptions::new("fives", "127.0.0.1", port);
    options
        .set_clean_start(false)
        .set_credentials("user", "secret");
    options.set_keep_alive(Duration::from_secs(5));
    options.set_connect_properties(v5::mqttbytes::v5::ConnectProperties {
        session_expiry_interval: Some(3_600),
        receive_maximum: Some(77),
        ..Default::default()
    });
    let (client, mut connection) = v5::AsyncClient::new(options, 100);
    tokio::spawn(async move {
        loop {
            match connection.poll().await {
                Ok(v5::Event::Incoming(v5::mqttbytes::v5::Packet::ConnAck(_))) => {
                    client
                        .try_subscribe("devices/+/telemetry", QoS5::AtLeastOnce)
                        .expect("the queue is empty");
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
}

#[tokio::test]
async fn scripted_broker_reads_what_a_v4_client_says() {
    let broker = ScriptedBroker::start().await;
    let client = client_v4(broker.port());

    let mut connection = broker.accept().await;
    let connect = connection.expect_connect().await;
    assert_eq!(
        connect,
        packets::Connect {
            level: 4,
            client_id: "fours".into(),
            clean_start: false,
            keep_alive: 5,
            username: Some("user".into()),
            password: Some("secret".into()),
            ..Default::default()
        }
    );
    connection.send_connack(false, 0).await;
    let subscribe = connection.grant_subscription().await;
    assert_eq!(subscribe.filters[0].path, "devices/+/telemetry");
    assert_eq!(subscribe.filters[0].qos, 1);
    client.abort();
    connection.expect_closed().await;
}

#[tokio::test]
async fn scripted_broker_reads_what_a_v5_client_says() {
    let broker = ScriptedBroker::start().await;
    let client = client_v5(broker.port());

    let mut connection = broker.accept().await;
    let connect = connection.expect_connect().await;
    assert_eq!(
        connect,
        packets::Connect {
            level: 5,
            client_id: "fives".into(),
            clean_start: false,
            keep_alive: 5,
            username: Some("user".into()),
            password: Some("secret".into()),
            session_expiry: Some(3_600),
            receive_maximum: Some(77),
            ..Default::default()
        }
    );
    connection.send_connack(false, 0).await;
    let subscribe = connection.grant_subscription().await;
    assert_eq!(subscribe.filters[0].path, "devices/+/telemetry");
    assert_eq!(subscribe.filters[0].qos, 1);
    client.abort();
    connection.expect_closed().await;
}

#[tokio::test]
async fn scripted_broker_delivers_breaks_and_delivers_again() {
    for client_of in [client_v4, client_v5] {
        let broker = ScriptedBroker::start().await;
        let client = client_of(broker.port());

        let mut first = broker.accept_session(false).await;
        first
            .send_publish(Publish::new(1, "devices/a/telemetry", "21.5"))
            .await;
        first.expect_puback(1).await;
        // A payload long enough for a length of two bytes, delivered in two pieces.
        let long = Publish::new(2, "devices/a/telemetry", vec![b'7'; 1_000]).encode(first.level);
        first.send_bytes(&long[..300]).await;
        first.expect_quiet(Duration::from_millis(100)).await;
        first.send_bytes(&long[300..]).await;
        first.expect_puback(2).await;
        first.close().await;

        let mut second = broker.accept_session(true).await;
        second
            .send_publish(Publish::new(3, "devices/a/telemetry", "22").again())
            .await;
        second.expect_puback(3).await;
        // Not MQTT: packet type 15 with flags, a length that never ends.
        second.send_bytes(&[0xFF; 8]).await;
        second.expect_closed().await;

        let third = broker.accept_session(true).await;
        assert_eq!(third.number, 3);
        assert_eq!(broker.pubacks(), [(1, 1), (1, 2), (2, 3)]);
        client.abort();
    }
}

#[tokio::test]
async fn scripted_broker_refuses_a_connection_and_a_subscription() {
    for (client_of, refusal) in [(client_v4 as fn(u16) -> _, 5), (client_v5, 0x87)] {
        let broker = ScriptedBroker::start().await;
        let client = client_of(broker.port());

        let mut first = broker.accept().await;
        first.expect_connect().await;
        first.send_connack(false, refusal).await;
        first.expect_closed().await;

        let mut second = broker.accept().await;
        second.expect_connect().await;
        second.send_connack(false, 0).await;
        let subscribe = second.expect_subscribe().await;
        second.send_suback(subscribe.pkid, &[0x80]).await;
        second.expect_quiet(Duration::from_millis(100)).await;
        client.abort();
    }
}

#[tokio::test]
async fn silence_of_the_scripted_broker_is_noticed_by_the_client() {
    let notices = async |client_of: fn(u16) -> tokio::task::JoinHandle<()>| {
        let broker = ScriptedBroker::start().await;
        let client = client_of(broker.port());
        let mut connection = broker.accept_session(false).await;
        let pings = || {
            let log = broker.log();
            log.iter()
                .filter(|entry| entry.packet == Received::Ping)
                .count()
        };
        eventually(10 * SECOND, "a ping is answered", async || {
            (pings() == 1).then_some(())
        })
        .await;
        connection.silence();
        connection.expect_closed().await;
        assert!(pings() >= 2, "the client gave up without asking");
        client.abort();
    };
    tokio::join!(notices(client_v4), notices(client_v5));
}

#[tokio::test]
async fn shipped_mosquitto_settings_open_the_window() {
    let broker = Mosquitto::start(&[]).await;
    let messages = || (0..300).map(|number| ("window/x", number.to_string()));

    // Nothing is acknowledged: what arrives is the window.
    let mut options = MqttOptions::new("v4", "127.0.0.1", broker.port);
    options.set_manual_acks(true).set_clean_session(false);
    let (client, mut connection) = AsyncClient::new(options, 10);
    client
        .subscribe("window/#", QoS::AtLeastOnce)
        .await
        .expect("queued");
    while !matches!(
        connection.poll().await,
        Ok(Event::Incoming(Packet::SubAck(_)))
    ) {}
    let mut options = v5::MqttOptions::new("v5", "127.0.0.1", broker.port);
    options.set_manual_acks(true).set_receive_maximum(Some(200));
    let (client5, mut connection5) = v5::AsyncClient::new(options, 10);
    client5
        .subscribe("window/#", QoS5::AtLeastOnce)
        .await
        .expect("queued");
    use v5::mqttbytes::v5::Packet as Packet5;
    while !matches!(
        connection5.poll().await,
        Ok(v5::Event::Incoming(Packet5::SubAck(_)))
    ) {}

    assert_eq!(publish_all(broker.port, messages()).await, 300);

    let (mut arrived, mut arrived5) = (0, 0);
    while let Ok(event) = tokio::time::timeout(SECOND, connection.poll()).await {
        arrived += usize::from(matches!(event, Ok(Event::Incoming(Packet::Publish(_)))));
    }
    while let Ok(event) = tokio::time::timeout(SECOND, connection5.poll()).await {
        arrived5 += usize::from(matches!(
            event,
            Ok(v5::Event::Incoming(Packet5::Publish(_)))
        ));
    }
    assert_eq!(arrived, 300, "3.1.1: the window is wider than the stock 20");
    assert_eq!(
        arrived5, 200,
        "5: the client's receive maximum is the window"
    );
}

#[tokio::test]
async fn mosquitto_keeps_what_was_saved_when_killed() {
    let mut broker = Mosquitto::start(&[("autosave_interval", "1")]).await;
    let topic = unique("kept");
    let options = || {
        let mut options = MqttOptions::new("sleeper", "127.0.0.1", broker.port);
        options.set_clean_session(false);
        options
    };
    {
        let (client, mut connection) = AsyncClient::new(options(), 10);
        client
            .subscribe(&topic, QoS::AtLeastOnce)
            .await
            .expect("queued");
        while !matches!(
            connection.poll().await,
            Ok(Event::Incoming(Packet::SubAck(_)))
        ) {}
    }
    publish_messages(
        broker.port,
        vec![
            Message::new(&topic, "1"),
            Message::new(&topic, "2").retained(),
        ],
    )
    .await;
    let saved = broker.folder().join("mosquitto.db");
    eventually(10 * SECOND, "saved with both messages", async || {
        let bytes = std::fs::read(&saved).unwrap_or_default();
        let found = bytes
            .windows(topic.len())
            .filter(|part| *part == topic.as_bytes());
        (found.count() >= 3).then_some(())
    })
    .await;
    let options = options();
    broker.restart().await;

    let (_client, mut connection) = AsyncClient::new(options, 10);
    let mut arrived = Vec::new();
    while arrived.len() < 2 {
        let event = tokio::time::timeout(10 * SECOND, connection.poll()).await;
        if let Event::Incoming(Packet::Publish(publish)) =
            event.expect("delivered").expect("connected")
        {
            arrived.push(publish.payload);
        }
    }
    assert_eq!(arrived, ["1", "2"]);
}

#[tokio::test]
async fn shared_mongod_is_a_replica_set_that_writes() {
    let client = Mongod::shared().await.client().await;
    let readings = client
        .database(&unique("db"))
        .collection::<Document>("readings");
    readings
        .insert_one(doc! { "x": 1 })
        .await
        .expect("writable");
    assert_eq!(
        readings.count_documents(doc! {}).await.expect("readable"),
        1
    );
    let mut changes = readings
        .watch()
        .await
        .expect("change streams need a replica set");
    readings
        .insert_one(doc! { "x": 2 })
        .await
        .expect("writable");
    let change = eventually(10 * SECOND, "the insert is seen", async || {
        changes.next_if_any().await.expect("the stream lives")
    })
    .await;
    assert_eq!(
        change
            .full_document
            .expect("an insert has one")
            .get_i32("x"),
        Ok(2)
    );
}

#[tokio::test]
async fn replica_set_survives_the_death_of_its_primary() {
    let mut set = Mongod::start_replica_set(3).await;
    let client = set.client().await;
    let rows = client.database("test").collection::<Document>("rows");
    rows.insert_one(doc! { "_id": 1 }).await.expect("writable");

    let old = set.primary().await;
    set.nodes[old].process.kill();
    let new = set.primary().await;
    assert_ne!(old, new);
    rows.insert_one(doc! { "_id": 2 })
        .await
        .expect("writable after failover");

    set.nodes[old].restart().await;
    set.wait_until_in_step().await;
    assert_eq!(rows.count_documents(doc! {}).await.expect("readable"), 2);
}

#[tokio::test]
async fn process_can_be_frozen_measured_and_killed() {
    let mut mongod = Mongod::start_standalone(&[]).await;
    let hello = doc! { "hello": 1 };
    let node = &mut mongod.nodes[0];
    assert!(node.process.resident_bytes() > 10 << 20);
    assert!(node.process.cpu_seconds() > 0.0);

    node.process.freeze();
    assert!(node.admin(hello.clone()).await.is_err());
    node.process.thaw();
    node.admin(hello.clone()).await.expect("answers again");

    node.process.signal("TERM");
    assert!(node.process.wait(20 * SECOND).await.success());
    assert!(node.admin(hello).await.is_err());
}

#[test]
fn metrics_are_summed_over_the_labels_left_open() {
    let metrics = Metrics::parse(
        "# HELP settled_total x\n\
         settled_total{outcome=\"stored\",stream=\"a\"} 3\n\
         settled_total{outcome=\"stored\",stream=\"b\"} 4\n\
         settled_total{outcome=\"ignored\",stream=\"b\"} 5\n\
         settled_total_seconds 0.5\n",
    );
    assert_eq!(metrics.count("settled_total", &[("outcome", "stored")]), 7);
    assert_eq!(
        metrics.count("settled_total", &[("stream", "b"), ("outcome", "stored")]),
        4
    );
    assert_eq!(metrics.count("settled_total", &[]), 12);
    assert!(std::panic::catch_unwind(|| metrics.count("misspelt_total", &[])).is_err());
}

// --- the wire -----------------------------------------------------------------------------------------------------

/// Says everything back.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

/// What comes back within a moment: text, nothing (`None`), or the end of the connection.
async fn hears(stream: &mut TcpStream) -> Option<String> {
    let mut buffer = [0; 100];
    let read = stream.read(&mut buffer);
    let read = tokio::time::timeout(Duration::from_millis(300), read).await;
    let read = read.ok()?.unwrap_or(0);
    Some(String::from_utf8_lossy(&buffer[..read]).into_owned())
}

#[tokio::test]
async fn a_wire_holds_what_it_is_told_to_in_the_direction_it_is_told() {
    let wire = Wire::start(echo().await).await;
    let mut client = TcpStream::connect(("127.0.0.1", wire.port()))
        .await
        .unwrap();
    let some = |text: &str| Some(text.to_owned());
    client.write_all(b"one").await.unwrap();
    assert_eq!(hears(&mut client).await, some("one"));

    for way in [Wire::up, Wire::down] {
        way(&wire, Way::Stall);
        client.write_all(b"late").await.unwrap();
        assert_eq!(hears(&mut client).await, None);
        way(&wire, Way::Pass);
        assert_eq!(hears(&mut client).await, some("late"));
    }

    // A question that is marked waits itself, or its answer does.
    for way in [Wire::up, Wire::down] {
        let before = wire.held();
        way(&wire, Way::Hold(b"mark".to_vec()));
        client.write_all(b"passes").await.unwrap();
        assert_eq!(hears(&mut client).await, some("passes"));
        client.write_all(b"a mark").await.unwrap();
        assert_eq!(hears(&mut client).await, None);
        assert_eq!(wire.held(), before + 1);
        way(&wire, Way::Pass);
        assert_eq!(hears(&mut client).await, some("a mark"));
    }

    // Of the two turns only the first is saved.
    wire.down(Way::UntilSaved);
    client.write_all(b"saved").await.unwrap();
    assert_eq!(hears(&mut client).await, None);
    let turn = wire.next_turn();
    wire.saved(turn);
    assert_eq!(hears(&mut client).await, some("saved"));
    client.write_all(b"unsaved").await.unwrap();
    assert_eq!(hears(&mut client).await, None);
    wire.saved(turn);
    assert_eq!(hears(&mut client).await, None);
    wire.drop_all();
    assert_eq!(hears(&mut client).await, some(""));
}

#[tokio::test]
async fn wires_before_servers_stand_for_them() {
    let (first, second) = (echo().await, echo().await);
    let wires = Wire::start_before(&[first, second]).await;
    let mut client = TcpStream::connect(("127.0.0.1", wires[0].port()))
        .await
        .unwrap();
    // In two pieces, the second of which begins within a name.
    let text = format!("me 127.0.0.1:{first}, other 127.0.0.1:{second}.");
    let (one, other) = text.split_at(text.len() - 8);
    client.write_all(one.as_bytes()).await.unwrap();
    let mut heard = hears(&mut client).await.unwrap();
    client.write_all(other.as_bytes()).await.unwrap();
    heard += &hears(&mut client).await.unwrap();
    let (one, other) = (wires[0].port(), wires[1].port());
    assert_eq!(
        heard,
        format!("me 127.0.0.1:{one}, other 127.0.0.1:{other}.")
    );
}
