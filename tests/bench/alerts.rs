//! What alerts cost and how fast they page: `cargo bench --bench alerts [-- --messages N --probes N]`.
//!
//! 1. From publish to the webhook at a local receiver, at 2,000 messages a second of 1,000 devices
//!    under 20 rules, against publish to stored in the same run.
//! 2. Ingest with nothing selected, with 20 rules that select a tenth of the readings, and with
//!    all of them selected, each against the rate with the feed off.

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, MqttOptions};
use setup::{Services, argument, counter, finished, print_head, settled};
use support::receiver::Receiver;

#[tokio::main]
async fn main() {
    let messages = argument("messages", 200_000);
    let probes = argument("probes", 300) as usize;
    print_head(&format!(
        "alerts: {probes} probes, then ingest of {messages} messages of 1,000 devices"
    ));
    latency(probes).await;
    ingest(messages).await;
}

/// Twenty rules on devices whose number ends in one digit: a tenth of the simulated fleet.
fn rules(select: &str) -> String {
    (0..20)
        .map(|n| {
            format!(
                "[[rules]]\nid = \"rule-{n:02}\"\nselect = {select}\nfield = \"temperature\"\nop = \">\"\n\
                 severity = \"warning\"\nat = {}.0\n",
                10_000 + n
            )
        })
        .collect()
}

const TENTH: &str = "{ devices = [\"*7\"] }";

async fn latency(probes: usize) {
    let services = Services::start().await;
    let receiver = Receiver::start().await;
    let database = "bench_alerts";
    let probe_rule = "[[rules]]\nid = \"probe\"\nselect = { devices = [\"probe-*\"] }\nfield = \"t\"\nop = \">\"\nseverity = \"critical\"\nat = 20.0\n";
    // Probes are many alerts of one rule within a minute: the storm gate would gather them.
    let extra = format!(
        "[alerts]\nstorm = {{ open = 100000, umbrella = 100000 }}\n{}{probe_rule}{}",
        rules(TENTH),
        receiver.section("bench", "rate = 1000.0"),
    );
    let gateway = services.gateway(database, "5", &extra).await;
    gateway
        .wait_metrics(Duration::from_secs(30), "it leads", |metrics| {
            metrics.count("tidegate_alert_leader", &[]) == 1
        })
        .await;
    let client = services.mongod.client().await;
    let series = client.database(database).collection::<Document>("readings");
    let load = services.simulate(&["--devices", "1000", "--rate", "2000", "--duration", "10m"]);
    let load_pid = load.id();
    tokio::time::sleep(Duration::from_secs(2)).await;

    let mut options = MqttOptions::new("bench-probe", "127.0.0.1", services.mosquitto.port);
    options.set_keep_alive(Duration::from_secs(30));
    let (publisher, mut events) = AsyncClient::new(options, 10);
    tokio::spawn(async move { while events.poll().await.is_ok() {} });
    let mut stored = Vec::with_capacity(probes);
    let mut published = HashMap::new();
    for n in 0..probes + 20 {
        let device = format!("probe-{n}");
        let started = Instant::now();
        publisher
            .publish(
                format!("devices/{device}/telemetry"),
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
            stored.push(started.elapsed());
            published.insert(device, started);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = receiver.wait(Duration::from_secs(30), probes + 20).await;
    std::process::Command::new("kill")
        .arg(load_pid.to_string())
        .status()
        .expect("kill is part of every system");
    let total = finished(load).await;
    let mut paged: Vec<_> = told
        .iter()
        .filter_map(|told| {
            let body = told.json();
            let started = published.get(body["data"]["device"]["id"].as_str()?)?;
            Some(told.at.duration_since(*started))
        })
        .collect();
    assert_eq!(paged.len(), probes, "one page for each probe");
    println!("\n                                              p50        p99");
    let (_, s99) = row("publish to stored", &mut stored);
    let (_, p99) = row("publish to webhook received", &mut paged);
    println!(
        "  webhook p99 / stored p99                            {:>9.2}",
        p99 / s99
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

async fn ingest(messages: u64) {
    let services = Services::start().await;
    println!(
        "\n                                             messages/s    of off       fed   evaluated after"
    );
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); 4];
    let mut behind = vec![(0, 0.0); 4];
    let setups = [
        ("feed off", "[feed]\nmode = \"off\"\n".to_owned()),
        ("feed on, no rules", String::new()),
        ("20 rules, a tenth selected", rules(TENTH)),
        ("20 rules, everything selected", rules("{ all = true }")),
    ];
    // Round by round, so that what the machine does meanwhile meets all alike.
    for round in 0..3 {
        for (index, (_, extra)) in setups.iter().enumerate() {
            let database = format!("bench_alerts_{index}_{round}");
            let mut gateway = services.gateway(&database, "5", extra).await;
            let warm = messages / 4;
            let publisher = publish(&services, warm);
            settled(&gateway, warm, Instant::now()).await;
            finished(publisher).await;
            let publisher = publish(&services, messages);
            let elapsed = settled(&gateway, warm + messages, Instant::now()).await;
            finished(publisher).await;
            rates[index].push(messages as f64 / elapsed.as_secs_f64());
            // The watcher may be behind at the end: how long until each rule has seen its readings?
            let ended = Instant::now();
            let fed = counter(&gateway, "tidegate_sink_readings_fed_total", &[]).await;
            let rules = counter(&gateway, "tidegate_alert_rules", &[]).await;
            gateway
                .wait_metrics(
                    Duration::from_secs(120),
                    "everything is evaluated",
                    |metrics| {
                        let judged = metrics.sum("tidegate_alert_evaluations_total", &[]);
                        // What came again is told by its time.
                        let skipped = metrics.sum("tidegate_alert_samples_skipped_total", &[]);
                        (judged + skipped) as u64 >= fed * rules
                    },
                )
                .await;
            behind[index] = (fed, ended.elapsed().as_secs_f64());
            gateway.terminate().await;
        }
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let off = median(&mut rates[0]);
    for (((name, _), rates), (fed, seconds)) in setups.iter().zip(&mut rates).zip(&behind) {
        let rate = median(rates);
        println!(
            "  {name:40} {rate:>9.0}     {:>5.2}    {fed:>7} {seconds:>9.1} s",
            rate / off
        );
    }
}

fn publish(services: &Services, messages: u64) -> std::process::Child {
    services.simulate(&[
        "--count",
        &messages.to_string(),
        "--devices",
        "1000",
        "--rate",
        "0",
    ])
}
