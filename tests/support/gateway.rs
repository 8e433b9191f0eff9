//! The real binary, started on a configuration of the test's own, seen from outside: metrics, health, log, exit status.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use tempfile::TempDir;

use super::process::{Process, temp_dir};
use super::{eventually, free_port};

#[derive(Debug)]
pub struct Gateway {
    /// Offers log, freeze, thaw, signals, resident memory and CPU time.
    pub process: Process,
    pub admin_port: u16,
    dir: TempDir,
    environment: Vec<(String, String)>,
}

impl Gateway {
    /// Starts `tidegate run` on this configuration text. It need not be ready yet: see [`Gateway::wait_ready`].
    pub fn start(config: &str) -> Gateway {
        Gateway::start_with(config, &[])
    }

    /// The same, with environment variables on top.
    pub fn start_with(config: &str, environment: &[(&str, &str)]) -> Gateway {
        let dir = temp_dir("gateway");
        std::fs::write(dir.path().join("tidegate.toml"), config).expect("the folder is ours");
        let admin_port = free_port();
        let mut environment: Vec<_> = environment
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        environment.push((
            "TIDEGATE_ADMIN__LISTEN".into(),
            format!("127.0.0.1:{admin_port}"),
        ));
        Gateway {
            process: spawn(dir.path(), &environment),
            admin_port,
            dir,
            environment,
        }
    }

    /// The configuration file, to be rewritten before a reload.
    pub fn config_file(&self) -> std::path::PathBuf {
        self.dir.path().join("tidegate.toml")
    }

    /// Starts it again on the same configuration and port, killing it first if it still runs.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(self.dir.path(), &self.environment);
    }

    /// Waits until `/readyz` says yes; panics with the log when the process ends instead.
    pub async fn wait_ready(&mut self) {
        let url = self.url("/readyz");
        self.process
            .wait_until(Duration::from_secs(60), "ready", async || {
                super::http()
                    .get(&url)
                    .send()
                    .await
                    .is_ok_and(|answer| answer.status().is_success())
            })
            .await;
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.admin_port)
    }

    /// Status code and body of a page of the admin server, once it answers.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = self.url(path);
        eventually(
            Duration::from_secs(20),
            "the admin server answers",
            async || {
                let answer = super::http().get(&url).send().await.ok()?;
                let status = answer.status().as_u16();
                Some((status, answer.text().await.ok()?))
            },
        )
        .await
    }

    pub async fn metrics(&self) -> Metrics {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        Metrics::parse(&text)
    }

    /// Polls the metrics until `done` holds; panics with the last ones seen.
    pub async fn wait_metrics(
        &self,
        timeout: Duration,
        what: &str,
        done: impl Fn(&Metrics) -> bool,
    ) -> Metrics {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let metrics = self.metrics().await;
            if done(&metrics) {
                return metrics;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "not within {timeout:?}: {what}\n{metrics:#?}\n{}",
                self.process.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to stop in order (SIGTERM) and returns how it ended.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.process.signal("TERM");
        self.process.wait(Duration::from_secs(60)).await
    }
}

fn spawn(dir: &Path, environment: &[(String, String)]) -> Process {
    let mut command = tidegate();
    command
        .args(["run", "--config"])
        .arg(dir.join("tidegate.toml"))
        .envs(environment.iter().map(|(key, value)| (key, value)));
    Process::spawn("tidegate", &mut command, &dir.join("tidegate.log"))
}

/// The binary under test, without the configuration that the developer's own environment may hold.
pub fn tidegate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(key);
        }
    }
    command
}

/// One scrape of `/metrics`: each series with its labels, as written, and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    pub fn parse(text: &str) -> Metrics {
        let series = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(series, value)| {
                (
                    series.to_owned(),
                    value.parse().expect("a metric's value is a number"),
                )
            })
            .collect();
        Metrics(series)
    }

    /// The sum over all series of this name that carry all these labels. Panics when there is none: a misspelt name
    /// must not read as zero.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}=\"{value}\""))
            .collect();
        let values: Vec<f64> = self
            .0
            .iter()
            .filter(|(series, _)| {
                let (series_name, inside) = series.split_once('{').unwrap_or((series, ""));
                let inside = inside.trim_end_matches('}');
                series_name == name
                    && wanted
                        .iter()
                        .all(|label| inside.split(',').any(|has| has == label))
            })
            .map(|(_, value)| *value)
            .collect();
        assert!(
            !values.is_empty(),
            "no series {name} with {labels:?} in {self:#?}"
        );
        values.iter().sum()
    }

    /// The same as a whole number, for counters.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let sum = self.sum(name, labels);
        assert!(
            sum >= 0.0 && sum.fract() == 0.0,
            "{name} {labels:?} is {sum}"
        );
        sum as u64
    }
}
