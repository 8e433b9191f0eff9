//! Looks at a gateway's metrics all the time: whether every message is accounted for, and how much memory it takes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::support::gateway::Metrics;
use crate::support::http;

/// From when on memory has to be flat.
const WARM: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub scrapes: u64,
    /// Scrapes in which the equation does not hold, described.
    pub unbalanced: Vec<String>,
    pub most_memory: u64,
    /// The most in the first minute.
    pub warm_memory: u64,
    pub last_memory: u64,
}

#[derive(Debug)]
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Watch {
    pub fn start(port: u16) -> Watch {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let began = Instant::now();
        let task = tokio::spawn(async move {
            loop {
                if let Some(metrics) = scrape(port).await {
                    let mut seen = shared.lock().expect("nobody panics with it");
                    seen.take(&metrics, began.elapsed() < WARM);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Watch { seen, task }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn take(&mut self, metrics: &Metrics, warming: bool) {
        let streams: Vec<&str> = metrics
            .0
            .keys()
            .filter_map(|series| {
                series
                    .strip_prefix("tidegate_messages_received_total{stream=\"")?
                    .strip_suffix("\"}")
            })
            .collect();
        if streams.is_empty() {
            return;
        }
        self.scrapes += 1;
        for stream in streams {
            let label = [("stream", stream)];
            let received = metrics.sum("tidegate_messages_received_total", &label);
            let settled = metrics.sum("tidegate_messages_settled_total", &label);
            let in_flight = metrics.sum("tidegate_messages_in_flight", &label);
            if received != settled + in_flight || in_flight < 0.0 {
                self.unbalanced.push(format!(
                    "{stream}: received {received}, settled {settled}, in flight {in_flight}"
                ));
            }
        }
        let Some(memory) = metrics.0.get("process_resident_memory_bytes") else {
            return;
        };
        self.last_memory = *memory as u64;
        self.most_memory = self.most_memory.max(self.last_memory);
        if warming {
            self.warm_memory = self.warm_memory.max(self.last_memory);
        }
    }
}

/// One look; `None` when nobody answers.
pub async fn scrape(port: u16) -> Option<Metrics> {
    let url = format!("http://127.0.0.1:{port}/metrics");
    let ask = async {
        let answer = http().get(url).send().await.ok()?;
        answer.text().await.ok()
    };
    let text = tokio::time::timeout(Duration::from_secs(2), ask)
        .await
        .ok()??;
    Some(Metrics::parse(&text))
}

/// The sum of a family, or nothing where it is not there (yet).
pub fn sum(metrics: &Metrics, name: &str) -> Option<f64> {
    let mine = metrics
        .0
        .iter()
        .filter(|(series, _)| series.as_str() == name || series.starts_with(&format!("{name}{{")));
    let values: Vec<f64> = mine.map(|(_, value)| *value).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}
