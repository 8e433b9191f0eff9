//! The publisher process as the suite sees it: orders in, counts out, and the log of what the broker acknowledged.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::support::eventually;

/// Where it stands, a tenth of a second ago at the most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Status {
    pub sent: u64,
    pub acked: u64,
    pub waiting: u64,
    /// Times that the broker said that nobody takes a message.
    pub untaken: u64,
    pub done: bool,
    /// Reports so far.
    pub reports: u64,
}

pub struct Load {
    _child: Child,
    orders: ChildStdin,
    status: watch::Receiver<Status>,
    log: PathBuf,
}

impl Load {
    /// Started and waiting for [`Load::resume`].
    pub fn start(
        folder: &Path,
        port: u16,
        root: &str,
        rate: u32,
        devices: usize,
        wave: Duration,
    ) -> Load {
        let log = folder.join("acknowledged.log");
        let mut child = Command::new(std::env::current_exe().expect("we have a path"))
            .arg("publisher")
            .args([port.to_string(), root.to_owned()])
            .arg(&log)
            .args([rate.to_string(), devices.to_string()])
            .arg(wave.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .expect("this program can be started again");
        let orders = child.stdin.take().expect("it is piped");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (tell, status) = watch::channel(Status::default());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                tell.send_modify(|status| {
                    status.reports += 1;
                    let numbers: Vec<u64> = line
                        .split(' ')
                        .filter_map(|word| word.parse().ok())
                        .collect();
                    match numbers[..] {
                        [sent, acked, waiting, untaken] => {
                            (status.sent, status.acked) = (sent, acked);
                            (status.waiting, status.untaken) = (waiting, untaken);
                        }
                        _ => status.done = line == "done",
                    }
                });
            }
        });
        Load {
            _child: child,
            orders,
            status,
            log,
        }
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn status(&self) -> Status {
        *self.status.borrow()
    }

    pub async fn order(&mut self, line: &str) {
        self.orders
            .write_all(format!("{line}\n").as_bytes())
            .await
            .expect("the publisher lives");
    }

    pub async fn resume(&mut self) {
        self.order("resume").await;
    }

    /// No new messages; those under way are still acknowledged.
    pub async fn pause(&mut self) {
        self.order("pause").await;
    }

    /// Paused, and all that was sent is acknowledged.
    pub async fn quiet(&mut self) {
        self.pause().await;
        self.settled("the publisher's messages are acknowledged")
            .await;
    }

    /// Waits until nothing is un-acknowledged, by a report from now on.
    pub async fn settled(&self, what: &str) {
        // The report after the next was certainly written after now.
        let from = self.status().reports + 2;
        eventually(Duration::from_secs(90), what, async || {
            let status = self.status();
            (status.done || (status.reports > from && status.waiting == 0)).then_some(())
        })
        .await;
    }

    pub async fn stop(&mut self) {
        self.order("stop").await;
        eventually(
            Duration::from_secs(90),
            "the publisher is done",
            async || self.status().done.then_some(()),
        )
        .await;
    }
}
