//! Who leads the alerts is killed, cut off from MongoDB, and deposed: as scenarios, and in the middle of all others.

use crate::support::alerting::SECOND;
use crate::support::wire::Way;
use crate::world::World;

impl World {
    /// In the middle of a fault: half the time something happens to whoever leads the alerts; returns who
    /// that was.
    pub async fn meanwhile(&mut self) -> Option<usize> {
        if self.chance.bool() {
            return None;
        }
        let leader = self.leader().await?;
        let process = &mut self.members[leader].gateway.process;
        if process.exit_status().is_some() {
            return None;
        }
        match self.chance.u8(..3) {
            0 => die(self, leader).await,
            // The wires of those that take messages belong to the fault.
            1 if !self.ingest.contains(&leader) => part(self, leader).await,
            _ => sleep(self, leader).await,
        }
        Some(leader)
    }
}

pub async fn kill(world: &mut World) {
    let leader = some_leader(world).await;
    die(world, leader).await;
    world.flows().await;
}

pub async fn cut(world: &mut World) {
    let leader = some_leader(world).await;
    part(world, leader).await;
    world.flows().await;
}

pub async fn depose(world: &mut World) {
    let leader = some_leader(world).await;
    sleep(world, leader).await;
    world.flows().await;
}

async fn some_leader(world: &World) -> usize {
    crate::support::eventually(60 * SECOND, "somebody leads", async || world.leader().await).await
}

async fn die(world: &mut World, leader: usize) {
    world.tally.leaders[0] += 1;
    world.kill_gateway(leader);
    world.moment(200, 3_500).await;
    world.start_gateway(leader);
}

/// Longer than the lease of 2 s.
async fn part(world: &mut World, leader: usize) {
    world.tally.leaders[1] += 1;
    world.tally.say(format!(
        "  gateway {leader}, who leads, is cut off from MongoDB"
    ));
    for wire in &world.members[leader].database {
        wire.both(Way::Stall);
    }
    world.moment(2_500, 5_000).await;
    let drops = world.chance.bool();
    for wire in &world.members[leader].database {
        if drops {
            wire.drop_all();
        }
        wire.both(Way::Pass);
    }
}

/// It wakes up when another leads.
async fn sleep(world: &mut World, leader: usize) {
    world.tally.leaders[2] += 1;
    world.tally.say(format!(
        "  gateway {leader}, who leads, sleeps through its lease"
    ));
    world.members[leader].gateway.process.freeze();
    world.moment(2_500, 4_500).await;
    world.members[leader].gateway.process.thaw();
}
