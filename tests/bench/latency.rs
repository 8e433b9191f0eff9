//! How long from a publish until the row can be queried, at 1,000 messages a second, against a
//! bare publish, insert_one, find loop: `cargo bench --bench latency [-- --probes N --rate N]`.

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, Event, Incoming, MqttOptions};
use setup::{Services, argument, finished, print_head};

#[tokio::main]
async fn main() {
    let probes = argument("probes", 500) as usize;
    let rate = argument("rate", 1_000);
    print_head(&format!("latency: publish to queryable, {probes} probes"));
    let services = Services::start().await;
    let database = "bench_latency";
    let gateway = services.gateway(database, "5", "").await;
    let client = services.mongod.client().await;
    let series = client.database(database).collection::<Document>("readings");

    let bare = services.gateway("bench_latency_bare", "5", "").await;
    let bare_series = client
        .database("bench_latency_bare")
        .collection::<Document>("readings");
    // It was started for its collection and index only.
    drop(bare);
    let (subscribed, listening) = tokio::sync::oneshot::channel();
    let consumer = bare_consumer(services.mosquitto.port, bare_series.clone(), subscribed);
    tokio::spawn(consumer);
    listening
        .await
        .expect("the consumer subscribes first of all");

    let mut bare = probe(&services, "bare", &bare_series, probes).await;
    let load = services.simulate(&[
        "--devices",
        "1000",
        "--rate",
        &rate.to_string(),
        "--duration",
        "10m",
    ]);
    let load_pid = load.id();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut loaded = probe(&services, "devices", &series, probes).await;
    std::process::Command::new("kill")
        .arg(load_pid.to_string())
        .status()
        .expect("kill is part of every system");
    let total = finished(load).await;

    println!("\n                                              p50        p99");
    let (b50, b99) = row("bare publish, insert_one, find, no load", &mut bare);
    let (g50, g99) = row(&format!("gateway at {rate} messages/s"), &mut loaded);
    println!(
        "  gateway / bare                            {:>6.2}     {:>6.2}",
        g50 / b50,
        g99 / b99
    );
    println!("  background: {total}");
    drop(gateway);
}

fn row(name: &str, samples: &mut [Duration]) -> (f64, f64) {
    samples.sort();
    let at =
        |share: f64| samples[((samples.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (p50, p99) = (at(0.5), at(0.99));
    println!("  {name:40} {p50:>6.1} ms  {p99:>6.1} ms");
    (p50, p99)
}

/// Publishes one message after the other and looks for its row until it is there.
async fn probe(
    services: &Services,
    prefix: &str,
    series: &Collection<Document>,
    probes: usize,
) -> Vec<Duration> {
    let mut options = MqttOptions::new(
        format!("bench-probe-{prefix}"),
        "127.0.0.1",
        services.mosquitto.port,
    );
    options.set_keep_alive(Duration::from_secs(30));
    let (client, mut events) = AsyncClient::new(options, 10);
    tokio::spawn(async move { while events.poll().await.is_ok() {} });
    let mut samples = Vec::with_capacity(probes);
    for n in 0..probes + 20 {
        let device = format!("probe-{n}");
        let started = Instant::now();
        client
            .publish(
                format!("{prefix}/{device}/telemetry"),
                QoS::AtLeastOnce,
                false,
                r#"{"t":21.5}"#,
            )
            .await
            .expect("the broker is ours");
        while series
            .find_one(doc! { "metadata.deviceId": &device })
            .await
            .expect("the database is ours")
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The first ones warm connections and buckets up.
        if n >= 20 {
            samples.push(started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    samples
}

/// Receives, inserts, acknowledges: nothing else.
async fn bare_consumer(
    port: u16,
    series: Collection<Document>,
    subscribed: tokio::sync::oneshot::Sender<()>,
) {
    let mut options = MqttOptions::new("bench-bare-consumer", "127.0.0.1", port);
    options
        .set_keep_alive(Duration::from_secs(30))
        .set_manual_acks(true);
    let (client, mut events) = AsyncClient::new(options, 10);
    client
        .subscribe("bare/+/telemetry", QoS::AtLeastOnce)
        .await
        .expect("room for one request");
    let mut subscribed = Some(subscribed);
    loop {
        let event = events.poll().await.expect("the broker is ours");
        if matches!(event, Event::Incoming(Incoming::SubAck(_)))
            && let Some(subscribed) = subscribed.take()
        {
            subscribed.send(()).expect("the probe waits for it");
        }
        if let Event::Incoming(Incoming::Publish(publish)) = event {
            let topic = String::from_utf8_lossy(&publish.topic).into_owned();
            let device = topic.split('/').nth(1).unwrap_or("?").to_owned();
            let row = doc! { "timestamp": DateTime::now(), "metadata": { "deviceId": device }, "t": 21.5 };
            series.insert_one(row).await.expect("the database is ours");
            client
                .try_ack(&publish)
                .expect("room for one acknowledgement");
        }
    }
}
