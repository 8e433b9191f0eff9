//! Child processes that never outlive the test process, and what can be done to them: kill, freeze, measure.
//!
//! Statics are not dropped and a killed test drops nothing, so cleaning up is not left to `Drop`: every process and
//! folder is also registered with one `deploy/reaper`, which acts when the pipe to it closes with our end.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tempfile::TempDir;

fn reap(line: &str) {
    static REAPER: OnceLock<Mutex<Child>> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| {
        let child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/reaper"))
            .arg("0")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("deploy/reaper starts (it needs bash)");
        Mutex::new(child)
    });
    let mut reaper = reaper.lock().expect("the reaper's lock is never poisoned");
    let pipe = reaper.stdin.as_mut().expect("the reaper's stdin is piped");
    writeln!(pipe, "{line}").expect("the reaper reads until we end");
}

/// A folder that is removed when dropped, or else when the test process ends.
pub fn temp_dir(name: &str) -> TempDir {
    let dir = tempfile::Builder::new()
        .prefix(&format!("tidegate-test-{name}-"))
        .tempdir()
        .expect("the temporary folder is writable");
    reap(&format!("dir {}", dir.path().display()));
    dir
}

/// Undoes this mount when the test process ends, before the folders are removed.
pub fn unmount_at_end(path: &Path) {
    reap(&format!("mount {}", path.display()));
}

/// The binary named by an environment variable, or found in PATH, the system's sbin or the cache of `deploy/`.
pub fn find_binary(variable: &str, name: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        return PathBuf::from(named);
    }
    let cache = std::env::var_os("TIDEGATE_CACHE")
        .map(PathBuf::from)
        .or_else(|| {
            std::env::var_os("XDG_CACHE_HOME").map(|home| Path::new(&home).join("tidegate"))
        })
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/tidegate")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .chain(cache)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("no {name} here: run deploy/test, or name one in {variable}"))
}

/// A running child with its output in a log file; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    exit: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` in a process group of its own, appending its output to `log`.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Process {
        let output: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("the log file can be written");
        let errors = output.try_clone().expect("a file handle can be cloned");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        reap(&format!("pid {}", child.id()));
        Process {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
            exit: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything written to the log so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The exit status, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().expect("a child can be waited for");
        }
        self.exit
    }

    /// Sends a signal by its name, such as `TERM`, `STOP` or `HUP`.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("sh")
            .args(["-c", &format!("kill -s {signal} {}", self.pid())])
            .status()
            .expect("there is a shell");
        assert!(status.success(), "{} did not take SIG{signal}", self.name);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        if self.exit_status().is_none() {
            let _ = self.child.kill();
            self.exit = self.child.wait().ok();
        }
    }

    /// Stops it where it is: connections stay open, nothing answers.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    pub fn thaw(&self) {
        self.signal("CONT");
    }

    /// Waits for the end; panics with the log when it does not come.
    pub async fn wait(&mut self, timeout: Duration) -> ExitStatus {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.exit_status() {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "{} still runs after {timeout:?}\n{}",
                self.name,
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until `ready` holds; panics with the log when the process ends first or the time is up.
    pub async fn wait_until(
        &mut self,
        timeout: Duration,
        what: &str,
        mut ready: impl AsyncFnMut() -> bool,
    ) {
        let deadline = Instant::now() + timeout;
        while !ready().await {
            let ended = self.exit_status();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{}: not {what} ({})\n{}",
                self.name,
                ended.map_or(format!("after {timeout:?}"), |status| status.to_string()),
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn wait_until_listening(&mut self, port: u16) {
        self.wait_until(Duration::from_secs(60), "listening", async || {
            listening(port)
        })
        .await;
    }

    /// Resident memory.
    pub fn resident_bytes(&self) -> u64 {
        let status = self.proc_file("status");
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .expect("a live process has VmRSS");
        kib * 1024
    }

    /// CPU time used so far, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        static TICKS: OnceLock<f64> = OnceLock::new();
        let per_second = TICKS.get_or_init(|| {
            let output = Command::new("getconf")
                .arg("CLK_TCK")
                .output()
                .expect("getconf is installed");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .expect("CLK_TCK is a number")
        });
        let stat = self.proc_file("stat");
        // The second field is the program's name in brackets and may hold anything; counted from behind it, user and
        // system time are the 12th and 13th.
        let (_, fields) = stat.rsplit_once(')').expect("stat names the program");
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<f64>().expect("times are numbers"))
            .sum();
        ticks / per_second
    }

    fn proc_file(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid()))
            .unwrap_or_else(|error| panic!("{} cannot be measured: {error}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether somebody accepts connections on a loopback port.
pub fn listening(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}
