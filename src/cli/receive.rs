//! `tidegate receive`: a small receiver for trying things out. It checks signatures and prints each
//! alert as one line.

use std::collections::HashSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::block_on;
use super::webhook::keys;
use super::words::printable;
use crate::alert::notify::sign::{Key, Rejected, headers, verify};
use crate::runtime::{self, Signal, Signals};

/// Receive webhooks, check their signatures, and print each as one line
///
/// For trying things out: it forgets everything when it ends. A message that comes again is
/// printed as such.
#[derive(Debug, Args)]
pub struct Receive {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8480")]
    listen: SocketAddr,
    /// File that holds the secret, whsec_...; without any, signatures are not checked
    #[arg(long, value_name = "FILE")]
    secret_file: Vec<PathBuf>,
    /// Environment variable that holds it
    #[arg(long, value_name = "NAME")]
    secret_env: Vec<String>,
    /// End after so many messages that were accepted
    #[arg(long)]
    count: Option<usize>,
    /// End after so long, such as 30s; exit code 1 if fewer than --count have come
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    long: Option<Duration>,
    /// Print the whole body instead
    #[arg(long)]
    json: bool,
}

struct Desk {
    keys: Vec<Key>,
    count: Option<usize>,
    json: bool,
    seen: Mutex<HashSet<String>>,
    enough: CancellationToken,
}

impl Receive {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let keys = keys(&self.secret_file, &self.secret_env)?;
        block_on(async {
            let listener = tokio::net::TcpListener::bind(self.listen)
                .await
                .with_context(|| format!("cannot listen on {}", self.listen))?;
            let enough = CancellationToken::new();
            let desk = Arc::new(Desk {
                keys,
                count: self.count,
                json: self.json,
                seen: Mutex::default(),
                enough: enough.clone(),
            });
            let address = listener.local_addr()?;
            let checked = if desk.keys.is_empty() {
                "not checked"
            } else {
                "checked"
            };
            writeln!(
                std::io::stdout(),
                "listening on http://{address}/, signatures are {checked}"
            )?;
            let router = Router::new()
                .fallback(receive)
                .with_state(Arc::clone(&desk));
            let mut signals = Signals::install()?;
            let long = self.long.unwrap_or(Duration::MAX);
            tokio::select! {
                // Whoever is being answered while this ends sends again, as with any receiver.
                served = axum::serve(listener, router) => served?,
                () = enough.cancelled() => tokio::time::sleep(Duration::from_millis(100)).await,
                () = tokio::time::sleep(long) => {}
                () = async { while signals.next().await != Signal::Stop {} } => {}
            }
            let missing = self.count.is_some_and(|count| desk.seen().len() < count);
            Ok(if missing {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            })
        })
    }
}

async fn receive(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let id = text(headers::ID);
    if let Err(why) = desk.check(
        &id,
        &text(headers::TIMESTAMP),
        &text(headers::SIGNATURE),
        &body,
    ) {
        say(&format!("REFUSED  {why}"));
        return StatusCode::UNAUTHORIZED;
    }
    let (first, count) = {
        let mut seen = desk.seen();
        let name = if id.is_empty() {
            format!("#{}", seen.len())
        } else {
            id.clone()
        };
        (seen.insert(name), seen.len())
    };
    let mut line = match serde_json::from_slice(&body) {
        Ok(json) if desk.json => format!("{json}"),
        Ok(json) => brief(&json),
        Err(_) => format!("{} bytes that are not JSON", body.len()),
    };
    if !first {
        line.push_str("  (again)");
    }
    if !desk.keys.is_empty() {
        line.push_str("  [signature good]");
    }
    say(&line);
    if desk.count.is_some_and(|wanted| count >= wanted) {
        desk.enough.cancel();
    }
    StatusCode::NO_CONTENT
}

impl Desk {
    fn check(
        &self,
        id: &str,
        timestamp: &str,
        signature: &str,
        body: &[u8],
    ) -> Result<(), Rejected> {
        if self.keys.is_empty() {
            return Ok(());
        }
        verify(&self.keys, id, timestamp, signature, body, runtime::now())
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        // A set of ids is sound whatever a panicking holder was doing.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Type, level, alert and summary of a generic payload; of any other the beginning.
fn brief(json: &serde_json::Value) -> String {
    let data = &json["data"];
    let word = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    if data["schema"].is_number() {
        format!(
            "{}  {:15}  {:8}  {}  {}",
            word(&json["timestamp"]),
            word(&json["type"]),
            word(&data["severity"]),
            word(&data["key"]),
            word(&data["summary"]),
        )
    } else {
        json.to_string().chars().take(200).collect()
    }
}

/// One line, at once: who watches is waiting for it.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", printable(line)).and_then(|()| out.flush());
    // Nobody reads any more: what is received is still answered.
    drop(written);
}
