//! Where the faults happen: three servers of MongoDB, a broker, gateways behind wires, the publisher, a receiver of alerts.
//!
//! Acknowledgements reach the publisher only when mosquitto has saved what they stand for: its file is made to be written all
//! the time, and the wire between keeps what the broker says until the file is there. So an acknowledgement is worth what it says
//! whenever the broker is killed, and nothing that is lost afterwards can be put down to the broker.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, doc};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::load::Load;
use crate::scenarios::{clock, spool};
use crate::support::alerting::{BRISK, HOT, ONE_BY_ONE, SECOND, SECRET};
use crate::support::gateway::Gateway;
use crate::support::mongod::Mongod;
use crate::support::mosquitto::Mosquitto;
use crate::support::plan::{Plan, Stored};
use crate::support::process::temp_dir;
use crate::support::receiver::Receiver;
use crate::support::unique;
use crate::support::wire::{Way, Wire};
use crate::tally::Tally;
use crate::watch::{Watch, scrape, sum};

/// Which world a scenario needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The shipped settings, MQTT 5; a second gateway that only evaluates rules.
    Main,
    /// The same by MQTT 3.1.1, with a broker that sends 20 messages ahead and no more.
    Window,
    /// Two gateways that share the messages.
    Share,
    /// A gateway with a spool on a small disk.
    Spool,
    /// A gateway whose clock can be moved.
    Clock,
}

impl Place {
    pub const ALL: [Place; 5] = [
        Place::Main,
        Place::Window,
        Place::Share,
        Place::Spool,
        Place::Clock,
    ];
}

/// One gateway, with wires to the broker and to each server.
pub struct Member {
    pub gateway: Gateway,
    pub link: Wire,
    pub database: Vec<Wire>,
    pub watch: Watch,
    pub client_id: String,
}

pub struct World {
    pub place: Place,
    pub mongod: Mongod,
    pub broker: Mosquitto,
    pub stored: Stored,
    pub members: Vec<Member>,
    /// Members that take the publisher's messages.
    pub ingest: Vec<usize>,
    pub load: Load,
    /// Between the publisher and the broker.
    pub devices: Arc<Wire>,
    pub receiver: Receiver,
    pub settings: Settings,
    pub chance: fastrand::Rng,
    pub tally: Tally,
    pub folder: TempDir,
    /// The small disk under the spool, if it could be mounted.
    pub disk: Option<PathBuf>,
    broker_pid: Arc<AtomicU32>,
    saver: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub rate: u32,
    pub devices: usize,
    /// Faults may last as long as it takes.
    pub patient: bool,
}

impl World {
    pub async fn start(
        place: Place,
        mongod: Mongod,
        settings: Settings,
        mut chance: fastrand::Rng,
        mut tally: Tally,
    ) -> World {
        let window = [("max_inflight_messages", "20")];
        let broker = match place {
            Place::Window => Mosquitto::start(&window).await,
            _ => Mosquitto::start(&[]).await,
        };
        let folder = temp_dir("faults");
        let disk = match place {
            Place::Spool => spool::small_disk(folder.path(), &mut tally),
            _ => None,
        };
        let spool = disk.clone().unwrap_or_else(|| folder.path().to_owned());
        let receiver = Receiver::start().await;
        receiver.fail_at_times(chance.u64(..));
        let ports: Vec<u16> = mongod.nodes.iter().map(|node| node.port).collect();
        let (database, root) = (unique("faults"), unique("t"));
        let mut members = Vec::new();
        for number in 0..2 {
            let link = Wire::start(broker.port).await;
            let wires = Wire::start_before(&ports).await;
            let takes = number == 0 || place == Place::Share;
            let hosts: Vec<_> = wires
                .iter()
                .map(|wire| format!("127.0.0.1:{}", wire.port()))
                .collect();
            let mut plan = Plan::new(
                format!("mqtt://127.0.0.1:{}", link.port()),
                format!("mongodb://{}/?replicaSet=rs0", hosts.join(",")),
            );
            plan.database.clone_from(&database);
            if takes {
                plan.root.clone_from(&root);
            }
            let plan = fit(plan, place, takes, &root, &spool)
                .section(&receiver.section("oncall", &format!("secret = {SECRET:?}\nrate = 500")));
            let environment = match place {
                Place::Clock if takes => clock::environment(folder.path()),
                _ => Vec::new(),
            };
            let environment: Vec<_> = environment
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            let mut gateway = Gateway::start_with(&plan.toml(), &environment);
            gateway.wait_ready().await;
            members.push(Member {
                watch: Watch::start(gateway.admin_port),
                client_id: plan.client_id.clone(),
                gateway,
                link,
                database: wires,
            });
        }
        let stored = {
            let mut plan = Plan::new("", "");
            plan.database = database;
            plan.stored_in(mongod.client().await)
        };
        let devices = Arc::new(Wire::start(broker.port).await);
        devices.down(Way::UntilSaved);
        let broker_pid = Arc::new(AtomicU32::new(broker.process.pid()));
        let saver = tokio::spawn(keep_saving(
            Arc::clone(&devices),
            Arc::clone(&broker_pid),
            broker.folder().join("mosquitto.db"),
        ));
        let rate = match place {
            // Twenty messages for each write.
            Place::Window => settings.rate.min(500),
            _ => settings.rate,
        };
        let load = Load::start(
            folder.path(),
            devices.port(),
            &root,
            rate,
            settings.devices,
            3 * SECOND,
        );
        tally.say(format!(
            "a world begins: {place:?}, {rate} messages a second"
        ));
        let mut world = World {
            place,
            mongod,
            broker,
            stored,
            members,
            ingest: if place == Place::Share {
                vec![0, 1]
            } else {
                vec![0]
            },
            load,
            devices,
            receiver,
            settings,
            chance,
            tally,
            folder,
            disk,
            broker_pid,
            saver,
        };
        world.load.resume().await;
        world.flows().await;
        world
    }

    // --- doing harm -----------------------------------------------------------------------------------------------

    /// A moment between these, in milliseconds.
    pub async fn moment(&mut self, from: u64, to: u64) {
        tokio::time::sleep(Duration::from_millis(self.chance.u64(from..to))).await;
    }

    /// One of those that take messages.
    pub fn some_member(&mut self) -> usize {
        self.ingest[self.chance.usize(..self.ingest.len())]
    }

    pub fn kill_gateway(&mut self, number: usize) {
        if self.members[number].gateway.process.exit_status().is_none() {
            self.members[number].gateway.kill();
            // What no server has seen of a dead process is gone. (A proxy that hands it on after its
            // successor has looked would double it: nothing can fence that, and README says so.)
            for wire in &self.members[number].database {
                if wire.holds() {
                    wire.drop_all();
                }
            }
            self.tally.kills.gateway += 1;
            self.tally.say(format!("  gateway {number} is killed"));
        }
    }

    /// Starts it unless it runs.
    pub fn start_gateway(&mut self, number: usize) {
        let member = &mut self.members[number];
        if member.gateway.process.exit_status().is_some() {
            member.gateway.restart();
            self.tally.say(format!("  gateway {number} is started"));
        }
    }

    pub fn kill_node(&mut self, number: usize) {
        self.mongod.nodes[number].process.kill();
        self.tally.kills.mongod += 1;
        self.tally.say(format!("  mongod {number} is killed"));
    }

    pub fn kill_broker(&mut self) {
        self.broker_pid.store(0, Ordering::SeqCst);
        self.broker.process.kill();
        // What it said and had not saved was never heard.
        self.devices.drop_all();
        self.tally.kills.broker += 1;
        self.tally.say("  the broker is killed");
    }

    /// Asks it to end, which saves; returns when it has.
    pub async fn stop_broker(&mut self) {
        self.broker_pid.store(0, Ordering::SeqCst);
        self.broker.process.signal("TERM");
        self.broker.process.wait(30 * SECOND).await;
        self.devices.drop_all();
        self.tally.say("  the broker has ended");
    }

    pub async fn start_broker(&mut self) {
        self.broker.restart().await;
        self.broker_pid
            .store(self.broker.process.pid(), Ordering::SeqCst);
        self.tally.say("  the broker is back");
    }

    /// Undoes every harm that a scenario may have left behind.
    pub async fn heal(&mut self) {
        for member in &self.members {
            member.link.both(Way::Pass);
            for wire in &member.database {
                wire.both(Way::Pass);
            }
        }
        self.devices.up(Way::Pass);
        self.devices.down(Way::UntilSaved);
        for number in 0..self.members.len() {
            self.start_gateway(number);
        }
    }

    // --- seeing how it goes ---------------------------------------------------------------------------------------

    /// A counter or gauge of a gateway, over all labels.
    pub async fn metric(&self, number: usize, name: &str) -> Option<f64> {
        let metrics = scrape(self.members[number].gateway.admin_port).await?;
        sum(&metrics, name)
    }

    /// Waits until every gateway that should take messages acknowledges them, having heard something new; a violation
    /// when that does not come.
    pub async fn flows(&mut self) {
        for number in self.ingest.clone() {
            let began = Instant::now();
            let mut from: Option<f64> = None;
            loop {
                let acks = self.metric(number, "tidegate_source_acks_total").await;
                match (from, acks) {
                    (Some(before), Some(now)) if now >= before + 20.0 => break,
                    // It was started anew meanwhile.
                    (Some(before), Some(now)) if now < before => from = Some(now),
                    (None, Some(now)) => from = Some(now),
                    _ => {}
                }
                let ended = self.members[number].gateway.process.exit_status();
                if let Some(status) = ended {
                    self.complain(number, &format!("ended by itself: {status}"));
                    self.start_gateway(number);
                }
                if began.elapsed() > 90 * SECOND {
                    self.complain(number, "acknowledges nothing for 90 s");
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Gives the gateways some time to get to the end of the broker's queue, so that the next fault meets them at
    /// the flood rather than behind it.
    pub async fn caught_up(&mut self) {
        let began = Instant::now();
        for number in self.ingest.clone() {
            let most = if self.place == Place::Window {
                15.0
            } else {
                1_000.0
            };
            while began.elapsed() < 15 * SECOND {
                let unacked = self
                    .metric(number, "tidegate_source_unacked_messages")
                    .await;
                if unacked.is_some_and(|count| count < most) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// No more of what only the publisher needs.
    pub fn stop_saving(&self) {
        self.saver.abort();
    }

    /// A violation, with the end of that gateway's log.
    pub fn complain(&mut self, number: usize, what: &str) {
        let log = self.members[number].gateway.process.log();
        let lines: Vec<_> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(25)..].join("\n");
        self.tally
            .violation(format!("gateway {number} {what}; its log ends:\n{end}"));
    }

    /// Which gateway leads the alerts, if one does and the database says so within a second.
    pub async fn leader(&self) -> Option<usize> {
        let lease = doc! { "_id": "alert", "expiresAt": { "$gt": DateTime::now() } };
        let leases = self.stored.collection("leases");
        let lease = tokio::time::timeout(SECOND, async { leases.find_one(lease).await })
            .await
            .ok()?
            .ok()??;
        let holder = lease.get_str("holder").ok()?;
        self.members
            .iter()
            .position(|member| member.client_id == holder)
    }

    /// Waits until everything is taken and written, once the publisher has stopped.
    pub async fn drained(&mut self) {
        for number in self.ingest.clone() {
            let began = Instant::now();
            let mut calm: Option<Instant> = None;
            loop {
                let port = self.members[number].gateway.admin_port;
                let metrics = scrape(port).await;
                let zero = |name: &str| {
                    let value = metrics.as_ref().and_then(|metrics| sum(metrics, name));
                    // What only gateways with a spool have.
                    value == Some(0.0) || (value.is_none() && name.contains("spool"))
                };
                let idle = metrics.is_some()
                    && !zero("tidegate_source_subscribed")
                    && zero("tidegate_source_unacked_messages")
                    && zero("tidegate_messages_in_flight")
                    && zero("tidegate_spool_messages");
                match (idle, calm) {
                    (true, Some(since)) if since.elapsed() > Duration::from_millis(1_500) => break,
                    (true, Some(_)) => {}
                    (true, None) => calm = Some(Instant::now()),
                    (false, _) => calm = None,
                }
                if began.elapsed() > 180 * SECOND {
                    self.complain(number, "has not drained after 180 s");
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Ends everything but MongoDB.
    pub fn end(self) -> (Mongod, Tally, fastrand::Rng) {
        self.saver.abort();
        if let Some(disk) = &self.disk {
            spool::unmount(disk);
        }
        (self.mongod, self.tally, self.chance)
    }
}

/// The configuration of a gateway of this world; those that take no messages listen elsewhere.
fn fit(plan: Plan, place: Place, takes: bool, root: &str, spool: &Path) -> Plan {
    let plan = plan
        .mqtt("keep_alive = \"5s\"")
        .mqtt("receive_maximum = 2000")
        // An hour ahead is what the clock's scenarios do to times that are right.
        .stream("time = { path = \"ts\", max_ahead = \"2h\" }")
        .stream("limits = { payload = \"4KiB\" }")
        .section(
            "[[streams]]\nname = \"plain\"\ntopics = [\"ROOT/+/plain\"]\n\
             template = \"ROOT/{deviceId}/plain\"\ncollection = \"plain\"",
        )
        .section(BRISK)
        .section(ONE_BY_ONE)
        .section(HOT)
        // Never fires; puts some of the flood into the feed.
        .section(
            "[[rules]]\nid = \"never\"\nfield = \"v\"\nselect = { devices = [\"d-000*\"] }\n\
             op = \">\"\nat = 1e300\nseverity = \"warning\"\n",
        );
    match place {
        Place::Window => plan.protocol("3.1.1"),
        Place::Share => plan
            .mqtt(&format!("share_group = \"group_{root}\""))
            .section("[sink]\ndedup = \"always\""),
        Place::Spool if takes => {
            let path = spool.join("spool");
            plan.section(&format!(
                "[spool]\nenabled = true\npath = {path:?}\nmax_bytes = \"1GiB\""
            ))
        }
        _ => plan,
    }
}

/// Lets acknowledgements go on to the publisher as the broker saves what they stand for.
async fn keep_saving(devices: Arc<Wire>, broker: Arc<AtomicU32>, file: PathBuf) {
    let stamp = || {
        let data = std::fs::metadata(&file).ok()?;
        Some((data.ino(), data.mtime(), data.mtime_nsec()))
    };
    let mut took = Duration::ZERO;
    loop {
        // Of a long queue the file is long, and the broker stands still meanwhile.
        tokio::time::sleep(Duration::from_millis(150).max(4 * took)).await;
        let began = Instant::now();
        let pid = broker.load(Ordering::SeqCst);
        if pid == 0 {
            continue;
        }
        // The broker says nothing while it saves: what is read by now was said before a file that is new from now on.
        let turn = devices.next_turn();
        let before = stamp();
        let asked = tokio::process::Command::new("sh")
            .args(["-c", &format!("kill -s USR1 {pid}")])
            .stderr(std::process::Stdio::null())
            .status()
            .await;
        if !asked.is_ok_and(|status| status.success()) {
            continue;
        }
        let patience = Instant::now() + 10 * SECOND;
        while broker.load(Ordering::SeqCst) == pid && Instant::now() < patience {
            if stamp().is_some_and(|now| Some(now) != before) {
                devices.saved(turn);
                took = began.elapsed();
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
