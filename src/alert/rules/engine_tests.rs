//! What the engine promises, told as short stories: readings and ticks in, changes out.

use std::time::Duration;

use super::*;
use crate::alert::{Change, EndReason, Episode};
use crate::config::RuleConfig;
use crate::model::{FieldValue, Timestamp};

/// An engine, its transitions, and words to talk to it. Times are seconds after an epoch that
/// every story shares.
pub struct Story {
    pub engine: Engine,
    pub out: Vec<Transition>,
    seen: usize,
}

pub const EPOCH_MS: i64 = 1_773_000_000_000;

pub fn at(secs: f64) -> Timestamp {
    Timestamp::from_millis(EPOCH_MS + (secs * 1_000.0) as i64)
}

pub fn rules(toml: &str) -> Arc<RuleSet> {
    #[derive(serde::Deserialize)]
    struct File {
        #[serde(default)]
        rules: Vec<RuleConfig>,
    }
    let file: File = toml::from_str(toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    let (set, problems) = RuleSet::compile(&file.rules);
    assert_eq!(problems, [], "{toml}");
    Arc::new(set)
}

/// One rule `r` over everything.
fn rule(body: &str) -> Arc<RuleSet> {
    rules(&format!(
        "[[rules]]\nid = 'r'\nselect = {{ all = true }}\n{body}"
    ))
}

pub fn device(id: &str) -> DeviceId {
    DeviceId::new(id).unwrap()
}

pub fn sample(id: &str, secs: f64, received: f64, fields: &[(&str, FieldValue)]) -> Sample {
    Sample {
        device: device(id),
        kind: Some("probe".into()),
        stream: "telemetry".into(),
        topic: Some("a/b".into()),
        tags: vec![("site".into(), "north".into())],
        at: at(secs),
        received: at(received),
        fields: fields
            .iter()
            .map(|(n, v)| ((*n).into(), v.clone()))
            .collect(),
    }
}

impl Story {
    fn new(rules: Arc<RuleSet>) -> Self {
        Self {
            engine: Engine::new(rules),
            out: Vec::new(),
            seen: 0,
        }
    }

    fn says(&mut self, secs: f64, value: f64) -> String {
        self.reads(sample("d", secs, secs, &[("t", FieldValue::Double(value))]))
    }

    fn reads(&mut self, sample: Sample) -> String {
        self.engine.sample(&sample, &mut self.out);
        self.news()
    }

    fn ticks(&mut self, secs: f64) -> String {
        self.engine.tick(at(secs), false, &mut self.out);
        self.news()
    }

    /// Ticks every ten seconds, as a live stream does.
    fn passes(&mut self, from: f64, to: f64) -> String {
        let mut secs = from;
        while secs < to {
            self.engine.tick(at(secs), false, &mut self.out);
            secs += 10.0;
        }
        self.ticks(to)
    }

    /// What is new, as `change level @seconds`, and the state.
    fn news(&mut self) -> String {
        let new = &self.out[self.seen..];
        let told: Vec<_> = new
            .iter()
            .map(|t| {
                let secs = (t.at.millis() - EPOCH_MS) as f64 / 1_000.0;
                let reason = t
                    .episode
                    .ended
                    .map(|ended| format!(" {}", ended.reason.name()));
                format!(
                    "{} {}{} @{secs}",
                    t.change.name(),
                    t.episode.severity,
                    reason.unwrap_or_default()
                )
            })
            .collect();
        self.seen = self.out.len();
        told.join("; ")
    }

    fn state(&self) -> &'static str {
        let instance = self.engine.instance("r", &device("d"));
        instance.map_or("ok", |instance| instance.state().name())
    }

    fn last(&self) -> &Episode {
        &self.out.last().expect("something was told").episode
    }
}

#[test]
fn a_ladder_with_hysteresis_goes_up_and_down() {
    let mut story = Story::new(rule(
        "field = 't'\nop = '>'\nlevels = { warning = { at = 6, clear = 5, for = '60s' }, critical = { at = 10, clear = 8 } }",
    ));
    assert_eq!(story.says(0.0, 6.0), "");
    assert_eq!(story.state(), "ok", "> excludes its end");
    story.says(10.0, 7.0);
    assert_eq!(story.state(), "pending");
    assert_eq!(story.says(69.9, 7.0), "");
    assert_eq!(
        story.says(70.0, 7.0),
        "fired warning @70",
        "for includes its end"
    );
    assert_eq!(story.last().started_at, at(10.0));
    assert_eq!(story.says(80.0, 5.5), "", "between clear and at: held");
    assert_eq!(story.says(90.0, 12.0), "escalated critical @90");
    assert_eq!(story.says(100.0, 8.5), "", "held");
    assert_eq!(story.says(110.0, 8.0), "deescalated warning @110");
    let peak = story.last().peak;
    assert_eq!(peak, Some(12.0));
    assert_eq!(
        story.says(120.0, 5.0),
        "resolved warning condition_cleared @120"
    );
    assert_eq!(story.last().value, Some(5.0.into()));
    assert_eq!(
        (story.last().threshold, story.last().clear),
        (Some(6.0), Some(5.0))
    );
    assert_eq!(story.says(130.0, 7.0), "");
    assert_eq!(
        story.state(),
        "pending",
        "clear applies only while it fires"
    );
    assert_eq!(story.says(140.0, 5.5), "");
    assert_eq!(story.state(), "ok");
}

#[test]
fn the_worst_level_fires_at_once_and_may_fall_on_one_that_never_waited() {
    let mut story = Story::new(rule(
        "field = 't'\nop = '>='\nlevels = { warning = { at = 5, for = '1h' }, critical = { at = 10 } }",
    ));
    assert_eq!(story.says(0.0, 10.0), "fired critical @0");
    assert_eq!(story.says(1.0, 7.0), "deescalated warning @1");
    assert_eq!(
        story.says(2.0, 4.9),
        "resolved warning condition_cleared @2"
    );
}

#[test]
fn recovery_takes_its_time() {
    let mut story = Story::new(rule(
        "field = 't'\nop = '<'\nat = 3\nclear = 4\nseverity = 'error'\nrecover_for = '30s'",
    ));
    assert_eq!(story.says(0.0, 2.0), "fired error @0");
    assert_eq!(story.says(10.0, 4.0), "");
    assert_eq!(story.state(), "recovering");
    assert_eq!(story.says(20.0, 3.5), "");
    assert_eq!(story.state(), "firing", "not clear after all");
    story.says(30.0, 5.0);
    assert_eq!(story.says(59.9, 5.0), "");
    assert_eq!(
        story.says(60.0, 5.0),
        "resolved error condition_cleared @60"
    );
    // A second episode is another one, of the same alert, and numbered higher.
    let first = story.last().clone();
    assert_eq!(story.says(70.0, 1.0), "fired error @70");
    let second = story.last();
    assert_eq!(first.key, second.key);
    assert!(first.id != second.id && second.sequence > first.sequence);
}

#[test]
fn a_gap_in_the_data_is_not_time_in_which_the_condition_held() {
    let body = "field = 't'\nop = '>'\nat = 5\nfor = '60s'\nexpected_interval = '10s'";
    let mut story = Story::new(rule(body));
    story.says(0.0, 9.0);
    assert_eq!(story.says(100.0, 9.0), "", "the for starts again");
    assert_eq!(story.says(130.0, 9.0), "");
    assert_eq!(story.says(160.0, 9.0), "fired warning @160");
    let mut story = Story::new(rule(&format!("{body}\non_gap = 'bridge'")));
    story.says(0.0, 9.0);
    assert_eq!(story.says(100.0, 9.0), "fired warning @100");
    // What the registry says of the device counts where the rule says nothing.
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5\nfor = '60s'"));
    let slow = Device {
        expected_interval: Some(Duration::from_secs(10)),
        ..Device::new(device("d"))
    };
    story.engine.device_changed(slow, at(0.0), &mut story.out);
    story.says(0.0, 9.0);
    assert_eq!(story.says(100.0, 9.0), "");
}

#[test]
fn on_the_wall_clock_a_for_ends_by_itself() {
    let mut story = Story::new(rule(
        "field = 't'\nop = '>'\nat = 5\nfor = '60s'\nclock = 'wall'",
    ));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    assert_eq!(story.passes(10.0, 59.0), "");
    assert_eq!(story.engine.next_deadline(), Some(at(60.0)));
    assert_eq!(
        story.ticks(63.0),
        "fired warning @60",
        "at the deadline, not at the tick"
    );
    // The same without a tick in between: the deadline comes before the reading.
    let mut story = Story::new(rule(
        "field = 't'\nop = '>'\nat = 5\nfor = '60s'\nclock = 'wall'",
    ));
    story.says(0.0, 9.0);
    assert_eq!(
        story.says(70.0, 1.0),
        "fired warning @60; resolved warning condition_cleared @70"
    );
    // Silent for too long to know.
    let mut story = Story::new(rule(
        "field = 't'\nop = '>'\nat = 5\nfor = '60s'\nclock = 'wall'\nmax_gap = '30s'",
    ));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    assert_eq!(story.passes(10.0, 100.0), "");
}

#[test]
fn late_repeated_and_old_readings_change_nothing() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5"));
    story.says(100.0, 1.0);
    assert_eq!(story.says(90.0, 9.0), "", "late");
    assert_eq!(story.says(110.0, 9.0), "fired warning @110");
    assert_eq!(story.says(110.0, 9.0), "", "a repeat");
    assert_eq!(story.says(105.0, 1.0), "", "late");
    assert_eq!(
        story.says(110.0, 1.0),
        "resolved warning condition_cleared @110",
        "another of that instant"
    );
    let old = sample(
        "d",
        200.0,
        200.0 + 3_601.0,
        &[("t", FieldValue::Double(9.0))],
    );
    assert_eq!(story.reads(old), "", "history");
    let counts = &story.engine.take_counts()[0].1;
    assert_eq!(
        counts.skipped()[..3],
        [("late", 2), ("duplicate", 1), ("historical", 1)]
    );
    assert_eq!((counts.breach, counts.clear), (1, 2));
}

#[test]
fn what_says_nothing_changes_nothing() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5"));
    story.says(0.0, 9.0);
    for (n, value) in [
        FieldValue::Double(f64::NAN),
        FieldValue::Text("1".into()),
        FieldValue::Bool(false),
        FieldValue::Null,
        FieldValue::Array(vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let secs = 10.0 + n as f64;
        assert_eq!(story.reads(sample("d", secs, secs, &[("t", value)])), "");
        assert_eq!(story.state(), "firing");
    }
    assert_eq!(
        story.reads(sample(
            "d",
            20.0,
            20.0,
            &[("other", FieldValue::Double(0.0))]
        )),
        ""
    );
    let counts = &story.engine.take_counts()[0].1;
    assert_eq!(counts.unknown, 5);
    assert_eq!(
        (counts.nonfinite, counts.mistyped, counts.missing),
        (1, 3, 1)
    );
}

#[test]
fn a_rate_fires_on_the_slope() {
    let mut story = Story::new(rule(
        "kind = 'rate'\nfield = 't'\nop = '>'\nat = 2\nper = '1m'\nwindow = '5m'\nmin_span = '1m'",
    ));
    assert_eq!(story.says(0.0, 20.0), "");
    assert_eq!(story.says(30.0, 30.0), "", "too short a span");
    assert_eq!(story.says(60.0, 23.0), "fired warning @60");
    assert_eq!(story.last().value, Some(3.0.into()));
    assert_eq!(
        story.says(120.0, 24.0),
        "resolved warning condition_cleared @120"
    );
}

#[test]
fn a_count_counts_each_reading_once_also_late_ones() {
    let mut story = Story::new(rule(
        "kind = 'count'\nfield = 'door'\nop = '=='\nvalue = 'open'\nwindow = '10m'\nat_least = 3\nclear_n = 1",
    ));
    let door = |secs, received, word: &str| {
        sample(
            "d",
            secs,
            received,
            &[("door", FieldValue::Text(word.into()))],
        )
    };
    assert_eq!(story.reads(door(0.0, 0.0, "open")), "");
    assert_eq!(story.reads(door(0.0, 1.0, "open")), "", "a repeat");
    assert_eq!(story.reads(door(60.0, 60.0, "open")), "");
    assert_eq!(
        story.reads(door(10.0, 61.0, "open")),
        "",
        "too late to be counted"
    );
    assert_eq!(story.reads(door(45.0, 62.0, "closed")), "");
    assert_eq!(
        story.reads(door(40.0, 63.0, "open")),
        "fired warning @60",
        "late, but counted"
    );
    assert_eq!(story.reads(door(40.0, 64.0, "open")), "");
    assert_eq!(story.last().value, Some(3.into()));
    assert_eq!(
        story.reads(door(630.0, 630.0, "closed")),
        "",
        "two are left"
    );
    assert_eq!(
        story.reads(door(641.0, 641.0, "closed")),
        "resolved warning condition_cleared @641"
    );
}

#[test]
fn a_silent_device_is_missed_by_the_streams_own_time() {
    let body =
        "kind = 'absence'\ntimeout = '5m'\nlevels = { warning = {}, critical = { for = '10m' } }";
    let mut story = Story::new(rule(body));
    story.ticks(0.0);
    story.says(0.0, 1.0);
    story.says(30.0, 1.0);
    assert_eq!(story.passes(40.0, 329.0), "");
    assert_eq!(story.ticks(330.0), "fired warning @330");
    let episode = story.last();
    assert_eq!(
        (episode.started_at, episode.kind.as_str()),
        (at(30.0), "absence")
    );
    assert_eq!(story.passes(340.0, 930.0), "escalated critical @930");
    assert_eq!(
        story.says(1_000.0, 1.0),
        "resolved critical condition_cleared @1000"
    );
    // A reading received before the last one proves nothing new.
    assert_eq!(story.passes(1_000.0, 1_300.0), "fired warning @1300");
    assert_eq!(story.says(990.0, 1.0), "");
    assert_eq!(story.state(), "firing");
}

#[test]
fn a_device_that_never_reported_is_missed_if_the_registry_knows_it() {
    let mut story = Story::new(rules(
        "[[rules]]\nid = 'r'\nkind = 'absence'\ntimeout = '5m'\nselect = { types = ['probe'] }",
    ));
    let probe = Device {
        kind: Some("probe".into()),
        ..Device::new(device("d"))
    };
    let other = Device::new(device("other"));
    story
        .engine
        .devices([probe.clone(), other], at(0.0), &mut story.out);
    assert_eq!(story.passes(0.0, 299.0), "");
    assert_eq!(story.ticks(300.0), "fired warning @300");
    assert_eq!(story.last().device, "d");
    // Out of service: neither missed nor judged.
    let off = Device {
        enabled: false,
        ..probe
    };
    story.engine.device_changed(off, at(400.0), &mut story.out);
    assert_eq!(story.news(), "resolved warning out_of_scope @400");
    assert_eq!(story.says(401.0, 1.0), "");
    assert_eq!(story.passes(401.0, 2_000.0), "");
    assert_eq!(story.engine.take_disabled(), 1);
}

#[test]
fn nobody_is_missed_while_the_gateway_is_blind() {
    let mut story = Story::new(rule("kind = 'absence'\ntimeout = '5m'"));
    story.ticks(0.0);
    story.says(0.0, 1.0);
    for secs in [100.0, 300.0, 900.0] {
        story.engine.tick(at(secs), true, &mut story.out);
    }
    assert_eq!(story.ticks(901.0), "", "thawed: it has two minutes");
    assert_eq!(story.passes(910.0, 1_020.0), "");
    assert_eq!(story.ticks(1_021.0), "fired warning @1021");
    // A hole between ticks is blindness too.
    let mut story = Story::new(rule("kind = 'absence'\ntimeout = '1m'"));
    story.ticks(0.0);
    story.says(0.0, 1.0);
    assert_eq!(story.ticks(900.0), "");
    assert_eq!(story.passes(900.0, 959.0), "");
    assert_eq!(story.ticks(960.0), "fired warning @960");
}

#[test]
fn a_field_is_missed_while_the_device_still_speaks() {
    let mut story = Story::new(rule("kind = 'absence'\ntimeout = '1m'\nfield = 't'"));
    story.ticks(0.0);
    story.says(0.0, 1.0);
    let alive = |secs| sample("d", secs, secs, &[("rssi", FieldValue::Int64(-70))]);
    for secs in [10.0, 20.0, 30.0, 40.0, 50.0, 60.0] {
        story.reads(alive(secs));
        if secs < 60.0 {
            assert_eq!(story.ticks(secs), "");
        }
    }
    assert_eq!(
        story.reads(sample("d", 55.0, 59.0, &[("t", FieldValue::Null)])),
        ""
    );
    assert_eq!(story.ticks(60.0), "fired warning @60");
    assert_eq!(
        story.says(61.0, 1.0),
        "resolved warning condition_cleared @61"
    );
}

#[test]
fn backfill_proves_a_link_but_not_freshness() {
    for (presence, expected) in [
        ("receipt", "resolved warning condition_cleared @400"),
        ("fresh", ""),
    ] {
        let mut story = Story::new(rule(&format!(
            "kind = 'absence'\ntimeout = '1m'\npresence = '{presence}'\nmax_age = '5m'"
        )));
        story.ticks(0.0);
        story.says(0.0, 1.0);
        story.passes(0.0, 390.0);
        let old = sample("d", 10.0, 400.0, &[("t", FieldValue::Double(1.0))]);
        story.news();
        assert_eq!(story.reads(old), expected);
    }
}

#[test]
fn silence_never_resolves_unless_the_rule_says_so() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5\nstale_after = '5m'"));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    story.news();
    assert_eq!(story.passes(0.0, 299.0), "");
    assert_eq!(story.ticks(300.0), "updated warning @300");
    assert_eq!(story.last().flags, ["stale"]);
    assert_eq!(story.passes(300.0, 90_000.0), "");
    assert_eq!(story.state(), "firing");
    assert_eq!(story.says(90_001.0, 9.0), "updated warning @90001");
    assert!(story.last().flags.is_empty());
    let mut story = Story::new(rule(
        "field = 't'\nop = '>'\nat = 5\non_no_data = { resolve_after = '10m' }",
    ));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    story.news();
    assert_eq!(story.passes(0.0, 600.0), "resolved warning no_data @600");
}

#[test]
fn an_acknowledgement_ends_with_its_time_or_with_an_escalation() {
    let mut story = Story::new(rule(
        "field = 't'\nop = '>'\nlevels = { warning = { at = 5 }, critical = { at = 10 } }",
    ));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    story.news();
    assert!(!story.engine.ack("r:none", None, at(1.0), &mut story.out));
    assert!(
        story
            .engine
            .ack("r:d", Some(at(60.0)), at(1.0), &mut story.out)
    );
    assert_eq!(story.news(), "updated warning @1");
    assert_eq!(story.last().flags, ["acked"]);
    assert_eq!(story.passes(10.0, 60.0), "updated warning @60");
    assert!(story.last().flags.is_empty());
    assert!(story.engine.ack("r:d", None, at(61.0), &mut story.out));
    story.news();
    assert_eq!(story.says(62.0, 12.0), "escalated critical @62");
    assert!(story.last().flags.is_empty());
}

#[test]
fn what_was_ended_by_hand_fires_again_only_after_a_clear_reading() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5"));
    story.says(0.0, 9.0);
    story.news();
    assert!(story.engine.resolve("r:d", at(1.0), &mut story.out));
    assert_eq!(story.news(), "resolved warning manual @1");
    assert!(!story.engine.resolve("r:d", at(2.0), &mut story.out));
    assert_eq!(story.says(3.0, 9.0), "");
    assert_eq!(story.says(4.0, 4.0), "");
    assert_eq!(story.says(5.0, 9.0), "fired warning @5");
    // An alert whose key is a hash is found too.
    let odd = |secs| sample("a b/ü", secs, secs, &[("t", FieldValue::Double(9.0))]);
    assert_eq!(story.reads(odd(6.0)), "fired warning @6");
    let key = story.last().key.clone();
    assert!(key.starts_with("h:"));
    assert!(story.engine.resolve(&key, at(7.0), &mut story.out));
}

#[test]
fn a_rule_has_no_more_instances_than_it_may_and_is_not_muted() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5\nmax_instances = 2"));
    let breach = |id: &str, secs| sample(id, secs, secs, &[("t", FieldValue::Double(9.0))]);
    let clear = |id: &str, secs| sample(id, secs, secs, &[("t", FieldValue::Double(1.0))]);
    story.reads(breach("a", 0.0));
    story.reads(breach("b", 0.0));
    assert_eq!(story.reads(breach("c", 0.0)), "");
    assert_eq!(
        story.reads(clear("a", 1.0)),
        "resolved warning condition_cleared @1"
    );
    assert_eq!(story.reads(breach("c", 2.0)), "fired warning @2");
    assert_eq!(story.engine.take_counts()[0].1.limited, 1);
    assert_eq!(story.engine.census().next().unwrap().1.firing, 2);
}

// --- edits -------------------------------------------------------------------------------------

fn edited(before: &str, after: &str) -> (Story, String) {
    let mut story = Story::new(rule(before));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    story.news();
    story.engine.replace(rule(after), at(10.0), &mut story.out);
    let news = story.news();
    (story, news)
}

#[test]
fn an_edit_keeps_or_ends_an_episode_by_what_it_changes() {
    let base = "field = 't'\nop = '>'\nat = 5";
    for (after, expected) in [
        ("field = 't'\nop = '>'\nat = 5\n", ""),
        // Cosmetic.
        (
            "field = 't'\nop = '>'\nat = 5\nname = 'Too warm'\nlabels = { team = 'x' }",
            "updated warning @10",
        ),
        // Judged anew.
        ("field = 't'\nop = '>'\nat = 8", ""),
        (
            "field = 't'\nop = '>'\nat = 20",
            "resolved warning rule_changed @10",
        ),
        (
            "field = 't'\nop = '<'\nat = 5",
            "resolved warning rule_changed @10",
        ),
        ("field = 't'\nop = '>'\nat = 20\nclear = 8", ""),
        // Another subject.
        (
            "field = 'u'\nop = '>'\nat = 5",
            "resolved warning rule_changed @10",
        ),
        (
            "kind = 'absence'\ntimeout = '5m'",
            "resolved warning rule_changed @10",
        ),
        // Disabled.
        (
            "field = 't'\nop = '>'\nat = 5\nenabled = false",
            "resolved warning rule_disabled @10",
        ),
    ] {
        let (story, news) = edited(base, after);
        assert_eq!(news, expected, "{after}");
        let open = expected.is_empty() || expected.starts_with("updated");
        assert_eq!(
            story.engine.episodes().count(),
            usize::from(open),
            "{after}"
        );
    }
}

#[test]
fn a_milder_ladder_lowers_the_level() {
    let (_, news) = edited(
        "field = 't'\nop = '>'\nlevels = { warning = { at = 5 }, critical = { at = 8 } }",
        "field = 't'\nop = '>'\nlevels = { warning = { at = 5 }, critical = { at = 12 } }",
    );
    assert_eq!(news, "deescalated warning @10");
}

#[test]
fn a_deleted_rule_ends_its_episodes_and_another_selector_those_it_leaves_out() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5\nname = 'Warm'"));
    story.says(0.0, 9.0);
    story.news();
    story
        .engine
        .replace(Arc::default(), at(5.0), &mut story.out);
    assert_eq!(story.news(), "resolved warning rule_deleted @5");
    assert_eq!(story.last().name, "Warm", "told from the snapshot");
    let body = "field = 't'\nop = '>'\nat = 5";
    for (select, expected) in [
        ("types = ['probe']", ""),
        ("tags = { site = 'north' }", ""),
        ("topics = ['a/+']", ""),
        ("topics = ['x/#']", "resolved warning out_of_scope @5"),
        (
            "tags = { site = 'south' }",
            "resolved warning out_of_scope @5",
        ),
        ("devices = ['x*']", "resolved warning out_of_scope @5"),
    ] {
        let mut story = Story::new(rule(body));
        story.says(0.0, 9.0);
        story.news();
        let narrower = rules(&format!(
            "[[rules]]\nid = 'r'\nselect = {{ {select} }}\n{body}"
        ));
        story.engine.replace(narrower, at(5.0), &mut story.out);
        assert_eq!(story.news(), expected, "{select}");
    }
}

#[test]
fn pending_timers_survive_only_a_looser_trigger() {
    for (after, expected) in [(4, "fired warning @60"), (6, "fired warning @70")] {
        let body = |at: i32| format!("field = 't'\nop = '>'\nat = {at}\nfor = '60s'");
        let mut story = Story::new(rule(&body(5)));
        story.says(0.0, 9.0);
        story.says(10.0, 9.0);
        story
            .engine
            .replace(rule(&body(after)), at(20.0), &mut story.out);
        story.says(60.0, 9.0);
        story.says(70.0, 9.0);
        story.seen = 0;
        assert_eq!(story.news(), expected);
    }
}

#[test]
fn rules_may_come_and_go_around_one_that_fires() {
    let with = |ids: &[&str]| {
        let one = |id: &&str| {
            format!(
                "[[rules]]\nid = '{id}'\nselect = {{ all = true }}\nfield = 't'\nop = '>'\nat = 5\n"
            )
        };
        rules(&ids.iter().map(one).collect::<String>())
    };
    let mut story = Story::new(with(&["b", "r", "z"]));
    story.says(0.0, 9.0);
    story.news();
    story
        .engine
        .replace(with(&["a", "r"]), at(1.0), &mut story.out);
    assert_eq!(
        story.news(),
        "resolved warning rule_deleted @1; resolved warning rule_deleted @1"
    );
    story
        .engine
        .replace(with(&["0", "1", "a", "r", "x"]), at(2.0), &mut story.out);
    assert_eq!(story.news(), "");
    assert_eq!(story.state(), "firing");
    let census: u64 = story.engine.census().map(|(_, census)| census.firing).sum();
    assert_eq!(census, 1);
    assert!(
        story
            .says(3.0, 1.0)
            .ends_with("resolved warning condition_cleared @3")
    );
}

// --- devices -----------------------------------------------------------------------------------

#[test]
fn a_device_that_leaves_the_selector_or_the_registry_ends_its_episodes() {
    let body =
        "[[rules]]\nid = 'r'\nselect = { tags = { tier = 'prod' } }\nfield = 't'\nop = '>'\nat = 5";
    let tier = |tier: &str| Device {
        tags: vec![("tier".into(), tier.into())],
        ..Device::new(device("d"))
    };
    // Readings carry what the registry says.
    let mut breach = sample("d", 1.0, 1.0, &[("t", FieldValue::Double(9.0))]);
    breach.tags.push(("tier".into(), "prod".into()));
    let mut story = Story::new(rules(body));
    story
        .engine
        .device_changed(tier("prod"), at(0.0), &mut story.out);
    assert_eq!(story.reads(breach.clone()), "fired warning @1");
    story
        .engine
        .device_changed(tier("prod"), at(2.0), &mut story.out);
    assert_eq!(story.news(), "");
    story
        .engine
        .device_changed(tier("test"), at(3.0), &mut story.out);
    assert_eq!(story.news(), "resolved warning out_of_scope @3");
    let mut story = Story::new(rules(body));
    story
        .engine
        .device_changed(tier("prod"), at(0.0), &mut story.out);
    story.reads(breach.clone());
    story.news();
    story
        .engine
        .device_deleted(&device("d"), at(4.0), &mut story.out);
    assert_eq!(story.news(), "resolved warning device_deleted @4");
    assert_eq!(story.reads(breach), "", "a replay opens nothing again");
}

// --- storage -----------------------------------------------------------------------------------

#[test]
fn documents_and_marks_come_back_from_bson_and_json() {
    let set = rules(
        "[[rules]]\nid = 'a'\nselect = { all = true }\nfield = 't'\nop = '>'\nat = 5\nrepeat = { warning = '1h' }\ncooldown = '1m'\n\
         [[rules]]\nid = 'b'\nselect = { all = true }\nkind = 'count'\nfield = 't'\nop = '>'\nvalue = 0\nwindow = '1h'\nat_least = 9\n\
         [[rules]]\nid = 'c'\nselect = { all = true }\nkind = 'rate'\nfield = 't'\nop = '>'\nat = 1e9\nper = '1s'\nwindow = '1h'\n\
         [[rules]]\nid = 'd'\nselect = { all = true }\nkind = 'absence'\ntimeout = '1h'\n",
    );
    let mut story = Story::new(Arc::clone(&set));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    story.says(1.0, 2.5);
    story.reads(sample("e", 1.0, 1.0, &[("t", FieldValue::Double(9.0))]));
    let stored = story.engine.checkpoint();
    assert_eq!(stored.documents.len(), 2);
    assert_eq!(
        stored
            .buckets
            .iter()
            .map(|b| b.devices.len())
            .sum::<usize>(),
        2
    );
    let bson = mongodb::bson::to_document(&stored).unwrap();
    let from_bson: Checkpoint = mongodb::bson::from_document(bson).unwrap();
    assert_eq!(from_bson, stored);
    let json = serde_json::to_string(&stored).unwrap();
    assert_eq!(serde_json::from_str::<Checkpoint>(&json).unwrap(), stored);
    let mut again = Engine::new(set);
    let mut out = Vec::new();
    again.load(
        stored.documents.clone(),
        stored.buckets.clone(),
        stored.clock,
        at(2.0),
        &mut out,
    );
    assert_eq!(out, []);
    assert_eq!(again.episodes().count(), 1);
    // Nothing has changed: nothing is stored.
    let idle = again.checkpoint();
    assert_eq!((idle.documents.len(), idle.buckets.len()), (0, 0));
}

#[test]
fn an_edit_while_nobody_looked_is_found_at_the_next_start() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5\nname = 'Warm'"));
    story.says(0.0, 9.0);
    let stored = story.engine.checkpoint();
    for (set, expected) in [
        (
            Arc::default(),
            Some((Change::Resolved, Some(EndReason::RuleDeleted))),
        ),
        (
            rule("field = 't'\nop = '>'\nat = 5\nname = 'Warm'\nenabled = false"),
            Some((Change::Resolved, Some(EndReason::RuleDisabled))),
        ),
        (
            rule("field = 't'\nop = '>'\nat = 12\nname = 'Warm'"),
            Some((Change::Resolved, Some(EndReason::RuleChanged))),
        ),
        (
            rule("field = 't'\nop = '>'\nat = 5\nname = 'Hot'"),
            Some((Change::Updated, None)),
        ),
        (rule("field = 't'\nop = '>'\nat = 5\nname = 'Warm'"), None),
    ] {
        let mut engine = Engine::new(set);
        let mut out = Vec::new();
        engine.load(
            stored.documents.clone(),
            stored.buckets.clone(),
            stored.clock,
            at(9.0),
            &mut out,
        );
        let told = out
            .first()
            .map(|t| (t.change, t.episode.ended.map(|ended| ended.reason)));
        assert_eq!(told, expected);
    }
}

#[test]
fn what_is_ok_again_keeps_its_document_until_a_checkpoint_has_its_mark() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5\nfor = '1m'"));
    story.says(0.0, 9.0);
    assert_eq!(story.engine.take_dirty().documents.len(), 1);
    story.says(1.0, 1.0);
    assert_eq!(story.engine.take_dirty(), Dirty::default());
    let stored = story.engine.checkpoint();
    assert_eq!(stored.removed, ["r:d"]);
    assert_eq!(stored.buckets.len(), 1);
}

#[test]
fn what_is_removed_and_there_again_in_one_round_is_written() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5"));
    story.says(0.0, 9.0);
    assert_eq!(story.engine.take_dirty().documents.len(), 1);
    let other = rule("field = 'u'\nop = '>'\nat = 5");
    story.engine.replace(other, at(1.0), &mut story.out);
    story.reads(sample("d", 2.0, 2.0, &[("u", FieldValue::Double(9.0))]));
    let dirty = story.engine.take_dirty();
    assert_eq!((dirty.documents.len(), dirty.removed.len()), (1, 0));
}

#[test]
fn what_ended_is_remembered_for_a_day_and_old_marks_are_forgotten() {
    let mut story = Story::new(rule("field = 't'\nop = '>'\nat = 5"));
    story.ticks(0.0);
    story.says(0.0, 9.0);
    story.says(1.0, 1.0);
    let stored = story.engine.checkpoint();
    assert_eq!(stored.documents.len(), 1);
    story.passes(10.0, 86_000.0);
    assert_eq!(story.engine.checkpoint().removed, [""; 0]);
    story.passes(86_000.0, 86_402.0);
    assert_eq!(story.engine.checkpoint().removed, ["r:d"]);
    story.reads(sample(
        "e",
        86_402.0,
        86_402.0,
        &[("t", FieldValue::Double(1.0))],
    ));
    story.passes(86_402.0, 86_402.0 + 3_600.0 + 400.0);
    story
        .engine
        .buckets
        .iter_mut()
        .for_each(|bucket| bucket.1 = true);
    let marks = story.engine.checkpoint().buckets;
    assert!(marks.iter().all(|bucket| bucket.devices.is_empty()));
    assert!(story.engine.slots.is_empty());
}

#[test]
fn the_order_of_devices_does_not_decide_what_is_told_first() {
    let set = || rule("kind = 'absence'\ntimeout = '1m'");
    let mut orders = Vec::new();
    for _ in 0..3 {
        let mut story = Story::new(set());
        story.ticks(0.0);
        for n in 0..50 {
            story.reads(sample(
                &format!("d{n}"),
                0.0,
                0.0,
                &[("t", FieldValue::Int64(1))],
            ));
        }
        story.passes(10.0, 60.0);
        orders.push(
            story
                .out
                .iter()
                .map(|t| t.episode.device.clone())
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(orders[0].len(), 50);
    assert!(orders.iter().all(|order| *order == orders[0]));
}
