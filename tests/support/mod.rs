//! The harness of the service tests: real MongoDB, real mosquitto, the real binary, and a scripted broker.
//!
//! Each test binary takes it with `mod support;`. A service that cannot be found or started fails the test: there is
//! no skipping. Whatever is started ends with the test process, however that ends (see `process`).
//! Binaries come from `TIDEGATE_MONGOD` and `TIDEGATE_MOSQUITTO`, which `deploy/test` sets, else from PATH.
#![allow(dead_code, reason = "each test binary uses a part of the harness")]

pub mod alerting;
pub mod gate;
pub mod gateway;
pub mod mongod;
pub mod mosquitto;
pub mod packets;
pub mod plan;
pub mod process;
pub mod publisher;
pub mod receiver;
pub mod scripted_broker;
pub mod scripted_receiver;
pub mod wire;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Asks again every 20 ms until the answer is `Some`; panics with `what` after `timeout`.
///
/// A condition is `.then_some(())`.
pub async fn eventually<T>(
    timeout: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {timeout:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A name no other test, process or earlier run uses; fit for databases, topic levels and client ids.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is after 1970")
        .as_millis();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}_{}_{millis}_{number}", std::process::id())
}

/// A port of the loopback interface that nobody listened on a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("the loopback interface has a free port")
        .port()
}

/// The tests' own HTTP client.
pub fn http() -> reqwest::Client {
    static CLIENT: std::sync::OnceLock<reqwest::Client> = std::sync::OnceLock::new();
    CLIENT
        .get_or_init(|| {
            // The library's features leave the choice of a provider to the program; a second
            // installation in one process is refused, which is fine.
            let _ = rustls::crypto::ring::default_provider().install_default();
            reqwest::Client::new()
        })
        .clone()
}
