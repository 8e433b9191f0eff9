//! Every way in which a write's outcome can be unclear, on a replica set of three: each reading is stored once, and the
//! reason counted under its name.

mod support;

use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};

use support::eventually;
use support::gateway::{Gateway, Metrics};
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, now_ms};
use support::publisher::publish_all;

const SECOND: Duration = Duration::from_secs(1);

/// A replica set of three that can be told to fail, a gateway on it, and how far its readings have got.
struct Trial {
    mongod: Mongod,
    port: u16,
    plan: Plan,
    stored: Stored,
    gateway: Gateway,
    start: i64,
    published: u64,
}

impl Trial {
    async fn start(change: impl FnOnce(Plan) -> Plan) -> Trial {
        let arguments = ["--setParameter", "enableTestCommands=1"];
        let mongod = Mongod::start_replica_set_with(3, &arguments).await;
        let broker = Mosquitto::shared().await;
        let plan = change(Plan::new(broker.url(), mongod.uri()));
        let stored = plan.stored_in(mongod.client().await);
        let gateway = plan.start_ready().await;
        let start = now_ms();
        Trial {
            port: broker.port,
            mongod,
            plan,
            stored,
            gateway,
            start,
            published: 0,
        }
    }

    /// Twenty readings of four devices, in time order. Returns when the broker has them.
    async fn publish(&mut self) {
        let first = i64::try_from(self.published).unwrap();
        let readings = (first..first + 20).map(|n| {
            let payload = format!("{{\"ts\":{},\"n\":{n}}}", self.start + n);
            (self.plan.topic(&format!("dev-{}", n % 4)), payload)
        });
        publish_all(self.port, readings.collect::<Vec<_>>()).await;
        self.published += 20;
    }

    async fn settled(&self) -> Metrics {
        let count = self.published;
        let what = format!("{count} messages are stored");
        let settled = |metrics: &Metrics| {
            let stored = [("outcome", "stored")];
            metrics.count("tidegate_messages_settled_total", &stored) >= count
        };
        self.gateway.wait_metrics(60 * SECOND, &what, settled).await
    }

    /// All that was published is there, each once, and nothing was refused.
    async fn assert_stored_once(&self) {
        let metrics = self.settled().await;
        let sum = |name| metrics.count(name, &[]);
        let ended = sum("tidegate_messages_settled_total") + sum("tidegate_messages_in_flight");
        assert_eq!(sum("tidegate_messages_received_total"), ended);
        let rows = self.stored.rows().await;
        let mut numbers: Vec<_> = rows
            .iter()
            .map(|row| row.get_f64("n").unwrap() as u64)
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..self.published).collect::<Vec<_>>());
        assert!(self.stored.letters().await.is_empty());
    }

    /// Inserts into the series fail like this until told otherwise.
    async fn fail(&self, how: Document) {
        let mut data = doc! {
            "failCommands": ["insert"],
            "namespace": format!("{}.readings", self.plan.database),
        };
        data.extend(how);
        let on = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
        self.tell_primary(on).await;
    }

    async fn tell_primary(&self, command: Document) {
        let primary = self.mongod.primary().await;
        self.mongod.nodes[primary]
            .admin(command)
            .await
            .expect("test commands are enabled");
    }

    /// Readings whose inserts fail like this are stored once, and the failures have this name.
    async fn run(&mut self, how: Document, cause: &str) {
        let failed = |metrics: &Metrics| {
            let cause = [("cause", cause)];
            metrics.count("tidegate_sink_attempts_failed_total", &cause)
        };
        let before = failed(&self.gateway.metrics().await);
        // Longer than the driver's own repetition, whatever lane meets it first.
        self.fail(how.clone()).await;
        self.publish().await;
        self.gateway
            .wait_metrics(20 * SECOND, &format!("{how} is {cause}"), |metrics| {
                failed(metrics) > before
            })
            .await;
        self.tell_primary(doc! { "configureFailPoint": "failCommand", "mode": "off" })
            .await;
        self.settled().await;
    }
}

#[tokio::test]
async fn each_error_of_a_write_is_told_by_its_cause_and_stores_each_reading_once() {
    let mut trial = Trial::start(|plan| plan.section("[sink]\nretry_max = \"200ms\"")).await;
    for (cause, codes) in [
        ("network", &[6, 7, 89, 9001][..]),
        ("failover", &[91, 189, 10107, 11600, 11602, 13435, 13436]),
        // What a router passes on, but for those that no plain server can be made to say.
        ("failover", &[63, 150, 133]),
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
            trial.run(doc! { "errorCode": code }, cause).await;
        }
    }
    trial.run(doc! { "closeConnection": true }, "network").await;
    trial.assert_stored_once().await;
}

#[tokio::test]
async fn a_write_that_is_not_confirmed_is_looked_up() {
    let mut trial = Trial::start(|plan| plan.section("[sink]\nretry_max = \"200ms\"")).await;
    // The server writes, and answers that it cannot tell whether that will last.
    for code in [64, 100, 79, 91, 189, 11600, 59_999] {
        let concern = doc! { "code": code, "errmsg": "told to", "errInfo": {} };
        trial
            .run(doc! { "writeConcernError": concern }, "write_concern")
            .await;
    }
    trial.assert_stored_once().await;
    let metrics = trial.gateway.metrics().await;
    assert!(metrics.count("tidegate_sink_look_ups_total", &[]) >= 7);
}

#[tokio::test]
async fn a_majority_that_is_gone_confirms_nothing_until_it_is_back() {
    let concern = "write_concern = { wtimeout = \"1s\" }";
    let mut trial = Trial::start(|plan| plan.stream(concern)).await;
    let primary = trial.mongod.primary().await;
    let others: Vec<_> = (0..3).filter(|node| *node != primary).collect();
    for node in &others {
        trial.mongod.nodes[*node].process.freeze();
    }
    // Written by the primary before it steps down, and by nobody else.
    trial.publish().await;
    let unconfirmed = |metrics: &Metrics| {
        let failed = "tidegate_sink_attempts_failed_total";
        metrics.count(failed, &[("cause", "write_concern")])
            + metrics.count(failed, &[("cause", "failover")])
            > 0
    };
    trial
        .gateway
        .wait_metrics(30 * SECOND, "nothing is confirmed", unconfirmed)
        .await;
    let settled = |metrics: &Metrics| metrics.count("tidegate_messages_settled_total", &[]);
    assert_eq!(settled(&trial.gateway.metrics().await), 0);
    trial.publish().await;
    for node in &others {
        trial.mongod.nodes[*node].process.thaw();
    }
    trial.mongod.wait_until_in_step().await;
    trial.assert_stored_once().await;

    for node in &others {
        trial.mongod.nodes[*node].process.kill();
    }
    trial.publish().await;
    for node in others {
        trial.mongod.nodes[node].restart().await;
    }
    trial.mongod.wait_until_in_step().await;
    trial.assert_stored_once().await;
}

#[tokio::test]
async fn a_killed_primary_is_followed_by_the_next() {
    let mut trial = Trial::start(|plan| plan).await;
    for _ in 0..3 {
        let old = trial.mongod.primary().await;
        trial.publish().await;
        trial.mongod.nodes[old].process.kill();
        trial.publish().await;
        trial.mongod.primary().await;
        let began = Instant::now();
        trial.settled().await;
        println!("stored {:?} after there was a new primary", began.elapsed());
        trial.mongod.nodes[old].restart().await;
        trial.mongod.wait_until_in_step().await;
    }
    trial.assert_stored_once().await;
}

#[tokio::test]
async fn what_a_killed_gateway_left_at_the_server_is_waited_for() {
    let mut trial = Trial::start(|plan| plan).await;
    // The server has the inserts, and takes its time.
    trial
        .fail(doc! { "blockConnection": true, "blockTimeMS": 6_000 })
        .await;
    trial.publish().await;
    let primary = trial.mongod.primary().await;
    eventually(20 * SECOND, "the server has an insert", async || {
        let inserts = doc! { "currentOp": 1, "command.insert": "readings" };
        let answer = trial.mongod.nodes[primary].admin(inserts).await.ok()?;
        (!answer.get_array("inprog").ok()?.is_empty()).then_some(())
    })
    .await;
    trial.gateway.restart();
    trial.gateway.wait_ready().await;
    let log = trial.gateway.process.log();
    assert!(log.contains("a write of an earlier process"), "{log}");
    // Which waits for what it holds up.
    trial
        .tell_primary(doc! { "configureFailPoint": "failCommand", "mode": "off" })
        .await;
    let ended = |metrics: &Metrics| metrics.count("tidegate_messages_settled_total", &[]);
    trial
        .gateway
        .wait_metrics(20 * SECOND, "all are found stored", |metrics| {
            ended(metrics) == 20
        })
        .await;
    assert_eq!(trial.stored.row_count().await, 20);
}
