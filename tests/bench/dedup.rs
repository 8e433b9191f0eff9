//! What it costs to store once: `cargo bench --bench dedup [-- --messages N --devices N --rounds N
//! --cases N]`.
//!
//! A backlog waits at the broker while the gateway is down, and is timed from its first message to
//! the last settled one, so that no publisher shares the cores. Each round runs every case in
//! turn; the figures are medians, the ratios are to `off` of the same round.

#[path = "setup.rs"]
mod setup;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use setup::{Services, argument, print_head};
use support::gateway::Gateway;
use support::plan::now_ms;
use support::publisher::publish_all;

/// A backlog of readings, and whether they are stored already.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    dedup: &'static str,
    again: bool,
}

const CASES: [Case; 5] = [
    Case {
        name: "off, new readings",
        dedup: "off",
        again: false,
    },
    Case {
        name: "redelivered, new readings",
        dedup: "redelivered",
        again: false,
    },
    Case {
        name: "redelivered, all stored already",
        dedup: "redelivered",
        again: true,
    },
    Case {
        name: "always, new readings",
        dedup: "always",
        again: false,
    },
    Case {
        name: "always, all stored already",
        dedup: "always",
        again: true,
    },
];

#[tokio::main]
async fn main() {
    let messages = argument("messages", 20_000);
    let devices = argument("devices", 1_000);
    let rounds = argument("rounds", 7);
    let cases = &CASES[..argument("cases", CASES.len() as u64) as usize];
    print_head(&format!(
        "dedup: backlogs of {messages} messages of {devices} devices, QoS 1, w: majority, median of {rounds} rounds"
    ));
    let services = Services::start().await;
    let mut rates: [Vec<f64>; CASES.len()] = Default::default();
    // One round to warm up.
    for round in 0..=rounds {
        for (case, rates) in cases.iter().zip(&mut rates) {
            let rate = run(&services, case, messages, devices).await;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    for (position, case) in cases.iter().enumerate() {
        let ratios = rates[position].iter().zip(&rates[0]).map(|(a, b)| a / b);
        println!(
            "  {:34} {:>8.0} messages/s   {:.2} of off",
            case.name,
            median(rates[position].clone()),
            median(ratios.collect()),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn run(services: &Services, case: &Case, messages: u64, devices: u64) -> f64 {
    let extra = format!("[sink]\ndedup = {:?}\n", case.dedup);
    // One session for all: others would queue what is not theirs.
    let config = services.config("dedup", "5", &extra);
    let mut gateway = Gateway::start(&config);
    gateway.wait_ready().await;
    let start = now_ms();
    let backlog: Vec<_> = (0..messages)
        .map(|n| {
            let (device, time) = (n % devices, start + (n / devices) as i64 * 10);
            let payload = format!(
                "{{\"ts\":{time},\"temperature\":{}.5,\"humidity\":{}}}",
                n % 40,
                n % 100
            );
            (format!("devices/dev-{device}/telemetry"), payload)
        })
        .collect();
    if case.again {
        publish_all(services.mosquitto.port, backlog.clone()).await;
        settled(&gateway, messages).await;
    }
    gateway.kill();
    publish_all(services.mosquitto.port, backlog).await;
    gateway.restart();
    let took = settled(&gateway, messages).await;
    gateway.kill();
    messages as f64 / took.as_secs_f64()
}

/// From the first message to the last settled one.
async fn settled(gateway: &Gateway, count: u64) -> Duration {
    let mut first = None;
    loop {
        let metrics = gateway.metrics().await;
        if metrics.count("tidegate_messages_received_total", &[]) > 0 {
            first.get_or_insert_with(Instant::now);
        }
        if let Some(first) = first
            && metrics.count("tidegate_messages_settled_total", &[]) >= count
        {
            return first.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
