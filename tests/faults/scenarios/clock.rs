//! The gateway's clock jumps. Readings keep the times their devices gave.

use std::path::{Path, PathBuf};

use crate::world::World;

/// What lets the clock of a process be moved, where the package `libfaketime` is installed.
pub fn library() -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib",
    ];
    let files = folders.map(|folder| Path::new(folder).join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.is_file())
}

/// The clock of the system, plus what stands in a file.
pub fn environment(folder: &Path) -> Vec<(String, String)> {
    let Some(library) = library() else {
        return Vec::new();
    };
    set(folder, 0);
    let path = |path: &Path| path.display().to_string();
    [
        ("LD_PRELOAD", path(&library)),
        ("FAKETIME_TIMESTAMP_FILE", path(&folder.join("clock"))),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ("DONT_FAKE_MONOTONIC", "1".into()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

fn set(folder: &Path, seconds: i64) {
    let next = folder.join("clock.next");
    std::fs::write(&next, format!("{seconds:+}s\n")).expect("the folder is ours");
    std::fs::rename(next, folder.join("clock")).expect("the folder is ours");
}

pub async fn ahead(world: &mut World) {
    jump(world, 3_600).await;
}

pub async fn back(world: &mut World) {
    jump(world, -3_600).await;
}

async fn jump(world: &mut World, seconds: i64) {
    world.moment(300, 1_000).await;
    set(world.folder.path(), seconds);
    world
        .tally
        .say(format!("  the gateway's clock jumps by {seconds} s"));
    world.moment(2_000, 4_000).await;
    world.meanwhile().await;
    world.flows().await;
    if world.chance.bool() {
        let number = world.ingest[0];
        world.kill_gateway(number);
        world.start_gateway(number);
        world.flows().await;
    }
    set(world.folder.path(), 0);
    world.tally.say("  and back");
    world.moment(1_000, 2_000).await;
    world.flows().await;
}
