//! Real MongoDB: a replica set shared by the tests of one binary, or an own one to break.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::process::{Process, find_binary, listening, temp_dir};
use super::{eventually, free_port};

const SET: &str = "rs0";

/// One or more `mongod` that form a replica set, or a single one that does not.
#[derive(Debug)]
pub struct Mongod {
    pub nodes: Vec<Node>,
    replica_set: bool,
    _dir: TempDir,
}

/// One server of a set. `process` offers kill, freeze and thaw; the data folder stays for `restart`.
#[derive(Debug)]
pub struct Node {
    pub port: u16,
    pub process: Process,
    data: PathBuf,
    arguments: Vec<String>,
}

impl Mongod {
    /// The single-node replica set of this test process, started by whoever asks first.
    ///
    /// Tests keep apart by database name ([`super::unique`]); whoever wants to disturb the server starts an own one.
    pub async fn shared() -> &'static Mongod {
        static SHARED: OnceCell<Mongod> = OnceCell::const_new();
        SHARED.get_or_init(|| Mongod::start_replica_set(1)).await
    }

    /// An own replica set, with a primary elected and, for several nodes, all members in step.
    pub async fn start_replica_set(members: usize) -> Mongod {
        Mongod::start_replica_set_with(members, &[]).await
    }

    /// The same, with further arguments for each server.
    pub async fn start_replica_set_with(members: usize, arguments: &[&str]) -> Mongod {
        let arguments = [&["--replSet", SET], arguments].concat();
        let mongod = Mongod::start(members, &arguments, true).await;
        let config = doc! {
            "_id": SET,
            "members": mongod.nodes.iter().enumerate().map(|(id, node)| doc! {
                "_id": i32::try_from(id).expect("a handful of members"),
                "host": node.address(),
            }).collect::<Vec<_>>(),
            // Failover within a test's patience instead of ten seconds.
            "settings": { "electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500 },
        };
        mongod.nodes[0]
            .admin(doc! { "replSetInitiate": config })
            .await
            .expect("a fresh node can be initiated");
        mongod.wait_until_in_step().await;
        mongod
    }

    /// A server outside any replica set. `arguments` may ask for more, such as `--auth`.
    pub async fn start_standalone(arguments: &[&str]) -> Mongod {
        Mongod::start(1, arguments, false).await
    }

    async fn start(members: usize, arguments: &[&str], replica_set: bool) -> Mongod {
        let dir = temp_dir("mongod");
        let mut nodes = Vec::new();
        for number in 0..members {
            nodes.push(Node::start(&dir.path().join(number.to_string()), arguments));
        }
        for node in &mut nodes {
            node.process.wait_until_listening(node.port).await;
        }
        Mongod {
            nodes,
            replica_set,
            _dir: dir,
        }
    }

    pub fn uri(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(Node::address).collect();
        let options = if self.replica_set {
            format!("replicaSet={SET}")
        } else {
            "directConnection=true".to_owned()
        };
        format!("mongodb://{}/?{options}", hosts.join(","))
    }

    /// A new client; a client works only inside the runtime of the test that made it.
    pub async fn client(&self) -> Client {
        Client::with_uri_str(self.uri())
            .await
            .expect("our own address is valid")
    }

    /// Which node is primary, once there is one.
    pub async fn primary(&self) -> usize {
        eventually(
            Duration::from_secs(60),
            "a primary is elected",
            async || {
                for (number, node) in self.nodes.iter().enumerate() {
                    // The driver looks for a dead one much longer.
                    if !listening(node.port) {
                        continue;
                    }
                    let hello = node.admin(doc! { "hello": 1 }).await.ok();
                    if hello.is_some_and(|hello| hello.get_bool("isWritablePrimary") == Ok(true)) {
                        return Some(number);
                    }
                }
                None
            },
        )
        .await
    }

    /// From now on a primary that is not heard of, or hears of no majority, is given this long. A test that is not about
    /// elections gives it a long time, so that a busy machine does not cause one.
    pub async fn elect_after(&self, patience: Duration) {
        let node = &self.nodes[self.primary().await];
        let answer = node.admin(doc! { "replSetGetConfig": 1 }).await;
        let answer = answer.expect("a primary knows its configuration");
        let mut config = answer.get_document("config").cloned().expect("a document");
        let version = config.get_i32("version").expect("a number");
        config.insert("version", version + 1);
        let settings = config.get_document_mut("settings").expect("ours");
        let patience = i32::try_from(patience.as_millis()).expect("minutes at most");
        settings.insert("electionTimeoutMillis", patience);
        node.admin(doc! { "replSetReconfig": config })
            .await
            .expect("a primary takes a configuration");
    }

    /// Waits until there is a primary and every other member is a secondary.
    pub async fn wait_until_in_step(&self) {
        let primary = self.primary().await;
        eventually(
            Duration::from_secs(60),
            "all members are in step",
            async || {
                let status = self.nodes[primary]
                    .admin(doc! { "replSetGetStatus": 1 })
                    .await
                    .ok()?;
                let states = status.get_array("members").ok()?.iter();
                states
                    .map(|member| member.as_document()?.get_i32("state").ok())
                    .all(|state| matches!(state, Some(1 | 2)))
                    .then_some(())
            },
        )
        .await;
    }
}

impl Node {
    fn start(data: &Path, arguments: &[&str]) -> Node {
        std::fs::create_dir_all(data).expect("the test's folder is writable");
        let port = free_port();
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Node {
            port,
            process: spawn(data, port, &arguments),
            data: data.to_owned(),
            arguments,
        }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts it again on its port and data, killing it first if it still runs, and waits until it listens.
    pub async fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.data, self.port, &self.arguments);
        self.process.wait_until_listening(self.port).await;
    }

    /// Runs an admin command on this very node.
    pub async fn admin(&self, command: Document) -> mongodb::error::Result<Document> {
        let uri = format!(
            "mongodb://{}/?directConnection=true&serverSelectionTimeoutMS=2000&connectTimeoutMS=2000",
            self.address()
        );
        let client = Client::with_uri_str(uri).await?;
        let answer = client.database("admin").run_command(command).await;
        client.shutdown().immediate(true).await;
        answer
    }
}

fn spawn(data: &Path, port: u16, arguments: &[String]) -> Process {
    let mut command = Command::new(find_binary("TIDEGATE_MONGOD", "mongod"));
    command
        .args(["--bind_ip", "127.0.0.1", "--wiredTigerCacheSizeGB", "0.25"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .args(["--port", &port.to_string(), "--dbpath"])
        .arg(data)
        .args(arguments);
    Process::spawn("mongod", &mut command, &data.with_extension("log"))
}
