//! From a publish to a row: a real broker, a real database, and what stands in it afterwards.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::{Bson, DateTime, Document, doc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rumqttc::QoS;

use support::gate::Gate;
use support::gateway::{Gateway, Metrics, tidegate};
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, device, now_ms, wait_reason};
use support::process::temp_dir;
use support::publisher::{Message, publish_all, publish_messages};
use support::{free_port, unique};

const SECOND: Duration = Duration::from_secs(1);

/// The shared broker and database, and names of the test's own in both.
async fn plan() -> (Plan, Stored, u16) {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    (plan, stored, broker.port)
}

/// Every message of every stream is accounted for.
fn assert_balanced(metrics: &Metrics) {
    let received = metrics.count("tidegate_messages_received_total", &[]);
    let ended = metrics.count("tidegate_messages_settled_total", &[]);
    let in_flight = metrics.count("tidegate_messages_in_flight", &[]);
    assert_eq!(received, ended + in_flight, "{metrics:#?}");
}

async fn wait_settled(gateway: &Gateway, outcome: &str, count: u64) -> Metrics {
    let metrics = gateway
        .wait_metrics(
            30 * SECOND,
            &format!("{count} messages are {outcome}"),
            |metrics| {
                metrics.count("tidegate_messages_settled_total", &[("outcome", outcome)]) >= count
            },
        )
        .await;
    assert_eq!(
        metrics.count("tidegate_messages_settled_total", &[("outcome", outcome)]),
        count
    );
    assert_balanced(&metrics);
    metrics
}

fn date(millis: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(millis))
}

/// The row without its id, which must be an ObjectId.
fn without_id(mut row: Document) -> Document {
    let id = row.remove("_id").expect("a row has an id");
    assert!(matches!(id, Bson::ObjectId(_)), "{id:?}");
    let mut sorted: Vec<_> = row.into_iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    sorted.into_iter().collect()
}

#[tokio::test]
async fn a_publish_becomes_a_row_of_this_shape() {
    let (plan, stored, port) = plan().await;
    let plan = plan.section(
        "[[streams]]\nname = \"plants\"\ntemplate = \"ROOT/plants/{tag.site}/{deviceId}/{type}\"\ncollection = \"plants\"\n\
         tags = [\"model\"]\nstatic_tags = { region = \"eu\" }\ntime = { path = \"ts\" }",
    );
    let _gateway = plan.start_ready().await;
    let topic = format!("{}/plants/köln 1/pump-7/vibration", plan.root);
    let time = now_ms() - 60_000;
    let payload = format!(
        r#"{{"ts":{time},"rpm":1500,"temp":21.5,"on":true,"state":"ok","model":"X2","big":9007199254740993,
            "pos":{{"x":1,"y":-2.5}},"axes":[0.1,0.2],"when":{{"$date":"2020-01-01T00:00:00Z"}},"a.b":1,"nothing":null}}"#
    );
    publish_all(port, [(topic.clone(), payload)]).await;
    // A clock that is years ahead is not believed.
    let before = now_ms();
    publish_all(
        port,
        [(topic, "{\"ts\":\"2099-01-01T00:00:00Z\",\"rpm\":1}")],
    )
    .await;

    let mut rows = Vec::new();
    support::eventually(20 * SECOND, "two rows", async || {
        rows = stored.rows_of("plants").await;
        (rows.len() == 2).then_some(())
    })
    .await;
    let second = rows.pop().expect("there are two");
    let metadata = doc! {
        "deviceId": "pump-7", "type": "vibration", "model": "X2", "region": "eu", "site": "köln 1",
    };
    assert_eq!(
        without_id(rows.remove(0)),
        doc! {
            "a%2Eb": 1.0,
            "axes_0": 0.1,
            "axes_1": 0.2,
            "big": 9_007_199_254_740_993_i64,
            "metadata": metadata,
            "on": true,
            "pos_x": 1.0,
            "pos_y": -2.5,
            "rpm": 1500.0,
            "state": "ok",
            "temp": 21.5,
            "timestamp": date(time),
            "when_%24date": "2020-01-01T00:00:00Z",
        }
    );
    assert_eq!(second.get_str("_flags"), Ok("clock_future"));
    assert_eq!(second.get_str("_claimed"), Ok("2099-01-01T00:00:00.000Z"));
    let stamped = second.get_datetime("timestamp").unwrap().timestamp_millis();
    assert!((before..=now_ms()).contains(&stamped), "{stamped}");

    let listed = stored.database().list_collections().await.unwrap();
    let kinds: Vec<_> = futures_collect(listed).await;
    let plants = kinds.iter().find(|c| c.name == "plants").unwrap();
    let options = plants.options.timeseries.as_ref().unwrap();
    assert_eq!(options.time_field, "timestamp");
    assert_eq!(options.meta_field.as_deref(), Some("metadata"));
}

async fn futures_collect(
    mut cursor: mongodb::Cursor<mongodb::results::CollectionSpecification>,
) -> Vec<mongodb::results::CollectionSpecification> {
    let mut all = Vec::new();
    while cursor.advance().await.unwrap() {
        all.push(cursor.deserialize_current().unwrap());
    }
    all
}

#[tokio::test]
async fn every_quality_of_service_is_stored() {
    let (plan, stored, port) = plan().await;
    let gateway = plan.start_ready().await;
    let message = |device: &str, qos| Message::new(plan.topic(device), "{\"v\":1}").qos(qos);
    publish_messages(
        port,
        vec![
            message("zero", QoS::AtMostOnce),
            message("one", QoS::AtLeastOnce),
            message("two", QoS::ExactlyOnce),
        ],
    )
    .await;
    let rows = stored.wait_rows(3).await;
    let devices: Vec<_> = rows.iter().map(device).collect();
    assert_eq!(devices, ["one", "two", "zero"]);
    wait_settled(&gateway, "stored", 3).await;
}

#[tokio::test]
async fn a_flood_of_qos_0_is_dropped_oldest_first_and_counted() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let gate = Gate::start(mongod.nodes[0].port).await;
    let plan = Plan::new(broker.url(), gate.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    gate.hold_all();
    let before = gateway.process.resident_bytes();
    let text = "x".repeat(200 * 1024);
    for part in 0..10 {
        let messages = (0..50).map(|n| {
            let payload = format!("{{\"n\":{},\"text\":\"{text}\"}}", part * 50 + n);
            Message::new(plan.topic("d"), payload).qos(QoS::AtMostOnce)
        });
        publish_messages(broker.port, messages.collect()).await;
    }
    let last = Message::new(plan.topic("d"), "{\"n\":500}");
    publish_messages(broker.port, vec![last]).await;
    gateway
        .wait_metrics(20 * SECOND, "the last has arrived", |metrics| {
            let of_qos_1 = metrics.count("tidegate_source_unacked_messages", &[]);
            of_qos_1 == 1
        })
        .await;
    let grown = gateway.process.resident_bytes().saturating_sub(before);
    assert!(grown < 120 << 20, "{} MiB more", grown >> 20);
    gate.open();
    let metrics = gateway
        .wait_metrics(30 * SECOND, "nothing is in flight", |metrics| {
            metrics.count("tidegate_messages_in_flight", &[]) == 0
        })
        .await;
    assert_balanced(&metrics);
    let dropped = metrics.count("tidegate_messages_settled_total", &[("outcome", "dropped")]);
    assert!(dropped > 100, "{dropped}");
    let received = metrics.count("tidegate_messages_received_total", &[]);
    let rows = stored.rows().await;
    assert_eq!(rows.len() as u64, received - dropped);
    let newest = rows.iter().filter(|row| row.get_f64("n").unwrap() >= 480.0);
    assert!(
        newest.count() > 10,
        "the newest were dropped, not the oldest"
    );
}

#[tokio::test]
async fn an_array_is_as_many_rows_and_a_bad_item_costs_only_itself() {
    let (plan, stored, port) = plan().await;
    let gateway = plan.start_ready().await;
    let time = now_ms() - 10_000;
    let sound = format!(
        "[{{\"ts\":{time},\"v\":1}},{{\"ts\":{},\"v\":2}}]",
        time + 1
    );
    let mixed = format!(
        "[{{\"ts\":{time},\"v\":3}},7,{{\"ts\":\"never\",\"v\":4}},{{\"ts\":{},\"v\":5}}]",
        time + 1
    );
    publish_all(
        port,
        [
            (plan.topic("sound"), sound),
            (plan.topic("mixed"), mixed.clone()),
        ],
    )
    .await;
    let letters = stored.wait_letters(1).await;
    let rows = stored.wait_rows(4).await;
    let values: Vec<_> = rows
        .iter()
        .map(|row| (device(row), row.get_f64("v").unwrap()))
        .collect();
    assert_eq!(
        values,
        [
            ("mixed", 3.0),
            ("mixed", 5.0),
            ("sound", 1.0),
            ("sound", 2.0)
        ]
    );
    assert_eq!(letters.len(), 1);
    assert_eq!(
        letters[0].get_binary_generic("payload").unwrap(),
        mixed.as_bytes()
    );
    let metrics = wait_settled(&gateway, "dead_lettered", 1).await;
    assert_eq!(
        metrics.count("tidegate_messages_settled_total", &[("outcome", "stored")]),
        1
    );
}

#[tokio::test]
async fn a_long_array_is_one_insert() {
    let (plan, stored, port) = plan().await;
    let gateway = plan.start_ready().await;
    let time = now_ms() - 100_000;
    let items: Vec<_> = (0..5_000)
        .map(|n| format!("{{\"ts\":{},\"n\":{n}}}", time + n))
        .collect();
    publish_all(port, [(plan.topic("d"), format!("[{}]", items.join(",")))]).await;
    assert_eq!(stored.wait_rows(5_000).await.len(), 5_000);
    let metrics = wait_settled(&gateway, "stored", 1).await;
    // The writer may have begun while the message was still being handed over.
    let inserts = metrics.count("tidegate_sink_insert_seconds_count", &[]);
    assert!(inserts <= 3, "{inserts} inserts");
}

#[tokio::test]
async fn stored_and_dead_lettered_is_what_was_published() {
    let (plan, stored, _) = plan().await;
    let gateway = plan.start_ready().await;
    let output = tidegate()
        .args(["simulate", "--json", "--rate", "0", "--count", "10000"])
        .args(["--devices", "200", "--bad", "0.05", "--late", "0.1"])
        .arg("--config")
        .arg(gateway.config_file())
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["acked"], 10_000);
    let bad = report["bad"].as_u64().unwrap();
    assert!(bad > 100, "{report}");

    wait_settled(&gateway, "dead_lettered", bad).await;
    let metrics = wait_settled(&gateway, "stored", 10_000 - bad).await;
    assert_eq!(metrics.count("tidegate_messages_in_flight", &[]), 0);
    let rows = stored.rows().await;
    let sequences: BTreeSet<_> = rows
        .iter()
        .map(|row| row.get_f64("seq").unwrap() as u64)
        .collect();
    assert_eq!(rows.len() as u64, 10_000 - bad);
    assert_eq!(sequences.len(), rows.len(), "a row is doubled");
    let letters = stored.letters().await;
    assert_eq!(letters.len() as u64, bad);
    let reasons: BTreeSet<_> = letters
        .iter()
        .map(|letter| letter.get_str("reason").unwrap())
        .collect();
    assert_eq!(
        reasons,
        BTreeSet::from([
            "bad_key",
            "json_duplicate_key",
            "json_non_finite",
            "json_syntax",
            "json_trailing_data",
            "no_values",
            "not_utf8",
            "number_out_of_range",
        ])
    );
    for reason in reasons {
        let counted = metrics.count("tidegate_sink_dead_letters_total", &[("reason", reason)]);
        let there = letters
            .iter()
            .filter(|letter| letter.get_str("reason") == Ok(reason));
        assert_eq!(counted, there.count() as u64, "{reason}");
    }
}

#[tokio::test]
async fn retained_messages_are_skipped_unless_asked_for() {
    let (plan, stored, port) = plan().await;
    let plan = plan.section(
        "[[streams]]\nname = \"state\"\ntopics = [\"ROOT/+/state\"]\n\
         template = \"ROOT/{deviceId}/state\"\ncollection = \"states\"\nretained = \"store\"\ntime = { path = \"ts\" }",
    );
    let time = now_ms() - 3_600_000;
    let state = |device: &str| format!("{}/{device}/state", plan.root);
    publish_messages(
        port,
        vec![
            Message::new(plan.topic("d"), format!("{{\"ts\":{time},\"v\":1}}")).retained(),
            Message::new(state("timed"), format!("{{\"ts\":{time},\"v\":1}}")).retained(),
            Message::new(state("timeless"), "{\"v\":1}").retained(),
        ],
    )
    .await;
    let gateway = plan.start_ready().await;
    let metrics = gateway
        .wait_metrics(20 * SECOND, "three replays are settled", |metrics| {
            metrics.count("tidegate_messages_settled_total", &[]) == 3
        })
        .await;
    assert_balanced(&metrics);
    assert!(
        metrics.count(
            "tidegate_messages_ignored_total",
            &[("reason", "retained_replay")]
        ) >= 1
    );
    assert_eq!(stored.rows().await.len(), 0);
    let states = stored.rows_of("states").await;
    assert_eq!(states.len(), 1, "{states:?}");
    assert_eq!(device(&states[0]), "timed");
    assert_eq!(states[0].get("timestamp"), Some(&date(time)));

    // Published while we are there it is news, retained or not.
    let live = Message::new(plan.topic("d"), format!("{{\"ts\":{},\"v\":2}}", time + 1));
    publish_messages(port, vec![live.retained()]).await;
    let rows = stored.wait_rows(1).await;
    assert_eq!(rows[0].get_f64("v"), Ok(2.0));
}

#[tokio::test]
async fn lone_values_are_stored_under_the_fields_name() {
    let (plan, stored, port) = plan().await;
    let stream = |codec: &str, more: &str| {
        format!(
            "[[streams]]\nname = \"{codec}\"\ntemplate = \"ROOT/{codec}/{{deviceId}}/{{field}}\"\ncodec = \"{codec}\"\n{more}\n"
        )
    };
    let plan = plan
        .section(&stream("number", ""))
        .section(&stream("text", ""))
        .section(&stream("bool", "booleans = { ON = true, OFF = false }"));
    let gateway = plan.start_ready().await;
    let root = &plan.root;
    publish_all(
        port,
        [
            (format!("{root}/number/n/temperature"), "21.5"),
            (format!("{root}/text/t/label"), "21.5"),
            (format!("{root}/bool/b/switch"), "OFF"),
            (format!("{root}/number/n/temperature"), "warm"),
            (format!("{root}/bool/b/switch"), "DIMMED"),
            (format!("{root}/number/n/temperature"), "unavailable"),
        ],
    )
    .await;
    let rows = stored.wait_rows(3).await;
    assert_eq!(device(&rows[0]), "b");
    assert_eq!(rows[0].get_bool("switch"), Ok(false));
    assert_eq!(rows[1].get_f64("temperature"), Ok(21.5));
    assert_eq!(rows[2].get_str("label"), Ok("21.5"));
    let letters = stored.wait_letters(2).await;
    let reasons: BTreeSet<_> = letters
        .iter()
        .map(|letter| letter.get_str("reason").unwrap())
        .collect();
    assert_eq!(reasons, BTreeSet::from(["not_a_boolean", "not_a_number"]));
    wait_settled(&gateway, "ignored", 1).await;
}

/// The broker still delivers for a filter of an earlier configuration: the session outlives it.
#[tokio::test]
async fn a_topic_no_stream_claims_is_counted_or_kept() {
    for (unrouted, outcome, letters) in [
        ("ignore", "ignored", 0),
        ("dead_letter", "dead_lettered", 1),
    ] {
        let (plan, stored, port) = plan().await;
        let plan = plan.mqtt(&format!("unrouted = {unrouted:?}"));
        let with_more = plan.clone().section(
            "[[streams]]\nname = \"old\"\ntopics = [\"ROOT/+/old\"]\ntemplate = \"ROOT/{deviceId}/old\"",
        );
        let mut gateway = with_more.start_ready().await;
        assert!(gateway.terminate().await.success());
        let gateway = plan.start_ready().await;
        let topic = format!("{}/d/old", plan.root);
        publish_all(
            port,
            [(topic.clone(), "{\"v\":1}"), (plan.topic("d"), "{\"v\":1}")],
        )
        .await;
        stored.wait_rows(1).await;
        let metrics = gateway
            .wait_metrics(20 * SECOND, "both are settled", |metrics| {
                metrics.count("tidegate_messages_settled_total", &[]) == 2
            })
            .await;
        assert_eq!(
            metrics.count(
                "tidegate_messages_settled_total",
                &[("stream", "none"), ("outcome", outcome)]
            ),
            1
        );
        let kept = stored.letters().await;
        assert_eq!(kept.len(), letters);
        for letter in kept {
            assert_eq!(letter.get_str("reason"), Ok("no_route"));
            assert_eq!(letter.get_str("topic"), Ok(topic.as_str()));
        }
    }
}

#[tokio::test]
async fn connections_of_a_group_share_the_messages() {
    let (plan, stored, port) = plan().await;
    let plan = plan.mqtt("connections = 2\nshare_group = \"g\"");
    let gateway = plan.start_ready().await;
    let time = now_ms() - 10_000;
    let messages = (0..2_000).map(|n| {
        let device = format!("dev-{}", n % 50);
        (
            plan.topic(&device),
            format!("{{\"ts\":{},\"n\":{n}}}", time + n),
        )
    });
    publish_all(port, messages).await;
    let rows = stored.wait_rows(2_000).await;
    let numbers: BTreeSet<_> = rows
        .iter()
        .map(|row| row.get_f64("n").unwrap() as u32)
        .collect();
    assert_eq!((rows.len(), numbers.len()), (2_000, 2_000));
    let metrics = wait_settled(&gateway, "stored", 2_000).await;
    for connection in ["0", "1"] {
        let acks = metrics.count("tidegate_source_acks_total", &[("connection", connection)]);
        // Some of them are those of canaries.
        assert!(acks > 100, "connection {connection} took nothing");
    }
}

// --- TLS ---------------------------------------------------------------------------------------

/// An authority and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, unique("authority"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Writes `<name>.pem` and `<name>.key` for localhost.
    fn sign(&self, folder: &Path, name: &str, expired: bool) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// A broker with a plain listener for devices and one with TLS for the gateway, which asks for a client certificate and a
/// password. Returns it with the port of the second.
async fn tls_broker(folder: &Path, authority: &Authority, expired: bool) -> (Mosquitto, u16) {
    authority.sign(folder, "server", expired);
    authority.sign(folder, "client", false);
    std::fs::write(folder.join("ca.pem"), &authority.pem).unwrap();
    let made = Command::new("mosquitto_passwd")
        .args(["-b", "-c"])
        .arg(folder.join("users"))
        .args(["gateway", "correct horse"])
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "mosquitto_passwd"
    );
    let port = free_port();
    let listener = format!("{port} 127.0.0.1");
    let file = |name: &str| folder.join(name).display().to_string();
    let broker = Mosquitto::start(&[
        ("allow_anonymous", "true"),
        ("listener", &listener),
        ("allow_anonymous", "false"),
        ("password_file", &file("users")),
        ("cafile", &file("ca.pem")),
        ("certfile", &file("server.pem")),
        ("keyfile", &file("server.key")),
        ("require_certificate", "true"),
    ])
    .await;
    (broker, port)
}

#[tokio::test]
async fn a_broker_with_its_own_authority_wants_certificate_and_password() {
    let folder = temp_dir("tls");
    let authority = Authority::new();
    let (broker, port) = tls_broker(folder.path(), &authority, false).await;
    std::fs::write(folder.path().join("password"), "correct horse\n").unwrap();
    let mongod = Mongod::shared().await;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let plan = Plan::new(format!("mqtts://localhost:{port}"), mongod.uri());
    let with_tls = |plan: Plan, certificate: bool| {
        let pair = format!(
            "cert_file = {:?}\nkey_file = {:?}",
            file("client.pem"),
            file("client.key")
        );
        plan.section(&format!(
            "[mqtt.tls]\nca_file = {:?}\n{}",
            file("ca.pem"),
            if certificate { pair.as_str() } else { "" }
        ))
    };
    let stored = plan.stored_in(mongod.client().await);

    // Without the certificate there is no connection, and no false promise either.
    let password = format!(
        "username = \"gateway\"\npassword_file = {:?}",
        file("password")
    );
    let gateway = with_tls(plan.clone().mqtt(&password), false).start();
    wait_reason(
        &gateway,
        20 * SECOND,
        &["mqtt", &format!("localhost:{port}")],
    )
    .await;
    let reason = wait_reason(&gateway, 20 * SECOND, &["CertificateRequired"]).await;
    assert!(!reason.contains("3.1.1"), "{reason}");
    drop(gateway);

    let plan = with_tls(plan.mqtt(&password), true);
    for protocol in ["5", "3.1.1"] {
        let plan = plan.clone().protocol(protocol);
        let mut gateway = plan.start_ready().await;
        publish_all(broker.port, [(plan.topic(protocol), "{\"v\":1}")]).await;
        wait_settled(&gateway, "stored", 1).await;
        assert!(gateway.terminate().await.success());
    }
    assert_eq!(stored.rows().await.len(), 2);

    // A password that has changed is read again at the next attempt.
    std::fs::write(folder.path().join("password"), "wrong horse\n").unwrap();
    let mut gateway = plan.start();
    wait_reason(&gateway, 20 * SECOND, &["NotAuthorized"]).await;
    assert!(!gateway.process.log().contains("wrong horse"));
    // Nor is a broker trusted that another authority vouches for.
    std::fs::write(folder.path().join("ca.pem"), Authority::new().pem).unwrap();
    gateway.restart();
    wait_reason(&gateway, 40 * SECOND, &["UnknownIssuer"]).await;
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn an_expired_server_certificate_is_called_that() {
    let folder = temp_dir("tls");
    let authority = Authority::new();
    let (_broker, port) = tls_broker(folder.path(), &authority, true).await;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let plan = Plan::new(
        format!("mqtts://localhost:{port}"),
        Mongod::shared().await.uri(),
    )
    .section(&format!("[mqtt.tls]\nca_file = {:?}", file("ca.pem")));
    let gateway = plan.start();
    let reason = wait_reason(&gateway, 20 * SECOND, &["mqtt", "xpired"]).await;
    assert!(reason.contains(&format!("localhost:{port}")), "{reason}");
}

// --- documents the server refuses --------------------------------------------------------------

/// An index of the operator's own makes the server refuse a document: a place that is none.
async fn refused_by_an_index(field: &str, stream: &str, place: impl Fn(bool) -> String) {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let gate = Gate::start(mongod.nodes[0].port).await;
    let plan = Plan::new(broker.url(), gate.uri())
        .stream(stream)
        .section("[sink]\nwriters = 1");
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let keys = doc! { field: "2dsphere" };
    stored
        .collection("readings")
        .create_index(IndexModel::builder().keys(keys).build())
        .await
        .expect("a time-series collection takes such an index");

    // One batch with the bad ones in the middle of the good ones of the same devices.
    gate.hold_all();
    let time = now_ms() - 100_000;
    let bad = |n: i64| n == 17 || n == 43;
    let messages = (0..60).map(|n| {
        let payload = format!("{{\"ts\":{},\"n\":{n},{}}}", time + n, place(!bad(n)));
        (plan.topic(&format!("dev-{}", n % 3)), payload)
    });
    publish_all(broker.port, messages).await;
    gateway
        .wait_metrics(20 * SECOND, "all have arrived", |metrics| {
            metrics.count("tidegate_messages_received_total", &[]) == 60
        })
        .await;
    gate.open();

    let metrics = wait_settled(&gateway, "dead_lettered", 2).await;
    println!("{:?}", stored.letters().await);
    let metrics = if metrics.count("tidegate_messages_in_flight", &[]) > 0 {
        wait_settled(&gateway, "stored", 58).await
    } else {
        metrics
    };
    assert_eq!(
        metrics.count("tidegate_messages_settled_total", &[("outcome", "stored")]),
        58
    );
    let letters = stored.letters().await;
    for letter in &letters {
        assert_eq!(letter.get_str("reason"), Ok("mongo_rejected"));
        let detail = letter.get_str("detail").unwrap();
        assert!(detail.contains("MongoDB error"), "{detail}");
        let payload = letter.get_binary_generic("payload").unwrap();
        assert!(String::from_utf8_lossy(payload).contains(&place(false)));
    }
    let rows = stored.rows().await;
    let mut numbers: Vec<_> = rows
        .iter()
        .map(|row| row.get_f64("n").unwrap() as i64)
        .collect();
    numbers.sort_unstable();
    let expected: Vec<_> = (0..60).filter(|n| !bad(*n)).collect();
    assert_eq!(numbers, expected);
    assert_balanced(&metrics);
}

#[tokio::test]
async fn a_reading_the_server_refuses_costs_no_neighbour() {
    refused_by_an_index("place", "nested = \"keep\"", |sound| {
        let latitude = if sound { 52 } else { 520 };
        format!("\"place\":{{\"type\":\"Point\",\"coordinates\":[13,{latitude}]}}")
    })
    .await;
}

#[tokio::test]
async fn a_tag_the_server_refuses_costs_no_neighbour() {
    // Tags are texts; the index takes those that are missing.
    refused_by_an_index("metadata.place", "tags = [\"place\"]", |sound| {
        if sound {
            "\"x\":1".to_owned()
        } else {
            "\"place\":\"somewhere\"".to_owned()
        }
    })
    .await;
}
