//! Memory of the gateway while MongoDB does not answer and the window is full, and what becomes
//! of the messages afterwards: `cargo bench --bench outage [-- --seconds N]`.

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use setup::{Services, argument, counter, finished, print_head, settled};

#[tokio::main]
async fn main() {
    let seconds = argument("seconds", 30);
    let messages = argument("messages", 60_000);
    print_head(&format!(
        "outage: MongoDB stopped for {seconds} s, {messages} messages published meanwhile"
    ));
    let services = Services::start().await;
    let gateway = services.gateway("bench_outage", "5", "").await;
    // Buffers and pools have their working size before the outage.
    let warm = services.simulate(&["--count", "20000", "--devices", "1000", "--rate", "0"]);
    finished(warm).await;
    settled(&gateway, 20_000, Instant::now()).await;
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    println!(
        "\n  resident before                  {:>6.1} MiB",
        mib(gateway.process.resident_bytes())
    );

    services.mongod.nodes[0].process.freeze();
    finished(services.simulate(&[
        "--count",
        &messages.to_string(),
        "--devices",
        "1000",
        "--rate",
        "0",
    ]))
    .await;
    let (mut first, mut last, mut most) = (0, 0, 0);
    for second in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        last = gateway.process.resident_bytes();
        most = most.max(last);
        // The window needs a moment to fill.
        if second == 4 {
            first = last;
        }
    }
    let unacked = counter(&gateway, "tidegate_source_unacked_messages", &[]).await;
    println!(
        "  resident with a full window      {:>6.1} MiB at the most ({unacked} messages un-acknowledged)",
        mib(most)
    );
    println!(
        "  growth from 5 s on               {:>6.1} MiB",
        mib(last) - mib(first)
    );
    println!(
        "  ready meanwhile                  {}",
        gateway.get("/readyz").await.0 == 200
    );

    services.mongod.nodes[0].process.thaw();
    let caught_up = settled(&gateway, 20_000 + messages, Instant::now()).await;
    let series = services
        .mongod
        .client()
        .await
        .database("bench_outage")
        .collection::<Document>("readings");
    let rows = series
        .count_documents(doc! {})
        .await
        .expect("the database is ours");
    println!(
        "  all stored after                 {:>6.1} s",
        caught_up.as_secs_f64()
    );
    println!("  rows {rows} of {} published", 20_000 + messages);
}
