//! The promise of the alerts while processes die, freeze, lose each other and forget: what fires is told once and
//! later resolved, and the state in the end is what the last values say.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, doc};

use support::alerting::{
    BRISK, HOT, ONE_BY_ONE, SECOND, SECRET, assert_sound, key, leads, measure, open_alerts,
    plan_on, tale,
};
use support::eventually;
use support::gate::Gate;
use support::gateway::Gateway;
use support::mongod::Mongod;
use support::mosquitto::Mosquitto;
use support::plan::{Plan, Stored, now_ms};
use support::publisher::publish_all;
use support::receiver::{Receiver, Told};

/// What everything random in a test follows from: the variable's value, or another each time, which is printed.
fn seed() -> u64 {
    let given = std::env::var("TIDEGATE_TEST_SEED").ok();
    let seed = given.map_or_else(
        || fastrand::u64(..1_000_000),
        |text| text.parse().expect("TIDEGATE_TEST_SEED is a number"),
    );
    println!("TIDEGATE_TEST_SEED={seed}");
    seed
}

/// Devices whose values jump up and down across the threshold, each with times that only grow.
struct Fleet {
    plan: Plan,
    port: u16,
    chance: fastrand::Rng,
    clock: i64,
    high: BTreeMap<String, bool>,
    storms: bool,
    /// Waves for which all stay low.
    calm: u8,
}

impl Fleet {
    fn new(plan: &Plan, port: u16, devices: usize, seed: u64) -> Fleet {
        Fleet {
            plan: plan.clone(),
            port,
            chance: fastrand::Rng::with_seed(seed),
            clock: 0,
            high: (0..devices).map(|n| (format!("room-{n}"), false)).collect(),
            storms: false,
            calm: 0,
        }
    }

    /// Every device says something; about a third of them the opposite of what it said before. Returns when the broker
    /// has it all.
    async fn wave(&mut self) {
        // Storms come and go.
        if self.storms && self.calm == 0 && self.chance.u8(..10) == 0 {
            self.calm = 20;
        }
        if self.calm > 0 {
            self.calm -= 1;
            self.end(|_| false).await;
            return;
        }
        for high in self.high.values_mut() {
            *high ^= self.chance.u8(..3) == 0;
        }
        self.say().await;
    }

    /// Waves until told to stop.
    async fn surge(mut self, stop: Arc<AtomicBool>) -> Fleet {
        while !stop.load(Ordering::SeqCst) {
            self.wave().await;
            // The pace of the devices.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self
    }

    /// Every device says this.
    async fn end(&mut self, high: impl Fn(usize) -> bool) {
        for (n, value) in self.high.values_mut().enumerate() {
            *value = high(n);
        }
        self.say().await;
    }

    async fn say(&mut self) {
        self.clock = now_ms().max(self.clock + 1);
        let messages = self.high.iter().map(|(device, high)| {
            let value = if *high {
                9.0 + self.chance.f64()
            } else {
                1.0 + self.chance.f64()
            };
            let payload = format!("{{\"ts\":{},\"t\":{value}}}", self.clock);
            (self.plan.topic(device), payload)
        });
        let messages: Vec<_> = messages.collect();
        publish_all(self.port, messages).await;
    }

    fn firing(&self) -> BTreeSet<String> {
        let high = self.high.iter().filter(|(_, high)| **high);
        high.map(|(device, _)| device.clone()).collect()
    }

    /// Waits until the alerts are what the last values say, and the receiver knows; each by itself, unless there
    /// are storms: then only that all is over.
    async fn settled(&self, stored: &Stored, receiver: &Receiver, gateways: &[&Gateway]) {
        let expected = self.firing();
        let deadline = Instant::now() + 100 * SECOND;
        loop {
            let state = open_alerts(stored, "hot").await;
            let owed = owed(stored).await;
            let told = devices(&assert_sound(receiver));
            let known = told == expected || (self.storms && !expected.is_empty());
            if state == expected && known && owed == 0 {
                return;
            }
            if Instant::now() > deadline {
                for device in expected.symmetric_difference(&told).take(3) {
                    println!("{}", tale(receiver, &format!("hot:{device}")));
                }
                let logs: Vec<_> = gateways.iter().map(|g| g.process.log()).collect();
                panic!(
                    "not settled: {owed} rows are owed\nexpected {expected:?}\nstate    {state:?}\ntold     {told:?}\n{}",
                    logs.join("\n---\n")
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Requests that are still to be made.
async fn owed(stored: &Stored) -> u64 {
    let rows = stored.collection("alert_outbox");
    let queued = rows.count_documents(doc! { "state": "queued" }).await;
    queued.unwrap_or(u64::MAX)
}

fn devices(keys: &BTreeSet<String>) -> BTreeSet<String> {
    let device = |key: &String| key.rsplit(':').next().unwrap_or_default().to_owned();
    keys.iter().map(device).collect()
}

/// The gateway that leads by the lease, once one does.
async fn leader(stored: &Stored, names: &[&str]) -> usize {
    eventually(30 * SECOND, "somebody leads", async || {
        let lease = doc! { "_id": "alert", "expiresAt": { "$gt": DateTime::now() } };
        let lease = stored.collection("leases").find_one(lease).await.ok()??;
        let holder = lease.get_str("holder").ok()?;
        names.iter().position(|name| *name == holder)
    })
    .await
}

fn kinds(told: &[Told]) -> Vec<String> {
    told.iter().map(Told::kind).collect()
}

// --- who evaluates dies, freezes, or loses the database ----------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_again_and_again_forgets_and_repeats_nothing() {
    let seed = seed();
    let mut chance = fastrand::Rng::with_seed(seed);
    let receiver = Receiver::start().await;
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let oncall = receiver.section("oncall", &format!("secret = {SECRET:?}\nrate = 500"));
    let mut plan = Plan::new(broker.url(), mongod.uri())
        .section(BRISK)
        .section(HOT)
        .section(&oncall);
    let storms = chance.bool();
    plan = if storms {
        println!("there are storms");
        plan.section("[alerts.storm]\nopen = 4\nclose = 2\ncalm = \"1s\"\n[alerts.flap]\nhigh = 0\nlow = 0\n")
    } else {
        plan.section(ONE_BY_ONE)
    };
    if chance.bool() {
        println!("the gateways share the messages");
        plan = plan.mqtt(&format!("share_group = {:?}", support::unique("group")));
    }
    let stored = plan.stored_in(mongod.client().await);
    let mut other = plan.clone();
    other.client_id = support::unique("gateway");
    let names = [plan.client_id.as_str(), other.client_id.as_str()];
    let mut gateways = [plan.start_ready().await, other.start_ready().await];
    receiver.fail_at_times(seed);

    let stop = Arc::new(AtomicBool::new(false));
    let mut fleet = Fleet::new(&plan, broker.port, 40, seed);
    fleet.storms = storms;
    let fleet = tokio::spawn(fleet.surge(Arc::clone(&stop)));
    for round in 1..=24 {
        let leads = leader(&stored, &names).await;
        // Anywhere in what it does: taking over, reading, writing, telling.
        tokio::time::sleep(Duration::from_millis(chance.u64(..1_200))).await;
        if round % 6 == 0 {
            // Now and then in good order.
            assert!(gateways[leads].terminate().await.success());
        } else {
            gateways[leads].kill();
        }
        if chance.bool() {
            // The other one takes over before this one is back.
            eventually(30 * SECOND, "the other leads", async || {
                (leader(&stored, &names).await != leads).then_some(())
            })
            .await;
        }
        gateways[leads].restart();
    }
    stop.store(true, Ordering::SeqCst);
    let mut fleet = fleet.await.expect("the fleet lives");
    println!("{} requests so far", receiver.told().len());
    receiver.work();
    fleet.end(|n| n % 3 == 0).await;
    let [first, second] = &gateways;
    fleet.settled(&stored, &receiver, &[first, second]).await;
    println!("{} requests", receiver.told().len());
    fleet.end(|_| false).await;
    fleet.settled(&stored, &receiver, &[first, second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primaries_that_step_down_or_die_lose_and_repeat_nothing() {
    let seed = seed();
    let mut chance = fastrand::Rng::with_seed(seed);
    let receiver = Receiver::start().await;
    let mut mongod = Mongod::start_replica_set(3).await;
    let broker = Mosquitto::shared().await;
    let oncall = receiver.section("oncall", &format!("secret = {SECRET:?}\nrate = 500"));
    let plan = Plan::new(broker.url(), mongod.uri())
        .section(BRISK)
        .section(ONE_BY_ONE)
        .section(HOT)
        .section(&oncall);
    let stored = plan.stored_in(mongod.client().await);
    let mut other = plan.clone();
    other.client_id = support::unique("gateway");
    let gateways = [plan.start_ready().await, other.start_ready().await];
    receiver.fail_at_times(seed);

    let stop = Arc::new(AtomicBool::new(false));
    let fleet = Fleet::new(&plan, broker.port, 40, seed);
    let fleet = tokio::spawn(fleet.surge(Arc::clone(&stop)));
    for round in 0..4 {
        tokio::time::sleep(Duration::from_millis(chance.u64(..1_500))).await;
        let primary = mongod.primary().await;
        if round % 2 == 0 {
            let down =
                doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 1, "force": true };
            // The answer may go with the connection.
            let _ = mongod.nodes[primary].admin(down).await;
        } else {
            mongod.nodes[primary].process.kill();
            mongod.primary().await;
            mongod.nodes[primary].restart().await;
        }
        mongod.wait_until_in_step().await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut fleet = fleet.await.expect("the fleet lives");
    println!("{} requests so far", receiver.told().len());
    receiver.work();
    fleet.end(|n| n % 2 == 0).await;
    let [first, second] = &gateways;
    fleet.settled(&stored, &receiver, &[first, second]).await;
    fleet.end(|_| false).await;
    fleet.settled(&stored, &receiver, &[first, second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_wakes_up_after_another_took_over_does_no_harm() {
    let seed = seed();
    let receiver = Receiver::start().await;
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let (plan, stored, port) = plan_on(mongod, broker, &receiver).await;
    let plan = plan.section(ONE_BY_ONE);
    let first = plan.start_ready().await;
    leads(&first).await;
    let mut other = plan.clone();
    other.client_id = support::unique("gateway");
    let second = other.start_ready().await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(60 * SECOND, 1).await;

    first.process.freeze();
    leads(&second).await;
    measure(&plan, port, "room-1", &[1.0]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    receiver.wait(60 * SECOND, 3).await;
    first.process.thaw();
    first
        .wait_metrics(20 * SECOND, "it steps down", |metrics| {
            metrics.count("tidegate_alert_leader", &[]) == 0
        })
        .await;
    measure(&plan, port, "room-3", &[9.0]).await;
    let told = receiver.wait(60 * SECOND, 4).await;
    assert_eq!(told.len(), 4, "{:?}", kinds(&told));
    assert_sound(&receiver);
    let lines = stored.collection("alert_history");
    let fired = lines.count_documents(doc! { "what": "fired" }).await;
    assert_eq!(fired.unwrap(), 3);

    // The same while it is about to try a request again: the other one has made it meanwhile.
    receiver.answer(&[503]);
    measure(&plan, port, "room-4", &[9.0]).await;
    eventually(60 * SECOND, "a request is refused", async || {
        (receiver.told().len() == 5).then_some(())
    })
    .await;
    second.process.freeze();
    leads(&first).await;
    receiver.wait(60 * SECOND, 5).await;
    second.process.thaw();
    second
        .wait_metrics(20 * SECOND, "it steps down", |metrics| {
            metrics.count("tidegate_alert_leader", &[]) == 0
        })
        .await;
    measure(&plan, port, "room-5", &[9.0]).await;
    receiver.wait(60 * SECOND, 6).await;
    assert_eq!(receiver.told().len(), 7, "{:?}", kinds(&receiver.told()));
    assert_sound(&receiver);

    // The same in the middle of much to do.
    let stop = Arc::new(AtomicBool::new(false));
    let fleet = Fleet::new(&plan, port, 40, seed);
    let fleet = tokio::spawn(fleet.surge(Arc::clone(&stop)));
    let gateways = [first, second];
    let names = [plan.client_id.as_str(), other.client_id.as_str()];
    for _ in 0..3 {
        let leading = leader(&stored, &names).await;
        gateways[leading].process.freeze();
        eventually(30 * SECOND, "the other leads", async || {
            (leader(&stored, &names).await != leading).then_some(())
        })
        .await;
        leads(&gateways[1 - leading]).await;
        gateways[leading].process.thaw();
    }
    stop.store(true, Ordering::SeqCst);
    let mut fleet = fleet.await.expect("the fleet lives");
    fleet.end(|n| n % 3 == 0).await;
    let [first, second] = &gateways;
    fleet.settled(&stored, &receiver, &[first, second]).await;
}

#[tokio::test]
async fn what_happened_while_the_database_was_away_is_told_once() {
    let receiver = Receiver::start().await;
    let mut mongod = Mongod::start_replica_set(1).await;
    let broker = Mosquitto::shared().await;
    let (plan, stored, port) = plan_on(&mongod, broker, &receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(60 * SECOND, 1).await;

    mongod.nodes[0].process.kill();
    away(&plan, port).await;
    mongod.nodes[0].restart().await;
    told_once(&stored, &receiver, &gateway).await;
}

#[tokio::test]
async fn what_happened_while_the_database_did_not_answer_is_told_once() {
    let receiver = Receiver::start().await;
    let mongod = Mongod::start_replica_set(1).await;
    let gate = Gate::start(mongod.nodes[0].port).await;
    let broker = Mosquitto::shared().await;
    let plan = Plan::new(broker.url(), gate.uri())
        .section(BRISK)
        .section(HOT)
        .section(&receiver.section("oncall", ""));
    let stored = plan.stored_in(mongod.client().await);
    let port = broker.port;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(60 * SECOND, 1).await;

    gate.hold_all();
    away(&plan, port).await;
    gate.open();
    told_once(&stored, &receiver, &gateway).await;
}

/// Ten seconds without the database, in which one alert ends and two begin.
async fn away(plan: &Plan, port: u16) {
    let back = Instant::now() + 10 * SECOND;
    measure(plan, port, "room-1", &[1.0]).await;
    measure(plan, port, "room-2", &[9.0]).await;
    tokio::time::sleep_until((back - 2 * SECOND).into()).await;
    measure(plan, port, "room-3", &[9.0]).await;
    // That is how long it is away.
    tokio::time::sleep_until(back.into()).await;
}

async fn told_once(stored: &Stored, receiver: &Receiver, gateway: &Gateway) {
    let told = receiver.wait(60 * SECOND, 4).await;
    assert_eq!(
        devices(&assert_sound(receiver)),
        BTreeSet::from(["room-2".into(), "room-3".into()])
    );
    eventually(30 * SECOND, "nothing more is owed", async || {
        (owed(stored).await == 0).then_some(())
    })
    .await;
    assert_eq!(
        receiver.told().len(),
        4,
        "{:?}\n{}",
        kinds(&told),
        gateway.process.log()
    );
}

// --- the stream is lost ------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_gap_that_the_feed_still_covers_is_judged_from_the_feed() {
    a_gap(true).await;
}

#[tokio::test]
async fn a_gap_that_the_feed_no_longer_covers_is_judged_from_the_series() {
    a_gap(false).await;
}

/// The server forgets what was written while nobody evaluated; another gateway went on storing.
async fn a_gap(fed: bool) {
    let receiver = Receiver::start().await;
    // The oplog is cut back to its size at checkpoints.
    let mongod = Mongod::start_replica_set_with(1, &["--oplogSize", "1", "--syncdelay", "1"]).await;
    let broker = Mosquitto::shared().await;
    let (plan, stored, port) = plan_on(&mongod, broker, &receiver).await;
    let mut leading = plan.start_ready().await;
    leads(&leading).await;
    let mut other = plan.clone();
    other.client_id = support::unique("gateway");
    let mut storing = Gateway::start_with(&other.toml(), &[("TIDEGATE_ALERTS__ENABLED", "false")]);
    storing.wait_ready().await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(60 * SECOND, 1).await;

    leading.kill();
    measure(&plan, port, "room-1", &[1.0]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    measure(&plan, port, "room-3", &[9.0, 1.0]).await;
    eventually(60 * SECOND, "the other gateway feeds them", async || {
        let filter = doc! { "readings.d": "room-3", "readings.f.t": 1.0 };
        let found = stored.collection("feed").find_one(filter).await.unwrap();
        found.map(drop)
    })
    .await;
    let written = DateTime::now();
    forget(&mongod, &stored).await;
    if !fed {
        let old = doc! { "at": { "$lte": written } };
        stored.collection("feed").delete_many(old).await.unwrap();
    }

    leading.restart();
    leads(&leading).await;
    let told = receiver.wait(60 * SECOND, 4).await;
    let told: BTreeSet<(String, String)> =
        told.iter().map(|told| (key(told), told.kind())).collect();
    let expected = [
        ("hot:room-1", "alert.firing"),
        ("hot:room-1", "alert.resolved"),
        ("hot:room-2", "alert.firing"),
        ("tidegate.alert_gap:gateway", "alert.firing"),
    ];
    let expected = expected.map(|(key, kind)| (key.to_owned(), kind.to_owned()));
    assert_eq!(told, BTreeSet::from(expected), "{}", leading.process.log());
    let metrics = leading.metrics().await;
    assert_eq!(metrics.count("tidegate_alert_gaps_total", &[]), 1);
    // It goes on by stream.
    measure(&plan, port, "room-4", &[9.0]).await;
    measure(&plan, port, "room-2", &[1.0]).await;
    receiver.wait(60 * SECOND, 6).await;
    assert_sound(&receiver);
    let open = open_alerts(&stored, "hot").await;
    assert_eq!(open, BTreeSet::from(["room-4".into()]));
    let restarts = leading.metrics().await;
    assert_eq!(restarts.count("tidegate_alert_gaps_total", &[]), 1);
}

/// Writes elsewhere until the server's history begins after now.
async fn forget(mongod: &Mongod, stored: &Stored) {
    let client = mongod.client().await;
    let marks = stored.collection("alert_marks");
    let place = marks.find_one(doc! { "_id": "checkpoint" }).await.unwrap();
    let reached = place.unwrap().get_i64("clusterSeconds").unwrap();
    let filler = client.database("filler").collection::<Document>("filler");
    let history = client.database("local").collection::<Document>("oplog.rs");
    let some: Vec<_> = (0..100)
        .map(|n| doc! { "n": n, "text": "x".repeat(10_000) })
        .collect();
    eventually(60 * SECOND, "the history is cut", async || {
        filler.insert_many(&some).await.unwrap();
        let first = history.find_one(doc! {}).await.unwrap()?;
        let first = i64::from(first.get_timestamp("ts").ok()?.time);
        (first > reached + 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_feed_that_is_dropped_is_made_anew_and_followed_again() {
    let receiver = Receiver::start().await;
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let (plan, stored, port) = plan_on(mongod, broker, &receiver).await;
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    measure(&plan, port, "room-1", &[9.0]).await;
    receiver.wait(60 * SECOND, 1).await;

    stored.collection("feed").drop().await.unwrap();
    measure(&plan, port, "room-1", &[1.0]).await;
    measure(&plan, port, "room-2", &[9.0]).await;
    let told = receiver.wait(60 * SECOND, 4).await;
    assert!(
        told.iter()
            .any(|told| key(told) == "tidegate.alert_gap:gateway"),
        "{:?}",
        kinds(&told)
    );
    assert_sound(&receiver);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("tidegate_alert_gaps_total", &[]), 1);
    measure(&plan, port, "room-2", &[1.0]).await;
    receiver.wait(60 * SECOND, 5).await;
    // With an index that lets it expire, within the minute.
    eventually(90 * SECOND, "its documents expire", async || {
        let mut indexes = stored.collection("feed").list_indexes().await.ok()?;
        while indexes.advance().await.ok()? {
            let index = indexes.deserialize_current().ok()?;
            let expires = index.options.and_then(|options| options.expire_after);
            if expires == Some(Duration::from_secs(86_400)) {
                return Some(());
            }
        }
        None
    })
    .await;
}

// --- many at once, and twice -------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_told_in_few_requests_and_all_of_it_ends() {
    let receiver = Receiver::start().await;
    let (mongod, broker) = (Mongod::shared().await, Mosquitto::shared().await);
    let (plan, stored, port) = plan_on(mongod, broker, &receiver).await;
    let plan = plan.section("[alerts.storm]\ncalm = \"1s\"\n");
    let gateway = plan.start_ready().await;
    leads(&gateway).await;
    let say = async |value: f64| {
        let time = now_ms();
        let messages = (0..2_000).map(|n| {
            let payload = format!("{{\"ts\":{time},\"t\":{value}}}");
            (plan.topic(&format!("room-{n}")), payload)
        });
        publish_all(port, messages.collect::<Vec<_>>()).await;
    };
    say(9.0).await;
    let began = Instant::now();
    eventually(60 * SECOND, "all are known to fire", async || {
        (open_alerts(&stored, "hot").await.len() == 2_000).then_some(())
    })
    .await;
    println!("2,000 alerts in {:?}", began.elapsed());
    receiver.wait(60 * SECOND, 1).await;
    eventually(30 * SECOND, "nothing is owed", async || {
        (owed(&stored).await == 0).then_some(())
    })
    .await;
    // A few seconds more, in which more could come.
    tokio::time::sleep(3 * SECOND).await;
    let requests = receiver.told().len();
    println!("{requests} requests in {:?}", began.elapsed());
    assert!(requests < 60, "{requests} requests");
    say(1.0).await;
    eventually(60 * SECOND, "all have ended", async || {
        open_alerts(&stored, "hot").await.is_empty().then_some(())
    })
    .await;
    let closed = eventually(60 * SECOND, "every end is told", async || {
        let open = assert_sound(&receiver);
        (open.is_empty() && owed(&stored).await == 0).then_some(())
    });
    closed.await;
    let lines = stored.collection("alert_history");
    for what in ["fired", "resolved"] {
        let count = lines.count_documents(doc! { "what": what, "rule": "hot" });
        assert_eq!(count.await.unwrap(), 2_000, "{what}");
    }
    println!("{} requests in all", receiver.told().len());
}

#[tokio::test]
async fn a_message_that_comes_again_counts_once() {
    let receiver = Receiver::start().await;
    let mongod = Mongod::shared().await;
    let gate = Gate::start(mongod.nodes[0].port).await;
    let broker = Mosquitto::shared().await;
    let plan = Plan::new(broker.url(), gate.uri())
        .section(BRISK)
        .section(
            "[[rules]]\nid = \"often\"\nkind = \"count\"\nfield = \"t\"\nop = \">\"\nvalue = 8\n\
             window = \"10m\"\nat_least = 4\nseverity = \"critical\"\n\
             select = { devices = [\"room-*\"] }\n",
        )
        .section(&receiver.section("oncall", ""));
    let stored = plan.stored_in(mongod.client().await);
    let mut gateway = plan.start_ready().await;
    leads(&gateway).await;
    // Fed, but not stored, so not acknowledged either.
    gate.hold("insert\0\u{9}\0\0\0readings\0");
    measure(&plan, broker.port, "room-1", &[9.0, 9.0, 9.0]).await;
    // How many readings of it there are in the feed, and how many different ones.
    let fed = async || {
        let feed = stored.collection("feed");
        let all = feed.aggregate([
            doc! { "$unwind": "$readings" },
            doc! { "$match": { "readings.d": "room-1" } },
            doc! { "$group": { "_id": "$readings.t", "count": { "$sum": 1 } } },
        ]);
        let mut times = all.await.unwrap();
        let (mut readings, mut different) = (0, 0);
        while times.advance().await.unwrap() {
            let time = times.deserialize_current().unwrap();
            readings += time.get_i32("count").unwrap();
            different += 1;
        }
        (readings, different)
    };
    // The first alone, or with those that came soon enough to go along.
    let before = eventually(60 * SECOND, "some are fed", async || {
        let (readings, _) = fed().await;
        (readings > 0).then_some(readings)
    })
    .await;
    assert_eq!(stored.row_count().await, 0);
    gateway.kill();
    gate.open();
    gateway.restart();
    gateway.wait_ready().await;
    leads(&gateway).await;
    eventually(60 * SECOND, "they are fed again", async || {
        let (readings, different) = fed().await;
        (readings >= 3 + before && different == 3).then_some(())
    })
    .await;
    // A fourth makes four, not seven; and only the fourth fires.
    assert_eq!(open_alerts(&stored, "often").await.len(), 0);
    measure(&plan, broker.port, "room-2", &[9.0, 9.0, 9.0, 9.0]).await;
    receiver.wait(60 * SECOND, 1).await;
    measure(&plan, broker.port, "room-1", &[9.0]).await;
    let told = receiver.wait(60 * SECOND, 2).await;
    let keys: Vec<_> = told.iter().map(key).collect();
    assert_eq!(keys, ["often:room-2", "often:room-1"]);
    assert_eq!(told[1].json()["data"]["value"], 4, "{}", told[1].json());
    // What the gate let through late is stored once as well.
    let rows = stored.wait_rows(8).await;
    let times: BTreeSet<_> = rows
        .iter()
        .map(|row| {
            let device = support::plan::device(row).to_owned();
            (
                device,
                row.get_datetime("timestamp").unwrap().timestamp_millis(),
            )
        })
        .collect();
    assert_eq!((rows.len(), times.len()), (8, 8));
}
