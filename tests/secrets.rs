//! A secret goes where it is needed and nowhere else: not into a log at any level, not into metrics, health, errors, output of
//! commands or anything stored.

mod support;

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;

use support::free_port;
use support::gateway::tidegate;
use support::mongod::Mongod;
use support::plan::{Plan, now_ms};
use support::process::temp_dir;
use support::scripted_broker::ScriptedBroker;

/// Part of every secret here.
const MARKER: &str = "h1dden-w0rd";

const TRACE: &str = "[log]\nlevel = \"trace\"\n";

#[tokio::test]
async fn secrets_stay_secret_while_everything_works() {
    let mongod = Mongod::start_standalone(&["--auth"]).await;
    let node = &mongod.nodes[0];
    let password = format!("mongo-{MARKER}");
    node.admin(doc! { "createUser": "root", "pwd": &password, "roles": ["root"] })
        .await
        .unwrap();
    let uri = format!(
        "mongodb://root:{password}@{}/?directConnection=true&authSource=admin",
        node.address()
    );
    let broker = ScriptedBroker::start().await;
    let plan = Plan::new(broker.url(), &uri)
        .mqtt(&format!(
            "username = \"u\"\npassword = \"mqtt-{MARKER}\"\nkeep_alive = \"5s\""
        ))
        .section(&format!(
            // A standalone server is enough for secrets; alerts would wait for a replica set.
            "[alerts]\nenabled = false\n[[receivers]]\nname = \"a\"\nurl = \"https://localhost:1/{MARKER}?k={MARKER}\"\nallow_cidrs = [\"127.0.0.0/8\", \"::1/128\"]\n\
            token = \"token-{MARKER}\"\nheaders = {{ X-Key = \"header-{MARKER}\" }}\n\
            [[receivers]]\nname = \"p\"\nkind = \"pagerduty\"\nurl = \"https://localhost:1/{MARKER}\"\nrouting_key = \"routing-{MARKER}\"\n\
            [watchdog]\nurl = \"https://localhost:1/{MARKER}\"\n\
            [admin]\ntoken = \"admin-{MARKER}\"\n{TRACE}"
        ));
    let stored = plan.stored_in(Client::with_uri_str(&uri).await.unwrap());
    let mut gateway = plan.start();

    let mut connection = broker.accept().await;
    let connect = connection.expect_connect().await;
    assert_eq!(connect.password, Some(format!("mqtt-{MARKER}")));
    connection.send_connack(false, 0).await;
    connection.grant_subscription().await;
    gateway.wait_ready().await;
    for (pkid, payload) in [(1, format!("{{\"ts\":{}}}", now_ms())), (2, "{".to_owned())] {
        let topic = plan.topic("d");
        let publish = support::packets::Publish::new(pkid, topic, payload);
        connection.send_publish(publish).await;
        connection.expect_puback(pkid).await;
    }
    let letters = stored.letters().await;
    assert_eq!(letters.len(), 2);
    let request = support::http().get(gateway.url("/metrics"));
    let answer = request
        .header("Authorization", format!("Bearer admin-{MARKER}"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let mut seen = vec![
        answer.text().await.unwrap(),
        gateway.get("/metrics").await.1,
        gateway.get("/readyz").await.1,
        format!("{letters:?} {:?}", stored.rows().await),
    ];

    // Trouble makes talkative.
    drop(connection);
    node.process.freeze();
    support::plan::wait_reason(&gateway, Duration::from_secs(40), &["mongodb"]).await;
    seen.push(gateway.get("/readyz").await.1);
    node.process.thaw();

    let config = gateway.config_file();
    for arguments in [
        vec!["check"],
        vec!["check", "--print"],
        vec!["provision"],
        vec!["dead-letters", "list"],
        vec!["outbox", "list"],
        vec!["receivers", "list"],
        vec!["explain", "--topic", "a", "--payload", "1"],
    ] {
        let output = tidegate()
            .args(&arguments)
            .arg("--config")
            .arg(&config)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?} {output:?}");
        seen.push(format!("{output:?}"));
    }
    // Neither can be reached, for different reasons.
    for name in ["a", "p"] {
        let output = tidegate()
            .args(["receivers", "test", name, "--config"])
            .arg(&config)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        seen.push(format!("{output:?}"));
    }
    gateway.terminate().await;
    seen.push(gateway.process.log());
    for text in seen {
        assert!(!text.is_empty());
        assert!(!text.contains(MARKER), "{text}");
    }
}

#[tokio::test]
async fn secrets_stay_secret_in_every_error() {
    let folder = temp_dir("secrets");
    let path = folder.path().join("tidegate.toml");
    let uris = [
        // Not an address at all, a bad option, no such host, a character that should be escaped.
        format!("mongo://u:{MARKER}@h/"),
        format!("mongodb://u:{MARKER}@127.0.0.1:1/?w=many&nonsense=1&readPreference=x"),
        format!("mongodb://u:{MARKER}@127.0.0.1:{}/", free_port()),
        format!("mongodb://u:{MARKER}/x@h/"),
        format!("mongodb://u:%zz{MARKER}@h/"),
        format!("mongodb+srv://u:{MARKER}@no-such-host.invalid/"),
        MARKER.to_owned(),
    ];
    for uri in uris {
        for (key, name) in [("uri", "uri"), ("uri_file", "uri")] {
            let value = if key == "uri_file" {
                let file = folder.path().join(name);
                std::fs::write(&file, &uri).unwrap();
                file.display().to_string()
            } else {
                uri.clone()
            };
            std::fs::write(
                &path,
                format!(
                    "[mongodb]\n{key} = {value:?}\nserver_selection_timeout = \"300ms\"\n{TRACE}"
                ),
            )
            .unwrap();
            for command in ["check", "provision"] {
                let output = tidegate()
                    .arg(command)
                    .arg("--config")
                    .arg(&path)
                    .output()
                    .unwrap();
                let said = format!("{output:?}");
                assert!(!said.contains(MARKER), "{command} with {uri}: {said}");
                if command == "provision" {
                    assert_eq!(output.status.code(), Some(1), "{uri}: {said}");
                }
            }
        }
    }
    let mistakes = [
        // Wrong type, syntax error on the line, a user in the broker's address, both forms at once.
        format!("[mqtt]\npassword = [\"{MARKER}\"]\n"),
        format!("[mqtt]\npassword = \"{MARKER}\n"),
        format!("[mqtt]\nurl = \"mqtt://u:{MARKER}@h\"\n"),
        format!("[admin]\ntoken = {{ value = \"{MARKER}\" }}\n"),
        format!("[admin]\ntoken = \"{MARKER}\"\ntoken_file = \"/x\"\nlisten = \"nonsense\"\n"),
        format!("[mongodb]\nuri = {{ {MARKER} = 1 }}\n"),
        // Receivers: wrong types, bad forms, and what is not used by the kind.
        format!("[[receivers]]\nname = \"a\"\nurl = [\"https://h/{MARKER}\"]\n"),
        format!("[[receivers]]\nname = \"a\"\nurl = \"http://h/{MARKER}\"\n"),
        format!("[[receivers]]\nname = \"a\"\nurl = \"https://u:{MARKER}@h/\"\n"),
        format!("[[receivers]]\nname = \"a\"\nurl = \"https://10.0.0.1/{MARKER}\"\n"),
        format!("[[receivers]]\nname = \"a\"\nsecret = \"{MARKER}\"\ntoken = [\"{MARKER}\"]\n"),
        format!("[[receivers]]\nname = \"a\"\nprevious_secret = {{ a = \"{MARKER}\" }}\n"),
        format!("[[receivers]]\nname = \"a\"\nrouting_key = [\"{MARKER}\"]\n"),
        format!("[[receivers]]\nname = \"a\"\nheaders = {{ X-Key = [\"{MARKER}\"] }}\n"),
        format!("[[receivers]]\nname = \"a\"\nheaders = {{ Host = \"{MARKER}\" }}\n"),
        format!("[watchdog]\nurl = [\"{MARKER}\"]\n"),
        format!("[watchdog]\nurl = \"http://h/{MARKER}\"\n"),
    ];
    for mistake in mistakes {
        std::fs::write(&path, &mistake).unwrap();
        let output = tidegate()
            .args(["check", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        let said = format!("{output:?}");
        assert_eq!(output.status.code(), Some(1), "{mistake}: {said}");
        assert!(!said.contains(MARKER), "{mistake}: {said}");
    }
    for (name, value) in [
        ("TIDEGATE_MQTT__PASSWORD", MARKER),
        ("TIDEGATE_MONGODB__URI", MARKER),
        ("TIDEGATE_ADMIN__TOKEN", MARKER),
    ] {
        let output = tidegate().arg("check").env(name, value).output().unwrap();
        assert!(!format!("{output:?}").contains(MARKER), "{output:?}");
    }
}
