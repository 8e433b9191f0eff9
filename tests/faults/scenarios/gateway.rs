//! The gateway is killed, anywhere and at named points, and asked to end.

use std::time::Duration;

use crate::support::eventually;
use crate::support::wire::Way;
use crate::world::World;

/// The beginning of an insert into a collection, as it is on the wire.
pub fn insert_into(collection: &str) -> Vec<u8> {
    let length = u32::try_from(collection.len() + 1).expect("names are short");
    let mut marker = b"insert\0".to_vec();
    marker.extend(length.to_le_bytes());
    marker.extend(collection.as_bytes());
    marker.push(0);
    marker
}

/// Three times, wherever it is.
pub async fn kill(world: &mut World) {
    for _ in 0..3 {
        let number = world.some_member();
        world.moment(100, 1_500).await;
        world.kill_gateway(number);
        world.meanwhile().await;
        world.start_gateway(number);
        if world.chance.bool() {
            world.flows().await;
        }
    }
    world.flows().await;
}

/// After MongoDB has written and before the broker hears of it.
pub async fn kill_after_the_insert(world: &mut World) {
    let number = world.some_member();
    let marker = insert_into("readings");
    held(world, number, |world| {
        for wire in &world.members[number].database {
            wire.down(Way::Hold(marker.clone()));
        }
    })
    .await;
    end_it(world, number).await;
}

/// With the feed written and the series not.
pub async fn kill_between_feed_and_series(world: &mut World) {
    kill_with_held(world, "readings").await;
}

/// With the series written and the feed not.
pub async fn kill_between_series_and_feed(world: &mut World) {
    kill_with_held(world, "feed").await;
}

async fn kill_with_held(world: &mut World, collection: &str) {
    let number = world.some_member();
    let marker = insert_into(collection);
    held(world, number, |world| {
        for wire in &world.members[number].database {
            wire.up(Way::Hold(marker.clone()));
        }
    })
    .await;
    // What is not held gets through meanwhile.
    world.moment(200, 600).await;
    end_it(world, number).await;
}

/// Sets the wires and waits until something is held at them.
async fn held(world: &mut World, number: usize, set: impl FnOnce(&World)) {
    let count = |world: &World| -> usize {
        let wires = world.members[number].database.iter();
        wires.map(|wire| wire.held()).sum()
    };
    let before = count(world);
    set(world);
    eventually(Duration::from_secs(60), "something is held", async || {
        (count(world) > before).then_some(())
    })
    .await;
}

async fn end_it(world: &mut World, number: usize) {
    world.kill_gateway(number);
    for wire in &world.members[number].database {
        // What was held on the way to the server may get there late, or not at all.
        if world.chance.bool() {
            wire.drop_all();
        }
        wire.both(Way::Pass);
    }
    world.meanwhile().await;
    world.start_gateway(number);
    world.flows().await;
}

/// In good order, under load.
pub async fn term(world: &mut World) {
    let number = world.some_member();
    world.moment(100, 1_000).await;
    world
        .tally
        .say(format!("  gateway {number} is asked to end"));
    let status = world.members[number].gateway.terminate().await;
    if !status.success() {
        world.complain(number, &format!("did not end in order: {status}"));
    }
    world.meanwhile().await;
    world.start_gateway(number);
    world.flows().await;
}
