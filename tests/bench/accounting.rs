//! Where every message went: 100,000 messages, 1 % of each kind of bad payload; stored plus
//! dead-lettered must be what was published, exactly: `cargo bench --bench accounting`.

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use setup::{Services, argument, finished, print_head, settled};

/// Kinds of bad payloads the simulation has.
const KINDS: u64 = 8;

#[tokio::main]
async fn main() {
    let messages = argument("messages", 100_000);
    print_head(&format!(
        "accounting: {messages} messages, 1 % of each of {KINDS} bad kinds"
    ));
    let services = Services::start().await;
    let gateway = services.gateway("bench_accounting", "5", "").await;
    let bad = format!("{}", KINDS as f64 / 100.0);
    let sent = finished(services.simulate(&[
        "--count",
        &messages.to_string(),
        "--devices",
        "1000",
        "--rate",
        "0",
        "--bad",
        &bad,
    ]))
    .await;
    settled(&gateway, messages, Instant::now()).await;

    let database = services.mongod.client().await.database("bench_accounting");
    let rows = database.collection::<Document>("readings");
    let stored = rows
        .count_documents(doc! {})
        .await
        .expect("the database is ours");
    let pipeline = [doc! { "$group": { "_id": "$seq" } }, doc! { "$count": "n" }];
    let mut cursor = rows
        .aggregate(pipeline)
        .await
        .expect("the database is ours");
    let distinct = cursor
        .try_next()
        .await
        .expect("the database is ours")
        .map_or(0, |d| d.get_i32("n").unwrap_or_default());
    let letters = database.collection::<Document>("dead_letters");
    let dead = letters
        .count_documents(doc! {})
        .await
        .expect("the database is ours");
    let mut by_reason = BTreeMap::new();
    let mut cursor = letters
        .aggregate([doc! { "$group": { "_id": "$reason", "n": { "$sum": 1 } } }])
        .await
        .expect("the database is ours");
    while let Some(group) = cursor.try_next().await.expect("the database is ours") {
        by_reason.insert(
            group.get_str("_id").unwrap_or("?").to_owned(),
            group.get_i32("n").unwrap_or_default(),
        );
    }

    println!("\n  published and confirmed   {:>8}", sent["acked"]);
    println!("  stored                    {stored:>8}  ({distinct} distinct)");
    println!(
        "  dead-lettered             {dead:>8}  (bad on purpose: {})",
        sent["bad"]
    );
    for (reason, count) in &by_reason {
        println!("    {reason:22} {count:>8}");
    }
    let exact = sent["acked"] == messages
        && stored + dead == messages
        && stored == distinct as u64
        && sent["bad"] == dead;
    println!(
        "  stored + dead-lettered = published, each once: {}",
        if exact { "exactly" } else { "NO" }
    );
    assert!(exact);
}
