//! Starting, stopping, reloading, and what becomes of messages while one of the three processes is gone, frozen or killed.

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{Document, doc};

use support::eventually;
use support::gate::Gate;
use support::gateway::{Gateway, tidegate};
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, now_ms, reasons, wait_reason};
use support::process::Process;
use support::publisher::publish_all;

const SECOND: Duration = Duration::from_secs(1);

/// `count` readings of 50 devices, numbered from 0, each with a time of its own.
fn readings(plan: &Plan, count: i64) -> Vec<(String, String)> {
    let time = now_ms() - 1_000_000;
    (0..count)
        .map(|n| {
            let payload = format!("{{\"ts\":{},\"n\":{n}}}", time + n);
            (plan.topic(&format!("dev-{}", n % 50)), payload)
        })
        .collect()
}

/// The same without a time.
fn timeless_readings(plan: &Plan, count: i64) -> Vec<(String, String)> {
    (0..count)
        .map(|n| {
            let topic = plan.topic(&format!("dev-{}", n % 50));
            (topic, format!("{{\"n\":{n}}}"))
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

/// Waits until every message is stored and acknowledged, then says that each is there once.
async fn assert_stored_once(gateway: &Gateway, stored: &Stored, count: i64) {
    stored
        .wait_rows_within(60 * SECOND, u64::try_from(count).unwrap())
        .await;
    gateway
        .wait_metrics(60 * SECOND, "nothing is in flight", |metrics| {
            metrics.count("tidegate_messages_in_flight", &[]) == 0
                && metrics.count("tidegate_source_unacked_messages", &[]) == 0
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

async fn wait_log(process: &Process, words: &str) {
    eventually(20 * SECOND, words, async || {
        process.log().contains(words).then_some(())
    })
    .await;
}

// --- start -------------------------------------------------------------------------------------

#[tokio::test]
async fn what_is_unreachable_at_start_is_named_and_waited_for() {
    let mut mongod = Mongod::start_replica_set(1).await;
    let mut broker = Mosquitto::start(&[]).await;
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    mongod.nodes[0].process.kill();
    broker.process.kill();

    let mut gateway = plan.start();
    wait_reason(&gateway, 20 * SECOND, &["mongodb", "127.0.0.1"]).await;
    wait_reason(&gateway, 20 * SECOND, &["collections", "127.0.0.1"]).await;
    assert_eq!(gateway.get("/livez").await.0, 200);
    mongod.nodes[0].restart().await;
    wait_reason(&gateway, 30 * SECOND, &["mqtt", broker.url().as_str()]).await;
    eventually(30 * SECOND, "only the broker is missing", async || {
        let names = reasons(&gateway).await;
        names
            .keys()
            .all(|name| name.starts_with("mqtt"))
            .then_some(())
    })
    .await;
    broker.restart().await;
    gateway.wait_ready().await;
    publish_all(broker.port, readings(&plan, 10)).await;
    assert_stored_once(&gateway, &stored, 10).await;
}

#[tokio::test]
async fn a_standalone_server_is_taken_with_a_warning() {
    let (mongod, broker) = (
        Mongod::start_standalone(&[]).await,
        Mosquitto::shared().await,
    );
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let log = gateway.process.log();
    let warning = log.lines().find(|line| line.contains("standalone"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in {log}"));
    assert!(
        warning.contains("WARN") && warning.contains("rs.initiate"),
        "{warning}"
    );
    publish_all(broker.port, readings(&plan, 10)).await;
    assert_stored_once(&gateway, &stored, 10).await;
}

#[tokio::test]
async fn a_collection_of_the_wrong_kind_ends_the_start_with_the_remedy() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    stored
        .collection("readings")
        .insert_one(doc! { "x": 1 })
        .await
        .unwrap();
    let mut gateway = plan.start();
    let status = gateway.process.wait(20 * SECOND).await;
    assert_eq!(status.code(), Some(1));
    let log = gateway.process.log();
    for words in ["readings", "an ordinary collection", "streams.0.collection"] {
        assert!(log.contains(words), "{words} not in {log}");
    }
    assert_eq!(stored.rows().await.len(), 1, "nothing was touched");
}

#[tokio::test]
async fn missing_rights_are_named_with_the_command_that_grants_them() {
    let mongod = Mongod::start_standalone(&["--auth"]).await;
    let node = &mongod.nodes[0];
    node.admin(doc! { "createUser": "root", "pwd": "root-word", "roles": ["root"] })
        .await
        .expect("the first user may be made from localhost");
    let with_user = |user: &str, password: &str| {
        format!(
            "mongodb://{user}:{password}@{}/?directConnection=true&authSource=admin",
            node.address()
        )
    };
    let root = Client::with_uri_str(with_user("root", "root-word"))
        .await
        .unwrap();
    root.database("admin")
        .run_command(
            doc! { "createUser": "reader", "pwd": "s3cr3t-word", "roles": ["readAnyDatabase"] },
        )
        .await
        .unwrap();
    let broker = Mosquitto::shared().await;
    let plan = Plan::new(broker.url(), with_user("reader", "s3cr3t-word"));
    let mut gateway = plan.start();
    let status = gateway.process.wait(20 * SECOND).await;
    assert_eq!(status.code(), Some(1));
    let log = gateway.process.log();
    let command = format!("role: \"readWrite\", db: \"{}\"", plan.database);
    for words in ["grantRolesToUser", command.as_str()] {
        assert!(log.contains(words), "{words} not in {log}");
    }
    assert!(!log.contains("s3cr3t-word"), "{log}");

    // What the message says is enough.
    root.database("admin")
        .run_command(doc! {
            "grantRolesToUser": "reader",
            "roles": [{ "role": "readWrite", "db": &plan.database }],
        })
        .await
        .unwrap();
    gateway.restart();
    gateway.wait_ready().await;
    publish_all(broker.port, readings(&plan, 10)).await;
    assert_stored_once(&gateway, &plan.stored_in(root.clone()), 10).await;

    // A wrong password is waited out, and not shown.
    let plan = Plan::new(broker.url(), with_user("reader", "wr0ng-word"));
    let gateway = plan.start();
    let reason = wait_reason(&gateway, 20 * SECOND, &["uthentication"]).await;
    assert!(!reason.contains("wr0ng-word"), "{reason}");
    assert!(!gateway.process.log().contains("wr0ng-word"));
}

#[tokio::test]
async fn provisioning_reports_drift_and_changes_nothing() {
    let mongod = Mongod::shared().await;
    let plan = Plan::new("mqtt://127.0.0.1:1", mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let folder = support::process::temp_dir("provision");
    let file = folder.path().join("tidegate.toml");
    let provision = |plan: &Plan| {
        std::fs::write(&file, plan.toml()).unwrap();
        let output = tidegate()
            .args(["provision", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first = provision(&plan);
    assert!(
        first.contains("created   time-series collection \"readings\""),
        "{first}"
    );
    let second = provision(&plan);
    assert!(
        !second.contains("created") && !second.contains("drift"),
        "{second}"
    );
    let options = async || {
        let found = doc! { "listCollections": 1, "filter": { "name": "readings" } };
        let answer = stored.database().run_command(found).await.unwrap();
        answer.get_document("cursor").unwrap().clone()
    };
    let before = options().await;
    let drifted = plan
        .clone()
        .stream("granularity = \"hours\"\nttl = \"30d\"");
    let third = provision(&drifted);
    for words in [
        "drift",
        "granularity",
        "expireAfterSeconds",
        "2592000",
        "collMod",
    ] {
        assert!(third.contains(words), "{words} not in {third}");
    }
    assert_eq!(options().await, before);
}

// --- stop --------------------------------------------------------------------------------------

#[tokio::test]
async fn a_stop_under_load_loses_and_doubles_nothing() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    for protocol in ["5", "3.1.1"] {
        let plan = Plan::new(broker.url(), mongod.uri()).protocol(protocol);
        let stored = plan.stored_in(mongod.client().await);
        let mut gateway = plan.start_ready().await;
        let load = tokio::spawn(publish_all(broker.port, readings(&plan, 5_000)));
        stored.wait_rows(500).await;
        assert_eq!(gateway.terminate().await.code(), Some(0));
        load.await.unwrap();
        let at_stop = stored.row_count().await;
        println!("MQTT {protocol}: {at_stop} rows at the stop");

        gateway.restart();
        assert_stored_once(&gateway, &stored, 5_000).await;
    }
}

#[tokio::test]
async fn nothing_in_flight_means_no_waiting_for_a_database_that_hangs() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let gate = Gate::start(mongod.nodes[0].port).await;
    let plan = Plan::new(broker.url(), gate.uri());
    let mut gateway = plan.start_ready().await;
    gate.hold_all();
    // Questions to the database are on their way: the probe's, and those of a reload.
    gateway.process.signal("HUP");
    let held = gate.met();
    eventually(20 * SECOND, "questions are held up", async || {
        (gate.met() >= held + 2).then_some(())
    })
    .await;
    let began = Instant::now();
    assert_eq!(gateway.terminate().await.code(), Some(0));
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_second_signal_leaves_at_once() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let gate = Gate::start(mongod.nodes[0].port).await;
    let plan = Plan::new(broker.url(), gate.uri());
    let stored = plan.stored_in(mongod.client().await);
    let mut gateway = plan.start_ready().await;
    gate.hold_all();
    publish_all(broker.port, readings(&plan, 10)).await;
    gateway
        .wait_metrics(20 * SECOND, "all have arrived", |metrics| {
            metrics.count("tidegate_messages_received_total", &[]) == 10
        })
        .await;
    gateway.process.signal("TERM");
    wait_log(&gateway.process, "Stopping").await;
    assert_eq!(gateway.process.exit_status(), None);
    let began = Instant::now();
    gateway.process.signal("TERM");
    let status = gateway.process.wait(10 * SECOND).await;
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    assert_eq!(status.code(), Some(1));

    // What was not acknowledged comes again. The held insert may have been let through as well.
    gate.open();
    gateway.restart();
    stored.wait_rows(10).await;
    let wrong = not_once(&stored.rows().await, 10);
    assert!(wrong.values().all(|times| *times > 0), "lost: {wrong:?}");
}

#[tokio::test]
async fn a_killed_gateway_loses_and_doubles_nothing() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let mut gateway = plan.start_ready().await;
    let load = tokio::spawn(publish_all(broker.port, readings(&plan, 5_000)));
    for kill_at in [500, 2_000] {
        stored.wait_rows(kill_at).await;
        gateway.kill();
        gateway.restart();
    }
    load.await.unwrap();
    // What was stored but not acknowledged comes again, and is found stored.
    assert_stored_once(&gateway, &stored, 5_000).await;
}

// --- reload ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_reload_takes_new_streams_and_refuses_bad_files() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let events = "[[streams]]\nname = \"events\"\ntemplate = \"ROOT/{deviceId}/events\"\ncollection = \"events\"";
    let topic = format!("{}/d/events", plan.root);

    std::fs::write(gateway.config_file(), plan.clone().section(events).toml()).unwrap();
    gateway.process.signal("HUP");
    wait_log(&gateway.process, "Streams reloaded").await;
    // The subscription follows; what is published before it is there does not arrive.
    eventually(
        20 * SECOND,
        "a message of the new stream is stored",
        async || {
            publish_all(broker.port, [(topic.as_str(), "{\"v\":1}")]).await;
            (!stored.rows_of("events").await.is_empty()).then_some(())
        },
    )
    .await;
    let listed = stored.database().list_collection_names().await.unwrap();
    assert!(
        listed.contains(&"system.buckets.events".to_owned()),
        "{listed:?}"
    );
    assert_eq!(reasons(&gateway).await.len(), 0);

    let bad = plan.clone().section(events).stream("codec = \"xml\"");
    std::fs::write(gateway.config_file(), bad.toml()).unwrap();
    gateway.process.signal("HUP");
    wait_log(&gateway.process, "not reloaded").await;
    let log = gateway.process.log();
    assert!(log.contains("codec") && log.contains("xml"), "{log}");
    let before = stored.rows_of("events").await.len() as u64;
    publish_all(
        broker.port,
        [
            (topic.as_str(), "{\"v\":2}"),
            (plan.topic("d").as_str(), "{\"v\":2}"),
        ],
    )
    .await;
    stored.wait_rows(1).await;
    eventually(20 * SECOND, "the old streams are in force", async || {
        (stored.rows_of("events").await.len() as u64 > before).then_some(())
    })
    .await;

    let other = plan.clone().mqtt("keep_alive = \"33s\"");
    std::fs::write(gateway.config_file(), other.toml()).unwrap();
    gateway.process.signal("HUP");
    wait_log(&gateway.process, "next start").await;
    // The stream is gone, and with it the subscription.
    eventually(20 * SECOND, "the stream is gone", async || {
        let log = gateway.process.log();
        (log.matches("Streams reloaded").count() == 2).then_some(())
    })
    .await;
}

// --- the database fails ------------------------------------------------------------------------

/// A gateway with load on it and a database of its own.
struct Trial {
    mongod: Mongod,
    broker: &'static Mosquitto,
    plan: Plan,
    stored: Stored,
    gateway: Gateway,
}

impl Trial {
    async fn start(members: usize, adapt: impl FnOnce(Plan) -> Plan) -> Trial {
        let mongod = Mongod::start_replica_set(members).await;
        let broker = Mosquitto::shared().await;
        let plan = adapt(Plan::new(broker.url(), mongod.uri()));
        Trial {
            stored: plan.stored_in(mongod.client().await),
            gateway: plan.start_ready().await,
            mongod,
            broker,
            plan,
        }
    }

    /// Publishes all of them at about this many a second.
    fn load(
        &self,
        messages: Vec<(String, String)>,
        per_second: usize,
    ) -> tokio::task::JoinHandle<()> {
        let port = self.broker.port;
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(SECOND / 10);
            for some in messages.chunks(per_second / 10) {
                tick.tick().await;
                publish_all(port, some.to_vec()).await;
            }
        })
    }

    async fn connects(&self) -> u64 {
        let metrics = self.gateway.metrics().await;
        metrics.count("tidegate_source_connects_total", &[])
    }
}

#[tokio::test]
async fn a_frozen_database_is_waited_out_on_the_same_connection() {
    let trial = Trial::start(1, |plan| plan.mqtt("keep_alive = \"5s\"")).await;
    let load = trial.load(readings(&trial.plan, 6_000), 500);
    trial.stored.wait_rows(500).await;
    let process = &trial.mongod.nodes[0].process;
    process.freeze();
    // Longer than one and a half keep-alives, and than the driver waits for a heartbeat.
    tokio::time::sleep(16 * SECOND).await;
    assert_ne!(reasons(&trial.gateway).await.len(), 0);
    let resident = trial.gateway.process.resident_bytes();
    assert!(resident < 200 << 20, "{} MiB", resident >> 20);
    process.thaw();
    load.await.unwrap();
    assert_stored_once(&trial.gateway, &trial.stored, 6_000).await;
    assert_eq!(trial.connects().await, 1);
    let metrics = trial.gateway.metrics().await;
    assert!(metrics.count("tidegate_sink_look_ups_total", &[]) >= 1);
}

#[tokio::test]
async fn a_killed_database_loses_and_doubles_nothing() {
    let mut trial = Trial::start(1, |plan| plan).await;
    let load = trial.load(readings(&trial.plan, 3_000), 500);
    for kill_at in [300, 1_000] {
        trial.stored.wait_rows_within(60 * SECOND, kill_at).await;
        trial.mongod.nodes[0].process.kill();
        trial.mongod.nodes[0].restart().await;
        trial.mongod.primary().await;
    }
    load.await.unwrap();
    assert_stored_once(&trial.gateway, &trial.stored, 3_000).await;
    assert_eq!(trial.connects().await, 1);
}

#[tokio::test]
async fn a_new_primary_loses_and_doubles_nothing() {
    let mut trial = Trial::start(3, |plan| plan).await;
    // Readings without a time are told apart by their ids too.
    let load = trial.load(timeless_readings(&trial.plan, 6_000), 500);
    trial.stored.wait_rows(300).await;
    let old = trial.mongod.primary().await;
    trial.mongod.nodes[old]
        .admin(doc! { "replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 5 })
        .await
        .expect("a primary steps down");
    let rows = trial.stored.row_count().await;
    trial.stored.wait_rows_within(60 * SECOND, rows + 300).await;

    let old = trial.mongod.primary().await;
    trial.mongod.nodes[old].process.kill();
    let rows = trial.stored.row_count().await;
    trial.stored.wait_rows_within(60 * SECOND, rows + 300).await;
    trial.mongod.nodes[old].restart().await;
    trial.mongod.wait_until_in_step().await;
    load.await.unwrap();
    assert_stored_once(&trial.gateway, &trial.stored, 6_000).await;
    assert_eq!(trial.connects().await, 1);
}

/// An insert, and the driver's repetition of it, break their connections. Returns when a third one is stored.
async fn an_insert_of_unclear_outcome(cut: impl FnOnce(&Gate)) -> (Gate, Gateway, Stored) {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let gate = Gate::start(mongod.nodes[0].port).await;
    let plan = Plan::new(broker.url(), gate.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    cut(&gate);
    // Look-ups name device and time, not this.
    let payload = format!("{{\"ts\":{},\"n\":0,\"text\":\"{NEEDLE}\"}}", now_ms());
    publish_all(broker.port, [(plan.topic("d"), payload)]).await;
    assert_stored_once(&gateway, &stored, 1).await;
    assert_eq!(gate.met(), 2);
    let metrics = gateway.metrics().await;
    // Of the device, when it was met, and of the reading.
    assert_eq!(metrics.count("tidegate_sink_look_ups_total", &[]), 2);
    (gate, gateway, stored)
}

const NEEDLE: &str = "n-e-e-d-l-e";

#[tokio::test]
async fn an_insert_whose_answer_is_lost_is_looked_up() {
    an_insert_of_unclear_outcome(|gate| gate.lose_answers_to(NEEDLE, 2)).await;
}

#[tokio::test]
async fn an_insert_that_arrives_after_the_look_up_is_not_stored_twice() {
    let (gate, gateway, stored) =
        an_insert_of_unclear_outcome(|gate| gate.deliver_late(NEEDLE, 2)).await;
    let commands = async || {
        let database = stored.database();
        let status = database.run_command(doc! { "serverStatus": 1 });
        let status = status.await.unwrap();
        let insert = status
            .get_document("metrics")
            .unwrap()
            .get_document("commands")
            .unwrap();
        insert
            .get_document("insert")
            .unwrap()
            .get_i64("total")
            .unwrap()
    };
    let before = commands().await;
    gate.open();
    eventually(20 * SECOND, "both have reached the server", async || {
        (commands().await >= before + 2).then_some(())
    })
    .await;
    assert_stored_once(&gateway, &stored, 1).await;
}

#[tokio::test]
async fn bytes_in_flight_are_bounded_by_parking_the_link() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    for protocol in ["5", "3.1.1"] {
        let gate = Gate::start(mongod.nodes[0].port).await;
        let plan = Plan::new(broker.url(), gate.uri())
            .protocol(protocol)
            .mqtt("max_inflight = \"1MiB\"\nkeep_alive = \"5s\"");
        let stored = plan.stored_in(mongod.client().await);
        let gateway = plan.start_ready().await;
        gate.hold_all();
        let text = "x".repeat(100 * 1024);
        let time = now_ms() - 100_000;
        let messages: Vec<_> = (0..40)
            .map(|n| {
                let payload = format!("{{\"ts\":{},\"n\":{n},\"text\":\"{text}\"}}", time + n);
                (plan.topic(&format!("dev-{}", n % 5)), payload)
            })
            .collect();
        publish_all(broker.port, messages).await;
        wait_reason(&gateway, 20 * SECOND, &["mqtt", "wait for MongoDB"]).await;
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("tidegate_source_parked_total", &[]), 1);
        // What was read in one go may exceed the limit, not everything there is.
        let held = metrics.count("tidegate_source_inflight_bytes", &[]);
        assert!((1 << 20..3 << 20).contains(&held), "{held}");

        gate.open();
        assert_stored_once(&gateway, &stored, 40).await;
        assert_eq!(reasons(&gateway).await.len(), 0);
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("tidegate_source_sessions_lost_total", &[]), 0);
    }
}

// --- the broker fails --------------------------------------------------------------------------

#[tokio::test]
async fn a_broker_that_forgets_its_sessions_is_an_alarm_and_served_again() {
    let mongod = Mongod::shared().await;
    let mut broker = Mosquitto::start(&[("persistence", "false")]).await;
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let mut gateway = plan.start_ready().await;
    publish_all(broker.port, readings(&plan, 100)).await;
    assert_stored_once(&gateway, &stored, 100).await;
    broker.process.kill();
    wait_reason(&gateway, 20 * SECOND, &["mqtt"]).await;
    broker.restart().await;
    gateway.wait_ready().await;
    gateway
        .wait_metrics(20 * SECOND, "the loss is counted", |metrics| {
            metrics.count("tidegate_source_sessions_lost_total", &[]) == 1
        })
        .await;
    assert!(gateway.process.log().contains("forgot the session"));
    let more = readings(&plan, 200).split_off(100);
    publish_all(broker.port, more).await;
    assert_stored_once(&gateway, &stored, 200).await;
}

#[tokio::test]
async fn alert_rules_for_prometheus_name_metrics_that_are_there() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let gateway = Plan::new(broker.url(), mongod.uri()).start_ready().await;
    let (_, page) = gateway.get("/metrics").await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
    let rules = std::fs::read_to_string(folder.join("tidegate.rules.yml")).unwrap();
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut named = 0;
    for line in rules
        .lines()
        .filter(|line| line.trim_start().starts_with("expr:"))
    {
        for word in line
            .split(|c| !name(c))
            .filter(|word| word.starts_with("tidegate_"))
        {
            let series = |line: &str| {
                line.strip_prefix(word)
                    .is_some_and(|rest| rest.starts_with([' ', '{']))
            };
            assert!(page.lines().any(series), "{word} is not in /metrics");
            named += 1;
        }
    }
    assert!(named >= 10, "only {named} metrics named");
}
