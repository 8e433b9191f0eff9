//! Servers of MongoDB die, stop, step down, lose their majority and become slow.

use std::time::{Duration, Instant};

use mongodb::bson::doc;

use crate::support::wire::Way;
use crate::world::World;

pub async fn primary_kill(world: &mut World) {
    let primary = world.mongod.primary().await;
    world.moment(0, 1_000).await;
    world.kill_node(primary);
    failed_over(world, true).await;
    world.meanwhile().await;
    world.mongod.nodes[primary].restart().await;
    world.mongod.wait_until_in_step().await;
    world.flows().await;
}

/// Waits for a new primary, and measures from then to the first new acknowledgement, which counts if nothing else was done to the
/// gateway.
async fn failed_over(world: &mut World, alone: bool) {
    let from = Instant::now();
    let primary = world.mongod.primary().await;
    let there = Instant::now();
    let number = world.ingest[0];
    // Canaries are acknowledged as well, but are no messages.
    let name = "tidegate_messages_settled_total";
    let mut before = world.metric(number, name).await;
    loop {
        let now = world.metric(number, name).await;
        if (before.is_some() && now > before) || there.elapsed() > Duration::from_secs(60) {
            break;
        }
        before = before.or(now);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = there.elapsed();
    if alone {
        world.tally.primary.push(took);
    }
    world.tally.say(format!(
        "  mongod {primary} is primary after {:.1} s, the first acknowledgement {:.2} s later",
        (there - from).as_secs_f64(),
        took.as_secs_f64()
    ));
}

pub async fn step_down(world: &mut World) {
    for _ in 0..2 {
        let primary = world.mongod.primary().await;
        world.moment(0, 1_500).await;
        let down = doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 1, "force": true };
        // The answer may go with the connection.
        let _ = world.mongod.nodes[primary].admin(down).await;
        world.tally.say(format!("  mongod {primary} steps down"));
        failed_over(world, true).await;
        world.meanwhile().await;
        world.flows().await;
        world.mongod.wait_until_in_step().await;
    }
}

/// The primary stops where it is, another is elected, and the first wakes up.
pub async fn primary_stop(world: &mut World) {
    let primary = world.mongod.primary().await;
    world.mongod.nodes[primary].process.freeze();
    world.tally.say(format!("  mongod {primary} is frozen"));
    world.moment(5_000, 9_000).await;
    world.meanwhile().await;
    world.mongod.nodes[primary].process.thaw();
    world.mongod.wait_until_in_step().await;
    world.flows().await;
}

/// Two of three die; nothing is written until one is back.
pub async fn majority_lost(world: &mut World) {
    let spared = world.chance.usize(..3);
    let gone: Vec<usize> = (0..3).filter(|number| *number != spared).collect();
    for number in &gone {
        world.kill_node(*number);
        world.moment(0, 300).await;
    }
    world.moment(4_000, 9_000).await;
    let hit = world.meanwhile().await;
    for number in gone {
        world.mongod.nodes[number].restart().await;
        world.tally.say(format!("  mongod {number} is back"));
    }
    failed_over(world, hit.is_none_or(|hit| hit != world.ingest[0])).await;
    world.mongod.wait_until_in_step().await;
    world.flows().await;
}

/// Two of three stop answering, their connections open, for longer than half again the keep-alive of 5 s.
pub async fn stop(world: &mut World) {
    let primary = world.mongod.primary().await;
    let other = (primary + 1) % 3;
    for number in [primary, other] {
        world.mongod.nodes[number].process.freeze();
    }
    world
        .tally
        .say(format!("  mongod {primary} and {other} are frozen"));
    world.moment(8_000, 10_000).await;
    world.meanwhile().await;
    for number in [primary, other] {
        world.mongod.nodes[number].process.thaw();
    }
    world.mongod.wait_until_in_step().await;
    world.flows().await;
}

/// Every answer takes a third of a second.
pub async fn slow(world: &mut World) {
    let number = world.some_member();
    for wire in &world.members[number].database {
        wire.down(Way::Slow(Duration::from_millis(300)));
    }
    world
        .tally
        .say(format!("  MongoDB is slow for gateway {number}"));
    world.moment(3_000, 6_000).await;
    world.meanwhile().await;
    if world.chance.bool() {
        world.kill_gateway(number);
        world.start_gateway(number);
        world.moment(3_000, 5_000).await;
    }
    for wire in &world.members[number].database {
        wire.both(Way::Pass);
    }
    world.flows().await;
}
