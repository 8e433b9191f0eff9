//! What the bench programs share: services of their own, the simulated fleet, a table head that
//! says what was measured where.

#![allow(dead_code, reason = "each program uses its part")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, tidegate};
use crate::support::mongod::Mongod;
use crate::support::mosquitto::Mosquitto;

/// A broker and a one-node replica set of the program's own.
pub struct Services {
    pub mongod: Mongod,
    pub mosquitto: Mosquitto,
}

impl Services {
    pub async fn start() -> Self {
        Self {
            mongod: Mongod::start_replica_set(1).await,
            mosquitto: Mosquitto::start(&[]).await,
        }
    }

    /// A gateway on its own database; `extra` is TOML put before the streams.
    pub async fn gateway(&self, database: &str, protocol: &str, extra: &str) -> Gateway {
        let mut gateway = Gateway::start(&self.config(database, protocol, extra));
        gateway.wait_ready().await;
        gateway
    }

    /// The configuration of that gateway.
    pub fn config(&self, database: &str, protocol: &str, extra: &str) -> String {
        format!(
            "[mqtt]\nurl = {:?}\nprotocol = {protocol:?}\nclient_id = {database:?}\n[mongodb]\nuri = {:?}\ndatabase = {database:?}\n[log]\nlevel = \"warn\"\n{extra}",
            self.mosquitto.url(),
            self.mongod.uri(),
        )
    }

    /// Starts `tidegate simulate` against the broker.
    pub fn simulate(&self, arguments: &[&str]) -> std::process::Child {
        tidegate()
            .arg("simulate")
            .args(arguments)
            .arg("--json")
            .env("TIDEGATE_MQTT__URL", self.mosquitto.url())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary was built for this program")
    }
}

/// The final count of a simulation.
pub async fn finished(child: std::process::Child) -> serde_json::Value {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output())
        .await
        .expect("waiting does not panic")
        .expect("the simulation is ours");
    assert!(output.status.success(), "the simulation failed");
    serde_json::from_slice(&output.stdout).expect("the simulation prints one JSON object")
}

/// Sum of a counter over its series.
pub async fn counter(gateway: &Gateway, name: &str, labels: &[(&str, &str)]) -> u64 {
    gateway.metrics().await.sum(name, labels) as u64
}

/// Waits until `count` messages have reached an end; how long it took.
pub async fn settled(gateway: &Gateway, count: u64, since: Instant) -> Duration {
    loop {
        if counter(gateway, "tidegate_messages_settled_total", &[]).await >= count {
            return since.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Machine and versions.
pub fn print_head(title: &str) {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")
                .and_then(|rest| rest.split_once(": "))
        })
        .map_or("?", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let version = |program: std::path::PathBuf, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok();
        let text = output.map(|o| {
            String::from_utf8_lossy(&o.stdout)
                .lines()
                .next()
                .unwrap_or("?")
                .to_owned()
        });
        text.unwrap_or_else(|| "?".to_owned())
    };
    println!("{title}");
    println!("  {cores} cores, {model}; broker, database, publisher and gateway share them");
    println!(
        "  {}; {}",
        version(
            crate::support::process::find_binary("TIDEGATE_MOSQUITTO", "mosquitto"),
            &["-h"]
        ),
        version(
            crate::support::process::find_binary("TIDEGATE_MONGOD", "mongod"),
            &["--version"]
        )
    );
}

/// The value of `--name N`, or the default. Other arguments (cargo passes some) are skipped.
pub fn argument(name: &str, default: u64) -> u64 {
    let arguments: Vec<String> = std::env::args().collect();
    arguments
        .windows(2)
        .find(|pair| pair[0] == format!("--{name}"))
        .map_or(default, |pair| pair[1].parse().expect("a number"))
}
