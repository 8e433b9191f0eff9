//! The commands and the admin server, as an operator meets them: output, exit codes, the stable JSON forms.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use mongodb::bson::{Document, doc};
use serde_json::{Value, json};
use tempfile::TempDir;

use support::free_port;
use support::gateway::{Gateway, tidegate};
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, device, now_ms};
use support::process::temp_dir;
use support::publisher::publish_all;

fn run<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    tidegate().args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that must succeed writes to standard output.
fn success<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout)
}

/// A configuration in a file.
struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new(toml: &str) -> File {
        let folder = temp_dir("cli");
        let path = folder.path().join("tidegate.toml");
        std::fs::write(&path, toml).unwrap();
        File {
            _folder: folder,
            path,
        }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("the folder has a plain name")
    }
}

// --- check -------------------------------------------------------------------------------------

#[test]
fn check_lists_every_mistake_with_its_place() {
    let file = File::new(
        "[mqtt]\nurl = \"http://broker\"\nkeep_alive = \"1s\"\nclent_id = \"x\"\n\
         [mongodb]\nuri = \"postgres://u:s3cr3t-word@h\"\n[sink]\nwriters = \"many\"\n\
         [[streams]]\nname = \"Bad Name\"\ntemplate = \"a/{deviceId\"\n",
    );
    let output = run(["check", "--config", file.path()]);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    for key in [
        "mqtt.url",
        "mqtt.keep_alive",
        "clent_id",
        "mongodb.uri",
        "sink.writers",
        "tidegate.toml",
    ] {
        assert!(errors.contains(key), "{key} not in {errors}");
    }
    assert!(errors.contains("client_id"), "no suggestion in {errors}");
    assert!(!errors.contains("s3cr3t-word"), "{errors}");
}

#[test]
fn check_finds_mistakes_of_streams_beside_those_of_sections() {
    let file = File::new(
        "[mqtt]\nkeep_alive = \"1s\"\n[[streams]]\nname = \"Bad Name\"\ntemplate = \"a/{deviceId\"\n",
    );
    let errors = text(&run(["check", "--config", file.path()]).stderr);
    for key in ["mqtt.keep_alive", "streams.0.name", "streams.0.template"] {
        assert!(errors.contains(key), "{key} not in {errors}");
    }
}

#[test]
fn check_says_what_a_sound_file_does_and_hides_secrets() {
    let file = File::new(
        "[mqtt]\nusername = \"u\"\npassword = \"s3cr3t-word\"\n[admin]\ntoken = \"s3cr3t-word\"\n\
         [mongodb]\nuri = \"mongodb://u:s3cr3t-word@h/\"\n",
    );
    let summary = success(["check", "--config", file.path()]);
    assert!(summary.contains("devices/+/telemetry"), "{summary}");
    let printed = success(["check", "--print", "--config", file.path()]);
    assert!(printed.contains("receive_maximum = 20000"), "{printed}");
    for output in [summary, printed] {
        assert!(!output.contains("s3cr3t-word"), "{output}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_a_missing_file_is_named() {
    for arguments in [
        vec!["check", "--nonsense"],
        vec!["no-such-command"],
        vec!["explain", "--topic", "a/b"],
        vec!["simulate", "--bad", "2"],
        vec![],
    ] {
        let output = run(arguments.iter().copied());
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
    }
    let output = run(["check", "--config", "/no/such/file.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such/file.toml"));
}

#[test]
fn every_command_has_help() {
    let help = success(["--help"]);
    let commands = [
        "run",
        "check",
        "explain",
        "provision",
        "simulate",
        "dead-letters",
        "reconcile",
        "completions",
    ];
    for command in commands {
        assert!(help.contains(command), "{command} not in {help}");
        let own = success([command, "--help"]);
        assert!(own.contains("Usage:"), "{own}");
    }
    for action in ["list", "show", "export", "replay", "drop"] {
        success(["dead-letters", action, "--help"]);
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(success(["completions", shell]).contains("tidegate"));
    }
    success(["--version"]);
}

// --- explain -----------------------------------------------------------------------------------

fn keys(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value}"));
    object.keys().map(String::as_str).collect()
}

fn explain(topic: &str, payload: &str) -> Value {
    let output = success([
        "explain",
        "--json",
        "--received-at",
        "2026-03-14T09:15:30Z",
        "--topic",
        topic,
        "--payload",
        payload,
    ]);
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

#[test]
fn explain_keeps_its_contract() {
    let top = BTreeSet::from(["outcome", "stream", "reason", "detail", "readings", "rules"]);
    let stored = explain(
        "devices/d1/telemetry",
        "{\"ts\":\"2026-03-14T09:15:25Z\",\"t\":21.5,\"on\":true}",
    );
    assert_eq!(keys(&stored), top);
    assert_eq!(stored["outcome"], "stored");
    assert_eq!(stored["stream"], "telemetry");
    assert_eq!(stored["reason"], Value::Null);
    assert_eq!(stored["detail"], Value::Null);
    assert_eq!(stored["rules"], json!([]));
    let reading = &stored["readings"][0];
    assert_eq!(
        keys(reading),
        BTreeSet::from([
            "deviceId",
            "type",
            "timestamp",
            "timeSource",
            "tags",
            "fields",
            "flags",
            "claimed"
        ])
    );
    assert_eq!(reading["deviceId"], "d1");
    assert_eq!(reading["timestamp"], "2026-03-14T09:15:25.000Z");
    assert_eq!(reading["timeSource"], "device");
    assert_eq!(reading["fields"], json!({ "t": 21.5, "on": true }));

    let received = explain("devices/d1/telemetry", "{\"t\":1}");
    assert_eq!(received["readings"][0]["timeSource"], "received");
    assert_eq!(
        received["readings"][0]["timestamp"],
        "2026-03-14T09:15:30.000Z"
    );

    let bad = explain("devices/d1/telemetry", "{\"t\":");
    assert_eq!(keys(&bad), top);
    assert_eq!(bad["outcome"], "dead_letter");
    assert_eq!(bad["reason"], "json_syntax");
    assert!(bad["detail"].is_string());
    assert_eq!(bad["readings"], json!([]));

    let ignored = explain("other/topic", "{\"t\":1}");
    assert_eq!(keys(&ignored), top);
    assert_eq!(ignored["outcome"], "ignored");
    assert_eq!(ignored["reason"], "no_route");
    assert_eq!(ignored["stream"], Value::Null);
}

/// What `explain` says is what the gateway does.
#[tokio::test]
async fn explain_foretells_what_is_stored() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let payload = format!(
        "{{\"ts\":{},\"a\":{{\"b\":1.5}},\"on\":false}}",
        now_ms() - 5_000
    );
    let topic = plan.topic("d");
    let config = gateway.config_file();
    let said: Value = serde_json::from_str(&success([
        "explain",
        "--json",
        "--config",
        config.to_str().unwrap(),
        "--topic",
        &topic,
        "--payload",
        &payload,
    ]))
    .unwrap();
    publish_all(broker.port, [(topic, payload)]).await;
    let rows = stored.wait_rows(1).await;
    let reading = &said["readings"][0];
    assert_eq!(reading["deviceId"], device(&rows[0]));
    let at = rows[0].get_datetime("timestamp").unwrap();
    let said_at = reading["timestamp"].as_str().unwrap();
    assert_eq!(
        mongodb::bson::DateTime::parse_rfc3339_str(said_at).unwrap(),
        *at
    );
    assert_eq!(reading["fields"], json!({ "a_b": 1.5, "on": false }));
    assert_eq!(rows[0].get_f64("a_b"), Ok(1.5));
    assert_eq!(rows[0].get_bool("on"), Ok(false));
}

// --- simulate ----------------------------------------------------------------------------------

#[tokio::test]
async fn simulate_counts_what_the_broker_confirmed() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let config = gateway.config_file();
    let simulate = |more: &[&str]| -> Value {
        let basic = ["simulate", "--json", "--config", config.to_str().unwrap()];
        let output = success(basic.into_iter().chain(more.iter().copied()));
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    };
    let report = simulate(&[
        "--rate",
        "0",
        "--count",
        "501",
        "--devices",
        "7",
        "--connections",
        "2",
    ]);
    assert_eq!(
        keys(&report),
        BTreeSet::from(["sent", "acked", "bad", "seconds"])
    );
    assert_eq!(
        (&report["sent"], &report["acked"], &report["bad"]),
        (&json!(501), &json!(501), &json!(0))
    );
    let rows = stored.wait_rows(501).await;
    let devices: BTreeSet<_> = rows.iter().map(device).collect();
    assert_eq!((rows.len(), devices.len()), (501, 7));

    let timed = simulate(&["--rate", "200", "--duration", "1s", "--bad", "1"]);
    let acked = timed["acked"].as_u64().unwrap();
    assert!((100..=300).contains(&acked), "{timed}");
    assert_eq!(timed["bad"], timed["acked"]);
    assert_eq!(
        stored.wait_letters(acked as usize).await.len() as u64,
        acked
    );

    // A broker that is not there is an error, not an endless wait.
    let nobody = File::new(&format!(
        "[mqtt]\nurl = \"mqtt://127.0.0.1:{}\"\n",
        free_port()
    ));
    let output = run(["simulate", "--count", "1", "--config", nobody.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot connect"),
        "{output:?}"
    );
}

// --- dead letters ------------------------------------------------------------------------------

fn dead_letters(config: &Path, arguments: &[&str]) -> Output {
    let mut all = vec!["dead-letters", arguments[0], "--config"];
    let config = config.to_str().unwrap();
    all.push(config);
    all.extend(&arguments[1..]);
    run(all)
}

#[tokio::test]
async fn a_dead_letter_is_listed_shown_replayed_and_gone() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri()).stream("codec = \"number\"\nfield = \"v\"");
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let config = gateway.config_file();
    let time = now_ms() - 60_000;
    let payload = format!(
        "[{{\"ts\":{time},\"v\":1}},{{\"ts\":{},\"v\":2}}]",
        time + 1
    );
    publish_all(
        broker.port,
        [
            (plan.topic("d"), payload.clone()),
            (plan.topic("d"), "\u{1b}[31mred".to_owned()),
        ],
    )
    .await;
    let letters = stored.wait_letters(2).await;
    let id_of = |letter: &Document| letter.get_object_id("_id").unwrap().to_hex();
    let (first, second) = (id_of(&letters[0]), id_of(&letters[1]));

    let list = text(&dead_letters(&config, &["list"]).stdout);
    assert!(list.contains(&first) && list.contains(&second), "{list}");
    assert!(
        list.contains("not_a_number") && list.contains("2 of 2"),
        "{list}"
    );
    let some = text(&dead_letters(&config, &["list", "--reason", "bad_key"]).stdout);
    assert!(some.contains("0 of 0"), "{some}");
    let show = text(&dead_letters(&config, &["show", &first]).stdout);
    for part in [plan.topic("d").as_str(), payload.as_str(), "not_a_number"] {
        assert!(show.contains(part), "{part} not in {show}");
    }
    let exact = dead_letters(&config, &["show", &first, "--payload"]).stdout;
    assert_eq!(text(&exact), payload);
    let red = text(&dead_letters(&config, &["show", &second]).stdout);
    assert!(
        !red.contains('\u{1b}'),
        "a payload may not steer the terminal: {red:?}"
    );

    // Nothing has changed yet: it stays, with one more attempt.
    let kept = text(&dead_letters(&config, &["replay", "--id", &first]).stdout);
    assert!(kept.contains("0 stored, 1 kept"), "{kept}");
    assert_eq!(stored.letters().await[0].get_i32("attempts"), Ok(1));
    assert_eq!(dead_letters(&config, &["replay"]).status.code(), Some(2));
    assert_eq!(dead_letters(&config, &["drop"]).status.code(), Some(2));

    let json = "time = { path = \"ts\" }";
    let repaired = plan
        .toml()
        .replace("codec = \"number\"\nfield = \"v\"", json);
    std::fs::write(&config, repaired).unwrap();
    let replayed = text(&dead_letters(&config, &["replay", "--id", &first]).stdout);
    assert!(replayed.contains("1 stored, 0 kept"), "{replayed}");
    let rows = stored.rows().await;
    let values: Vec<_> = rows.iter().map(|row| row.get_f64("v").unwrap()).collect();
    assert_eq!(values, [1.0, 2.0]);
    // It is marked, kept, and not shown any more unless asked for.
    let letters = stored.letters().await;
    assert_eq!(letters.len(), 2);
    assert!(letters[0].get_datetime("replayedAt").is_ok());
    assert!(letters[1].get("replayedAt").is_none());
    let list = text(&dead_letters(&config, &["list"]).stdout);
    assert!(!list.contains(&first) && list.contains("1 of 1"), "{list}");
    let list = text(&dead_letters(&config, &["list", "--replayed"]).stdout);
    assert!(
        list.contains("(replayed ") && list.contains("2 of 2"),
        "{list}"
    );

    // Again, by id, by flag, and by a second command at the same time: nothing is stored twice.
    let again = text(&dead_letters(&config, &["replay", "--id", &first]).stdout);
    assert!(again.contains("1 stored, 0 kept"), "{again}");
    let flag = ["replay", "--again", "--device", "d"];
    let again = text(&dead_letters(&config, &flag).stdout);
    assert!(again.contains("1 stored, 1 kept"), "{again}");
    let none = text(&dead_letters(&config, &["replay", "--device", "d"]).stdout);
    assert!(none.contains("0 stored, 1 kept"), "{none}");
    let collection = stored.collection("dead_letters");
    let named = doc! { "_id": letters[0].get_object_id("_id").unwrap() };
    // One that was killed between the insert and the mark.
    let unmark = doc! { "$unset": { "replayedAt": "" }, "$currentDate": { "replayingAt": true } };
    collection.update_one(named.clone(), unmark).await.unwrap();
    let busy = dead_letters(&config, &["replay", "--id", &first]);
    assert_eq!(busy.status.code(), Some(1));
    assert!(text(&busy.stdout).contains("another replay has it"));
    let lapse = doc! { "$set": { "replayingAt": mongodb::bson::DateTime::MIN } };
    collection.update_one(named.clone(), lapse).await.unwrap();
    let both = std::thread::scope(|scope| {
        let replay = || text(&dead_letters(&config, &["replay", "--id", &first]).stdout);
        let other = scope.spawn(replay);
        [replay(), other.join().unwrap()]
    });
    assert!(
        both.iter().any(|said| said.contains("1 stored")),
        "{both:?}"
    );
    assert_eq!(stored.rows().await.len(), 2);
    let letter = collection.find_one(named).await.unwrap().unwrap();
    assert!(letter.get("replayingAt").is_none() && letter.get("replayedAt").is_some());

    let dropped = text(&dead_letters(&config, &["drop", "--all"]).stdout);
    assert!(dropped.contains("2 dropped"), "{dropped}");
    assert_eq!(stored.letters().await.len(), 0);
    let missing = dead_letters(&config, &["show", &second]);
    assert_eq!(missing.status.code(), Some(1));
}

#[tokio::test]
async fn dead_letters_are_found_by_device_and_exported() {
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let plan = Plan::new(broker.url(), mongod.uri());
    let stored = plan.stored_in(mongod.client().await);
    let gateway = plan.start_ready().await;
    let config = gateway.config_file();
    let payloads: [(&str, &[u8]); 3] = [
        ("d1", b"{\"line\":\n"),
        ("d2", b"\xff\xfe"),
        ("d2", b"{\"v\":1}x"),
    ];
    let messages = payloads.map(|(device, payload)| (plan.topic(device), payload.to_vec()));
    publish_all(broker.port, messages).await;
    let letters = stored.wait_letters(3).await;
    assert!(letters.iter().all(|l| l.get_str("deviceId").is_ok()));
    let list = text(&dead_letters(&config, &["list", "--device", "d2"]).stdout);
    assert!(list.contains("2 of 2"), "{list}");

    let lines = |output: &str| -> Vec<Value> {
        let parse =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        output.lines().map(parse).collect()
    };
    let all = lines(&text(&dead_letters(&config, &["export"]).stdout));
    assert_eq!(all.len(), 3);
    let of = |device: &str| {
        all.iter()
            .filter(|l| l["devices"] == json!([device]))
            .count()
    };
    assert_eq!((of("d1"), of("d2")), (1, 2));
    assert!(
        all.iter()
            .any(|l| l["payload"] == "{\"line\":\n" && l["reason"] == "json_syntax")
    );
    assert!(all.iter().any(|l| l["payloadBase64"] == "//4="));
    let out = File::new("");
    let narrow = ["export", "--device", "d1", "--out", out.path()];
    let said = text(&dead_letters(&config, &narrow).stdout);
    assert!(said.contains("1 written"), "{said}");
    let written = lines(&std::fs::read_to_string(out.path()).unwrap());
    assert_eq!(written[0]["topic"], json!(plan.topic("d1")));
    assert_eq!(written[0]["stream"], "telemetry");
    for key in [
        "id",
        "at",
        "qos",
        "retained",
        "detail",
        "gateway",
        "attempts",
        "payloadBytes",
    ] {
        assert!(!written[0][key].is_null(), "{key}: {}", written[0]);
    }
}

// --- admin -------------------------------------------------------------------------------------

fn nowhere() -> Plan {
    Plan::new(
        format!("mqtt://127.0.0.1:{}", free_port()),
        format!("mongodb://127.0.0.1:{}/", free_port()),
    )
}

#[tokio::test]
async fn the_token_guards_metrics_and_not_health() {
    let gateway = nowhere()
        .section("[admin]\ntoken = \"open-sesame\"")
        .start();
    assert_eq!(gateway.get("/livez").await.0, 200);
    assert_eq!(gateway.get("/readyz").await.0, 503);
    assert_eq!(gateway.get("/metrics").await.0, 401);
    let with = async |token: &str| {
        let request = support::http()
            .get(gateway.url("/metrics"))
            .header("Authorization", token);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, body) = with("Bearer open-sesame").await;
    assert_eq!(status, 200);
    assert!(body.contains("tidegate_messages_received_total"));
    for wrong in [
        "Bearer open-sesam",
        "Bearer ",
        "open-sesame",
        "Basic open-sesame",
    ] {
        assert_eq!(with(wrong).await.0, 401, "{wrong:?}");
    }
}

#[tokio::test]
async fn an_address_off_loopback_needs_a_token() {
    let file = File::new("[admin]\nlisten = \"0.0.0.0:9464\"\n");
    let output = run(["check", "--config", file.path()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("admin.token_file"),
        "{output:?}"
    );
}

#[tokio::test]
async fn an_address_in_use_is_a_clear_error() {
    let first = nowhere().start();
    assert_eq!(first.get("/livez").await.0, 200);
    let address = format!("127.0.0.1:{}", first.admin_port);
    let plan = nowhere();
    let file = File::new(&plan.toml());
    let output = tidegate()
        .args(["run", "--config", file.path()])
        .env("TIDEGATE_ADMIN__LISTEN", &address)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(
        errors.contains("admin.listen") && errors.contains(&address),
        "{errors}"
    );
}

#[tokio::test]
async fn a_log_for_collectors_is_json_lines() {
    let mut gateway: Gateway = nowhere().section("[log]\nformat = \"json\"").start();
    assert_eq!(gateway.get("/livez").await.0, 200);
    assert_eq!(gateway.terminate().await.code(), Some(0));
    let log = gateway.process.log();
    assert!(log.lines().count() >= 2, "{log}");
    for line in log.lines() {
        let entry: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(entry["level"].is_string() && entry["timestamp"].is_string());
    }
}
