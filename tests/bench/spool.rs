//! What the spool costs and what it holds: `cargo bench --bench spool [-- --messages N]` for how
//! fast messages get onto the disk, and the normal flow with and without it;
//! `cargo bench --bench spool -- --outage SECONDS [--rate N] [--kill 1]` for an outage of MongoDB
//! with a steady flow through it, and with the gateway killed at its end.

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use setup::{Services, argument, counter, finished, print_head, settled};
use support::gateway::Gateway;
use support::process::temp_dir;
use tidegate::config::{SinkConfig, SpoolConfig};
use tidegate::model::{Keep, Message, Outcome, QoS, Receipt, Settle, Spooled, Ticket, Timestamp};
use tidegate::runtime::{Readiness, Tasks};
use tidegate::spool::Spool;
use tidegate::telemetry::{Ledger, Registry};

/// As the gateway's default window.
const WINDOW: u64 = 20_000;

#[tokio::main]
async fn main() {
    let outage = argument("outage", 0);
    if outage > 0 {
        return hold_out(outage, argument("rate", 5_000)).await;
    }
    let messages = argument("messages", 200_000);
    print_head(&format!(
        "spool: {messages} messages of 1,000 devices, QoS 1, fsync in groups"
    ));
    engine(messages).await;
    for protocol in ["5", "3.1.1"] {
        println!("\n  MQTT {protocol}");
        intake(protocol, messages).await;
        let with = flow(protocol, messages, true).await;
        let without = flow(protocol, messages, false).await;
        println!(
            "  publish to acknowledged row, spool on / off   {with:>9.0} / {without:.0} messages/s = {:.2}",
            with / without
        );
    }
}

/// Counts what is on disk.
#[derive(Default)]
struct OnDisk(AtomicU64);

impl Settle for OnDisk {
    fn settled(&self, _: Ticket, outcome: Option<Outcome>) {
        assert_eq!(outcome, Some(Outcome::Spooled));
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The spool alone: no MQTT, nothing drained.
async fn engine(messages: u64) {
    let folder = temp_dir("spool-engine");
    let config = SpoolConfig {
        enabled: true,
        path: folder.path().join("spool"),
        ..SpoolConfig::default()
    };
    let tasks = Tasks::default();
    let spool = Spool::open(
        &config,
        &SinkConfig::default(),
        &Ledger::default(),
        &Registry::default(),
        &Readiness::default(),
    )
    .expect("the folder is ours")
    .expect("it is asked for");
    spool.run(Box::new(|_, _| unreachable!("not released")), &tasks);
    let on_disk = Arc::new(OnDisk::default());
    let payload = format!(
        "{{\"ts\":1796000000000,{}\"seq\":1}}",
        "\"temperature\":21.25,".repeat(6)
    );
    println!(
        "\n  the spool alone, records of {} bytes",
        payload.len() + 55
    );
    for window in [100, 1_000, WINDOW] {
        let started = Instant::now();
        let begun = on_disk.0.load(Ordering::Relaxed);
        for n in 0..messages {
            while n - (on_disk.0.load(Ordering::Relaxed) - begun) >= window {
                tokio::task::yield_now().await;
            }
            let message = Message {
                topic: bytes::Bytes::from_static(b"devices/sim-00001/telemetry"),
                payload: bytes::Bytes::from(payload.clone()),
                cut_from: None,
                qos: QoS::AtLeastOnce,
                retain: false,
                dup: false,
                spooled: Spooled::No,
                received_at: Timestamp::from_millis(1_796_000_000_000),
            };
            let ticket = Ticket {
                sequence: n,
                stream: 0,
                weight: 0,
            };
            let owner: Arc<dyn Settle> = on_disk.clone();
            spool.keep(message, Some("telemetry"), Receipt::new(ticket, owner));
        }
        while on_disk.0.load(Ordering::Relaxed) - begun < messages {
            tokio::task::yield_now().await;
        }
        let rate = messages as f64 / started.elapsed().as_secs_f64();
        println!("    {window:>6} outstanding                           {rate:>9.0} messages/s");
    }
    tasks.stop();
    spool.close();
    tasks.finish(Duration::from_secs(10)).await;
}

async fn gateway(services: &Services, name: &str, protocol: &str, spool: Option<&str>) -> Gateway {
    let extra = spool.map_or(String::new(), |path| {
        format!("[spool]\nenabled = true\npath = {path:?}\n")
    });
    services.gateway(name, protocol, &extra).await
}

/// From an MQTT publish to the disk, with the database away.
async fn intake(protocol: &str, messages: u64) {
    let services = Services::start().await;
    let folder = temp_dir("spool-intake");
    let path = folder.path().join("spool").display().to_string();
    let gateway = gateway(&services, "bench_intake", protocol, Some(&path)).await;
    services.mongod.nodes[0].process.freeze();
    let cpu = gateway.process.cpu_seconds();
    let count = messages.to_string();
    let started = Instant::now();
    let publisher = services.simulate(&["--count", &count, "--devices", "1000", "--rate", "0"]);
    while counter(&gateway, "tidegate_source_acks_total", &[]).await < messages {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = started.elapsed().as_secs_f64();
    finished(publisher).await;
    let cpu = gateway.process.cpu_seconds() - cpu;
    let metrics = gateway.metrics().await;
    let commits = metrics.sum("tidegate_spool_commit_seconds_count", &[]);
    println!(
        "  publish to acknowledged on disk, MongoDB away {:>9.0} messages/s",
        messages as f64 / took
    );
    println!(
        "    {:.0} messages a group, {:.2} ms a group, file {:.2} times the messages, gateway CPU per million {:.1} s",
        messages as f64 / commits,
        metrics.sum("tidegate_spool_commit_seconds_sum", &[]) / commits * 1e3,
        metrics.sum("tidegate_spool_file_bytes", &[]) / metrics.sum("tidegate_spool_bytes", &[]),
        cpu * 1e6 / messages as f64
    );
    services.mongod.nodes[0].process.thaw();
}

/// From an MQTT publish to an acknowledged row.
async fn flow(protocol: &str, messages: u64, spool: bool) -> f64 {
    let services = Services::start().await;
    let folder = temp_dir("spool-flow");
    let path = folder.path().join("spool").display().to_string();
    let path = spool.then_some(path.as_str());
    let gateway = gateway(&services, "bench_flow", protocol, path).await;
    let warm = services.simulate(&["--count", "20000", "--devices", "1000", "--rate", "0"]);
    finished(warm).await;
    settled(&gateway, 20_000, Instant::now()).await;
    let count = messages.to_string();
    let started = Instant::now();
    let publisher = services.simulate(&["--count", &count, "--devices", "1000", "--rate", "0"]);
    let took = settled(&gateway, 20_000 + messages, started).await;
    finished(publisher).await;
    messages as f64 / took.as_secs_f64()
}

/// An outage under a steady flow, and the way back.
async fn hold_out(outage: u64, rate: u64) {
    print_head(&format!(
        "spool: MongoDB stopped for {outage} s at {rate} messages/s, which go on"
    ));
    let services = Services::start().await;
    let folder = temp_dir("spool-outage");
    let path = folder.path().join("spool").display().to_string();
    let mut gateway = gateway(&services, "bench_spool", "5", Some(&path)).await;
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let duration = format!("{}s", 10 + outage + outage.clamp(30, 120));
    let rate_text = rate.to_string();
    let publisher = services.simulate(&[
        "--duration",
        &duration,
        "--devices",
        "1000",
        "--rate",
        &rate_text,
    ]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!(
        "\n  resident before                  {:>8.1} MiB",
        mib(gateway.process.resident_bytes())
    );
    services.mongod.nodes[0].process.freeze();
    let (mut most, mut unacked) = (0, 0);
    for _ in 0..outage {
        tokio::time::sleep(Duration::from_secs(1)).await;
        most = most.max(gateway.process.resident_bytes());
        unacked = unacked.max(counter(&gateway, "tidegate_source_unacked_messages", &[]).await);
    }
    let metrics = gateway.metrics().await;
    println!(
        "  at the end of the outage         {:>8.0} messages in the spool, file {:.1} MiB, oldest {:.0} s, full in {:.0} s",
        metrics.sum("tidegate_spool_messages", &[]),
        mib(metrics.sum("tidegate_spool_file_bytes", &[]) as u64),
        metrics.sum("tidegate_spool_oldest_seconds", &[]),
        metrics.sum("tidegate_spool_time_to_full_seconds", &[]),
    );
    println!(
        "  resident during the outage       {:>8.1} MiB at the most, un-acknowledged {unacked} at the most",
        mib(most)
    );
    if argument("kill", 0) > 0 {
        let since = Instant::now();
        gateway.restart();
        let metrics = gateway.metrics().await;
        println!(
            "  killed and started again         {:>8.1} s until it answers, {:.0} messages recovered",
            since.elapsed().as_secs_f64(),
            metrics.sum("tidegate_spool_recovered_total", &[])
        );
    }
    services.mongod.nodes[0].process.thaw();
    let since = Instant::now();
    let (mut most, mut drained) = (0, None);
    while drained.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(gateway.process.resident_bytes());
        // A second's worth is under way in normal flow too.
        if counter(&gateway, "tidegate_spool_messages", &[]).await <= rate {
            drained = Some(since.elapsed());
        }
    }
    println!(
        "  drained, new ones coming         {:>8.1} s after its end, resident {:.1} MiB at the most",
        drained.unwrap_or_default().as_secs_f64(),
        mib(most)
    );
    let sent = finished(publisher).await;
    let published = sent["acked"].as_u64().expect("a number");
    // Counters start anew with the process; the end is when nothing is left.
    loop {
        let metrics = gateway.metrics().await;
        let left = ["tidegate_spool_messages", "tidegate_messages_in_flight"];
        if left.iter().all(|name| metrics.sum(name, &[]) == 0.0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let rows = services
        .mongod
        .client()
        .await
        .database("bench_spool")
        .collection::<Document>("readings");
    let stored = rows
        .count_documents(doc! {})
        .await
        .expect("the database is ours");
    let pipeline = [doc! { "$group": { "_id": "$seq" } }, doc! { "$count": "n" }];
    let mut cursor = rows
        .aggregate(pipeline)
        .allow_disk_use(true)
        .await
        .expect("the database is ours");
    let distinct = cursor
        .try_next()
        .await
        .expect("the database is ours")
        .map_or(0, |count| count.get_i32("n").unwrap_or_default());
    println!("  published and confirmed          {published:>8}");
    println!("  rows                             {stored:>8}  ({distinct} distinct)");
    let exact = stored == published && i64::from(distinct) == stored.cast_signed();
    println!("  each once: {}", if exact { "exactly" } else { "NO" });
    assert!(exact);
}
