//! Thousands of alerts at once: few requests, nothing lost, and quick.

use std::time::{Duration, Instant};

use super::world_tests::{Mode, World, policy, receiver};
use crate::alert::{Change, NoticeKind, Transition};
use crate::config::{Incident, ReceiverConfig};
use crate::model::Severity;

/// One that is told of alerts, one of groups, one of groups as small as alerts.
fn receivers() -> Vec<ReceiverConfig> {
    let mut fine = receiver("fine", Incident::Group);
    fine.group_by = vec!["rule".into(), "device".into()];
    vec![
        receiver("oncall", Incident::Alert),
        receiver("chat", Incident::Group),
        fine,
    ]
}

/// Fires `devices` alerts of `rules` rules, in `steps` steps over `seconds`.
fn breach(world: &mut World, devices: usize, rules: usize, steps: usize, seconds: u64) {
    let pause = Duration::from_secs(seconds) / u32::try_from(steps).unwrap();
    for step in 0..steps {
        for n in (step..devices).step_by(steps) {
            world.fire(
                &format!("rule-{}", n % rules),
                &format!("d{n}"),
                Severity::Warning,
            );
        }
        world.pass(pause);
    }
}

fn clear(world: &mut World) {
    let keys: Vec<String> = world.alerts.keys().cloned().collect();
    for key in keys {
        world.end(&key);
    }
}

/// The most requests in any minute, by receiver.
fn busiest_minute(world: &World, name: &str) -> usize {
    let times: Vec<i64> = world
        .sent
        .iter()
        .filter(|(receiver, ..)| receiver == name)
        .map(|(_, at, _)| at.millis())
        .collect();
    let within = |start: i64| {
        let minute = start..start + 60_000;
        times.iter().filter(|t| minute.contains(t)).count()
    };
    times.iter().map(|t| within(*t)).max().unwrap_or(0)
}

fn all_closed(world: &World) {
    for ((receiver, key), heard) in &world.heard {
        assert!(!heard.open(), "{key} is open at {receiver}");
        let firing = heard
            .kinds()
            .iter()
            .filter(|k| **k == NoticeKind::Firing)
            .count();
        let resolved = heard
            .kinds()
            .iter()
            .filter(|k| **k == NoticeKind::Resolved)
            .count();
        assert_eq!(firing, resolved, "{key} at {receiver}");
    }
    let left: Vec<&String> = world
        .docs
        .keys()
        .filter(|id| !id.starts_with("receiver:"))
        .collect();
    assert!(left.is_empty(), "{} left behind", left.len());
}

#[test]
fn a_storm_is_a_few_requests_however_it_comes() {
    // Rules, the most requests a minute; steps and seconds of the breach; seconds until all clear.
    for (rules, limit, steps, seconds, clears_after) in [
        (1, 60, 1, 1, 600),
        (1, 60, 1_000, 30, 1),
        (1, 60, 400, 50, 120),
        (20, 150, 1, 1, 600),
        (20, 150, 1_000, 30, 1),
    ] {
        let mut world = World::new(policy(), receivers());
        world.lean = true;
        breach(&mut world, 10_000, rules, steps, seconds);
        world.secs(clears_after);
        clear(&mut world);
        world.secs(3_600);
        for name in ["oncall", "chat", "fine"] {
            let most = busiest_minute(&world, name);
            println!("{name}: {most} requests in the busiest minute, {rules} rules, {steps} steps");
            assert!(
                most < limit,
                "{most} to {name}: {rules} rules, {steps} steps"
            );
        }
        all_closed(&world);
    }
}

#[test]
fn one_incident_counts_doubles_and_closes() {
    let mut world = World::new(policy(), vec![receiver("oncall", Incident::Alert)]);
    breach(&mut world, 100, 1, 1, 1);
    let storm = world.all_told("oncall");
    assert_eq!(storm.len(), 1);
    assert_eq!(storm[0].key, "storm:tidegate:oncall:rule-0");
    let numbers = storm[0].storm.clone().unwrap();
    assert_eq!((numbers.total, numbers.firing), (100, 100));
    assert!(numbers.top.contains(&("site".into(), "north".into(), 100)));
    assert_eq!((storm[0].episodes.len(), storm[0].truncated), (20, 80));
    // A hundred more double it; not before a minute has passed.
    for n in 100..200 {
        world.fire("rule-0", &format!("d{n}"), Severity::Warning);
    }
    world.secs(30);
    assert_eq!(world.all_told("oncall").len(), 1);
    world.secs(30);
    assert_eq!(world.all_told("oncall").len(), 2);
    // Worse, too, but again not at once.
    world.level("rule-0:d7", Severity::Critical);
    world.secs(70);
    let told = world.all_told("oncall");
    assert_eq!(told[2].kind, NoticeKind::Update);
    assert_eq!(told[2].severity, Severity::Critical);
    assert_eq!(told[2].episodes[0].device, "d7");
    // Eleven left: it goes on. Ten left for five minutes: they are told for themselves.
    for n in 11..200 {
        world.end(&format!("rule-0:d{n}"));
    }
    world.secs(400);
    assert_eq!(world.all_told("oncall").len(), 3);
    world.end("rule-0:d10");
    world.secs(299);
    assert_eq!(world.all_told("oncall").len(), 3);
    world.secs(2);
    let kinds: Vec<NoticeKind> = world.all_told("oncall")[3..]
        .iter()
        .map(|n| n.kind)
        .collect();
    assert_eq!(
        kinds.iter().filter(|k| **k == NoticeKind::Firing).count(),
        10
    );
    assert_eq!(
        kinds.iter().filter(|k| **k == NoticeKind::Resolved).count(),
        1
    );
    clear(&mut world);
    world.secs(60);
    assert_eq!(
        world.told("oncall", "rule-0:d3"),
        [NoticeKind::Firing, NoticeKind::Resolved]
    );
    all_closed(&world);
}

#[test]
fn those_told_before_keep_their_own_life() {
    let mut world = World::new(policy(), vec![receiver("oncall", Incident::Alert)]);
    for n in 0..40 {
        world.fire("rule-0", &format!("d{n}"), Severity::Warning);
        world.secs(1);
    }
    assert_eq!(world.told("oncall", "rule-0:d29"), [NoticeKind::Firing]);
    assert_eq!(world.told("oncall", "rule-0:d30"), []);
    world.level("rule-0:d29", Severity::Critical);
    world.end("rule-0:d3");
    world.secs(1);
    let told = [NoticeKind::Firing, NoticeKind::Update];
    assert_eq!(world.told("oncall", "rule-0:d29"), told);
    assert_eq!(
        world.told("oncall", "rule-0:d3"),
        [NoticeKind::Firing, NoticeKind::Resolved]
    );
}

#[test]
fn a_storm_survives_an_hour_without_the_receiver_and_a_restart() {
    let mut world = World::new(policy(), receivers());
    for name in ["oncall", "chat", "fine"] {
        world.modes.insert(name.into(), Mode::Down);
    }
    breach(&mut world, 500, 2, 10, 10);
    world.secs(1_800);
    world.restart();
    world.secs(1_800);
    let queued = world.rows.len();
    assert!(
        queued < 200,
        "{queued} requests wait for receivers that are down"
    );
    world.modes.clear();
    world.secs(60);
    for n in 0..500 {
        let standings = world.planner.suppressed(&format!("rule-{}:d{n}", n % 2));
        assert!(
            standings.iter().all(|s| s.told == Some(true)),
            "{standings:?}"
        );
    }
    clear(&mut world);
    world.restart();
    world.secs(3_600);
    all_closed(&world);
}

#[test]
fn ten_thousand_at_once_are_planned_quickly_and_nothing_due_costs_nothing() {
    let mut world = World::new(policy(), receivers());
    let now = world.now;
    let changes: Vec<Transition> = (0..10_000)
        .map(|n| Transition {
            change: Change::Fired,
            at: now,
            previous: None,
            episode: super::world_tests::episode("hot", &format!("d{n}"), Severity::Warning, now),
        })
        .collect();
    let start = Instant::now();
    for change in &changes {
        world.planner.transition(change, now);
    }
    let plan = world.planner.plan(now);
    let busy = start.elapsed();
    assert_eq!(
        plan.changed
            .iter()
            .filter(|d| d.id().starts_with("alert:"))
            .count(),
        10_000
    );
    let start = Instant::now();
    let rounds = 20_000;
    for _ in 0..rounds {
        assert!(world.planner.plan(now).is_empty());
    }
    let idle = start.elapsed() / rounds;
    println!("10,000 transitions: {busy:?}; nothing due: {idle:?}");
    // Many times what it takes without optimisation on a busy machine.
    assert!(busy < Duration::from_secs(8), "{busy:?}");
    assert!(idle < Duration::from_micros(100), "{idle:?}");
}
