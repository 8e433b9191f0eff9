//! A receiver of alerts on the loopback interface: keeps what it was told, answers as it is told to.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::eventually;

/// One request as it came in.
#[derive(Debug, Clone)]
pub struct Told {
    pub at: Instant,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// What was answered, or meant to be.
    pub status: u16,
    /// The answer never left: the connection was closed instead.
    pub lost: bool,
}

#[derive(Debug)]
pub struct Receiver {
    port: u16,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    told: Mutex<Vec<Told>>,
    /// Answers for the next requests, then 204.
    answers: Mutex<Vec<u16>>,
    /// Whether it fails now and then, and when next.
    moods: Mutex<Option<fastrand::Rng>>,
}

impl Receiver {
    pub async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(hear).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("the listener lives");
        });
        Receiver {
            port,
            shared,
            server,
        }
    }

    /// Its section in the configuration, with further lines.
    pub fn section(&self, name: &str, lines: &str) -> String {
        format!(
            "[[receivers]]\nname = {name:?}\nkind = \"generic\"\nurl = \"http://127.0.0.1:{}/hook\"\n\
             allow_http = true\nallow_cidrs = [\"127.0.0.0/8\"]\n{lines}\n",
            self.port
        )
    }

    /// What the next requests are answered with.
    pub fn answer(&self, answers: &[u16]) {
        *self.shared.answers.lock().expect("nobody panics here") = answers.to_vec();
    }

    /// From now on some requests are refused, and after some the connection is closed although they were taken.
    pub fn fail_at_times(&self, seed: u64) {
        let moods = fastrand::Rng::with_seed(seed);
        *self.shared.moods.lock().expect("nobody panics here") = Some(moods);
    }

    /// No more of that.
    pub fn work(&self) {
        *self.shared.moods.lock().expect("nobody panics here") = None;
    }

    /// Everything it was told so far.
    pub fn told(&self) -> Vec<Told> {
        self.shared.told.lock().expect("nobody panics here").clone()
    }

    /// What it said yes to or took without a word, in order; what came again under its id only once.
    pub fn accepted(&self) -> Vec<Told> {
        let mut told = self.told();
        let mut seen = HashSet::new();
        told.retain(|told| {
            let id = told.header("webhook-id");
            told.status < 300 && (id.is_empty() || seen.insert(id.to_owned()))
        });
        told
    }

    /// Waits until it has said yes to so many requests.
    pub async fn wait(&self, patience: Duration, count: usize) -> Vec<Told> {
        eventually(
            patience,
            &format!("{count} accepted requests"),
            async || {
                let accepted = self.accepted();
                (accepted.len() >= count).then_some(accepted)
            },
        )
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Told {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("bodies are JSON")
    }

    pub fn kind(&self) -> String {
        self.json()["type"]
            .as_str()
            .expect("generic bodies have a type")
            .to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

async fn hear(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let (status, lost) = shared.answer();
    shared.told.lock().expect("nobody panics here").push(Told {
        at: Instant::now(),
        headers,
        body,
        status,
        lost,
    });
    if lost {
        // Ends the connection's task, and the connection with it, without a word anywhere.
        std::panic::resume_unwind(Box::new("the connection is closed"));
    }
    StatusCode::from_u16(status).expect("tests name sound codes")
}

impl Shared {
    fn answer(&self) -> (u16, bool) {
        let mut answers = self.answers.lock().expect("nobody panics here");
        if !answers.is_empty() {
            return (answers.remove(0), false);
        }
        let mut moods = self.moods.lock().expect("nobody panics here");
        match moods.as_mut().map_or(100, |moods| moods.u8(..100)) {
            // Rarely enough that nobody takes it for broken.
            0..10 => (503, false),
            10..18 => (204, true),
            _ => (204, false),
        }
    }
}
