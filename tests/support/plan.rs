//! What a test wants from the gateway: its configuration, with names nobody else uses, and a look at what it stored.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use serde_json::Value;

use super::gateway::Gateway;
use super::{eventually, unique};

/// A configuration in the making. One stream, `telemetry`, takes `<root>/<device>/telemetry`.
#[derive(Debug, Clone)]
pub struct Plan {
    pub database: String,
    pub client_id: String,
    /// First level of every topic.
    pub root: String,
    broker: String,
    mongodb: String,
    mqtt: Vec<String>,
    stream: Vec<String>,
    sections: Vec<String>,
}

impl Plan {
    pub fn new(broker_url: impl Into<String>, mongodb_uri: impl Into<String>) -> Plan {
        Plan {
            database: unique("db"),
            client_id: unique("gateway"),
            root: unique("t"),
            broker: broker_url.into(),
            mongodb: mongodb_uri.into(),
            mqtt: Vec::new(),
            stream: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Speaks this version: `5` or `3.1.1`.
    pub fn protocol(self, protocol: &str) -> Plan {
        self.mqtt(&format!("protocol = {protocol:?}"))
    }

    /// Uses this broker instead.
    pub fn broker(self, url: impl Into<String>) -> Plan {
        Plan {
            broker: url.into(),
            ..self
        }
    }

    /// A further line of `[mqtt]`.
    pub fn mqtt(mut self, line: &str) -> Plan {
        self.mqtt.push(line.to_owned());
        self
    }

    /// A further line of the stream.
    pub fn stream(mut self, line: &str) -> Plan {
        self.stream.push(line.to_owned());
        self
    }

    /// Whole sections, behind the others.
    pub fn section(mut self, text: &str) -> Plan {
        self.sections.push(text.replace("ROOT", &self.root));
        self
    }

    pub fn toml(&self) -> String {
        let Plan {
            database,
            client_id,
            root,
            broker,
            mongodb,
            ..
        } = self;
        // Payloads carry their time under `ts`, where they have fields at all.
        let own = self.stream.join("\n");
        let time = match own.contains("time") || own.contains("codec") {
            true => "",
            false => "time = { path = \"ts\" }\n",
        };
        format!(
            "[mqtt]\nurl = {broker:?}\nclient_id = {client_id:?}\n{}\n\
             [mongodb]\nuri = {mongodb:?}\ndatabase = {database:?}\n\
             [[streams]]\nname = \"telemetry\"\ntopics = [\"{root}/+/telemetry\"]\n\
             template = \"{root}/{{deviceId}}/telemetry\"\n{time}{own}\n{}\n",
            self.mqtt.join("\n"),
            self.sections.join("\n"),
        )
    }

    pub fn start(&self) -> Gateway {
        Gateway::start(&self.toml())
    }

    pub async fn start_ready(&self) -> Gateway {
        let mut gateway = self.start();
        gateway.wait_ready().await;
        gateway
    }

    pub fn topic(&self, device: &str) -> String {
        format!("{}/{device}/telemetry", self.root)
    }

    /// What the gateway keeps, seen through a client of the test's own.
    pub fn stored_in(&self, client: Client) -> Stored {
        Stored {
            client,
            database: self.database.clone(),
        }
    }
}

/// A look into the gateway's database.
#[derive(Debug, Clone)]
pub struct Stored {
    client: Client,
    database: String,
}

impl Stored {
    pub fn database(&self) -> mongodb::Database {
        self.client.database(&self.database)
    }

    pub fn collection(&self, name: &str) -> Collection<Document> {
        self.database().collection(name)
    }

    /// All rows of the stream's collection, by device and time.
    pub async fn rows(&self) -> Vec<Document> {
        self.rows_of("readings").await
    }

    pub async fn rows_of(&self, collection: &str) -> Vec<Document> {
        all(
            self.collection(collection),
            doc! { "metadata.deviceId": 1, "timestamp": 1 },
        )
        .await
    }

    pub async fn row_count(&self) -> u64 {
        // Not the collection's own count, which time-series collections do not keep.
        self.collection("readings")
            .count_documents(doc! {})
            .await
            .unwrap_or(0)
    }

    /// All dead letters, oldest first.
    pub async fn letters(&self) -> Vec<Document> {
        all(self.collection("dead_letters"), doc! { "_id": 1 }).await
    }

    pub async fn wait_rows(&self, count: u64) -> Vec<Document> {
        self.wait_rows_within(Duration::from_secs(30), count).await
    }

    pub async fn wait_rows_within(&self, patience: Duration, count: u64) -> Vec<Document> {
        let what = format!("{count} rows in {}", self.database);
        eventually(patience, &what, async || {
            (self.row_count().await >= count).then_some(())
        })
        .await;
        self.rows().await
    }

    pub async fn wait_letters(&self, count: usize) -> Vec<Document> {
        let what = format!("{count} dead letters in {}", self.database);
        eventually(Duration::from_secs(30), &what, async || {
            let letters = self.letters().await;
            (letters.len() >= count).then_some(letters)
        })
        .await
    }
}

async fn all(collection: Collection<Document>, sort: Document) -> Vec<Document> {
    let mut found = Vec::new();
    let mut cursor = collection
        .find(doc! {})
        .sort(sort)
        .await
        .expect("the test's own client can read");
    while cursor.advance().await.expect("the cursor lives") {
        found.push(cursor.deserialize_current().expect("rows are documents"));
    }
    found
}

/// The device of a row.
pub fn device(row: &Document) -> &str {
    row.get_document("metadata")
        .and_then(|metadata| metadata.get_str("deviceId"))
        .expect("a row has metadata.deviceId")
}

/// The reasons `/readyz` gives, by name; empty when ready.
pub async fn reasons(gateway: &Gateway) -> serde_json::Map<String, Value> {
    let (status, body) = gateway.get("/readyz").await;
    let mut body: Value = serde_json::from_str(&body).expect("/readyz answers JSON");
    let reasons = match body["reasons"].take() {
        Value::Object(reasons) => reasons,
        other => panic!("reasons are an object, not {other}"),
    };
    assert_eq!(status == 200, reasons.is_empty(), "{status} {reasons:?}");
    assert_eq!(body["ready"], Value::Bool(status == 200));
    reasons
}

/// Waits until a reason that contains all `words` stands in the way, and returns it.
pub async fn wait_reason(gateway: &Gateway, patience: Duration, words: &[&str]) -> String {
    let mut last = String::new();
    let deadline = std::time::Instant::now() + patience;
    loop {
        for (name, reason) in reasons(gateway).await {
            last = format!("{name}: {}", reason.as_str().expect("a reason is text"));
            if words.iter().all(|word| last.contains(word)) {
                return last;
            }
        }
        assert!(
            std::time::Instant::now() < deadline,
            "not ready because of {words:?} within {patience:?}; last: {last}\n{}",
            gateway.process.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("the clock is after 1970");
    i64::try_from(since.as_millis()).expect("milliseconds fit")
}
