//! `tidegate reconcile` against real services: rows taken away and rows doubled are found, by a publisher's log and by the
//! feed; what became a dead letter is told as such; devices with too few rows are named.

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};
use support::gateway::Gateway;
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, now_ms};
use support::process::temp_dir;
use support::publisher::publish_all;

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary is there")
}

/// Runs `reconcile --json` over the last and the next hour, and returns exit code and report.
fn reconcile(config: &Path, more: &[&str]) -> (i32, Value) {
    let time = |offset: i64| {
        let at = DateTime::from_millis(now_ms() + offset);
        at.try_to_rfc3339_string().expect("it is in the calendar")
    };
    let (from, to) = (time(-3_600_000), time(3_600_000));
    let config = config.to_str().expect("a path of ours is UTF-8");
    let mut arguments = vec!["reconcile", "--json", "--config", config];
    arguments.extend(["--from", &from, "--to", &to]);
    arguments.extend(more);
    let output = tidegate(&arguments);
    let said = String::from_utf8_lossy(&output.stdout);
    let report =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said} {output:?}"));
    (output.status.code().expect("it was not killed"), report)
}

/// Writes rows of a device again, under new ids.
async fn double(stored: &Stored, device: &str, change: Document) {
    let readings = stored.collection("readings");
    for mut row in stored.rows().await {
        if support::plan::device(&row) == device {
            row.insert("_id", ObjectId::new());
            row.extend(change.clone());
            readings.insert_one(row).await.expect("it can be written");
        }
    }
}

/// Takes all rows of a device away.
async fn remove(stored: &Stored, device: &str) {
    let readings = stored.collection("readings");
    let of = doc! { "metadata.deviceId": device };
    readings.delete_many(of).await.expect("it can be deleted");
}

async fn start(adapt: impl FnOnce(Plan) -> Plan) -> (Plan, Stored, Gateway) {
    let mongod = Mongod::shared().await;
    let broker = Mosquitto::shared().await;
    let plan = adapt(Plan::new(broker.url(), mongod.uri()));
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    (plan, stored, gateway)
}

#[tokio::test]
async fn what_simulate_published_is_there_and_what_is_taken_away_is_missed() {
    let (_, stored, gateway) = start(|plan| plan).await;
    let config = gateway.config_file();
    let folder = temp_dir("log");
    let log = folder.path().join("published.ndjson");
    let log = log.to_str().unwrap();
    let path = config.to_str().unwrap();
    let simulate = ["simulate", "--config", path, "--count", "100"];
    let pace = ["--devices", "10", "--rate", "500", "--connections", "2"];
    let output = tidegate(&[&simulate[..], &pace, &["--published-log", log]].concat());
    assert!(output.status.success(), "{output:?}");
    let lines = std::fs::read_to_string(log).unwrap();
    assert_eq!(lines.lines().count(), 100);
    stored.wait_rows(100).await;
    let (code, report) = reconcile(&config, &["--published", log]);
    assert_eq!((code, &report["clean"]), (0, &json!(true)), "{report}");
    for (key, count) in [
        ("rows", 100),
        ("expected", 100),
        ("devices", 10),
        ("missing", 0),
    ] {
        assert_eq!(report[key], json!(count), "{key}: {report}");
    }

    remove(&stored, "sim-00003").await;
    double(&stored, "sim-00004", doc! {}).await;
    double(&stored, "sim-00005", doc! { "temperature": -1.0 }).await;
    let (code, report) = reconcile(&config, &["--published", log]);
    assert_eq!((code, &report["clean"]), (1, &json!(false)), "{report}");
    for (key, count) in [
        ("rows", 110),
        ("missing", 10),
        ("deadLettered", 0),
        ("doubled", 10),
        ("otherContent", 10),
        ("unexpected", 0),
    ] {
        assert_eq!(report[key], json!(count), "{key}: {report}");
    }
    let missing = report["missingAt"].as_array().unwrap();
    assert_eq!(missing.len(), 10);
    assert!(missing.iter().all(|at| at["device"] == "sim-00003"));
    assert!(lines.contains(missing[0]["time"].as_str().unwrap()));
    assert_eq!(report["byDevice"][0]["missing"], json!(10));
    let minutes = report["minutes"].as_array().unwrap();
    let missing: u64 = minutes.iter().map(|m| m["missing"].as_u64().unwrap()).sum();
    assert_eq!(missing, 10);
    let several = report["severalAt"].as_array().unwrap();
    let of = |device: &str, contents: u64| {
        let like = |s: &&Value| s["device"] == device && s["contents"] == json!(contents);
        several.iter().filter(like).count()
    };
    assert_eq!((of("sim-00004", 1), of("sim-00005", 2)), (10, 10));

    // Examples are bounded, counts are not.
    let (_, report) = reconcile(&config, &["--published", log, "--limit", "3"]);
    assert_eq!(report["missingAt"].as_array().unwrap().len(), 3);
    assert_eq!(report["missing"], json!(10));
}

#[tokio::test]
async fn without_a_log_the_feed_says_what_should_be_there() {
    let (plan, stored, gateway) = start(|plan| plan.section("[feed]\nmode = \"all\"\n")).await;
    let config = gateway.config_file();
    let time = now_ms() - 60_000;
    let readings = (0..40).map(|n| {
        let device = format!("d{}", n % 4);
        (
            plan.topic(&device),
            format!("{{\"ts\":{},\"n\":{n}}}", time + n),
        )
    });
    publish_all(Mosquitto::shared().await.port, readings).await;
    stored.wait_rows(40).await;
    let (code, report) = reconcile(&config, &[]);
    assert_eq!(
        (code, &report["comparedWith"]),
        (0, &json!("feed")),
        "{report}"
    );
    assert_eq!(report["expected"], json!(40));

    remove(&stored, "d1").await;
    double(&stored, "d2", doc! {}).await;
    let devices = stored.collection("devices");
    let interval = |device: &str, secs: i64| {
        let set = doc! { "$set": { "expectedInterval": secs, "enabled": true }, "$unset": { "firstSeen": "" } };
        let (devices, device) = (devices.clone(), device.to_owned());
        async move {
            let update = devices.update_one(doc! { "_id": device }, set);
            update.upsert(true).await.unwrap();
        }
    };
    interval("d0", 60).await;
    interval("d3", 7_200).await;
    let (code, report) = reconcile(&config, &["--stream", "telemetry"]);
    assert_eq!(code, 1);
    for (key, count) in [
        ("missing", 10),
        ("doubled", 10),
        ("unexpected", 0),
        ("thin", 1),
    ] {
        assert_eq!(report[key], json!(count), "{key}: {report}");
    }
    assert_eq!(report["thinDevices"][0]["device"], "d0");
}

#[tokio::test]
async fn a_missing_reading_that_is_a_dead_letter_is_told_as_such() {
    let (plan, stored, gateway) = start(|plan| plan).await;
    let config = gateway.config_file();
    let time = now_ms() - 1_000;
    let good = format!("{{\"ts\":{time},\"v\":1}}");
    let messages = [
        (plan.topic("d1"), good.clone()),
        (plan.topic("d2"), "{\"ts\":".to_owned()),
    ];
    publish_all(Mosquitto::shared().await.port, messages).await;
    stored.wait_rows(1).await;
    stored.wait_letters(1).await;
    let folder = temp_dir("log");
    let log = folder.path().join("published.csv");
    std::fs::write(&log, format!("device,time\nd1,{time}\nd2,{}\n", time + 5)).unwrap();
    let log = log.to_str().unwrap();
    let (code, report) = reconcile(&config, &["--published", log]);
    assert_eq!(code, 0, "{report}");
    for (key, count) in [("missing", 1), ("deadLettered", 1), ("deadLetters", 1)] {
        assert_eq!(report[key], json!(count), "{key}: {report}");
    }
    // One more than there are letters is missing for good.
    std::fs::write(
        log,
        format!(
            "d1,{time}\nd2,{}\nd2,{}\nd9,1000000000000\n",
            time + 5,
            time + 6
        ),
    )
    .unwrap();
    let (code, report) = reconcile(&config, &["--published", log]);
    assert_eq!((code, &report["missing"]), (1, &json!(2)), "{report}");
    assert!(
        report["notes"]
            .to_string()
            .contains("1 published readings are outside")
    );

    // For a person, and without anything to compare with.
    let path = config.to_str().unwrap();
    let range = [
        "--from",
        "2020-01-01T00:00:00Z",
        "--to",
        "2020-01-02T00:00:00Z",
    ];
    let output = tidegate(&[&["reconcile", "--config", path][..], &range].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in ["0 rows", "compared with nothing", "clean"] {
        assert!(said.contains(part), "{part} not in {said}");
    }
    // What cannot be compared is neither clean nor missing.
    let wrong: [&[&str]; 4] = [
        &["--stream", "nobody"],
        &["--published", "/no/such/file"],
        &["--published", path],
        &["--to", "2019-01-01T00:00:00Z"],
    ];
    for more in wrong {
        let range = match more[0] {
            "--to" => &range[..2],
            _ => &range[..],
        };
        let all = [&["reconcile", "--config", path][..], range, more].concat();
        let output = tidegate(&all);
        assert_eq!(output.status.code(), Some(2), "{more:?} {output:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[tokio::test]
async fn readings_without_a_time_of_their_own_are_compared_by_count() {
    let (plan, stored, gateway) =
        start(|plan| plan.stream("codec = \"number\"\nfield = \"v\"")).await;
    let config = gateway.config_file();
    let messages = (0..20).map(|n| (plan.topic(&format!("d{}", n % 2)), n.to_string()));
    publish_all(Mosquitto::shared().await.port, messages).await;
    stored.wait_rows(20).await;
    let folder = temp_dir("log");
    let log = folder.path().join("published.ndjson");
    let line =
        |device: &str, count: u32| json!({ "device": device, "time": now_ms(), "count": count });
    std::fs::write(&log, format!("{}\n{}\n", line("d0", 10), line("d1", 12))).unwrap();
    let (code, report) = reconcile(&config, &["--published", log.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert_eq!(
        (&report["expected"], &report["missing"]),
        (&json!(22), &json!(2)),
        "{report}"
    );
    assert_eq!(report["byDevice"][0]["device"], "d1");
}
