//! The spool: what is acknowledged before MongoDB has it is stored once all the same, whatever is killed, full or away.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mongodb::bson::Document;
use tempfile::TempDir;
use tokio::sync::mpsc;

use support::eventually;
use support::gate::Gate;
use support::gateway::{Gateway, Metrics, tidegate};
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, device, now_ms, reasons, wait_reason};
use support::process::temp_dir;
use support::publisher::{Message, publish_all, publish_messages};

use tidegate::config::{SinkConfig, SpoolConfig};
use tidegate::model::{self, Keep, Outcome, Receipt, Settle, Spooled, Ticket};
use tidegate::runtime::{Readiness, Tasks, Verdict};
use tidegate::spool::Spool;
use tidegate::telemetry::{Ledger, Registry};

const SECOND: Duration = Duration::from_secs(1);

/// A gateway with a spool between a broker and a database that a test can hold.
struct World {
    broker: Mosquitto,
    mongod: &'static Mongod,
    /// In front of the database.
    gate: Gate,
    plan: Plan,
    stored: Stored,
    folder: TempDir,
}

impl World {
    async fn new(settings: &str) -> World {
        let folder = temp_dir("spool");
        let path = folder.path().join("spool");
        World::at(&path, folder, settings).await
    }

    async fn at(path: &Path, folder: TempDir, settings: &str) -> World {
        let (broker, mongod) = (Mosquitto::start(&[]).await, Mongod::shared().await);
        let gate = Gate::start(mongod.nodes[0].port).await;
        let plan = Plan::new(broker.url(), gate.uri())
            // Canaries are acknowledged, but not taken.
            .mqtt("canary = \"0s\"")
            .section(&format!(
                "[spool]\nenabled = true\npath = {path:?}\n{settings}"
            ))
            .section("[sink]\ndrain_timeout = \"10s\"");
        World {
            stored: plan.stored_in(mongod.client().await),
            broker,
            mongod,
            gate,
            plan,
            folder,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    async fn publish(&self, messages: Vec<(String, String)>) {
        publish_all(self.broker.port, messages).await;
    }
}

/// Readings number `from` to `to` of 50 devices, each with a time of its own.
fn readings(plan: &Plan, from: i64, to: i64) -> Vec<(String, String)> {
    let start = now_ms() - 100_000_000;
    (from..to)
        .map(|n| {
            let payload = format!("{{\"ts\":{},\"n\":{n}}}", start + n);
            (plan.topic(&format!("dev-{}", n % 50)), payload)
        })
        .collect()
}

/// How often each number from 0 to `count` is stored, where that is not once.
fn not_once(rows: &[Document], count: i64) -> BTreeMap<i64, usize> {
    let mut times: BTreeMap<i64, usize> = (0..count).map(|n| (n, 0)).collect();
    for row in rows {
        *times.entry(row.get_f64("n").unwrap() as i64).or_default() += 1;
    }
    times.retain(|_, times| *times != 1);
    times
}

/// Received = ended + in flight, for every stream.
fn assert_balanced(metrics: &Metrics) {
    for stream in ["none", "telemetry"] {
        let labels = &[("stream", stream)];
        let received = metrics.count("tidegate_messages_received_total", labels);
        let ended = metrics.count("tidegate_messages_settled_total", labels);
        let flying = metrics.count("tidegate_messages_in_flight", labels);
        assert_eq!(received, ended + flying, "{stream}");
    }
}

/// Waits until `count` messages are on disk and acknowledged.
async fn wait_spooled(gateway: &Gateway, count: u64) -> Metrics {
    gateway
        .wait_metrics(30 * SECOND, "all is in the spool", |metrics| {
            assert_balanced(metrics);
            metrics.count("tidegate_spool_messages", &[]) == count
                && metrics.count("tidegate_source_unacked_messages", &[]) == 0
        })
        .await
}

/// Waits until everything is stored and the spool empty, then says that each is there once.
async fn assert_stored_once(gateway: &Gateway, stored: &Stored, count: i64) {
    gateway
        .wait_metrics(60 * SECOND, "all is drained", |metrics| {
            metrics.count("tidegate_spool_messages", &[]) == 0
                && metrics.count("tidegate_source_unacked_messages", &[]) == 0
        })
        .await;
    stored
        .wait_rows_within(60 * SECOND, u64::try_from(count).unwrap())
        .await;
    gateway
        .wait_metrics(60 * SECOND, "nothing is in flight", |metrics| {
            assert_balanced(metrics);
            metrics.count("tidegate_messages_in_flight", &[]) == 0
                && metrics.count("tidegate_source_unacked_messages", &[]) == 0
                && metrics.count("tidegate_spool_messages", &[]) == 0
        })
        .await;
    let wrong = not_once(&stored.rows().await, count);
    assert!(
        wrong.is_empty(),
        "not stored once: {wrong:?}\n{}",
        gateway.process.log()
    );
    assert_eq!(stored.letters().await.len(), 0);
}

// --- the way through ---------------------------------------------------------------------------

#[tokio::test]
async fn messages_are_acknowledged_before_the_database_has_them_and_stored_once_afterwards() {
    for protocol in ["5", "3.1.1"] {
        let mut world = World::new("").await;
        world.plan = world.plan.protocol(protocol);
        let gateway = world.plan.start_ready().await;
        world.gate.hold_all();
        world.publish(readings(&world.plan, 0, 5_000)).await;
        let metrics = wait_spooled(&gateway, 5_000).await;
        assert_eq!(metrics.count("tidegate_messages_in_flight", &[]), 5_000);
        assert_eq!(world.stored.row_count().await, 0);
        // Groups, not one by one.
        let commits = metrics.count("tidegate_spool_group_messages_count", &[]);
        assert!(commits < 5_000, "{commits}");
        let metrics = gateway
            .wait_metrics(20 * SECOND, "the age of the oldest", |metrics| {
                metrics.sum("tidegate_spool_oldest_seconds", &[]) >= 1.0
            })
            .await;
        assert!(metrics.count("tidegate_spool_bytes", &[]) > 100_000);
        assert!(metrics.sum("tidegate_spool_time_to_full_seconds", &[]) < 86_400.0);
        assert_eq!(metrics.count("tidegate_spool_full", &[]), 0);

        // New ones come while the old ones are stored.
        world.gate.open();
        world.publish(readings(&world.plan, 5_000, 6_000)).await;
        assert_stored_once(&gateway, &world.stored, 6_000).await;
        let metrics = gateway.metrics().await;
        for name in ["taken", "drained"] {
            assert_eq!(
                metrics.count(&format!("tidegate_spool_{name}_total"), &[]),
                6_000
            );
        }
        assert_eq!(
            metrics.count("tidegate_messages_settled_total", &[("outcome", "stored")]),
            6_000
        );
        assert_eq!(reasons(&gateway).await.len(), 0);
    }
}

#[tokio::test]
async fn what_is_no_reading_and_what_is_qos_0_goes_the_same_way() {
    let world = World::new("").await;
    let gateway = world.plan.start_ready().await;
    let topic = world.plan.topic("d");
    let messages = vec![
        Message::new(&topic, "{\"ts\":1700000000000,\"n\":0}").qos(rumqttc::QoS::AtMostOnce),
        Message::new(&topic, "not json"),
        Message::new(&topic, ""),
        Message::new(
            &topic,
            "[{\"ts\":1700000000001,\"n\":1},{\"ts\":1700000000002,\"n\":2}]",
        ),
    ];
    publish_messages(world.broker.port, messages).await;
    world.stored.wait_rows(3).await;
    let letters = world.stored.wait_letters(1).await;
    assert_eq!(letters[0].get_str("topic"), Ok(topic.as_str()));
    let metrics = gateway
        .wait_metrics(20 * SECOND, "all have ended", |metrics| {
            assert_balanced(metrics);
            metrics.count("tidegate_spool_drained_total", &[]) == 4
        })
        .await;
    for (outcome, count) in [("stored", 2), ("dead_lettered", 1), ("ignored", 1)] {
        let labels = &[("stream", "telemetry"), ("outcome", outcome)];
        assert_eq!(
            metrics.count("tidegate_messages_settled_total", labels),
            count
        );
    }
}

#[tokio::test]
async fn each_device_is_stored_in_the_order_of_its_messages() {
    let world = World::new("drain_messages = 500").await;
    let mut gateway = world.plan.start_ready().await;
    world.gate.hold_all();
    let all = readings(&world.plan, 0, 4_000);
    let (first, second) = all.split_at(2_000);
    world.publish(first.to_vec()).await;
    wait_spooled(&gateway, 2_000).await;
    // Half from an earlier run, half from this one.
    gateway.restart();
    world.publish(second.to_vec()).await;
    world.gate.open();
    assert_stored_once(&gateway, &world.stored, 4_000).await;
    // One process made all ids, batch by batch: in their order each device's numbers grow.
    let mut rows = world.stored.rows().await;
    rows.sort_by_key(|row| row.get_object_id("_id").unwrap().bytes());
    let mut last: BTreeMap<String, f64> = BTreeMap::new();
    for row in &rows {
        let n = row.get_f64("n").unwrap();
        let before = last.insert(device(row).to_owned(), n);
        assert!(before.is_none_or(|before| before < n), "{before:?} {row}");
    }
    assert_eq!(last.len(), 50);
}

// --- the database is away ----------------------------------------------------------------------

#[tokio::test]
async fn a_start_without_the_database_takes_messages_at_once() {
    let mut mongod = Mongod::start_replica_set(1).await;
    let mut world = World::new("").await;
    world.plan = Plan::new(world.broker.url(), mongod.uri()).section(&format!(
        "[spool]\nenabled = true\npath = {:?}",
        world.path()
    ));
    let stored = world.plan.stored_in(mongod.client().await);
    mongod.nodes[0].process.kill();
    let mut gateway = world.plan.start();
    eventually(20 * SECOND, "the subscription stands", async || {
        let metrics = gateway.metrics().await;
        (metrics.count("tidegate_source_subscribed", &[]) == 1).then_some(())
    })
    .await;
    world.publish(readings(&world.plan, 0, 1_000)).await;
    wait_spooled(&gateway, 1_000).await;
    wait_reason(&gateway, 20 * SECOND, &["collections", "127.0.0.1"]).await;
    mongod.nodes[0].restart().await;
    gateway.wait_ready().await;
    assert_stored_once(&gateway, &stored, 1_000).await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_database_and_the_next_start_goes_on() {
    let world = World::new("").await;
    let mut gateway = world.plan.start_ready().await;
    world.publish(readings(&world.plan, 0, 100)).await;
    assert_stored_once(&gateway, &world.stored, 100).await;
    world.gate.hold_all();
    world.publish(readings(&world.plan, 100, 3_000)).await;
    wait_spooled(&gateway, 2_900).await;
    let began = Instant::now();
    let status = gateway.terminate().await;
    assert!(status.success(), "{status}\n{}", gateway.process.log());
    assert!(began.elapsed() < 8 * SECOND, "{:?}", began.elapsed());
    assert!(gateway.process.log().contains("Left in the spool"));
    world.gate.open();
    gateway.restart();
    assert_stored_once(&gateway, &world.stored, 3_000).await;
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("tidegate_spool_recovered_total", &[]), 2_900);

    // Switched off with messages in it: they are stored all the same, with a warning.
    world.gate.hold_all();
    world.publish(readings(&world.plan, 3_000, 3_100)).await;
    wait_spooled(&gateway, 100).await;
    gateway.kill();
    let off = world
        .plan
        .toml()
        .replace("enabled = true", "enabled = false");
    std::fs::write(gateway.config_file(), off).unwrap();
    gateway.restart();
    world.gate.open();
    assert_stored_once(&gateway, &world.stored, 3_100).await;
    assert!(gateway.process.log().contains("spool.enabled is off"));
    assert!(gateway.terminate().await.success());
    gateway.restart();
    gateway.wait_ready().await;
    assert!(
        !gateway
            .process
            .log()
            .contains("stays in use until the next start\"")
    );
    world.publish(readings(&world.plan, 3_100, 3_200)).await;
    assert_stored_once(&gateway, &world.stored, 3_200).await;
    assert_eq!(
        gateway
            .metrics()
            .await
            .count("tidegate_spool_taken_total", &[]),
        0
    );
}

#[tokio::test]
async fn a_stop_under_load_loses_and_doubles_nothing() {
    let world = World::new("").await;
    let mut gateway = world.plan.start_ready().await;
    let publishing = tokio::spawn(publish_all(
        world.broker.port,
        readings(&world.plan, 0, 20_000),
    ));
    for _ in 0..3 {
        tokio::time::sleep(SECOND / 2).await;
        let status = gateway.terminate().await;
        assert!(status.success(), "{status}\n{}", gateway.process.log());
        gateway.restart();
    }
    publishing.await.unwrap();
    assert_stored_once(&gateway, &world.stored, 20_000).await;
}

// --- the gateway dies --------------------------------------------------------------------------

#[tokio::test]
async fn a_gateway_killed_again_and_again_under_load_loses_and_doubles_nothing() {
    let world = World::new("").await;
    let mut gateway = world.plan.start_ready().await;
    world.gate.hold_all();
    let publishing = tokio::spawn(publish_all(
        world.broker.port,
        readings(&world.plan, 0, 30_000),
    ));
    for round in 0..8u64 {
        // Away for the first rounds, then there: kills hit the spool filling, draining and both.
        if round == 5 {
            world.gate.open();
        }
        gateway
            .wait_metrics(30 * SECOND, "some more is in the spool", |metrics| {
                metrics.count("tidegate_spool_taken_total", &[]) >= 500
                    || metrics.count("tidegate_spool_messages", &[]) >= 25_000
                    || round >= 5
            })
            .await;
        tokio::time::sleep(Duration::from_millis(37 * (round + 1) % 200)).await;
        gateway.restart();
    }
    publishing.await.unwrap();
    assert_stored_once(&gateway, &world.stored, 30_000).await;
}

#[tokio::test]
async fn readings_without_a_time_of_their_own_keep_the_one_they_were_received_at() {
    let world = World::new("").await;
    let mut gateway = world.plan.start_ready().await;
    world.gate.hold_all();
    let messages = (0..500).map(|n| (world.plan.topic(&format!("d{n}")), format!("{{\"n\":{n}}}")));
    let before = now_ms();
    world.publish(messages.collect()).await;
    wait_spooled(&gateway, 500).await;
    let after = now_ms();
    gateway.kill();
    // Stored by a first run from the disk, which is then put back to what it was.
    let copy = std::fs::read(world.path().join("spool.redb")).unwrap();
    world.gate.open();
    gateway.restart();
    assert_stored_once(&gateway, &world.stored, 500).await;
    gateway.kill();
    std::fs::write(world.path().join("spool.redb"), copy).unwrap();
    gateway.restart();
    let settled = gateway
        .wait_metrics(30 * SECOND, "all are looked at", |metrics| {
            metrics.count("tidegate_spool_drained_total", &[]) == 500
        })
        .await;
    let labels = &[("outcome", "already_stored")];
    assert_eq!(
        settled.count("tidegate_messages_settled_total", labels),
        500
    );
    assert_stored_once(&gateway, &world.stored, 500).await;
    for row in world.stored.rows().await {
        let time = row.get_datetime("timestamp").unwrap().timestamp_millis();
        assert!((before..=after).contains(&time), "{before} {time} {after}");
    }
}

#[tokio::test]
async fn a_torn_file_gives_back_what_was_acknowledged_or_says_what_to_do() {
    let world = World::new("").await;
    let mut gateway = world.plan.start_ready().await;
    world.gate.hold_all();
    world.publish(readings(&world.plan, 0, 2_000)).await;
    wait_spooled(&gateway, 2_000).await;
    gateway.kill();
    let file = world.path().join("spool.redb");
    let whole = std::fs::read(&file).unwrap();

    // A write that was cut off: everything behind what was committed is rubbish.
    let handle = std::fs::File::options().append(true).open(&file).unwrap();
    let rubbish = vec![0xA5; 300_000];
    handle.write_all_at(&rubbish, whole.len() as u64).unwrap();
    drop(handle);
    let copy = std::fs::read(&file).unwrap();
    assert!(copy.len() > whole.len());
    outcome(&mut gateway, &file).await;

    // Acknowledged records cut off, and garbled in the middle: the start fails, nothing is deleted.
    for damage in [Damage::Cut, Damage::Garbled] {
        let mut bytes = whole.clone();
        match damage {
            Damage::Cut => bytes.truncate(whole.len() - 5_000),
            Damage::Garbled => {
                // Some record's page.
                let at = find(&bytes, b"\"n\":1234}").unwrap();
                bytes[at - 200..at].fill(0xA5);
            }
        }
        std::fs::write(&file, &bytes).unwrap();
        outcome(&mut gateway, &file).await;
        assert_eq!(std::fs::read(&file).unwrap().len(), bytes.len());
    }

    std::fs::write(&file, whole).unwrap();
    world.gate.open();
    gateway.restart();
    assert_stored_once(&gateway, &world.stored, 2_000).await;
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    Cut,
    Garbled,
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|part| part == needle)
}

/// The start fails with the remedy, or everything is there.
async fn outcome(gateway: &mut Gateway, file: &Path) {
    gateway.restart();
    let deadline = Instant::now() + 20 * SECOND;
    loop {
        if let Some(status) = gateway.process.exit_status() {
            assert!(!status.success());
            let log = gateway.process.log();
            assert!(log.contains("is damaged"), "{log}");
            assert!(log.contains(&file.display().to_string()), "{log}");
            assert!(log.contains("move it away"), "{log}");
            eprintln!("the start fails");
            return;
        }
        if let Ok(answer) = support::http().get(gateway.url("/metrics")).send().await {
            let metrics = Metrics::parse(&answer.text().await.unwrap());
            assert_eq!(metrics.count("tidegate_spool_recovered_total", &[]), 2_000);
            eprintln!("all is recovered");
            gateway.kill();
            return;
        }
        assert!(Instant::now() < deadline, "{}", gateway.process.log());
        tokio::time::sleep(SECOND / 50).await;
    }
}

/// Remembers how messages ended.
#[derive(Default)]
struct Endings(Mutex<Vec<Option<Outcome>>>);

impl Settle for Endings {
    fn settled(&self, _: Ticket, outcome: Option<Outcome>) {
        self.0.lock().unwrap().push(outcome);
    }
}

#[tokio::test]
async fn a_message_whose_receipt_is_lost_on_the_way_is_read_again() {
    let folder = temp_dir("spool");
    let config = SpoolConfig {
        enabled: true,
        path: folder.path().join("spool"),
        ..SpoolConfig::default()
    };
    let (ledger, tasks) = (Ledger::default(), Tasks::default());
    let stream = ledger.stream("s");
    let spool = Spool::open(
        &config,
        &SinkConfig::default(),
        &ledger,
        &Registry::default(),
        &Readiness::default(),
    )
    .unwrap()
    .unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let onward = move |message: model::Message, receipt: &dyn Fn(usize) -> Receipt| {
        let receipt = receipt(10);
        if message.spooled == Spooled::Again {
            receipt.settle(Outcome::Stored);
        }
        tell.send((message.payload[0], message.spooled)).unwrap();
    };
    spool.run(Box::new(onward), &tasks);
    let endings = Arc::new(Endings::default());
    for n in 0..3 {
        ledger.received(stream);
        let message = model::Message {
            topic: "t".into(),
            payload: vec![n].into(),
            cut_from: None,
            qos: model::QoS::AtLeastOnce,
            retain: false,
            dup: false,
            spooled: Spooled::No,
            received_at: model::Timestamp::from_millis(now_ms()),
        };
        let ticket = Ticket {
            sequence: u64::from(n),
            stream,
            weight: 1,
        };
        let receipt = Receipt::new(ticket, endings.clone());
        spool.keep(message, Some("s"), receipt);
    }
    spool.release();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.push(told.recv().await.unwrap());
    }
    for n in 0..3 {
        let of = |again| seen.iter().filter(|one| **one == again).count();
        assert_eq!(of((n, Spooled::First)), 1, "{seen:?}");
        assert_eq!(of((n, Spooled::Again)), 1, "{seen:?}");
    }
    // What is on disk may be read before whoever wrote it gets to saying so.
    eventually(5 * SECOND, "all are acknowledged", async || {
        (endings.0.lock().unwrap().len() == 3).then_some(())
    })
    .await;
    let endings = endings.0.lock().unwrap().clone();
    assert_eq!(endings, [Some(Outcome::Spooled); 3]);
    // Received once, ended once, under its stream.
    eventually(5 * SECOND, "all have ended", async || {
        (ledger.in_flight() == 0).then_some(())
    })
    .await;
    let counts = ledger.snapshot()[stream].1;
    assert!(counts.balanced() && counts.received == 3 && counts.ended[0] == 3);
    tasks.stop();
    spool.close();
    assert_eq!(tasks.finish(5 * SECOND).await, Verdict::Clean);
}

// --- the spool is full -------------------------------------------------------------------------

/// Fills the spool beyond its limit, whichever that is, with a database that does not answer.
async fn fill_and_drain(world: &World, gateway: &mut Gateway, words: &[&str]) {
    world.gate.hold_all();
    let text = "x".repeat(1_000);
    let start = now_ms() - 1_000_000;
    let messages: Vec<_> = (0..20_000)
        .map(|n| {
            let payload = format!("{{\"ts\":{},\"n\":{n},\"text\":\"{text}\"}}", start + n);
            (world.plan.topic(&format!("dev-{}", n % 50)), payload)
        })
        .collect();
    publish_all(world.broker.port, messages).await;
    let reason = wait_reason(gateway, 30 * SECOND, words).await;
    assert!(reason.starts_with("spool: "), "{reason}");
    let metrics = gateway
        .wait_metrics(20 * SECOND, "the window is full", |metrics| {
            assert_balanced(metrics);
            metrics.count("tidegate_source_unacked_messages", &[]) >= 100
                && metrics.count("tidegate_spool_full", &[]) == 1
        })
        .await;
    assert!(metrics.count("tidegate_spool_taken_total", &[]) < 20_000);
    // Nothing more is acknowledged, once the last gap is filled.
    eventually(30 * SECOND, "no more is taken", async || {
        let before = gateway.metrics().await;
        tokio::time::sleep(SECOND).await;
        let after = gateway.metrics().await;
        ["tidegate_spool_taken_total", "tidegate_source_acks_total"]
            .iter()
            .all(|name| before.count(name, &[]) == after.count(name, &[]))
            .then_some(())
    })
    .await;
    let metrics = gateway.metrics().await;
    let [taken, acked] = ["tidegate_spool_taken_total", "tidegate_source_acks_total"]
        .map(|name| metrics.count(name, &[]));
    assert_eq!(taken, acked);
}

#[tokio::test]
async fn a_full_spool_holds_the_broker_back_says_so_and_goes_on() {
    let world = World::new("max_bytes = \"4MiB\"").await;
    let mut gateway = world.plan.start_ready().await;
    fill_and_drain(&world, &mut gateway, &["spool full", "max_bytes", "4MiB"]).await;
    let metrics = gateway.metrics().await;
    assert!(metrics.count("tidegate_spool_bytes", &[]) <= (4 << 20) + 2_000);
    assert_eq!(metrics.sum("tidegate_spool_time_to_full_seconds", &[]), 0.0);
    // A stop in this state gives back what is not acknowledged, and does not wait for long.
    let began = Instant::now();
    let status = gateway.terminate().await;
    assert!(status.success(), "{status}\n{}", gateway.process.log());
    assert!(began.elapsed() < 8 * SECOND, "{:?}", began.elapsed());
    gateway.restart();
    wait_reason(&gateway, 30 * SECOND, &["spool full"]).await;
    world.gate.open();
    assert_stored_once(&gateway, &world.stored, 20_000).await;
    assert_eq!(reasons(&gateway).await.len(), 0);
}

#[tokio::test]
async fn the_age_of_the_oldest_message_is_a_limit_too() {
    let world = World::new("max_age = \"10s\"").await;
    let gateway = world.plan.start_ready().await;
    world.gate.hold_all();
    world.publish(readings(&world.plan, 0, 100)).await;
    wait_spooled(&gateway, 100).await;
    wait_reason(&gateway, 30 * SECOND, &["spool full", "max_age"]).await;
    world.publish(readings(&world.plan, 100, 200)).await;
    gateway
        .wait_metrics(20 * SECOND, "they wait", |metrics| {
            metrics.count("tidegate_source_unacked_messages", &[]) == 100
        })
        .await;
    assert_eq!(
        gateway
            .metrics()
            .await
            .count("tidegate_spool_taken_total", &[]),
        100
    );
    world.gate.open();
    assert_stored_once(&gateway, &world.stored, 200).await;
    assert_eq!(reasons(&gateway).await.len(), 0);
}

/// A file system of `mib` MiB in memory, unmounted with its folder.
struct SmallDisk {
    folder: Option<TempDir>,
    path: PathBuf,
}

impl SmallDisk {
    /// `None`: not allowed to mount here.
    fn new(mib: u32) -> Option<SmallDisk> {
        let folder = temp_dir("disk");
        let path = folder.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(&path)
            .status();
        let mounted = status.is_ok_and(|status| status.success());
        mounted.then_some(SmallDisk {
            folder: Some(folder),
            path,
        })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a gateway that is still there holds its files.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        self.folder.take();
    }
}

#[tokio::test]
async fn a_full_disk_holds_the_broker_back_says_so_and_goes_on() {
    let Some(disk) = SmallDisk::new(8) else {
        panic!("this test mounts a small tmpfs, which needs root");
    };
    let world = World::at(&disk.path.join("spool"), temp_dir("unused"), "").await;
    let mut gateway = world.plan.start_ready().await;
    let ballast = disk.path.join("ballast");
    std::fs::write(&ballast, vec![0; 3 << 20]).unwrap();
    fill_and_drain(&world, &mut gateway, &["spool", "No space left"]).await;
    assert!(
        gateway
            .metrics()
            .await
            .count("tidegate_spool_failures_total", &[])
            >= 1
    );
    // Killed in this state, it comes up in this state.
    gateway.restart();
    wait_reason(&gateway, 30 * SECOND, &["No space left"]).await;
    // Space is made, MongoDB still away: it takes more.
    std::fs::remove_file(&ballast).unwrap();
    gateway
        .wait_metrics(30 * SECOND, "it takes messages again", |metrics| {
            metrics.count("tidegate_spool_taken_total", &[]) >= 500
        })
        .await;
    wait_reason(&gateway, 30 * SECOND, &["No space left"]).await;
    // The disk stays full: storing alone makes room.
    world.gate.open();
    assert_stored_once(&gateway, &world.stored, 20_000).await;
    assert_eq!(reasons(&gateway).await.len(), 0);
    drop(gateway);
}

// --- the folder --------------------------------------------------------------------------------

/// What a start that fails says.
fn failed_start(config: &str) -> String {
    let folder = temp_dir("config");
    let file = folder.path().join("tidegate.toml");
    std::fs::write(&file, config).unwrap();
    let output = tidegate()
        .args(["run", "--config"])
        .arg(&file)
        .env("TIDEGATE_ADMIN__LISTEN", "127.0.0.1:0")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_folder_serves_one_gateway_and_must_be_writable() {
    let world = World::new("").await;
    let gateway = world.plan.start_ready().await;
    let other = Plan::new(world.broker.url(), world.mongod.uri()).section(&format!(
        "[spool]\nenabled = true\npath = {:?}",
        world.path()
    ));
    let config = other.toml();
    let text = tokio::task::spawn_blocking(move || failed_start(&config))
        .await
        .unwrap();
    assert!(text.contains("in use by another gateway"), "{text}");
    assert!(text.contains(&world.path().display().to_string()), "{text}");
    // With the spool off, the default folder of another gateway is none of its business.
    let off = other.toml().replace("enabled = true", "enabled = false");
    let mut second = Gateway::start(&off);
    second.wait_ready().await;
    drop(gateway);

    let file = world.folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let config = world.plan.toml().replace(
        &format!("{:?}", world.path()),
        &format!("{:?}", file.join("spool")),
    );
    let text = tokio::task::spawn_blocking(move || failed_start(&config))
        .await
        .unwrap();
    assert!(text.contains("the spool cannot be used"), "{text}");
    assert!(text.contains(&file.display().to_string()), "{text}");
}

#[tokio::test]
async fn a_record_that_is_no_message_is_set_aside_and_holds_nobody_up() {
    let world = World::new("").await;
    let mut gateway = world.plan.start_ready().await;
    world.gate.hold_all();
    world.publish(readings(&world.plan, 0, 100)).await;
    wait_spooled(&gateway, 100).await;
    let status = gateway.terminate().await;
    assert!(status.success());
    {
        let database = redb::Database::create(world.path().join("spool.redb")).unwrap();
        let records: redb::TableDefinition<u64, &[u8]> = redb::TableDefinition::new("records");
        let transaction = database.begin_write().unwrap();
        transaction
            .open_table(records)
            .unwrap()
            .insert(50, b"rubbish".as_slice())
            .unwrap();
        transaction.commit().unwrap();
    }
    world.gate.open();
    gateway.restart();
    let metrics = gateway
        .wait_metrics(30 * SECOND, "the rest is stored", |metrics| {
            metrics.count("tidegate_spool_drained_total", &[]) == 99
                && metrics.count("tidegate_spool_messages", &[]) == 0
        })
        .await;
    assert_eq!(metrics.count("tidegate_spool_damaged_total", &[]), 1);
    assert!(gateway.process.log().contains("set aside"));
    assert_eq!(world.stored.row_count().await, 99);
}
