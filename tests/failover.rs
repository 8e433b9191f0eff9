//! Every way in which a write's outcome can be unclear, on a replica set of three and with readings coming in all the while:
//! each is stored once, and the reason counted under its name.

mod support;

use std::ops::Deref;
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use tokio::sync::{Mutex, MutexGuard, OnceCell, oneshot};
use tokio::task::JoinHandle;

use support::eventually;
use support::gateway::{Gateway, Metrics};
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, now_ms};
use support::publisher::publish_all;
use support::wire::{Way, Wire};

const SECOND: Duration = Duration::from_secs(1);

/// A set that elects another primary within seconds, and whose servers can be told to fail.
async fn own_set() -> Box<Mongod> {
    let arguments = ["--setParameter", "enableTestCommands=1"];
    Box::new(Mongod::start_replica_set_with(3, &arguments).await)
}

/// The set of those who want no elections. They take turns: a server has one fail point.
async fn shared_set() -> MutexGuard<'static, Mongod> {
    static SHARED: OnceCell<Mutex<Mongod>> = OnceCell::const_new();
    let start = async || {
        let set = own_set().await;
        set.elect_after(60 * SECOND).await;
        Mutex::new(*set)
    };
    let set = SHARED.get_or_init(start).await.lock().await;
    // Whatever a test left that failed.
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    let primary = set.primary().await;
    set.nodes[primary].admin(off).await.expect("it may be off");
    set
}

/// A gateway on a set of three, and readings on their way to it.
struct Trial<Set> {
    set: Set,
    plan: Plan,
    stored: Stored,
    gateway: Gateway,
    flow: Option<Flow>,
}

/// Ten readings of eight devices every 100 ms, each with a number and a time of its own.
struct Flow {
    end: oneshot::Sender<()>,
    published: JoinHandle<u64>,
}

impl Flow {
    fn start(port: u16, plan: &Plan) -> Flow {
        let (end, mut ended) = oneshot::channel();
        let (plan, start) = (plan.clone(), now_ms());
        let published = tokio::spawn(async move {
            let mut tick = tokio::time::interval(SECOND / 10);
            let mut count = 0;
            while ended.try_recv().is_err() {
                tick.tick().await;
                let readings = (count..count + 10).map(|n| {
                    let payload = format!("{{\"ts\":{},\"n\":{n}}}", start + n);
                    (plan.topic(&format!("dev-{}", n % 8)), payload)
                });
                publish_all(port, readings.collect::<Vec<_>>()).await;
                count += 10;
            }
            u64::try_from(count).expect("it counts up")
        });
        Flow { end, published }
    }

    /// Ends it, and says how many the broker has.
    async fn end(self) -> u64 {
        self.end.send(()).expect("the publisher lives");
        self.published.await.expect("the broker took all")
    }
}

impl<Set: Deref<Target = Mongod>> Trial<Set> {
    async fn start(set: Set, change: impl FnOnce(Plan) -> Plan) -> Self {
        // A server that said it is going down is looked at again after half a second.
        let uri = format!("{}&heartbeatFrequencyMS=500", set.uri());
        Self::start_at(set, uri, change).await
    }

    async fn start_at(set: Set, uri: String, change: impl FnOnce(Plan) -> Plan) -> Self {
        let broker = Mosquitto::shared().await;
        let plan = change(Plan::new(broker.url(), uri));
        let stored = plan.stored_in(set.client().await);
        let gateway = plan.start_ready().await;
        let flow = Some(Flow::start(broker.port, &plan));
        let trial = Self {
            set,
            plan,
            stored,
            gateway,
            flow,
        };
        trial.goes_on().await;
        trial
    }

    /// Waits until more is settled than was.
    async fn goes_on(&self) {
        let before = settled(&self.gateway.metrics().await);
        self.gateway
            .wait_metrics(60 * SECOND, "more is settled", |metrics| {
                settled(metrics) > before
            })
            .await;
    }

    /// Waits until all that was received so far is settled.
    async fn catch_up(&self) {
        let metrics = self.gateway.metrics().await;
        let received = metrics.count("tidegate_messages_received_total", &[]);
        self.gateway
            .wait_metrics(60 * SECOND, "what was received is settled", |metrics| {
                settled(metrics) >= received
            })
            .await;
    }

    /// Ends the flow: all that was published is there, each once, nothing was refused, and the books are balanced.
    async fn end(&mut self) {
        let flow = self.flow.take().expect("it ends once");
        let published = flow.end().await;
        self.stored.wait_rows_within(60 * SECOND, published).await;
        // The broker delivers in order: with the last it has delivered all.
        let metrics = self
            .gateway
            .wait_metrics(60 * SECOND, "nothing is in flight", |metrics| {
                metrics.count("tidegate_messages_in_flight", &[]) == 0
                    && metrics.count("tidegate_source_unacked_messages", &[]) == 0
            })
            .await;
        let received = metrics.count("tidegate_messages_received_total", &[]);
        assert_eq!(received, settled(&metrics));
        let rows = self.stored.rows().await;
        let number = |row: &Document| row.get_f64("n").expect("each has one") as u64;
        let mut numbers: Vec<_> = rows.iter().map(number).collect();
        numbers.sort_unstable();
        let log = self.gateway.process.log();
        assert_eq!(numbers, (0..published).collect::<Vec<_>>(), "{log}");
        assert!(self.stored.letters().await.is_empty(), "{log}");
    }

    async fn tell_primary(&self, command: Document) -> Document {
        let primary = self.set.primary().await;
        let answer = self.set.nodes[primary].admin(command).await;
        answer.expect("test commands are enabled")
    }

    /// Inserts into the series fail like this, so often (`alwaysOn`, or `times`).
    async fn fail(&self, mode: impl Into<mongodb::bson::Bson>, how: Document) -> Document {
        let mut data = doc! {
            "failCommands": ["insert"],
            "namespace": format!("{}.readings", self.plan.database),
        };
        data.extend(how);
        let on = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        self.tell_primary(on).await
    }

    async fn fail_no_more(&self) {
        self.tell_primary(doc! { "configureFailPoint": "failCommand", "mode": "off" })
            .await;
    }

    /// Inserts that fail like this have this cause, and each reading of theirs is stored in the end.
    async fn assert_cause(&self, how: Document, cause: &str) {
        let before = self.gateway.metrics().await;
        // For longer than the driver's own repetition, whichever lane meets it first.
        self.fail("alwaysOn", how.clone()).await;
        let metrics = self
            .gateway
            .wait_metrics(20 * SECOND, &format!("{how} is {cause}"), |metrics| {
                failed(metrics, cause) > failed(&before, cause)
            })
            .await;
        if cause != "other" {
            let other = [&before, &metrics].map(|metrics| failed(metrics, "other"));
            assert_eq!(other[0], other[1], "{how}");
        }
        self.fail_no_more().await;
        self.catch_up().await;
    }
}

fn settled(metrics: &Metrics) -> u64 {
    metrics.count("tidegate_messages_settled_total", &[])
}

fn failed(metrics: &Metrics, cause: &str) -> u64 {
    metrics.count("tidegate_sink_attempts_failed_total", &[("cause", cause)])
}

fn look_ups(metrics: &Metrics) -> u64 {
    metrics.count("tidegate_sink_look_ups_total", &[])
}

/// Attempts that follow each other fast.
fn hasty(plan: Plan) -> Plan {
    plan.section("[sink]\nretry_max = \"200ms\"")
}

// --- what the server says ----------------------------------------------------------------------

#[tokio::test]
async fn each_error_of_a_write_is_told_by_its_cause() {
    let mut trial = Trial::start(shared_set().await, hasty).await;
    for (cause, codes) in [
        ("network", &[6, 7, 89, 9001, 202][..]),
        ("failover", &[91, 189, 10107, 11600, 11602, 13435, 13436]),
        // What a router passes on, but for 13388, 249 and 334, which no plain server can be made to say.
        ("failover", &[63, 150, 133, 82]),
        ("write_concern", &[64, 100, 79]),
        (
            "overload",
            &[262, 50, 24, 46, 112, 14031, 11601, 365, 312, 146],
        ),
        ("unauthorized", &[13, 18, 8000]),
        // In no row.
        ("other", &[8, 59_999]),
    ] {
        for code in codes {
            trial.assert_cause(doc! { "errorCode": code }, cause).await;
        }
    }
    let closed = doc! { "closeConnection": true };
    trial.assert_cause(closed, "network").await;
    trial.end().await;
}

#[tokio::test]
async fn a_write_that_is_not_confirmed_is_looked_up() {
    let mut trial = Trial::start(shared_set().await, hasty).await;
    let before = look_ups(&trial.gateway.metrics().await);
    // The server writes, and answers that it cannot tell whether that will last.
    let codes = [64, 100, 79, 91, 189, 11600, 59_999];
    for code in codes {
        let concern = doc! { "code": code, "errmsg": "told to", "errInfo": {} };
        let how = doc! { "writeConcernError": concern };
        trial.assert_cause(how, "write_concern").await;
    }
    trial.end().await;
    let after = look_ups(&trial.gateway.metrics().await);
    assert!(after >= before + codes.len() as u64, "{before} {after}");
}

#[tokio::test]
async fn a_command_refused_for_what_is_in_it_is_divided() {
    let several = "[sink]\nmin_linger = \"300ms\"\nwriters = 1";
    let mut trial = Trial::start(shared_set().await, |plan| plan.section(several)).await;
    // But for 121, which no server says without more.
    let codes = [10334, 22, 9, 14, 2];
    for code in codes {
        // The halves are taken.
        let told = trial
            .fail(doc! { "times": 1 }, doc! { "errorCode": code })
            .await;
        let met = told.get_i32("count").expect("how often it was met so far");
        trial
            .tell_primary(doc! { "waitForFailPoint": "failCommand", "timesEntered": met + 1, "maxTimeMS": 20_000 })
            .await;
        trial.catch_up().await;
    }
    trial.end().await;
    // What is refused also alone is put aside, and stands in nobody's way.
    trial.fail("alwaysOn", doc! { "errorCode": 10334 }).await;
    let port = Mosquitto::shared().await.port;
    let reading = |n: i64| {
        (
            trial.plan.topic("d"),
            format!("{{\"ts\":{},\"n\":-1}}", now_ms() + n),
        )
    };
    publish_all(port, (0..3).map(reading).collect::<Vec<_>>()).await;
    trial
        .gateway
        .wait_metrics(30 * SECOND, "three are put aside", |metrics| {
            metrics.count("tidegate_sink_dead_letters_total", &[]) == 3
        })
        .await;
    let letters = trial.stored.letters().await;
    assert_eq!(letters[0].get_str("reason"), Ok("mongo_rejected"));
    trial.fail_no_more().await;
}

// --- what the network does ---------------------------------------------------------------------

/// The gateway sees the set through wires, one before each server.
async fn wired(plan: impl FnOnce(Plan) -> Plan) -> (Trial<MutexGuard<'static, Mongod>>, Wires) {
    let set = shared_set().await;
    let ports: Vec<_> = set.nodes.iter().map(|node| node.port).collect();
    let wires = Wire::start_before(&ports).await;
    let hosts = wires
        .iter()
        .map(|wire| format!("127.0.0.1:{}", wire.port()));
    let hosts = hosts.collect::<Vec<_>>().join(",");
    let uri = format!("mongodb://{hosts}/?replicaSet=rs0");
    (Trial::start_at(set, uri, plan).await, Wires(wires))
}

struct Wires(Vec<Wire>);

impl Wires {
    fn up(&self, way: &Way) {
        for wire in &self.0 {
            wire.up(way.clone());
        }
    }

    fn down(&self, way: &Way) {
        for wire in &self.0 {
            wire.down(way.clone());
        }
    }

    fn drop_all(&self) {
        for wire in &self.0 {
            wire.drop_all();
        }
    }

    fn held(&self) -> usize {
        self.0.iter().map(Wire::held).sum()
    }

    /// Waits until more was held than `before`.
    async fn wait_held(&self, before: usize) -> usize {
        eventually(20 * SECOND, "something is held", async || {
            let held = self.held();
            (held > before).then_some(held)
        })
        .await
    }
}

/// What an insert into this collection looks like.
fn insert_into(collection: &str) -> Way {
    let length = u32::try_from(collection.len() + 1).expect("names are short");
    let mut marker = b"insert\0".to_vec();
    marker.extend(length.to_le_bytes());
    marker.extend(collection.as_bytes());
    marker.push(0);
    Way::Hold(marker)
}

#[tokio::test]
async fn connections_that_break_before_or_after_the_write_are_told_apart_by_looking() {
    let (mut trial, wires) = wired(hasty).await;
    for answer_lost in [true, false, true, false] {
        let before = trial.gateway.metrics().await;
        let mut held = wires.held();
        match answer_lost {
            true => wires.down(&insert_into("readings")),
            false => wires.up(&insert_into("readings")),
        }
        // The driver tries once more by itself.
        loop {
            let rows = trial.stored.row_count().await;
            held = wires.wait_held(held).await;
            if answer_lost {
                // What was held is there.
                trial.stored.wait_rows(rows).await;
            }
            wires.drop_all();
            let metrics = trial.gateway.metrics().await;
            if failed(&metrics, "network") > failed(&before, "network") {
                break;
            }
        }
        wires.down(&Way::Pass);
        wires.up(&Way::Pass);
        trial.catch_up().await;
        let metrics = trial.gateway.metrics().await;
        assert!(look_ups(&metrics) > look_ups(&before));
        assert_eq!(failed(&metrics, "other"), failed(&before, "other"));
    }
    trial.end().await;
}

// --- what the set does -------------------------------------------------------------------------

#[tokio::test]
async fn a_majority_that_is_gone_confirms_nothing_until_it_is_back() {
    let set = own_set().await;
    set.elect_after(60 * SECOND).await;
    let concern = "write_concern = { w = \"majority\", wtimeout = \"1s\" }";
    let mut trial = Trial::start(set, |plan| plan.stream(concern)).await;
    let primary = trial.set.primary().await;
    let others: Vec<_> = (0..3).filter(|node| *node != primary).collect();
    for node in &others {
        trial.set.nodes[*node].process.freeze();
    }
    // The primary writes, and tells after a second that nobody else has.
    let mut ended = 0;
    for _ in 0..2 {
        let before = trial.gateway.metrics().await;
        let metrics = trial
            .gateway
            .wait_metrics(30 * SECOND, "nothing is confirmed", |metrics| {
                failed(metrics, "write_concern") > failed(&before, "write_concern")
            })
            .await;
        assert!(ended == 0 || settled(&metrics) == ended, "{metrics:?}");
        ended = settled(&metrics);
    }
    for node in &others {
        trial.set.nodes[*node].process.thaw();
    }
    trial.goes_on().await;
    trial.catch_up().await;

    // The primary gives up its office.
    trial.set.wait_until_in_step().await;
    trial.set.elect_after(2 * SECOND).await;
    for node in &others {
        trial.set.nodes[*node].process.kill();
    }
    let before = trial.gateway.metrics().await;
    trial
        .gateway
        .wait_metrics(30 * SECOND, "there is no server", |metrics| {
            failed(metrics, "no_server") > failed(&before, "no_server")
        })
        .await;
    for node in others {
        trial.set.nodes[node].restart().await;
    }
    trial.set.wait_until_in_step().await;
    trial.end().await;
}

#[tokio::test]
async fn a_primary_that_steps_down_or_is_killed_is_followed_by_the_next() {
    let set = own_set().await;
    let uri = set.uri();
    let mut trial = Trial::start_at(set, uri, |plan| plan).await;
    for _ in 0..4 {
        let old = trial.set.primary().await;
        let down = doc! { "replSetStepDown": 3, "secondaryCatchUpPeriodSecs": 2, "force": true };
        // The answer may go with the connection.
        let _ = trial.set.nodes[old].admin(down).await;
        trial.set.primary().await;
        trial.goes_on().await;
        trial.set.wait_until_in_step().await;
    }
    for _ in 0..3 {
        let old = trial.set.primary().await;
        trial.set.nodes[old].process.kill();
        trial.set.primary().await;
        let there = Instant::now();
        trial.goes_on().await;
        println!("stored {:?} after there was a new primary", there.elapsed());
        trial.set.nodes[old].restart().await;
        trial.set.wait_until_in_step().await;
    }
    trial.end().await;
}

// --- what becomes of the gateway ---------------------------------------------------------------

#[tokio::test]
async fn a_gateway_killed_between_write_and_acknowledgement_finds_what_it_wrote() {
    let all = |plan: Plan| plan.section("[feed]\nmode = \"all\"");
    let (mut trial, wires) = wired(all).await;
    // Written, and not told; written but for the feed; the feed written, and nothing else.
    for (held, answer) in [("readings", true), ("feed", false), ("readings", false)] {
        let before = wires.held();
        let count = trial.stored.row_count().await;
        match answer {
            true => wires.down(&insert_into(held)),
            false => wires.up(&insert_into(held)),
        }
        wires.wait_held(before).await;
        if held == "feed" || answer {
            trial.stored.wait_rows(count + 1).await;
        }
        trial
            .gateway
            .wait_metrics(20 * SECOND, "some are on their way", |metrics| {
                metrics.count("tidegate_messages_in_flight", &[]) > 0
            })
            .await;
        trial.gateway.kill();
        wires.drop_all();
        wires.down(&Way::Pass);
        wires.up(&Way::Pass);
        trial.gateway.restart();
        trial.gateway.wait_ready().await;
        trial.catch_up().await;
        if held == "feed" || answer {
            let metrics = trial.gateway.metrics().await;
            let again = metrics.count("tidegate_sink_readings_already_stored_total", &[]);
            assert!(again > 0, "{held} {answer}");
        }
    }
    trial.end().await;
}

#[tokio::test]
async fn what_a_killed_gateway_left_at_the_server_is_waited_for() {
    let mut trial = Trial::start(shared_set().await, |plan| plan).await;
    // The server has the inserts, and takes its time.
    let slow = doc! { "blockConnection": true, "blockTimeMS": 6_000 };
    trial.fail("alwaysOn", slow).await;
    eventually(20 * SECOND, "the server has an insert", async || {
        let own = &trial.plan.database;
        let inserts = doc! { "currentOp": 1, "command.insert": "readings", "command.$db": own };
        let answer = trial.tell_primary(inserts).await;
        (!answer.get_array("inprog").ok()?.is_empty()).then_some(())
    })
    .await;
    trial.gateway.restart();
    trial.gateway.wait_ready().await;
    let log = trial.gateway.process.log();
    assert!(log.contains("a write of an earlier process"), "{log}");
    // Which waits for what it holds up.
    trial.fail_no_more().await;
    trial.end().await;
}
