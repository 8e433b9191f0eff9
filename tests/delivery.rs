//! From the outbox to receivers and back, with a real database and a receiver that misbehaves as told.

mod support;

use std::collections::BTreeMap;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use support::gateway::tidegate;
use support::mongod::Mongod;
use support::scripted_receiver::{Receiver, Reply};
use support::{eventually, unique};
use tidegate::alert::notify::{
    Deliverer, DeliveryHandle, DeliveryMetrics, Row, Watchdog, render, row, sign,
};
use tidegate::alert::{Delivery, Episode, Notice, NoticeKind, Settled};
use tidegate::config::{Config, ReceiverConfig, ReceiverKind, Secret, WatchdogConfig};
use tidegate::model::{Severity, Timestamp};
use tidegate::store::{Outbox, OutboxFilter, RowState, Store, outbox_indexes};
use tidegate::telemetry::Registry;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A database of the test's own.
struct World {
    store: Store,
    outbox: Outbox,
    rows: Collection<Document>,
    uri: String,
    registry: Registry,
}

impl World {
    async fn new() -> World {
        let mongod = Mongod::shared().await;
        let mut config = Config::default();
        config.mongodb.uri = Secret::new(mongod.uri());
        config.mongodb.database = unique("delivery");
        let store = Store::connect(&config).await.unwrap();
        let client = mongod.client().await;
        let rows = client
            .database(&config.mongodb.database)
            .collection(&store.names().outbox);
        let uri = mongod.uri();
        let mut made = Vec::new();
        outbox_indexes(
            &store,
            &store.names().outbox,
            Duration::from_secs(60),
            &mut made,
        )
        .await
        .unwrap();
        assert_eq!(made.len(), 2);
        World {
            outbox: Outbox::new(&store, &store.names().outbox),
            store,
            rows,
            uri,
            registry: Registry::default(),
        }
    }

    fn start(&self, receivers: Vec<ReceiverConfig>) -> Running {
        self.start_counted(receivers, &Registry::default())
    }

    fn start_counted(&self, receivers: Vec<ReceiverConfig>, registry: &Registry) -> Running {
        let metrics = DeliveryMetrics::register(registry, &["r"]);
        let (deliverer, handle, settled) = Deliverer::new(self.outbox.clone(), receivers, metrics);
        let stop = CancellationToken::new();
        let task = tokio::spawn(deliverer.run(stop.clone()));
        Running {
            handle,
            settled,
            stop,
            task,
        }
    }

    /// Inserts rows in one transaction, as the watcher does.
    async fn commit(&self, rows: &[Row]) {
        let mut session = self.store.session().await.unwrap();
        session.start_transaction().await.unwrap();
        let documents: Vec<Document> = rows.iter().map(Row::encode).collect();
        self.outbox.insert(&documents, &mut session).await.unwrap();
        session.commit_transaction().await.unwrap();
    }

    async fn stored(&self, id: &str) -> Row {
        self.outbox
            .show(id)
            .await
            .unwrap()
            .expect("the row is there")
    }

    async fn wait_state(&self, id: &str, state: RowState) -> Row {
        eventually(Duration::from_secs(20), "the row ends", async || {
            Some(self.stored(id).await).filter(|row| row.state == state)
        })
        .await
    }
}

/// A deliverer at work.
struct Running {
    handle: DeliveryHandle,
    settled: mpsc::UnboundedReceiver<Settled>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), std::convert::Infallible>>,
}

impl Running {
    async fn settled(&mut self) -> Settled {
        tokio::time::timeout(Duration::from_secs(20), self.settled.recv())
            .await
            .expect("a row ends in time")
            .expect("the deliverer runs")
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn config(receiver: &Receiver) -> ReceiverConfig {
    ReceiverConfig {
        name: "r".into(),
        url: Some(Secret::new(receiver.url())),
        secret: Some(Secret::new(SECRET)),
        allow_http: true,
        allow_cidrs: vec!["127.0.0.0/8".into(), "::1/128".into()],
        rate: Some(1_000.0),
        ..ReceiverConfig::default()
    }
}

fn now() -> Timestamp {
    tidegate::runtime::now()
}

fn notice(key: &str, sequence: u64, kind: NoticeKind) -> Notice {
    let at = now();
    let episode = Episode {
        key: key.into(),
        id: "e".into(),
        sequence,
        rule: "rule".into(),
        name: "Rule".into(),
        kind: "threshold".into(),
        device: "d1".into(),
        device_type: None,
        tags: BTreeMap::from([("with\0nul".into(), "x".into())]),
        field: Some("t".into()),
        unit: None,
        op: Some(">".into()),
        severity: Severity::Critical,
        value: Some(json!(11.5)),
        peak: Some(12.0),
        threshold: Some(10.0),
        clear: None,
        started_at: at,
        fired_at: at,
        ended: None,
        labels: BTreeMap::from([("team".into(), "x".repeat(200))]),
        annotations: BTreeMap::new(),
        receivers: Vec::new(),
        wishes: tidegate::alert::Wishes::default(),
        flags: Vec::new(),
    };
    Notice {
        id: unique("row").replace('_', "-"),
        receiver: "r".into(),
        key: key.into(),
        sequence,
        kind,
        severity: Severity::Critical,
        at,
        episodes: vec![episode],
        truncated: 0,
        group: BTreeMap::new(),
        storm: None,
    }
}

fn made(config: &ReceiverConfig, notice: &Notice, owner: Option<&str>) -> Row {
    row(notice, render(config, notice, "test"), owner, now())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_out_signed_in_order_and_their_end_is_written_and_told() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    let config = config(&receiver);
    let mut running = world.start_counted(vec![config.clone()], &world.registry);
    let firing = notice("k", 1, NoticeKind::Firing);
    let end = notice("k", 2, NoticeKind::Resolved);
    let owner = running.handle.owner().to_owned();
    let rows = [&end, &firing].map(|notice| made(&config, notice, Some(&owner)));
    world.commit(&rows).await;
    let began = Instant::now();
    running.handle.deliver(rows.to_vec());
    let seen = receiver.expect(2).await;
    assert!(began.elapsed() < Duration::from_secs(2));
    for (received, notice) in seen.iter().zip([&firing, &end]) {
        assert_eq!(received.id(), format!("msg_{}", notice.id));
        assert_eq!(received.header("content-type"), "application/json");
        let key = [sign::Key::parse(SECRET).unwrap()];
        let (time, signature) = (
            received.header("webhook-timestamp"),
            received.header("webhook-signature"),
        );
        let body = received.body.as_bytes();
        sign::verify(&key, received.id(), time, signature, body, now()).unwrap();
    }
    assert_eq!(seen[0].json()["type"], "alert.firing");
    assert_eq!(seen[1].json()["type"], "alert.resolved");
    for expected in [&firing, &end] {
        let settled = running.settled().await;
        assert_eq!(
            (&settled.notice, settled.outcome),
            (expected, Delivery::Accepted)
        );
        let row = world.stored(&expected.id).await;
        assert_eq!(row.state, RowState::Delivered);
        assert_eq!((row.attempts, row.ambiguous, row.lease), (1, false, None));
        assert!(row.ended_at.is_some());
        assert_eq!(row.last.unwrap().status, Some(200));
    }
    let text = world.registry.text();
    for line in [
        "tidegate_alert_delivery_attempts_total{class=\"ok\",receiver=\"r\"} 2",
        "tidegate_alert_fire_to_accept_seconds_count 1",
        "tidegate_alert_dead_total{receiver=\"r\"} 0",
        "tidegate_alert_breaker_state{receiver=\"r\"} 0",
    ] {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_pauses_the_receiver_and_the_same_bytes_come_again() {
    let world = World::new().await;
    let receiver = Receiver::scripted(|number, _| match number {
        0 => Reply::Status(429, "retry-after: 2\r\n", String::new()),
        _ => Reply::status(204),
    })
    .await;
    let config = config(&receiver);
    let mut running = world.start(vec![config.clone()]);
    let first = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&first)).await;
    running.handle.deliver(vec![first.clone()]);
    receiver.expect(1).await;
    world.wait_attempts(&first.id, 1).await;
    let second = made(&config, &notice("b", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&second)).await;
    running.handle.deliver(vec![second.clone()]);
    let seen = receiver.expect(3).await;
    assert!(
        seen[1].at - seen[0].at >= Duration::from_secs(2),
        "{seen:#?}"
    );
    let again = seen[1..].iter().find(|r| r.id() == seen[0].id()).unwrap();
    assert_eq!(again.body, seen[0].body);
    assert_ne!(
        again.header("webhook-timestamp"),
        seen[0].header("webhook-timestamp")
    );
    for _ in 0..2 {
        assert_eq!(running.settled().await.outcome, Delivery::Accepted);
    }
    running.stop().await;
}

impl World {
    async fn wait_attempts(&self, id: &str, attempts: u32) -> Row {
        let mut row = self.stored(id).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        while row.attempts != attempts {
            assert!(
                Instant::now() < deadline,
                "attempt {attempts} is not written down: {row:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
            row = self.stored(id).await;
        }
        row
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_is_sent_cut_under_another_id_then_dead_and_can_be_repeated() {
    let world = World::new().await;
    let receiver =
        Receiver::scripted(|_, _| Reply::Status(400, "", "no such field".to_owned())).await;
    let config = config(&receiver);
    let mut running = world.start(vec![config.clone()]);
    let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&row)).await;
    running.handle.deliver(vec![row.clone()]);
    let settled = running.settled().await;
    let reason = "HTTP 400: no such field".to_owned();
    assert_eq!(
        settled.outcome,
        Delivery::Dead {
            reason,
            ambiguous: false
        }
    );
    let seen = receiver.expect(2).await;
    assert_eq!(seen[1].id(), format!("{}m", seen[0].id()));
    assert_eq!(seen[1].body, row.minimal.clone().unwrap());
    assert!(seen[1].body.len() < seen[0].body.len());
    let dead = world.stored(&row.id).await;
    assert_eq!((dead.state, dead.attempts), (RowState::Dead, 2));
    running.stop().await;

    // Put in the queue again by an operator, found by whoever runs then.
    assert!(world.outbox.requeue(&row.id).await.unwrap());
    assert!(!world.outbox.requeue(&row.id).await.unwrap());
    receiver.answer(|_, _| Reply::status(200));
    let mut running = world.start(vec![config]);
    assert_eq!(running.settled().await.outcome, Delivery::Accepted);
    let seen = receiver.expect(3).await;
    assert_eq!((seen[2].id(), &seen[2].body), (seen[0].id(), &seen[0].body));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_ambiguous_and_the_same_message_comes_again() {
    let world = World::new().await;
    let receiver = Receiver::scripted(|number, _| match number {
        0 => Reply::HangUp,
        _ => Reply::status(200),
    })
    .await;
    let config = config(&receiver);
    let mut running = world.start(vec![config.clone()]);
    let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&row)).await;
    running.handle.deliver(vec![row.clone()]);
    let settled = running.settled().await;
    assert_eq!(settled.outcome, Delivery::Accepted);
    let seen = receiver.expect(2).await;
    assert_eq!((seen[0].id(), &seen[0].body), (seen[1].id(), &seen[1].body));
    assert!(world.stored(&row.id).await.ambiguous);

    // A receiver that takes too long.
    receiver.answer(|_, _| Reply::Late(Duration::from_secs(30)));
    let mut slow = config.clone();
    slow.timeout = tidegate::config::Span::secs(1);
    running.handle.configure(vec![slow]);
    let row = made(&config, &notice("b", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&row)).await;
    running.handle.deliver(vec![row.clone()]);
    let tried = world.wait_attempts(&row.id, 1).await;
    assert!(tried.ambiguous, "{tried:?}");
    assert_eq!(tried.last.unwrap().why, "no answer: time ran out");
    // Taken back between two attempts: it may have arrived.
    running.handle.recall(&row.id);
    let settled = running.settled().await;
    assert_eq!(settled.outcome, Delivery::Recalled { ambiguous: true });
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recalled_before_any_attempt_nothing_is_sent() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    let config = config(&receiver);
    let mut other = notice("a", 1, NoticeKind::Firing);
    other.receiver = "not-configured".into();
    let row = made(&config, &other, None);
    world.commit(std::slice::from_ref(&row)).await;
    let mut running = world.start(vec![config]);
    running.handle.deliver(vec![row.clone()]);
    running.handle.recall(&row.id);
    let settled = running.settled().await;
    assert_eq!(settled.outcome, Delivery::Recalled { ambiguous: false });
    assert_eq!(world.stored(&row.id).await.state, RowState::Recalled);
    assert!(receiver.seen().is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_deliverers_never_send_the_same_row() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    receiver.answer(|_, _| Reply::Late(Duration::from_millis(20)));
    let config = config(&receiver);
    let rows: Vec<Row> = (0..60)
        .map(|number| {
            made(
                &config,
                &notice(&format!("k{number}"), 1, NoticeKind::Firing),
                None,
            )
        })
        .collect();
    world.commit(&rows).await;
    let both = [world.start(vec![config.clone()]), world.start(vec![config])];
    for row in &rows {
        world.wait_state(&row.id, RowState::Delivered).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut ids: Vec<String> = receiver.seen().iter().map(|r| r.id().to_owned()).collect();
    assert_eq!(ids.len(), 60);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 60);
    for running in both {
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_what_is_owed_and_a_lease_left_behind_is_ambiguous() {
    let world = World::new().await;
    let receiver = Receiver::scripted(|_, _| Reply::status(503)).await;
    let config = config(&receiver);
    let running = world.start(vec![config.clone()]);
    let tried = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&tried)).await;
    running.handle.deliver(vec![tried.clone()]);
    world.wait_attempts(&tried.id, 1).await;
    running.stop().await;

    // Two rows of a process that was killed: one whose lease has run out, one whose has not.
    let mut old = made(&config, &notice("b", 1, NoticeKind::Firing), Some("killed"));
    old.lease.as_mut().unwrap().until = now().minus(Duration::from_secs(1));
    let mut fresh = made(&config, &notice("c", 1, NoticeKind::Firing), Some("killed"));
    fresh.lease.as_mut().unwrap().until = now().plus(Duration::from_secs(3));
    world.commit(&[old.clone(), fresh.clone()]).await;
    let held_until = Instant::now() + Duration::from_millis(2_800);
    receiver.answer(|_, _| Reply::status(200));
    let mut running = world.start(vec![config]);
    for _ in 0..3 {
        assert_eq!(running.settled().await.outcome, Delivery::Accepted);
    }
    let seen = receiver.seen();
    let late = seen.iter().find(|r| r.id().contains(&fresh.id)).unwrap();
    assert!(late.at >= held_until, "its lease had not run out");
    for (row, ambiguous) in [(&tried, false), (&old, true), (&fresh, true)] {
        assert_eq!(
            world.stored(&row.id).await.ambiguous,
            ambiguous,
            "{}",
            row.id
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_gives_leases_back() {
    let world = World::new().await;
    let receiver = Receiver::start().await;
    receiver.answer(|_, _| Reply::Late(Duration::from_millis(300)));
    let mut config = config(&receiver);
    config.rate = Some(1.0);
    let running = world.start(vec![config.clone()]);
    let owner = running.handle.owner().to_owned();
    let rows: Vec<Row> = (0..5)
        .map(|number| notice(&format!("k{number}"), 1, NoticeKind::Firing))
        .map(|notice| made(&config, &notice, Some(&owner)))
        .collect();
    world.commit(&rows).await;
    running.handle.deliver(rows.clone());
    receiver.expect(1).await;
    running.stop().await;
    let (mut delivered, mut free) = (0, 0);
    for row in &rows {
        let row = world.stored(&row.id).await;
        delivered += i32::from(row.state == RowState::Delivered);
        free += i32::from(row.state == RowState::Queued && row.lease.is_none());
    }
    assert_eq!(
        (delivered, free),
        (1, 4),
        "what was under way is ended, the rest is free"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_told_again_until_somebody_has_noted_them() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    let config = config(&receiver);
    let mut running = world.start(vec![config.clone()]);
    let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&row)).await;
    running.handle.deliver(vec![row.clone()]);
    let first = running.settled().await;
    running.stop().await;
    let mut running = world.start(vec![config.clone()]);
    let again = running.settled().await;
    assert_eq!(
        (again.notice.id, again.outcome),
        (first.notice.id, first.outcome)
    );
    running.stop().await;
    let mut session = world.store.session().await.unwrap();
    session.start_transaction().await.unwrap();
    world.outbox.reported(&row.id, &mut session).await.unwrap();
    session.commit_transaction().await.unwrap();
    assert!(
        world
            .outbox
            .unreported::<Notice>()
            .await
            .unwrap()
            .is_empty()
    );
    receiver.expect(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_receiver_is_left_alone() {
    let world = World::new().await;
    let receiver = Receiver::scripted(|_, _| Reply::status(500)).await;
    let config = config(&receiver);
    let running = world.start(vec![config.clone()]);
    let rows: Vec<Row> = (0..50)
        .map(|number| {
            made(
                &config,
                &notice(&format!("k{number}"), 1, NoticeKind::Firing),
                None,
            )
        })
        .collect();
    world.commit(&rows).await;
    running.handle.deliver(rows);
    eventually(Duration::from_secs(10), "the breaker opens", async || {
        running.handle.health()[0].trouble.clone()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let count = receiver.seen().len();
    assert!((5..=8).contains(&count), "{count} requests");
    let health = running.handle.health().remove(0);
    assert_eq!((health.receiver.as_str(), health.waiting), ("r", 50));
    assert!(running.handle.oldest().unwrap() >= Duration::from_secs(1));
    // A new configuration is tried at once.
    receiver.answer(|_, _| Reply::status(200));
    running.handle.configure(vec![config]);
    let filter = OutboxFilter {
        state: Some(RowState::Delivered),
        ..OutboxFilter::default()
    };
    eventually(Duration::from_secs(20), "all arrive", async || {
        (world.outbox.count(&filter).await.unwrap() == 50).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_and_redirects_are_refused() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    for (host, text) in [
        ("localhost", "is not a public address"),
        ("127.0.0.1", "is not a public address"),
    ] {
        let mut config = config(&receiver);
        config.allow_cidrs.clear();
        config.url = Some(Secret::new(format!(
            "http://{host}:{}/s3cr3t-path",
            receiver.port
        )));
        let running = world.start(vec![config.clone()]);
        let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
        world.commit(std::slice::from_ref(&row)).await;
        running.handle.deliver(vec![row.clone()]);
        let tried = world.wait_attempts(&row.id, 1).await;
        assert!(!tried.ambiguous);
        let why = tried.last.unwrap().why;
        assert!(why.contains(text) && !why.contains("s3cr3t"), "{why}");
        assert!(receiver.seen().is_empty());
        running.handle.recall(&row.id);
        world.wait_state(&row.id, RowState::Recalled).await;
        running.stop().await;
    }
    let target = Receiver::start().await;
    let location: &'static str =
        Box::leak(format!("location: {}\r\n", target.url()).into_boxed_str());
    receiver.answer(move |_, _| Reply::Status(302, location, String::new()));
    let config = config(&receiver);
    let running = world.start(vec![config.clone()]);
    let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&row)).await;
    running.handle.deliver(vec![row.clone()]);
    let tried = world.wait_attempts(&row.id, 1).await;
    assert_eq!(tried.last.unwrap().status, Some(302));
    assert!(target.seen().is_empty());
    running.stop().await;
}

/// A server certificate for `localhost`, signed by an authority of the test's own.
fn certificate(expired: bool) -> (rustls::ServerConfig, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    if expired {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private.into())
        .unwrap();
    (config, authority_certificate.pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_an_authority_of_ones_own_and_certificates_that_are_not_good() {
    let world = World::new().await;
    let folder = support::process::temp_dir("delivery-tls");
    let ca_file = folder.path().join("ca.pem");
    for (expired, known, why) in [
        (false, true, None),
        (true, true, Some("certificate: expired")),
        (
            false,
            false,
            Some("certificate: from an unknown authority: name it in ca_file"),
        ),
    ] {
        let (server, authority) = certificate(expired);
        std::fs::write(&ca_file, authority).unwrap();
        let receiver = Receiver::tls(server).await;
        let mut config = config(&receiver);
        config.allow_http = false;
        config.ca_file = known.then(|| ca_file.clone());
        let mut running = world.start(vec![config.clone()]);
        let key = format!("{expired}-{known}");
        let row = made(&config, &notice(&key, 1, NoticeKind::Firing), None);
        world.commit(std::slice::from_ref(&row)).await;
        running.handle.deliver(vec![row.clone()]);
        match why {
            None => assert_eq!(running.settled().await.outcome, Delivery::Accepted),
            Some(why) => {
                let tried = world.wait_attempts(&row.id, 1).await;
                assert_eq!(tried.last.unwrap().why, why);
                assert!(!tried.ambiguous);
                let slow = tried.next_at.unwrap().since(now());
                assert!(
                    slow > Duration::from_secs(250),
                    "configuration is tried slowly: {slow:?}"
                );
                eventually(
                    Duration::from_secs(5),
                    "it is known to be in trouble",
                    async || running.handle.health()[0].trouble.clone(),
                )
                .await;
                running.handle.recall(&row.id);
                world.wait_state(&row.id, RowState::Recalled).await;
            }
        }
        running.stop().await;
    }
}

/// Everything that is logged at any level while this test process runs, but for the database's driver.
fn log() -> String {
    static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static STARTED: Once = Once::new();
    struct Writer;
    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            LOG.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    STARTED.call_once(|| {
        tracing_subscriber::fmt()
            .with_env_filter("trace,mongodb=off")
            .with_writer(|| Writer)
            .init();
    });
    String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_ever_in_a_row_or_a_log() {
    const MARKER: &str = "h1dden-w0rd";
    log();
    let world = World::new().await;
    let receiver = Receiver::scripted(|_, received| {
        // A receiver that repeats everything it was sent.
        Reply::Status(500, "", format!("{received:?}"))
    })
    .await;
    for kind in ReceiverKind::ALL {
        let mut config = config(&receiver);
        config.kind = kind;
        config.url = Some(Secret::new(format!(
            "{}/{MARKER}?key={MARKER}",
            receiver.url()
        )));
        config.token = Some(Secret::new(format!("token-{MARKER}")));
        config.routing_key = Some(Secret::new(format!("routing-{MARKER}")));
        config.topic = Some("t".into());
        config.body = Some(json!({ "a": "{{ summary }}" }));
        config.headers =
            BTreeMap::from([("x-key".into(), Secret::new(format!("header-{MARKER}")))]);
        let running = world.start(vec![config.clone()]);
        let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
        world.commit(std::slice::from_ref(&row)).await;
        running.handle.deliver(vec![row.clone()]);
        let tried = world.wait_attempts(&row.id, 1).await;
        assert!(tried.last.unwrap().why.contains("***"), "{kind:?}");
        let stored = world.rows.find_one(doc! { "_id": &row.id }).await.unwrap();
        let said = format!("{stored:?} {:?}", running.handle.health());
        assert!(
            !said.contains(MARKER) && !said.contains("MfKQ9r8G"),
            "{said}"
        );
        running.handle.recall(&row.id);
        world.wait_state(&row.id, RowState::Recalled).await;
        running.stop().await;
    }
    let sent = format!("{:?}", receiver.seen());
    for secret in ["token-", "routing-", "header-"] {
        assert!(
            sent.contains(&format!("{secret}{MARKER}")),
            "it was sent all the same"
        );
    }
    let log = log();
    assert!(log.contains("TRACE"), "{log}");
    let line = log
        .lines()
        .find(|line| line.contains(MARKER) || line.contains("MfKQ9r8G"));
    assert_eq!(line, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_survive_the_way_through_the_database() {
    let world = World::new().await;
    let receiver = Receiver::start().await;
    let config = config(&receiver);
    let mut original = made(&config, &notice("a", 7, NoticeKind::Repeat), Some("me"));
    original.next_at = Some(now());
    world.commit(std::slice::from_ref(&original)).await;
    let mut stored = world.stored(&original.id).await;
    // No document can hold a NUL in a key.
    for one in [&mut stored, &mut original] {
        one.notice.episodes[0].tags.clear();
    }
    assert_eq!(stored, original);
    let document = world
        .rows
        .find_one(doc! { "_id": &original.id })
        .await
        .unwrap()
        .unwrap();
    for key in ["created", "queuedAt", "nextAt"] {
        assert!(document.get_datetime(key).is_ok(), "{key} is a date");
    }
    assert!(document.get_document("notice").is_ok());
    // Only what has ended is taken by the index that lets rows expire.
    world
        .rows
        .update_one(
            doc! { "_id": &original.id },
            doc! { "$set": { "state": "delivered", "endedAt": DateTime::from_millis(0) } },
        )
        .await
        .unwrap();
}

/// A configuration with one receiver, for commands.
fn config_file(folder: &std::path::Path, world: &World, receiver: &Receiver) -> std::path::PathBuf {
    let path = folder.join("tidegate.toml");
    std::fs::write(folder.join("secret"), SECRET).unwrap();
    let (uri, database) = (&world.uri, world.store.database().name());
    let (url, secret) = (receiver.url(), folder.join("secret").display().to_string());
    let text = format!(
        "[mongodb]\nuri = {uri:?}\ndatabase = {database:?}\n[[receivers]]\nname = \"r\"\nurl = {url:?}\n\
        secret_file = {secret:?}\nallow_http = true\nallow_cidrs = [\"127.0.0.0/8\", \"::1/128\"]\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

async fn run(arguments: &[&str], config: Option<&std::path::Path>) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::from(tidegate());
    command.args(arguments);
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_is_tried_out_from_the_command_line() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    let folder = support::process::temp_dir("delivery-cli");
    let config = config_file(folder.path(), &world, &receiver);
    let (code, text) = run(&["receivers", "test", "r"], Some(&config)).await;
    assert_eq!(code, Some(0), "{text}");
    let seen = receiver.expect(2).await;
    assert_eq!(seen[0].json()["type"], "alert.test");
    assert_eq!(seen[1].json()["type"], "alert.resolved");
    assert_eq!(seen[0].json()["data"]["key"], seen[1].json()["data"]["key"]);
    assert!(text.contains("HTTP 200") && text.contains(" ms"), "{text}");

    // What the receiver says is nobody's business.
    receiver.answer(|_, _| Reply::Status(403, "", "internal page".into()));
    let (code, text) = run(&["receivers", "test", "r"], Some(&config)).await;
    assert_eq!(code, Some(1));
    assert!(
        text.contains("configuration") && text.contains("HTTP 403"),
        "{text}"
    );
    assert!(!text.contains("internal page"), "{text}");
    let (code, text) = run(&["receivers", "test", "nobody"], Some(&config)).await;
    assert_eq!(code, Some(1), "{text}");
    let (_, text) = run(&["receivers", "list"], Some(&config)).await;
    assert!(
        text.contains("localhost") && text.contains("signed"),
        "{text}"
    );
    assert!(!text.contains("/hook"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outbox_is_listed_shown_and_repeated_from_the_command_line() {
    let (world, receiver) = (World::new().await, Receiver::start().await);
    receiver.answer(|_, _| Reply::Status(422, "", "never".into()));
    let folder = support::process::temp_dir("delivery-cli");
    let file = config_file(folder.path(), &world, &receiver);
    let config = config(&receiver);
    let mut running = world.start(vec![config.clone()]);
    let row = made(&config, &notice("a", 1, NoticeKind::Firing), None);
    world.commit(std::slice::from_ref(&row)).await;
    running.handle.deliver(vec![row.clone()]);
    running.settled().await;
    running.stop().await;

    let (code, text) = run(&["outbox", "list", "--state", "dead"], Some(&file)).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(&row.id) && text.contains("HTTP 422: never"),
        "{text}"
    );
    assert!(text.contains("1 of 1"), "{text}");
    let (_, text) = run(&["outbox", "list", "--state", "queued"], Some(&file)).await;
    assert!(text.contains("0 of 0"), "{text}");
    let (_, text) = run(&["outbox", "show", &row.id], Some(&file)).await;
    for part in ["alert.firing", "attempts    2", "state       dead"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let (code, _) = run(&["outbox", "replay"], Some(&file)).await;
    assert_eq!(code, Some(2), "naming nothing must be said aloud");
    let (code, text) = run(&["outbox", "replay", "--all"], Some(&file)).await;
    assert_eq!((code, text.as_str()), (Some(0), "1 in the queue again\n"));
    let (code, _) = run(&["outbox", "replay", "--id", &row.id], Some(&file)).await;
    assert_eq!(code, Some(1), "it is not dead any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_little_receiver_checks_signatures_and_prints_alerts() {
    let world = World::new().await;
    let folder = support::process::temp_dir("delivery-receive");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let port = support::free_port();
    let mut command = tokio::process::Command::from(tidegate());
    command
        .args(["receive", "--count", "2", "--for", "60s", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .arg("--secret-file")
        .arg(&secret)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().unwrap();
    eventually(Duration::from_secs(20), "it listens", async || {
        let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        connected.ok().map(drop)
    })
    .await;
    let config = ReceiverConfig {
        name: "r".into(),
        url: Some(Secret::new(format!("http://127.0.0.1:{port}/"))),
        secret: Some(Secret::new(SECRET)),
        allow_http: true,
        allow_cidrs: vec!["127.0.0.0/8".into()],
        ..ReceiverConfig::default()
    };
    let wrong = support::http().post(format!("http://127.0.0.1:{port}/"));
    let wrong = wrong
        .header("webhook-id", "msg_x")
        .header("webhook-timestamp", (now().millis() / 1_000).to_string())
        .header("webhook-signature", "v1,AAAA")
        .body("{}");
    assert_eq!(wrong.send().await.unwrap().status().as_u16(), 401);
    let running = world.start(vec![config.clone()]);
    let rows = [(1, NoticeKind::Firing), (2, NoticeKind::Resolved)]
        .map(|(sequence, kind)| made(&config, &notice("k", sequence, kind), None));
    world.commit(&rows).await;
    running.handle.deliver(rows.to_vec());
    let output = tokio::time::timeout(Duration::from_secs(20), child.wait_with_output())
        .await
        .expect("it ends after two")
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("listening on"), "{text}");
    assert!(lines[1].starts_with("REFUSED"), "{text}");
    assert!(
        lines[2].contains("alert.firing") && lines[2].contains("[signature good]"),
        "{text}"
    );
    assert!(lines[3].contains("alert.resolved"), "{text}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_checked_from_the_command_line() {
    let folder = support::process::temp_dir("delivery-verify");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("secret"), SECRET).unwrap();
    std::fs::write(path("body"), r#"{"test": 2432232314}"#).unwrap();
    let (secret, body) = (path("secret"), path("body"));
    let with = |signature: &'static str, at: &'static str| {
        vec![
            "webhook",
            "verify",
            "--id",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "--timestamp",
            "1614265330",
            "--signature",
            signature,
            "--at",
            at,
        ]
    };
    let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    for (signature, at, code, said) in [
        (good, "2021-02-25T15:02:10Z", 0, "good"),
        ("v1,AAAA", "2021-02-25T15:02:10Z", 1, "no signature fits"),
        (good, "2021-02-25T16:02:10Z", 1, "more than 5 minutes ago"),
    ] {
        let mut arguments = with(signature, at);
        arguments.extend(["--secret-file", &secret, "--body-file", &body]);
        let (found, text) = run(&arguments, None).await;
        assert_eq!(found, Some(code), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signs_of_life_are_sent_only_while_things_are_well() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let receiver = Receiver::start().await;
    let config = WatchdogConfig {
        url: Some(Secret::new(receiver.url())),
        interval: tidegate::config::Span::millis(100),
        allow_http: true,
        allow_cidrs: vec!["127.0.0.0/8".into(), "::1/128".into()],
        ..WatchdogConfig::default()
    };
    let well = Arc::new(AtomicBool::new(true));
    let (stop, asked) = (CancellationToken::new(), Arc::clone(&well));
    let watchdog = Watchdog::build(&config, "plant").unwrap().unwrap();
    let healthy = move || asked.load(Ordering::Relaxed);
    let task = tokio::spawn(watchdog.run(healthy, stop.clone()));
    eventually(Duration::from_secs(10), "some arrive", async || {
        (receiver.seen().len() >= 3).then_some(())
    })
    .await;
    let first = receiver.seen().remove(0);
    assert_eq!(
        (first.method.as_str(), first.path.as_str()),
        ("POST", "/hook")
    );
    assert_eq!(first.json()["environment"], "plant");
    well.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let count = receiver.seen().len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(receiver.seen().len(), count);
    stop.cancel();
    task.await.unwrap().unwrap();
    let none = Watchdog::build(&WatchdogConfig::default(), "plant").unwrap();
    assert!(none.is_none());
}
