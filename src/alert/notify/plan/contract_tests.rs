//! The contract of suppression, played through: what receivers hear, and what they do not.

use std::time::Duration;

use super::world_tests::{Mode, World, policy, receiver};
use super::{By, RemarkKind};
use crate::alert::{EndReason, NoticeKind};
use crate::config::{Incident, QuietConfig, Span};
use crate::model::{Severity, Timestamp};

use NoticeKind::{Firing, Repeat, Resolved, Update};

const HOUR: u64 = 3_600;
const KEY: &str = "hot:d1";

fn fire(world: &mut World) {
    world.fire("hot", "d1", Severity::Warning);
}

fn heard(world: &World) -> Vec<NoticeKind> {
    world.told("oncall", KEY)
}

#[test]
fn told_at_once_and_once() {
    let mut world = World::alone();
    fire(&mut world);
    assert_eq!(world.plan(), 1, "in the very turn");
    let notice = world.rows[0].notice.clone();
    assert_eq!(notice.key, "tidegate:hot:d1");
    assert_eq!((notice.kind, notice.at), (Firing, world.now));
    world.run();
    world.secs(60);
    world.end(KEY);
    world.secs(60);
    assert_eq!(heard(&world), [Firing, Resolved]);
    let resolved = &world.rows[1].notice;
    assert_eq!(resolved.severity, Severity::Warning);
    assert!(resolved.sequence > notice.sequence);
    world.secs(24 * HOUR);
    assert_eq!(heard(&world).len(), 2);
}

#[test]
fn reminded_from_the_last_accepted_and_not_while_somebody_knows() {
    let mut world = World::alone();
    fire(&mut world);
    world.run();
    world.secs(3 * HOUR);
    assert_eq!(heard(&world), [Firing]);
    world.secs(2 * HOUR);
    assert_eq!(heard(&world), [Firing, Repeat]);
    world.planner.acked(KEY, None);
    world.secs(24 * HOUR);
    assert_eq!(heard(&world), [Firing, Repeat]);
    // Worse: told, and nobody knows of this any more.
    world.level(KEY, Severity::Critical);
    world.secs(5 * HOUR);
    assert_eq!(heard(&world), [Firing, Repeat, Update, Repeat]);
    // For a while only.
    let until = world.now.plus(Duration::from_secs(10 * HOUR));
    world.planner.acked(KEY, Some(until));
    world.secs(9 * HOUR);
    assert_eq!(heard(&world).len(), 4);
    world.secs(2 * HOUR);
    assert_eq!(heard(&world).len(), 5);
}

#[test]
fn a_rule_may_wish_for_other_times() {
    let mut world = World::alone();
    world.policy.cooldown = Span::secs(300);
    world.configure(world.policy.clone(), world.receivers.clone());
    fire(&mut world);
    world.run();
    world.update(KEY, |episode| {
        episode
            .wishes
            .repeat
            .insert(Severity::Warning, Duration::from_secs(600));
        episode.wishes.cooldown = Some(Duration::ZERO);
    });
    world.secs(HOUR);
    let repeats = heard(&world).len() - 1;
    assert!((5..=6).contains(&repeats), "{repeats}");
    world.end(KEY);
    world.secs(1);
    world.fire("hot", "d1", Severity::Warning);
    world.secs(1);
    assert_eq!(heard(&world).last(), Some(&Resolved));
    world.update(KEY, |episode| {
        episode.wishes.cooldown = Some(Duration::ZERO)
    });
    world.secs(1);
    assert_eq!(heard(&world).last(), Some(&Firing));
}

#[test]
fn over_before_anybody_tried_is_never_told() {
    let mut world = World::alone();
    fire(&mut world);
    world.plan();
    world.end(KEY);
    world.run();
    assert_eq!(heard(&world), []);
    assert_eq!(world.remarked(RemarkKind::CancelledUnsent), 1);
    // Both in one turn.
    fire(&mut world);
    world.end(KEY);
    world.run();
    assert_eq!(world.rows.len(), 1);
    assert_eq!(world.remarked(RemarkKind::CancelledUnsent), 2);
    assert!(world.docs.keys().all(|id| id.starts_with("receiver:")));
}

#[test]
fn over_before_anybody_tried_is_told_where_that_is_wanted() {
    let mut config = policy();
    config.notify_short_lived = true;
    let mut world = World::new(config, vec![receiver("oncall", Incident::Alert)]);
    fire(&mut world);
    world.end(KEY);
    world.run();
    assert_eq!(heard(&world), [Firing, Resolved]);
    assert!(world.rows[0].notice.episodes[0].ended.is_none());
    fire(&mut world);
    world.plan();
    world.end(KEY);
    world.run();
    assert_eq!(heard(&world), [Firing, Resolved, Firing, Resolved]);
}

#[test]
fn an_answer_that_was_lost_obliges() {
    for (mode, expected) in [
        (Mode::Lost, &[Firing, Resolved][..]),
        (Mode::Timeout, &[Resolved][..]),
        (Mode::Down, &[][..]),
    ] {
        let mut world = World::alone();
        world.modes.insert("oncall".into(), mode);
        fire(&mut world);
        world.run();
        world.end(KEY);
        world.plan();
        world.modes.clear();
        world.secs(10);
        assert_eq!(heard(&world), expected, "{mode:?}");
    }
}

#[test]
fn a_long_outage_leaves_nothing_stale_behind() {
    let mut world = World::alone();
    fire(&mut world);
    world.fire("hot", "d2", Severity::Warning);
    world.run();
    world.modes.insert("oncall".into(), Mode::Down);
    world.level(KEY, Severity::Critical);
    world.secs(5 * HOUR);
    world.level(KEY, Severity::Warning);
    world.fire("hot", "d3", Severity::Warning);
    world.secs(600);
    world.end("hot:d3");
    world.end("hot:d2");
    world.fire("hot", "d4", Severity::Warning);
    world.secs(HOUR);
    world.modes.clear();
    world.secs(60);
    assert_eq!(world.told("oncall", "hot:d2"), [Firing, Resolved]);
    assert_eq!(world.told("oncall", "hot:d3"), []);
    assert_eq!(world.told("oncall", "hot:d4"), [Firing]);
    assert_eq!(heard(&world).first(), Some(&Firing));
    assert!(heard(&world).len() <= 2, "{:?}", heard(&world));
}

#[test]
fn a_refusal_is_not_repeated_in_a_loop_and_is_never_the_last_word() {
    let mut world = World::alone();
    world.modes.insert("oncall".into(), Mode::Reject);
    fire(&mut world);
    world.run();
    world.secs(3 * HOUR);
    assert_eq!(world.rows.len(), 1);
    assert_eq!(world.remarked(RemarkKind::Undelivered), 1);
    let held = world.planner.suppressed(KEY)[0].held.clone().unwrap();
    assert_eq!(held.by, By::Refused);
    // At the time of a reminder.
    world.secs(HOUR + 1);
    assert_eq!(world.rows.len(), 2);
    // Worse: at once.
    world.level(KEY, Severity::Critical);
    world.secs(1);
    assert_eq!(world.rows.len(), 3);
    world.end(KEY);
    world.secs(24 * HOUR);
    assert_eq!(world.rows.len(), 3);
    assert_eq!(world.remarked(RemarkKind::NeverNotified), 1);
    // The next episode is something new.
    world.modes.clear();
    fire(&mut world);
    world.run();
    assert_eq!(heard(&world), [Firing]);
    // Its end is refused for a while, and told in the end.
    world.modes.insert("oncall".into(), Mode::Reject);
    world.end(KEY);
    world.secs(9 * HOUR);
    world.modes.clear();
    world.secs(5 * HOUR);
    assert_eq!(heard(&world), [Firing, Resolved]);
}

#[test]
fn rows_sent_again_by_hand_are_owed_an_end() {
    let mut world = World::alone();
    world.modes.insert("oncall".into(), Mode::Reject);
    fire(&mut world);
    world.run();
    world.end(KEY);
    world.secs(HOUR);
    assert!(world.docs.keys().all(|id| id.starts_with("receiver:")));
    world.modes.clear();
    // Long forgotten.
    world.replay(0);
    world.run();
    assert_eq!(heard(&world), [Firing, Resolved]);
    // Still firing: it is known, and its end is told when it comes.
    world.modes.insert("oncall".into(), Mode::Reject);
    fire(&mut world);
    world.run();
    world.modes.clear();
    let last = world.rows.len() - 1;
    world.replay(last);
    world.secs(HOUR);
    assert_eq!(heard(&world).last(), Some(&Firing));
    world.end(KEY);
    world.run();
    assert_eq!(heard(&world), [Firing, Resolved, Firing, Resolved]);
}

#[test]
fn groups_and_storms_sent_again_by_hand_are_owed_an_end() {
    let mut config = policy();
    config.storm.open = 2;
    config.storm.close = 1;
    let receivers = vec![
        receiver("oncall", Incident::Alert),
        receiver("chat", Incident::Group),
    ];
    let mut world = World::new(config, receivers);
    for name in ["oncall", "chat"] {
        world.modes.insert(name.into(), Mode::Reject);
    }
    for device in ["d1", "d2", "d3"] {
        world.fire("hot", device, Severity::Critical);
    }
    world.run();
    for device in ["d1", "d2", "d3"] {
        world.end(&format!("hot:{device}"));
    }
    world.secs(HOUR);
    assert!(world.docs.keys().all(|id| id.starts_with("receiver:")));
    assert_eq!(world.rows.len(), 2);
    world.modes.clear();
    world.replay(0);
    world.replay(1);
    world.run();
    for heard in world.heard.values() {
        assert_eq!(heard.kinds(), [Firing, Resolved]);
    }
    world.secs(HOUR);
    assert!(world.docs.keys().all(|id| id.starts_with("receiver:")));
}

#[test]
fn a_row_taken_back_by_hand_is_not_sent_again_at_once() {
    let mut world = World::alone();
    world.modes.insert("oncall".into(), Mode::Down);
    fire(&mut world);
    world.run();
    world.drop_row(0);
    world.modes.clear();
    world.secs(HOUR);
    assert_eq!(heard(&world), []);
    world.secs(4 * HOUR);
    assert_eq!(heard(&world), [Firing]);
    world.modes.insert("oncall".into(), Mode::Down);
    world.end(KEY);
    world.run();
    let last = world.rows.len() - 1;
    world.drop_row(last);
    world.modes.clear();
    world.secs(HOUR);
    assert_eq!(heard(&world), [Firing], "an end taken back is not told");
}

#[test]
fn silence_keeps_the_beginning_and_not_the_end() {
    let mut world = World::alone();
    let hour = Duration::from_secs(HOUR);
    // Before it fires: told late, with its own time.
    world.silence("device=d1", hour);
    let began = world.now;
    fire(&mut world);
    world.secs(HOUR - 1);
    assert_eq!(heard(&world), []);
    assert_eq!(world.remarked(RemarkKind::Suppressed), 1);
    let held = world.planner.suppressed(KEY)[0].held.clone().unwrap();
    assert_eq!(held.by, By::Silence("s0".into()));
    assert_eq!(held.until, Some(began.plus(hour)));
    world.secs(1);
    assert_eq!(heard(&world), [Firing]);
    assert_eq!(world.rows[0].notice.episodes[0].fired_at, began);
    // After it fired: no reminders, no levels, but the end.
    world.silence("rule=~h.*", Duration::from_secs(24 * HOUR));
    world.level(KEY, Severity::Critical);
    world.secs(10 * HOUR);
    assert_eq!(heard(&world), [Firing]);
    world.end(KEY);
    world.secs(1);
    assert_eq!(heard(&world), [Firing, Resolved]);
    // Wholly inside: history only.
    fire(&mut world);
    world.secs(60);
    world.end(KEY);
    world.secs(48 * HOUR);
    assert_eq!(heard(&world), [Firing, Resolved]);
    assert_eq!(world.remarked(RemarkKind::CancelledUnsent), 1);
    let last = world.remarks.last().unwrap();
    assert_eq!(last.by, Some(By::Silence("s1".into())));
}

#[test]
fn silence_takes_back_what_nobody_heard_and_may_be_lifted() {
    let mut world = World::alone();
    world.modes.insert("oncall".into(), Mode::Down);
    fire(&mut world);
    world.run();
    world.silence("device=d1", Duration::from_secs(HOUR));
    world.run();
    world.modes.clear();
    world.secs(60);
    assert_eq!(heard(&world), []);
    world.silences.clear();
    world.planner.silences(Vec::new());
    world.run();
    assert_eq!(heard(&world), [Firing]);
}

#[test]
fn quiet_hours_keep_all_but_the_worst() {
    let mut config = policy();
    // The world begins at 09:15:30 UTC.
    config.quiet = vec![QuietConfig {
        name: "morning".into(),
        windows: vec!["09:00-10:00".parse().unwrap()],
        ..QuietConfig::default()
    }];
    let mut world = World::new(config, vec![receiver("oncall", Incident::Alert)]);
    fire(&mut world);
    world.fire("hot", "d2", Severity::Critical);
    world.secs(60);
    assert_eq!(heard(&world), []);
    assert_eq!(world.told("oncall", "hot:d2"), [Firing]);
    let held = world.planner.suppressed(KEY)[0].held.clone().unwrap();
    assert_eq!(held.by, By::Quiet("morning".into()));
    // It gets worse: told now.
    world.fire("hot", "d3", Severity::Warning);
    world.secs(60);
    world.level("hot:d3", Severity::Critical);
    world.secs(1);
    assert_eq!(world.told("oncall", "hot:d3"), [Firing]);
    world.end("hot:d2");
    world.secs(1);
    assert_eq!(world.told("oncall", "hot:d2"), [Firing, Resolved]);
    world.secs(HOUR);
    assert_eq!(heard(&world), [Firing]);
    let ten: Timestamp = "2026-03-14T10:00:00Z".parse().unwrap();
    let told = world.heard[&("oncall".to_owned(), format!("tidegate:{KEY}"))].notices[0].at;
    assert_eq!(told, ten);
}

#[test]
fn cooldown_keeps_the_next_unless_it_is_worse() {
    let mut config = policy();
    config.cooldown = Span::secs(300);
    let mut world = World::new(config, vec![receiver("oncall", Incident::Alert)]);
    fire(&mut world);
    world.secs(10);
    world.end(KEY);
    world.secs(10);
    // Comes and goes within the cooldown.
    fire(&mut world);
    world.secs(10);
    world.end(KEY);
    world.secs(10);
    assert_eq!(heard(&world), [Firing, Resolved]);
    // Comes and stays: told when it is over, which is counted from the end that was told.
    fire(&mut world);
    world.secs(269);
    assert_eq!(heard(&world), [Firing, Resolved]);
    world.secs(1);
    assert_eq!(heard(&world), [Firing, Resolved, Firing]);
    world.end(KEY);
    world.secs(1);
    world.fire("hot", "d1", Severity::Error);
    world.secs(1);
    assert_eq!(heard(&world), [Firing, Resolved, Firing, Resolved, Firing]);
}

#[test]
fn flapping_is_said_once_and_the_difference_when_it_is_over() {
    for fires_in_the_end in [false, true] {
        let mut config = policy();
        config.flap.high = 5;
        config.flap.low = 1;
        let mut world = World::new(config, vec![receiver("oncall", Incident::Alert)]);
        for _ in 0..5 {
            fire(&mut world);
            world.secs(60);
            world.end(KEY);
            world.secs(60);
        }
        let said = [Firing, Resolved, Firing, Resolved, Firing];
        assert_eq!(heard(&world), said);
        let last = &world.rows.last().unwrap().notice.episodes[0];
        assert_eq!(last.flags, ["flapping"]);
        if fires_in_the_end {
            fire(&mut world);
        }
        world.restart();
        world.secs(2 * HOUR);
        assert_eq!(heard(&world).len(), if fires_in_the_end { 5 } else { 6 });
        assert_eq!(world.remarked(RemarkKind::Flapping), 1);
        assert_eq!(world.remarked(RemarkKind::Steady), 1);
        world.end(KEY);
        world.secs(60);
        assert_eq!(heard(&world).last(), Some(&Resolved));
        assert_eq!(heard(&world).len(), 6);
    }
}

#[test]
fn flapping_that_begins_with_an_end_is_an_update_and_decisions_are_not_held() {
    let mut config = policy();
    config.flap.high = 4;
    let mut world = World::new(config, vec![receiver("oncall", Incident::Alert)]);
    for _ in 0..2 {
        fire(&mut world);
        world.secs(60);
        world.end(KEY);
        world.secs(60);
    }
    assert_eq!(heard(&world), [Firing, Resolved, Firing, Update]);
    let update = &world.rows.last().unwrap().notice.episodes[0];
    assert!(update.ended.is_none());
    fire(&mut world);
    world.secs(60);
    world.end_because(KEY, EndReason::RuleDeleted);
    world.secs(1);
    assert_eq!(heard(&world), [Firing, Resolved, Firing, Update, Resolved]);
}

#[test]
fn a_backlog_collapses_but_is_not_waited_for_for_ever() {
    let mut world = World::alone();
    world.fire("hot", "d2", Severity::Warning);
    world.run();
    world.hold = true;
    world.planner.hold(true);
    fire(&mut world);
    world.end("hot:d2");
    world.secs(5);
    assert_eq!(
        world.told("oncall", "hot:d2"),
        [Firing, Resolved],
        "ends are told"
    );
    world.end(KEY);
    world.secs(5);
    fire(&mut world);
    world.secs(40);
    assert_eq!(heard(&world), []);
    world.secs(10);
    assert_eq!(heard(&world), [Firing], "after a minute");
    world.planner.hold(false);
    world.run();
    world.planner.hold(true);
    world.fire("hot", "d3", Severity::Warning);
    world.secs(5);
    world.planner.hold(false);
    world.run();
    assert_eq!(
        world.told("oncall", "hot:d3"),
        [Firing],
        "as soon as it is done"
    );
}

#[test]
fn what_is_old_waits_until_the_backlog_is_done() {
    let mut world = World::alone();
    world.planner.hold(true);
    world.run();
    world.advance(Duration::from_secs(1));
    fire(&mut world);
    // It comes to light two hours after.
    world.advance(Duration::from_secs(2 * HOUR));
    world.planner.hold(false);
    world.planner.hold(true);
    world.secs(600);
    assert_eq!(heard(&world), []);
    world.planner.hold(false);
    world.run();
    assert_eq!(heard(&world), [Firing]);
}

#[test]
fn routes_are_sticky_and_rises_add_to_them() {
    let mut worst = receiver("worst", Incident::Alert);
    worst.min_severity = Severity::Critical;
    let mut north = receiver("north", Incident::Alert);
    north.matches.insert("site".into(), vec!["nor*".into()]);
    let mut south = receiver("south", Incident::Alert);
    south
        .matches
        .insert("site".into(), vec!["south".into(), "s-*".into()]);
    let mut world = World::new(policy(), vec![worst, north, south]);
    fire(&mut world);
    world.run();
    assert_eq!(world.told("north", KEY), [Firing]);
    assert_eq!(world.told("worst", KEY), []);
    assert_eq!(world.told("south", KEY), []);
    world.level(KEY, Severity::Critical);
    world.run();
    assert_eq!(world.told("north", KEY), [Firing, Update]);
    assert_eq!(world.told("worst", KEY), [Firing]);
    // It stays with who was told, though it is mild again.
    world.level(KEY, Severity::Warning);
    world.run();
    assert_eq!(world.told("worst", KEY), [Firing, Update]);
    // The rule names others: they are told, and those before of the end only.
    world.update(KEY, |episode| episode.receivers = vec!["south".into()]);
    world.run();
    assert_eq!(world.told("south", KEY), [Firing]);
    world.level(KEY, Severity::Error);
    world.secs(10 * HOUR);
    assert_eq!(world.told("north", KEY), [Firing, Update, Update]);
    world.end(KEY);
    world.run();
    for name in ["south", "north", "worst"] {
        assert_eq!(world.told(name, KEY).last(), Some(&Resolved), "{name}");
    }
}

#[test]
fn nobody_to_tell_is_a_line_of_history() {
    let mut world = World::new(policy(), Vec::new());
    fire(&mut world);
    world.run();
    world.end(KEY);
    world.run();
    assert_eq!(world.remarked(RemarkKind::NoReceiver), 1);
    assert!(world.docs.is_empty());
}

#[test]
fn a_receiver_that_is_gone_is_told_the_end_for_three_days() {
    for (days, expected) in [(1, &[Firing, Resolved][..]), (4, &[Firing][..])] {
        let mut world = World::alone();
        fire(&mut world);
        world.run();
        world.configure(policy(), Vec::new());
        world.level(KEY, Severity::Critical);
        world.secs(12 * HOUR);
        world.restart();
        world.secs((days * 24 - 12) * HOUR);
        world.end(KEY);
        world.secs(HOUR);
        assert_eq!(heard(&world), expected, "{days}");
        let abandoned = usize::from(days > 3);
        assert_eq!(world.remarked(RemarkKind::Abandoned), abandoned);
        world.secs(80 * HOUR);
        assert!(world.docs.is_empty(), "{:?}", world.docs.keys());
    }
}

#[test]
fn a_receiver_that_comes_back_goes_on_where_it_was() {
    let mut world = World::alone();
    let receivers = world.receivers.clone();
    fire(&mut world);
    world.run();
    world.configure(policy(), Vec::new());
    world.fire("hot", "d2", Severity::Warning);
    world.level(KEY, Severity::Critical);
    world.secs(HOUR);
    world.configure(policy(), receivers);
    world.secs(60);
    assert_eq!(heard(&world), [Firing, Update]);
    // What began in between was never meant for it.
    assert_eq!(world.told("oncall", "hot:d2"), []);
    world.secs(100 * HOUR);
    world.end(KEY);
    world.run();
    assert_eq!(heard(&world).last(), Some(&Resolved));
}

#[test]
fn a_new_episode_before_the_end_was_told_is_told_after_it() {
    let mut world = World::alone();
    fire(&mut world);
    world.run();
    world.modes.insert("oncall".into(), Mode::Down);
    world.end(KEY);
    fire(&mut world);
    world.run();
    world.secs(60);
    world.modes.clear();
    world.secs(10);
    assert_eq!(heard(&world), [Firing, Resolved, Firing]);
    let first = &world.rows[0].notice.episodes[0].id;
    assert_eq!(&world.rows[1].notice.episodes[0].id, first);
}
