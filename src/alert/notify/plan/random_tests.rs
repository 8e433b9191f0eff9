//! Whatever happens in whatever order: what was accepted is closed, what fires is known, and
//! nothing is left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::alert::Way;
use super::world_tests::{Mode, World, policy, receiver, reloaded};
use crate::config::{AlertsConfig, Incident, ReceiverConfig, Span};
use crate::model::Severity;

const RULES: [&str; 2] = ["hot", "cold"];
const DEVICES: [&str; 3] = ["d1", "d2", "d3"];

#[derive(Debug, Clone)]
enum Op {
    Fire(usize, Severity),
    Level(usize, Severity),
    End(usize),
    Silence(usize, u64),
    Lift,
    Ack(usize, Option<u64>),
    Mode(usize, Mode),
    Hold(bool),
    Advance(u64),
    Deliver,
    Plan,
    Restart,
    Die,
    /// Names the receiver of this place in the rule; `None`: nobody.
    Reroute(usize, Option<usize>),
    Replay(usize),
    Drop(usize),
    /// Without, or with, the receiver of this place.
    Configure(Option<usize>),
}

fn op() -> impl Strategy<Value = Op> {
    let severity = prop_oneof![
        Just(Severity::Info),
        Just(Severity::Warning),
        Just(Severity::Critical)
    ];
    let mode = prop_oneof![
        3 => Just(Mode::Up),
        1 => Just(Mode::Down),
        1 => Just(Mode::Lost),
        1 => Just(Mode::Timeout),
        1 => Just(Mode::Reject),
    ];
    prop_oneof![
        6 => (0..6_usize, severity.clone()).prop_map(|(n, s)| Op::Fire(n, s)),
        3 => (0..6_usize, severity).prop_map(|(n, s)| Op::Level(n, s)),
        6 => (0..6_usize).prop_map(Op::End),
        1 => (0..3_usize, 1..4_000_u64).prop_map(|(n, s)| Op::Silence(n, s)),
        1 => Just(Op::Lift),
        1 => (0..6_usize, prop::option::of(1..4_000_u64)).prop_map(|(n, s)| Op::Ack(n, s)),
        3 => (0..3_usize, mode).prop_map(|(n, m)| Op::Mode(n, m)),
        1 => any::<bool>().prop_map(Op::Hold),
        6 => prop_oneof![1..20_u64, 50..400_u64, 3_000..20_000_u64].prop_map(Op::Advance),
        6 => Just(Op::Deliver),
        8 => Just(Op::Plan),
        2 => Just(Op::Restart),
        2 => Just(Op::Die),
        1 => (0..6_usize, prop::option::of(0..3_usize)).prop_map(|(n, r)| Op::Reroute(n, r)),
        1 => any::<usize>().prop_map(Op::Replay),
        1 => any::<usize>().prop_map(Op::Drop),
        1 => prop::option::of(0..3_usize).prop_map(Op::Configure),
    ]
}

fn receivers() -> Vec<ReceiverConfig> {
    let mut strict = receiver("strict", Incident::Alert);
    strict.min_severity = Severity::Critical;
    vec![
        receiver("oncall", Incident::Alert),
        strict,
        receiver("chat", Incident::Group),
    ]
}

fn policies() -> impl Strategy<Value = AlertsConfig> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(stormy, flappy, cooling, short)| {
            let mut config = policy();
            if stormy {
                config.storm.open = 2;
                config.storm.close = 1;
                config.storm.umbrella = 4;
            }
            if flappy {
                config.flap.high = 4;
                config.flap.low = 1;
            }
            if cooling {
                config.cooldown = Span::secs(300);
            }
            config.notify_short_lived = short;
            config
        },
    )
}

fn key(n: usize) -> String {
    format!("{}:{}", RULES[n % 2], DEVICES[n / 2])
}

fn apply(world: &mut World, op: &Op) {
    match op {
        Op::Fire(n, severity) => world.fire(RULES[n % 2], DEVICES[n / 2], *severity),
        Op::Level(n, severity) => world.level(&key(*n), *severity),
        Op::End(n) => world.end(&key(*n)),
        Op::Silence(n, secs) => {
            let matcher = format!("device={}", DEVICES[*n]);
            world.silence(&matcher, Duration::from_secs(*secs));
        }
        Op::Lift => {
            world.silences.clear();
            world.planner.silences(Vec::new());
        }
        Op::Ack(n, secs) => {
            let until = secs.map(|s| world.now.plus(Duration::from_secs(s)));
            world.planner.acked(&key(*n), until);
        }
        Op::Mode(n, mode) => {
            let name = receivers()[*n].name.clone();
            world.modes.insert(name, *mode);
        }
        Op::Hold(hold) => {
            world.hold = *hold;
            world.planner.hold(*hold);
        }
        Op::Advance(secs) => world.advance(Duration::from_secs(*secs)),
        Op::Deliver => world.deliver(),
        Op::Plan => {
            world.plan();
        }
        Op::Restart => world.restart(),
        Op::Die => world.plan_and_die(),
        Op::Reroute(n, to) => {
            let key = key(*n);
            let fires = world.alerts.get(&key).is_some_and(|e| e.ended.is_none());
            if fires {
                let names = to.map(|r| receivers()[r].name.clone());
                world.update(&key, |e| e.receivers = names.into_iter().collect());
            }
        }
        Op::Replay(n) => {
            let dead = world.rows_that_are(true);
            if !dead.is_empty() {
                world.replay(dead[n % dead.len()]);
            }
        }
        Op::Drop(n) => {
            let open = world.rows_that_are(false);
            if !open.is_empty() {
                world.drop_row(open[n % open.len()]);
            }
        }
        Op::Configure(without) => {
            let mut list = receivers();
            if let Some(n) = without {
                list.remove(*n);
            }
            world.configure(world.policy.clone(), list);
        }
    }
}

/// All is well again: every receiver there and answering, nothing silenced, no backlog.
fn calm_down(world: &mut World) {
    world.modes.clear();
    world.silences.clear();
    world.hold = false;
    world.configure(world.policy.clone(), receivers());
    world.planner.silences(Vec::new());
    world.planner.hold(false);
}

/// Every receiver that should know of an alert does, for itself or through a storm.
fn check_known(world: &World) {
    for (key, episode) in &world.alerts {
        let Some(alert) = world.planner.alerts.get(key) else {
            continue;
        };
        for entry in &alert.entries {
            if episode.ended.is_some() || entry.left {
                continue;
            }
            if let Some(storm) = &entry.storm {
                let heard = &world.heard[&(entry.receiver.clone(), storm.clone())];
                assert!(heard.open(), "{key}: {storm} is not open");
                continue;
            }
            let named = if entry.receiver == "strict" {
                Severity::Critical
            } else {
                Severity::Info
            };
            let line = match &entry.way {
                Way::Alone(line) => &line.key,
                Way::Group { key, .. } => key,
            };
            let heard = world.heard.get(&(entry.receiver.clone(), line.clone()));
            let open = heard.is_some_and(|h| h.open());
            assert!(
                open || episode.severity < named,
                "{key} is not known to {}",
                entry.receiver
            );
            let in_order = heard.filter(|h| open && !h.replayed);
            let Some(last) = in_order.and_then(|h| h.notices.last()) else {
                continue;
            };
            match &entry.way {
                Way::Alone(_) => assert_eq!(last.severity, episode.severity, "{key}"),
                Way::Group { .. } => {
                    let listed = last.episodes.iter().any(|e| {
                        e.id == episode.id && e.severity == episode.severity && e.ended.is_none()
                    });
                    assert!(listed, "{key} is not in the group's last message");
                }
            }
        }
    }
}

fn check_closed(world: &World) {
    for ((receiver, key), heard) in &world.heard {
        assert!(!heard.open(), "{key} is still open at {receiver}");
        let once = |pair: &[crate::alert::Notice]| pair[0].kind != pair[1].kind;
        let ends = heard.notices.windows(2);
        let twice =
            ends.filter(|pair| pair[0].kind == crate::alert::NoticeKind::Resolved && !once(pair));
        assert!(heard.doubtful || twice.count() == 0, "{key} closed twice");
    }
}

fn same_memory(one: &World, two: &World) {
    for (id, doc) in &one.docs {
        assert_eq!(Some(doc), two.docs.get(id), "{id}");
    }
    assert_eq!(one.docs.len(), two.docs.len());
}

/// `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(100)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_receivers_know_in_the_end(
        config in policies(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut world = World::new(config, receivers());
        for op in &ops {
            apply(&mut world, op);
        }
        calm_down(&mut world);
        world.pass(Duration::from_secs(9 * 3_600));
        check_known(&world);
        for n in 0..6 {
            world.end(&key(n));
        }
        world.pass(Duration::from_secs(100 * 3_600));
        check_closed(&world);
        let left: BTreeSet<&String> = world
            .docs
            .keys()
            .filter(|id| !id.starts_with("receiver:"))
            .collect();
        prop_assert!(left.is_empty(), "left behind: {left:?}");
        prop_assert!(world.planner.next_due().is_none());
    }

    #[test]
    fn a_fresh_process_decides_as_the_old_one_would(
        config in policies(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut one = World::new(config.clone(), receivers());
        let mut two = World::new(config, receivers());
        for op in &ops {
            // What is lost with the process is not part of the comparison.
            if matches!(op, Op::Ack(..) | Op::Die | Op::Restart | Op::Hold(_)) {
                continue;
            }
            apply(&mut one, op);
            apply(&mut two, op);
            one.plan();
            two.plan();
            two.planner = reloaded(&two.docs, &two.policy, &two.receivers);
            two.planner.silences(two.silences.clone());
            prop_assert_eq!(&one.sent, &two.sent);
            same_memory(&one, &two);
        }
        one.pass(Duration::from_secs(1));
        two.pass(Duration::from_secs(1));
        same_memory(&one, &two);
    }
}
