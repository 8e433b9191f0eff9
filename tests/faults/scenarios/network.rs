//! The network fails, in both directions or in one, for a moment or until somebody gives up.

use crate::support::wire::{Way, Wire};
use crate::world::World;

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Both,
    Up,
    Down,
}

fn cut(wire: &Wire, direction: Direction) {
    if direction != Direction::Down {
        wire.up(Way::Stall);
    }
    if direction != Direction::Up {
        wire.down(Way::Stall);
    }
}

fn half(world: &mut World) -> Direction {
    if world.chance.bool() {
        Direction::Up
    } else {
        Direction::Down
    }
}

/// Shorter than anybody's patience or longer: half again the keep-alive of 5 s, or what MongoDB's driver takes to give up.
async fn wait(world: &mut World) {
    let longest = if world.settings.patient { 5 } else { 4 };
    match world.chance.u8(..longest) {
        0 | 1 => world.moment(1_000, 3_000).await,
        2 | 3 => world.moment(8_000, 12_000).await,
        _ => world.moment(20_000, 26_000).await,
    }
}

pub async fn cut_from_the_broker(world: &mut World) {
    from_the_broker(world, Direction::Both).await;
}

pub async fn half_cut_from_the_broker(world: &mut World) {
    let direction = half(world);
    from_the_broker(world, direction).await;
}

async fn from_the_broker(world: &mut World, direction: Direction) {
    let number = world.some_member();
    cut(&world.members[number].link, direction);
    world.tally.say(format!(
        "  gateway {number} is cut off from the broker: {}",
        word(direction)
    ));
    wait(world).await;
    world.meanwhile().await;
    if world.chance.bool() {
        world.members[number].link.drop_all();
    }
    world.members[number].link.both(Way::Pass);
    world.flows().await;
}

pub async fn cut_from_mongodb(world: &mut World) {
    from_mongodb(world, Direction::Both).await;
}

pub async fn half_cut_from_mongodb(world: &mut World) {
    let direction = half(world);
    from_mongodb(world, direction).await;
}

async fn from_mongodb(world: &mut World, direction: Direction) {
    let number = world.some_member();
    // From one server or from all.
    let all = world.chance.bool();
    let primary = world.mongod.primary().await;
    for (node, wire) in world.members[number].database.iter().enumerate() {
        if all || node == primary {
            cut(wire, direction);
        }
    }
    let whom = if all { "MongoDB" } else { "the primary" };
    world.tally.say(format!(
        "  gateway {number} is cut off from {whom}: {}",
        word(direction)
    ));
    wait(world).await;
    world.meanwhile().await;
    let drops = world.chance.bool();
    for wire in &world.members[number].database {
        if drops {
            wire.drop_all();
        }
        wire.both(Way::Pass);
    }
    world.flows().await;
}

/// The devices lose the broker, with acknowledgements under way.
pub async fn cut_from_the_devices(world: &mut World) {
    for _ in 0..3 {
        world.moment(300, 1_200).await;
        world.devices.drop_all();
        world.tally.say("  the devices lose their connection");
    }
    let direction = half(world);
    cut(&world.devices, direction);
    world.moment(1_000, 3_000).await;
    world.meanwhile().await;
    world.devices.drop_all();
    world.devices.up(Way::Pass);
    world.devices.down(Way::UntilSaved);
    world.flows().await;
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Both => "both ways",
        Direction::Up => "it is not heard",
        Direction::Down => "it hears nothing",
    }
}
