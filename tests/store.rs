//! What the alerts rely on in MongoDB, against a real server: leases, fenced transactions, the feed's stream.

mod support;

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use serde_json::json;

use support::eventually;
use support::mongod::Mongod;
use support::unique;
use tidegate::config::{Config, Secret};
use tidegate::model::Timestamp;
use tidegate::runtime::now;
use tidegate::store::{
    Beat, Checkpoint, Commit, CommitError, Control, FeedStreamError, From, Kept, Line, Store,
    encode_beat, provision,
};

const SECOND: Duration = Duration::from_secs(1);

async fn store() -> Store {
    let mut config = Config::default();
    config.mongodb.uri = Secret::new(Mongod::shared().await.uri());
    config.mongodb.database = unique("store");
    let store = Store::connect(&config).await.expect("the uri is sound");
    provision(&store, &config)
        .await
        .expect("the database is ours");
    store
}

#[tokio::test]
async fn a_lease_has_one_holder_and_a_term_that_grows() {
    let store = store().await;
    let first = store
        .take_lease("alert", "a", SECOND)
        .await
        .unwrap()
        .expect("it is free");
    assert_eq!(first.term, 1);
    assert_eq!(store.take_lease("alert", "b", SECOND).await.unwrap(), None);
    assert!(store.renew_lease(&first, SECOND).await.unwrap());
    // It runs out by the server's clock.
    let second = eventually(10 * SECOND, "the lease expires", async || {
        store.take_lease("alert", "b", 60 * SECOND).await.unwrap()
    })
    .await;
    assert_eq!(second.term, 2);
    assert!(!store.renew_lease(&first, SECOND).await.unwrap());
    // The same gateway after a restart need not wait.
    let third = store
        .take_lease("alert", "b", SECOND)
        .await
        .unwrap()
        .expect("its own");
    assert_eq!(third.term, 3);
    store.give_up_lease(&third).await.unwrap();
    assert!(
        store
            .take_lease("alert", "a", SECOND)
            .await
            .unwrap()
            .is_some()
    );
    // Roles do not meet.
    assert!(
        store
            .take_lease("rollup", "c", SECOND)
            .await
            .unwrap()
            .is_some()
    );
}

fn commit(n: i64) -> Commit {
    Commit {
        checkpoint: Some(Checkpoint {
            place: None,
            cluster_seconds: 7,
            at: Timestamp::from_millis(n),
        }),
        state: vec![Kept::put("k1", &json!({ "n": n })).unwrap()],
        marks: vec![Kept::put("17", &json!({ "n": n })).unwrap()],
        notices: vec![
            Kept::put("k1", &json!({ "n": n })).unwrap(),
            Kept::gone("k0"),
        ],
        outbox: vec![doc! { "_id": format!("row{n}"), "state": "queued" }],
        history: vec![Line::new(Timestamp::from_millis(n), "k1", &json!({ "n": n })).unwrap()],
        reported: Vec::new(),
        requests: Vec::new(),
    }
}

#[tokio::test]
async fn a_commit_is_all_or_nothing_and_a_stale_leader_writes_nothing() {
    let store = store().await;
    let first = store.stamp_fence(1).await.unwrap().unwrap();
    store.commit(&first, &commit(1)).await.unwrap();
    // The same again, as after an answer that was lost.
    let again = commit(2);
    store.commit(&first, &again).await.unwrap();
    store.commit(&first, &again).await.unwrap();
    let names = store.names();
    let count = async |collection: &str| store.kept_documents(collection).await.unwrap();
    assert_eq!(count(&names.outbox).await.len(), 2);
    assert_eq!(count(&names.history).await.len(), 2);
    assert_eq!(count(&names.marks).await.len(), 1);
    assert_eq!(
        store.checkpoint().await.unwrap().unwrap().at,
        Timestamp::from_millis(2)
    );

    let second = store.stamp_fence(2).await.unwrap().unwrap();
    assert!(store.stamp_fence(2).await.unwrap().is_none());
    assert!(store.stamp_fence(1).await.unwrap().is_none());
    assert!(matches!(
        store.commit(&first, &commit(3)).await,
        Err(CommitError::Fenced)
    ));
    let state = count(&names.state).await;
    assert_eq!(state.len(), 1);
    assert_eq!(state[0].1.get("n"), Some(&Bson::Int64(2)));
    assert_eq!(count(&names.outbox).await.len(), 2);

    let mut gone = commit(4);
    gone.state = vec![Kept::gone("k1")];
    store.commit(&second, &gone).await.unwrap();
    assert_eq!(count(&names.state).await.len(), 0);
}

#[tokio::test]
async fn a_transaction_that_its_leader_left_open_does_not_hold_up_the_next() {
    let store = store().await;
    store.stamp_fence(1).await.unwrap().unwrap();
    let marks = store
        .database()
        .collection::<Document>(&store.names().marks);
    let mut left = store.session().await.unwrap();
    let theirs = doc! { "$set": { "session": left.id() } };
    marks.update_one(doc! {}, theirs).await.unwrap();
    left.start_transaction().await.unwrap();
    marks
        .update_one(doc! {}, doc! { "$inc": { "commits": 1 } })
        .session(&mut left)
        .await
        .unwrap();

    let began = std::time::Instant::now();
    let second = store.stamp_fence(2).await.unwrap().unwrap();
    assert!(began.elapsed() < 20 * SECOND, "{:?}", began.elapsed());
    store.commit(&second, &commit(1)).await.unwrap();
    assert!(left.commit_transaction().await.is_err());
}

#[tokio::test]
async fn the_stream_goes_on_from_a_kept_place() {
    let store = store().await;
    let fence = store.stamp_fence(1).await.unwrap().unwrap();
    let mut stream = store.follow_feed(From::Now).await.unwrap();
    let beat = |n| Beat {
        low: Timestamp::from_millis(n),
        linked: true,
    };
    for n in 1..=3 {
        store
            .feed()
            .insert_one(encode_beat("g", now(), beat(n)))
            .await
            .unwrap();
    }
    let next = async |stream: &mut tidegate::store::FeedStream| loop {
        if let Some(event) = stream.next().await.unwrap() {
            return event;
        }
    };
    let first = next(&mut stream).await;
    assert_eq!(first.document.as_ref().unwrap().beat, Some(beat(1)));
    assert!(first.cluster_seconds > 1_700_000_000);
    // Kept in the database and read back.
    let checkpoint = Checkpoint {
        place: Some(first.place),
        cluster_seconds: 1,
        at: now(),
    };
    let kept = Commit {
        checkpoint: Some(checkpoint),
        ..Commit::default()
    };
    store.commit(&fence, &kept).await.unwrap();
    let place = store.checkpoint().await.unwrap().unwrap().place.unwrap();
    drop(stream);
    let mut stream = store.follow_feed(From::After(place)).await.unwrap();
    for n in 2..=3 {
        assert_eq!(
            next(&mut stream).await.document.unwrap().beat,
            Some(beat(n))
        );
    }
    // A quiet stream has a place that moves on.
    assert!(stream.next().await.unwrap().is_none());
    let quiet = stream.place().unwrap();
    store
        .feed()
        .insert_one(encode_beat("g", now(), beat(4)))
        .await
        .unwrap();
    let mut stream = store.follow_feed(From::After(quiet)).await.unwrap();
    assert_eq!(
        next(&mut stream).await.document.unwrap().beat,
        Some(beat(4))
    );
    // What is no document of the feed is told as such and does not end the stream.
    store
        .feed()
        .insert_one(mongodb::bson::rawdoc! { "v": 9 })
        .await
        .unwrap();
    assert!(next(&mut stream).await.document.is_err());
    assert!(store.server_seconds().await.unwrap() > 1_700_000_000);
    store.feed().drop().await.unwrap();
    let end = loop {
        match stream.next().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(end, FeedStreamError::Invalidated), "{end}");
}

#[tokio::test]
async fn operators_changes_are_heard() {
    let store = store().await;
    let mut controls = store.watch_controls().await.unwrap();
    let rules = store
        .database()
        .collection::<mongodb::bson::Document>(&store.names().rules);
    rules
        .insert_one(doc! { "_id": "r1", "field": 7 })
        .await
        .unwrap();
    assert_eq!(controls.next().await.unwrap(), Some(Control::Rules));
    let (id, why) = store.kept_rules().await.unwrap().remove(0).unwrap_err();
    assert!(id == "r1" && !why.is_empty());
    rules.delete_one(doc! { "_id": "r1" }).await.unwrap();
    assert_eq!(controls.next().await.unwrap(), Some(Control::Rules));
    let request = tidegate::store::Request::Ack {
        key: "k".into(),
        until: Some(now()),
    };
    store.ask(&request, "me", now()).await.unwrap();
    assert_eq!(controls.next().await.unwrap(), Some(Control::Requests));
    let asked = store.asked().await.unwrap();
    assert_eq!(asked[0].1, Some(request));
    assert_eq!(asked[0].2, "me");
}
