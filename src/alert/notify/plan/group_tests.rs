//! Groups: one message for many, in time, with everything in it.

use std::time::Duration;

use super::world_tests::{World, policy, receiver};
use crate::alert::{Notice, NoticeKind};
use crate::config::Incident;
use crate::model::Severity;

use NoticeKind::{Firing, Repeat, Resolved, Update};

fn fire(world: &mut World, device: &str) {
    world.fire("hot", device, Severity::Warning);
}

fn kinds(world: &World) -> Vec<NoticeKind> {
    world.all_told("chat").iter().map(|n| n.kind).collect()
}

/// Devices of a message, those that are over with a `-`.
fn devices(notice: &Notice) -> String {
    let mark = |e: &crate::alert::Episode| match e.ended {
        None => e.device.clone(),
        Some(_) => format!("-{}", e.device),
    };
    notice
        .episodes
        .iter()
        .map(mark)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn gathers_tells_follows_and_closes() {
    let mut world = World::grouped();
    fire(&mut world, "d1");
    world.secs(9);
    fire(&mut world, "d2");
    assert_eq!(kinds(&world), []);
    world.plan();
    let standing = &world.planner.suppressed("hot:d2")[0];
    assert_eq!(standing.told, None);
    let held = standing.held.clone().unwrap();
    assert_eq!(held.until, Some(world.now.plus(Duration::from_secs(1))));
    world.secs(1);
    assert_eq!(world.planner.suppressed("hot:d2")[0].told, Some(true));
    let told = world.all_told("chat");
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].kind, devices(&told[0]).as_str()),
        (Firing, "d1 d2")
    );
    assert_eq!(told[0].group["rule"], "hot");
    assert!(told[0].key.starts_with("group:tidegate:chat:"));
    // News wait for the interval, and come together.
    fire(&mut world, "d3");
    world.secs(10);
    world.end("hot:d1");
    world.level("hot:d2", Severity::Error);
    world.secs(49);
    assert_eq!(kinds(&world).len(), 1);
    world.secs(1);
    let told = world.all_told("chat");
    assert_eq!(
        (told[1].kind, devices(&told[1]).as_str()),
        (Update, "d2 d3 -d1")
    );
    assert_eq!(told[1].severity, Severity::Error);
    // Nothing new: a reminder of what fires.
    world.secs(5 * 3_600);
    let told = world.all_told("chat");
    assert_eq!(
        (told[2].kind, devices(&told[2]).as_str()),
        (Repeat, "d2 d3")
    );
    world.end("hot:d2");
    world.end("hot:d3");
    world.secs(60);
    let told = world.all_told("chat");
    assert_eq!(
        (told[3].kind, devices(&told[3]).as_str()),
        (Resolved, "-d2 -d3")
    );
    world.secs(24 * 3_600);
    assert_eq!(kinds(&world).len(), 4);
}

#[test]
fn what_is_over_while_it_gathers_is_never_told() {
    let mut world = World::grouped();
    fire(&mut world, "d1");
    world.secs(5);
    world.end("hot:d1");
    world.secs(60);
    assert_eq!(kinds(&world), []);
    // Likewise in a group that is known.
    fire(&mut world, "d1");
    world.secs(20);
    fire(&mut world, "d2");
    world.secs(5);
    world.end("hot:d2");
    world.secs(3_600);
    assert_eq!(kinds(&world), [Firing]);
}

#[test]
fn the_worst_does_not_wait() {
    let mut world = World::grouped();
    fire(&mut world, "d1");
    world.secs(2);
    world.fire("hot", "d2", Severity::Critical);
    assert_eq!(world.plan(), 1);
    world.run();
    // Once a group is critical, more of it waits for the interval.
    world.fire("hot", "d3", Severity::Critical);
    world.secs(5);
    assert_eq!(kinds(&world), [Firing]);
    world.secs(60);
    assert_eq!(kinds(&world), [Firing, Update]);
    // One that becomes critical does not.
    let mut world = World::grouped();
    fire(&mut world, "d1");
    world.secs(15);
    world.level("hot:d1", Severity::Critical);
    world.secs(1);
    assert_eq!(kinds(&world), [Firing, Update]);
}

#[test]
fn silenced_members_stay_out_and_come_in_late() {
    let mut world = World::grouped();
    world.silence("device=d2", Duration::from_secs(600));
    fire(&mut world, "d1");
    fire(&mut world, "d2");
    world.secs(60);
    assert_eq!(devices(&world.all_told("chat")[0]), "d1");
    // Its level changes in silence, too.
    world.silence("device=d1", Duration::from_secs(300));
    world.level("hot:d1", Severity::Error);
    world.secs(200);
    assert_eq!(kinds(&world), [Firing]);
    world.secs(100);
    assert_eq!(kinds(&world), [Firing, Update]);
    world.secs(300);
    let told = world.all_told("chat");
    assert_eq!(devices(told.last().unwrap()), "d1 d2");
    // All silenced: no reminder, but the end.
    world.silence("rule=hot", Duration::from_secs(24 * 3_600));
    world.secs(10 * 3_600);
    assert_eq!(kinds(&world).len(), told.len());
    world.end("hot:d1");
    world.end("hot:d2");
    world.secs(60);
    assert_eq!(kinds(&world).last(), Some(&Resolved));
}

#[test]
fn one_that_comes_back_within_the_interval_never_left() {
    let mut world = World::grouped();
    fire(&mut world, "d1");
    fire(&mut world, "d2");
    world.secs(15);
    world.end("hot:d1");
    world.secs(5);
    fire(&mut world, "d1");
    world.secs(120);
    let told = world.all_told("chat");
    assert_eq!(kinds(&world), [Firing, Update]);
    assert_eq!(devices(&told[1]), "d1 d2");
    world.end("hot:d1");
    world.end("hot:d2");
    world.secs(120);
    assert_eq!(kinds(&world), [Firing, Update, Resolved]);
}

#[test]
fn long_messages_are_cut_worst_first_with_room_for_ends() {
    let mut chat = receiver("chat", Incident::Group);
    chat.max_alerts = 4;
    let mut config = policy();
    config.storm.open = 1_000;
    let mut world = World::new(config, vec![chat]);
    for n in 0..10 {
        let severity = if n == 9 {
            Severity::Error
        } else {
            Severity::Warning
        };
        world.fire("hot", &format!("d{n}"), severity);
    }
    world.secs(20);
    let first = &world.all_told("chat")[0];
    assert_eq!(devices(first), "d9 d0 d1 d2");
    assert_eq!((first.truncated, first.severity), (6, Severity::Error));
    for n in 0..3 {
        world.end(&format!("hot:d{n}"));
    }
    world.secs(60);
    let second = &world.all_told("chat")[1];
    assert_eq!(devices(second), "d9 d3 -d0 -d1");
    assert_eq!(second.truncated, 6);
}

#[test]
fn groups_are_made_by_their_labels() {
    let mut chat = receiver("chat", Incident::Group);
    chat.group_by = vec!["site".into(), "severity".into()];
    let mut world = World::new(policy(), vec![chat]);
    world.fire("hot", "d1", Severity::Warning);
    world.fire("cold", "d2", Severity::Warning);
    world.fire("hot", "d3", Severity::Error);
    world.secs(20);
    let told = world.all_told("chat");
    assert_eq!(told.len(), 2);
    for notice in &told {
        assert_eq!(notice.group["site"], "north");
        assert_eq!(notice.group["severity"], notice.severity.name());
    }
    // Sticky: another level is news of the group it is in.
    world.level("hot:d3", Severity::Warning);
    world.secs(120);
    let last = world.all_told("chat").pop().unwrap();
    assert_eq!(
        (last.kind, last.group["severity"].as_str()),
        (Update, "error")
    );
}
