//! A real mosquitto with the shipped configuration, on a port and in a folder of its own.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::free_port;
use super::process::{Process, find_binary, temp_dir};

const SHIPPED: &str = include_str!("../../deploy/mosquitto.conf");

#[derive(Debug)]
pub struct Mosquitto {
    pub port: u16,
    /// Offers kill, freeze and thaw; sessions and queues saved so far stay for `restart`.
    pub process: Process,
    dir: TempDir,
}

impl Mosquitto {
    /// The broker of this test process, started by whoever asks first. Tests keep apart by topic ([`super::unique`]).
    pub async fn shared() -> &'static Mosquitto {
        static SHARED: OnceCell<Mosquitto> = OnceCell::const_new();
        SHARED.get_or_init(|| Mosquitto::start(&[])).await
    }

    /// An own broker. Each setting, such as `("max_queued_messages", "10")`, replaces the shipped line or is added.
    pub async fn start(settings: &[(&str, &str)]) -> Mosquitto {
        let dir = temp_dir("mosquitto");
        let port = free_port();
        fs::write(
            dir.path().join("mosquitto.conf"),
            derive(port, &dir, settings),
        )
        .expect("the folder is ours");
        let mut mosquitto = Mosquitto {
            port,
            process: spawn(&dir),
            dir,
        };
        mosquitto.process.wait_until_listening(port).await;
        mosquitto
    }

    /// Where it keeps `mosquitto.db` and its log.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Starts it again, killing it first if it still runs, and waits until it listens.
    pub async fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.dir);
        self.process.wait_until_listening(self.port).await;
    }

    /// Writes sessions and queues to disk now, as the autosave would.
    pub fn save(&self) {
        self.process.signal("USR1");
    }
}

fn spawn(dir: &TempDir) -> Process {
    let mut command = Command::new(find_binary("TIDEGATE_MOSQUITTO", "mosquitto"));
    command.arg("-c").arg(dir.path().join("mosquitto.conf"));
    Process::spawn("mosquitto", &mut command, &dir.path().join("mosquitto.log"))
}

fn derive(port: u16, dir: &TempDir, settings: &[(&str, &str)]) -> String {
    let listener = format!("{port} 127.0.0.1");
    let folder = format!("{}/", dir.path().display());
    let mut own = vec![
        ("listener", listener.as_str()),
        ("persistence_location", folder.as_str()),
        // Started by root, mosquitto would change to a user who may not write here. For others it has no effect.
        ("user", "root"),
    ];
    own.extend_from_slice(settings);

    let mut text = String::new();
    for line in SHIPPED
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let key = line.split_whitespace().next().unwrap_or_default();
        match own.iter().position(|(name, _)| *name == key) {
            Some(index) => {
                let (key, value) = own.remove(index);
                writeln!(text, "{key} {value}").expect("a string can be written to");
            }
            None => writeln!(text, "{line}").expect("a string can be written to"),
        }
    }
    for (key, value) in own {
        writeln!(text, "{key} {value}").expect("a string can be written to");
    }
    text
}
