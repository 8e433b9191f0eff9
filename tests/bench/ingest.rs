//! How fast messages get from an MQTT publish to an acknowledged row, against what the machine
//! allows: `cargo bench --bench ingest [-- --messages N --devices N]`.
//!
//! Three rates in one run: (a) a bare insert loop with the same documents and as many writers,
//! (b) a bare MQTT loop that only acknowledges, (c) the gateway, QoS 1, majority. They share the
//! cores, so doing both things one after the other cannot be faster than 1 / (1/a + 1/b).

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, Event, Incoming, MqttOptions};
use setup::{Services, argument, finished, print_head, settled};
use support::mongod::Mongod;
use tidegate::config::{Config, StreamConfig};
use tidegate::model::{DeviceId, FieldValue, Flags, Reading, TimeSource, Timestamp};
use tidegate::store::{Store, encode_reading, provision};

/// As the gateway's default.
const WRITERS: usize = 4;

/// As the gateway's default window.
const WINDOW: usize = 20_000;

#[tokio::main]
async fn main() {
    let messages = argument("messages", 200_000);
    let devices = argument("devices", 1_000);
    print_head(&format!(
        "ingest: {messages} messages of {devices} devices, QoS 1, w: majority, {WRITERS} writers"
    ));
    let services = Services::start().await;
    let a = insert_ceiling(&services.mongod, messages, devices).await;
    println!(
        "\n  (a) bare insert loop, batches of {}         {a:>9.0} readings/s",
        WINDOW / WRITERS
    );
    for protocol in ["5", "3.1.1"] {
        println!("\n  MQTT {protocol}");
        let b = match protocol {
            "5" => mqtt_ceiling_v5(&services, messages, devices).await,
            _ => mqtt_ceiling_v311(&services, messages, devices).await,
        };
        println!("  (b) bare MQTT loop that only acknowledges     {b:>9.0} messages/s");
        let combined = 1.0 / (1.0 / a + 1.0 / b);
        println!("      both in turn: 1 / (1/a + 1/b)             {combined:>9.0} messages/s");
        let (c, cpu) = gateway(&services, protocol, messages, devices).await;
        println!(
            "  (c) gateway, publish to acknowledged row      {c:>9.0} messages/s = {:.2} of that",
            c / combined
        );
        println!(
            "      gateway CPU per million messages          {:>9.1} s",
            cpu * 1e6 / messages as f64
        );
    }
}

/// (a)
async fn insert_ceiling(mongod: &Mongod, messages: u64, devices: u64) -> f64 {
    let mut config = Config::default();
    config.mongodb.uri = tidegate::config::Secret::new(mongod.uri());
    config.mongodb.database = "bench_insert".into();
    config.sink.writers = WRITERS;
    let store = Store::connect(&config).await.expect("the uri is sound");
    provision(&store, &config)
        .await
        .expect("the database is ours");
    let series = store.series(&StreamConfig::telemetry());
    // Two thirds of the documents warm the buckets up.
    let mut rate = 0.0;
    for _ in 0..3 {
        let batch = WINDOW / WRITERS;
        let batches = messages as usize / 3 / batch;
        let next = Arc::new(AtomicUsize::new(0));
        let prepared: Vec<Vec<Vec<_>>> = (0..WRITERS)
            .map(|writer| {
                (0..batches.div_ceil(WRITERS))
                    .map(|n| documents(writer, n, batch, devices))
                    .collect()
            })
            .collect();
        let started = Instant::now();
        let mut writers = tokio::task::JoinSet::new();
        for batches in prepared {
            let (series, next) = (series.clone(), Arc::clone(&next));
            let mut session = store.session().await.expect("the database is ours");
            writers.spawn(async move {
                for documents in batches {
                    series
                        .insert(&documents, &mut session)
                        .await
                        .expect("the database is ours");
                    next.fetch_add(documents.len(), Ordering::Relaxed);
                }
            });
        }
        while writers.join_next().await.is_some() {}
        rate = next.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    }
    rate
}

/// One batch of a writer's own devices, in the order the gateway sends it.
fn documents(
    writer: usize,
    batch: usize,
    size: usize,
    devices: u64,
) -> Vec<mongodb::bson::RawDocumentBuf> {
    let own = (devices as usize / WRITERS).max(1);
    let per_device = size.div_ceil(own);
    let start = tidegate::runtime::now().millis() + (batch * per_device) as i64;
    (0..size)
        .map(|n| {
            let reading = Reading {
                device: DeviceId::new(&format!("sim-{:05}", writer * own + n / per_device))
                    .expect("not empty"),
                kind: None,
                timestamp: Timestamp::from_millis(start + (n % per_device) as i64),
                time_source: TimeSource::Device,
                tags: Vec::new(),
                fields: ["seq", "temperature", "f1", "f2", "f3"]
                    .iter()
                    .map(|name| {
                        (
                            (*name).to_owned(),
                            FieldValue::Double((n % 977) as f64 / 8.0),
                        )
                    })
                    .collect(),
                flags: Flags::default(),
                claimed: None,
            };
            encode_reading(ObjectId::new(), &reading).expect("a small document")
        })
        .collect()
}

fn publish(services: &Services, messages: u64, devices: u64) -> std::process::Child {
    services.simulate(&[
        "--count",
        &messages.to_string(),
        "--devices",
        &devices.to_string(),
        "--rate",
        "0",
    ])
}

/// (b)
async fn mqtt_ceiling_v5(services: &Services, messages: u64, devices: u64) -> f64 {
    let mut options = MqttOptions::new("bench-bare-5", "127.0.0.1", services.mosquitto.port);
    options.set_keep_alive(Duration::from_secs(30));
    options.set_receive_maximum(Some(WINDOW as u16));
    let (client, mut events) = AsyncClient::new(options, 10);
    client
        .subscribe("devices/+/telemetry", QoS::AtLeastOnce)
        .await
        .expect("room for one request");
    loop {
        if let Event::Incoming(Incoming::SubAck(_)) =
            events.poll().await.expect("the broker is ours")
        {
            break;
        }
    }
    let publisher = publish(services, messages, devices);
    let started = Instant::now();
    let mut received = 0;
    while received < messages {
        if let Event::Incoming(Incoming::Publish(_)) =
            events.poll().await.expect("the broker is ours")
        {
            received += 1;
        }
    }
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    finished(publisher).await;
    rate
}

/// (b)
async fn mqtt_ceiling_v311(services: &Services, messages: u64, devices: u64) -> f64 {
    let mut options =
        rumqttc::MqttOptions::new("bench-bare-311", "127.0.0.1", services.mosquitto.port);
    options.set_keep_alive(Duration::from_secs(30));
    let (client, mut events) = rumqttc::AsyncClient::new(options, 10);
    client
        .subscribe("devices/+/telemetry", rumqttc::QoS::AtLeastOnce)
        .await
        .expect("room for one request");
    loop {
        if let rumqttc::Event::Incoming(rumqttc::Incoming::SubAck(_)) =
            events.poll().await.expect("the broker is ours")
        {
            break;
        }
    }
    let publisher = publish(services, messages, devices);
    let started = Instant::now();
    let mut received = 0;
    while received < messages {
        if let rumqttc::Event::Incoming(rumqttc::Incoming::Publish(_)) =
            events.poll().await.expect("the broker is ours")
        {
            received += 1;
        }
    }
    let rate = messages as f64 / started.elapsed().as_secs_f64();
    finished(publisher).await;
    rate
}

/// (c), and the CPU seconds it took.
async fn gateway(services: &Services, protocol: &str, messages: u64, devices: u64) -> (f64, f64) {
    let database = format!("bench_gateway_{}", protocol.replace('.', "_"));
    let linger = argument("linger-ms", 0);
    let extra = format!(
        "[sink]\nmin_linger = \"{linger}ms\"\nwriters = {}\n",
        argument("writers", WRITERS as u64)
    );
    let mut gateway = services.gateway(&database, protocol, &extra).await;
    // A first round warms the buckets up.
    let warm = messages / 4;
    let publisher = publish(services, warm, devices);
    settled(&gateway, warm, Instant::now()).await;
    finished(publisher).await;
    let cpu = gateway.process.cpu_seconds();
    let publisher = publish(services, messages, devices);
    let elapsed = settled(&gateway, warm + messages, Instant::now()).await;
    finished(publisher).await;
    let cpu = gateway.process.cpu_seconds() - cpu;
    let batch = |name: &str, m: &support::gateway::Metrics| {
        m.sum(&format!("{name}_sum"), &[]) / m.sum(&format!("{name}_count"), &[]).max(1.0)
    };
    let metrics = gateway.metrics().await;
    println!(
        "      mean batch {:.0} readings, {:.1} per device, insert {:.1} ms, ack {:.1} ms",
        batch("tidegate_sink_batch_readings", &metrics),
        batch("tidegate_sink_batch_readings_per_device", &metrics),
        batch("tidegate_sink_insert_seconds", &metrics) * 1e3,
        batch("tidegate_source_ack_seconds", &metrics) * 1e3,
    );
    gateway.terminate().await;
    (messages as f64 / elapsed.as_secs_f64(), cpu)
}
