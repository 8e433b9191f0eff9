//! The gateway with a spool is killed while it fills and while it drains, and its disk runs full.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::gateway::insert_into;
use crate::support::wire::Way;
use crate::tally::Tally;
use crate::world::World;

/// A disk of 48 MiB, which only root can make; nobody else runs the scenario of the full disk.
pub fn small_disk(folder: &Path, tally: &mut Tally) -> Option<PathBuf> {
    let disk = folder.join("disk");
    std::fs::create_dir(&disk).expect("the folder is ours");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"])
        .arg(&disk)
        .output()
        .is_ok_and(|output| output.status.success());
    if mounted {
        crate::support::process::unmount_at_end(&disk);
    } else {
        tally
            .say("  no small disk can be mounted here (it takes root): the disk does not run full");
        tally
            .notes
            .push("spool-disk-full was left out: mounting a small disk takes root".into());
    }
    mounted.then_some(disk)
}

pub fn unmount(disk: &Path) {
    let _ = Command::new("umount").arg("-l").arg(disk).status();
}

/// While MongoDB is away and messages go to the disk.
pub async fn kill(world: &mut World) {
    let number = world.ingest[0];
    held(world, number);
    world.tally.say("  MongoDB is away, the spool fills");
    for _ in 0..2 {
        world.moment(800, 2_500).await;
        world.kill_gateway(number);
        world.meanwhile().await;
        world.start_gateway(number);
        // It acknowledges without MongoDB.
        world.flows().await;
    }
    passed(world, number);
    world.flows().await;
}

/// While it empties.
pub async fn kill_while_it_drains(world: &mut World) {
    let number = world.ingest[0];
    held(world, number);
    world.moment(2_000, 4_000).await;
    passed(world, number);
    for _ in 0..2 {
        world.moment(50, 700).await;
        world.kill_gateway(number);
        world.meanwhile().await;
        world.start_gateway(number);
        world.flows().await;
    }
}

/// Something else takes the disk; later there is room again.
pub async fn disk_full(world: &mut World) {
    let Some(disk) = world.disk.clone() else {
        return;
    };
    let number = world.ingest[0];
    held(world, number);
    world.moment(500, 1_500).await;
    let filler = disk.join("filler");
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", filler.display()))
        .stderr(std::process::Stdio::null())
        .status();
    world.tally.say("  the disk under the spool is full");
    world.moment(2_000, 5_000).await;
    world.meanwhile().await;
    if world.chance.bool() {
        world.kill_gateway(number);
        world.moment(100, 500).await;
        // A full disk may refuse the start; what it acknowledged is there when there is room.
        let _ = std::fs::remove_file(&filler);
        world.start_gateway(number);
    }
    if world.chance.bool() {
        passed(world, number);
        world.moment(500, 2_000).await;
    }
    let _ = std::fs::remove_file(&filler);
    world.tally.say("  and has room again");
    passed(world, number);
    world.flows().await;
}

/// Nothing of the flood gets to MongoDB, or nothing at all.
fn held(world: &mut World, number: usize) {
    let all = world.chance.bool();
    for wire in &world.members[number].database {
        if all {
            wire.both(Way::Stall);
        } else {
            wire.up(Way::Hold(insert_into("readings")));
        }
    }
}

fn passed(world: &World, number: usize) {
    for wire in &world.members[number].database {
        wire.both(Way::Pass);
    }
}
