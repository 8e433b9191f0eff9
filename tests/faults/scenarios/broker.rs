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
    world.meanwhile().await;
    back(world).await;
}

/// The same while thousands of messages are with the gateway or wait for it.
pub async fn kill_with_a_backlog(world: &mut World) {
    let number = world.some_member();
    hold(world, number);
    world.moment(2_000, 4_000).await;
    world.kill_broker();
    world.moment(100, 1_000).await;
    for wire in &world.members[number].database {
        wire.both(Way::Pass);
    }
    back(world).await;
}

/// In good order.
pub async fn term(world: &mut World) {
    world.moment(200, 1_000).await;
    world.stop_broker().await;
    world.meanwhile().await;
    back(world).await;
}

/// The broker comes back without its sessions. What the gateway had taken by then is its to store; what the broker alone
/// had would be lost by the broker, so the devices pause until there is nothing of that kind.
pub async fn forgets(world: &mut World) {
    let number = world.some_member();
    hold(world, number);
    world.moment(300, 600).await;
    world.load.quiet().await;
    // Below the window, and no more comes: the broker has nothing left.
    let (mut last, mut since) = (None, Instant::now());
    while since.elapsed() < Duration::from_millis(700) {
        let unacked = world
            .metric(number, "tidegate_source_unacked_messages")
            .await;
        if unacked != last || unacked.is_none_or(|count| count >= 1_990.0) {
            (last, since) = (unacked, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if world.chance.bool() {
        world.kill_broker();
    } else {
        world.stop_broker().await;
    }
    let _ = std::fs::remove_file(world.broker.folder().join("mosquitto.db"));
    let text = format!(
        "  it forgets; {} messages are with the gateway",
        last.unwrap_or(0.0)
    );
    world.tally.say(text);
    world.load.resume().await;
    if world.chance.bool() {
        for wire in &world.members[number].database {
            wire.both(Way::Pass);
        }
        back(world).await;
    } else {
        world.start_broker().await;
        world.moment(1_000, 3_000).await;
        for wire in &world.members[number].database {
            wire.both(Way::Pass);
        }
        world.flows().await;
    }
}

/// Nothing more is written to the series.
fn hold(world: &World, number: usize) {
    for wire in &world.members[number].database {
        wire.up(Way::Hold(insert_into("readings")));
    }
}

/// Starts the broker and measures how long the gateway takes to subscribe.
async fn back(world: &mut World) {
    world.start_broker().await;
    let began = Instant::now();
    let number = world.ingest[0];
    let name = "tidegate_source_subscribed";
    while world.metric(number, name).await != Some(1.0) && began.elapsed() < Duration::from_secs(60)
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    world.tally.broker.push(took);
    let text = format!("  subscribed after {:.2} s", took.as_secs_f64());
    world.tally.say(text);
    world.flows().await;
}
