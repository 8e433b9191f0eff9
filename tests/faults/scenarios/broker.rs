//! The broker dies, ends in order, and forgets.

use std::time::{Duration, Instant};

use super::gateway::insert_into;
use crate::support::wire::Way;
use crate::world::World;

/// `kill -9` under load; what it had acknowledged it has saved (see the world).
pub async fn kill(world: &mut World) {
    world.moment(200, 1_500).await;
    world.kill_broker();
    if world.chance.bool() {
        world.moment(500, 3_000).await;
    }
    let hit = world.meanwhile().await;
    let alone = hit.is_none_or(|number| number != world.ingest[0]);
    back(world, alone).await;
}

/// The same while thousands of messages are with the gateway or wait for it.
pub async fn kill_with_a_backlog(world: &mut World) {
    let number = world.some_member();
    hold(world, number);
    world.moment(2_000, 4_000).await;
    world.kill_broker();
    world.moment(100, 1_000).await;
    let hit = world.meanwhile().await;
    for wire in &world.members[number].database {
        wire.both(Way::Pass);
    }
    let alone = hit.is_none_or(|hit| hit != world.ingest[0]);
    back(world, alone).await;
}

/// In good order.
pub async fn term(world: &mut World) {
    world.moment(200, 1_000).await;
    world.stop_broker().await;
    let hit = world.meanwhile().await;
    let alone = hit.is_none_or(|number| number != world.ingest[0]);
    back(world, alone).await;
}

/// The broker comes back without its sessions. What the gateway had taken by then is its to store; what the broker alone
/// had would be lost by the broker, so the devices pause until there is nothing of that kind.
pub async fn forgets(world: &mut World) {
    let number = world.some_member();
    world.load.quiet().await;
    let before = taken(world, number, 0.0).await;
    let name = "tidegate_source_sessions_lost_total";
    let lost = world.metric(number, name).await;
    hold(world, number);
    world.load.resume().await;
    world.moment(200, 500).await;
    world.load.quiet().await;
    let with_it = taken(world, number, 1_990.0).await;
    if before.is_none() || with_it.is_none() {
        world.complain(number, "does not get to the end of the broker's queue");
        return;
    }
    if world.chance.bool() {
        world.kill_broker();
    } else {
        world.stop_broker().await;
    }
    let _ = std::fs::remove_file(world.broker.folder().join("mosquitto.db"));
    let text = format!(
        "  it forgets; {} messages are with the gateway",
        with_it.unwrap_or(0.0)
    );
    world.tally.say(text);
    world.load.resume().await;
    if world.chance.bool() {
        for wire in &world.members[number].database {
            wire.both(Way::Pass);
        }
        back(world, true).await;
    } else {
        world.start_broker().await;
        world.moment(1_000, 3_000).await;
        for wire in &world.members[number].database {
            wire.both(Way::Pass);
        }
        world.flows().await;
    }
    if world.metric(number, name).await <= lost {
        world.complain(number, "did not notice that its session was gone");
    }
    world.meanwhile().await;
    world.flows().await;
}

/// Waits until the gateway has no more un-acknowledged messages than this and gets no more, and returns how many: below its
/// window, so the broker has nothing left for it.
async fn taken(world: &World, number: usize, most: f64) -> Option<f64> {
    let began = Instant::now();
    let (mut last, mut since) = (None, Instant::now());
    while since.elapsed() < Duration::from_millis(700) {
        let now = world
            .metric(number, "tidegate_source_unacked_messages")
            .await;
        if now != last || now.is_none_or(|count| count > most) {
            (last, since) = (now, Instant::now());
        }
        if began.elapsed() > Duration::from_secs(90) {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    last
}

/// Nothing more is written to the series.
fn hold(world: &World, number: usize) {
    for wire in &world.members[number].database {
        wire.up(Way::Hold(insert_into("readings")));
    }
}

/// Starts the broker and measures how long the gateway takes to subscribe, if nothing else was done to it.
async fn back(world: &mut World, alone: bool) {
    let number = world.ingest[0];
    let connects = "tidegate_source_connects_total";
    let before = world.metric(number, connects).await;
    world.start_broker().await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if world.metric(number, connects).await > before
            && world.metric(number, "tidegate_source_subscribed").await == Some(1.0)
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    if alone {
        world.tally.broker.push(took);
    }
    let text = format!("  subscribed after {:.2} s", took.as_secs_f64());
    world.tally.say(text);
    world.flows().await;
}
