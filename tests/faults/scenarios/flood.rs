//! More in a row that cannot be stored than the window holds.

use crate::world::{Place, World};

pub async fn poison(world: &mut World) {
    flood(world, "syntax").await;
}

pub async fn oversize(world: &mut World) {
    flood(world, "size").await;
}

async fn flood(world: &mut World, kind: &str) {
    // The windows are 20 and 2,000.
    let count = match world.place {
        Place::Window => 400,
        _ => 3_000,
    };
    let others = world.chance.bool();
    if !others {
        // Nothing else between them.
        world.load.pause().await;
    }
    world.load.order(&format!("flood {kind} {count}")).await;
    world
        .tally
        .say(format!("  {count} messages of kind {kind:?}"));
    world.meanwhile().await;
    if !others {
        world.load.settled("the broker has the flood").await;
        world.load.resume().await;
    }
    world.flows().await;
}
