//! Crashes: whatever is killed whenever, with the stream read again from the last checkpoint, the
//! transitions told and the state reached are those of a run that nothing disturbed.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{at, device, rules, sample};
use super::*;
use crate::alert::rules::{InstanceDocument, MarkBucket};
use crate::model::FieldValue;

const RULES: &str = "
[[rules]]
id = 'ladder'
select = { all = true }
field = 't'
op = '>'
levels = { warning = { at = 5, clear = 4, for = '20s' }, critical = { at = 8, recover_for = '15s' } }
expected_interval = '10s'
stale_after = '60s'
[[rules]]
id = 'wall'
select = { all = true }
field = 't'
op = '>='
at = 7
for = '25s'
clock = 'wall'
on_no_data = { resolve_after = '90s' }
[[rules]]
id = 'rate'
select = { all = true }
kind = 'rate'
field = 't'
op = 'outside'
low = -10
high = 10
band = 2
per = '1m'
window = '1m'
min_span = '10s'
[[rules]]
id = 'count'
select = { all = true }
kind = 'count'
field = 't'
op = '>'
value = 5
window = '40s'
allowed_lateness = '15s'
at_least = 3
clear_n = 1
[[rules]]
id = 'silent'
select = { all = true }
kind = 'absence'
timeout = '30s'
recover_for = '10s'
[[rules]]
id = 'field'
select = { devices = ['a*'] }
kind = 'absence'
field = 't'
timeout = '40s'
levels = { warning = {}, critical = { for = '30s' } }
";

#[derive(Debug, Clone)]
enum Fed {
    Reading(Sample),
    Tick(f64, bool),
}

/// What one step of the stream does: who speaks, how long after the step before, how late, what.
type Step = (u8, u8, i8, u8, u8);

/// A stream of readings in order of receipt, out of order in their own time and partly repeated,
/// with a tick after each.
fn stream(steps: &[Step]) -> Vec<Fed> {
    let mut fed = vec![Fed::Tick(0.0, false)];
    let mut received = 0.0;
    let mut sent: Vec<Sample> = Vec::new();
    for (who, pause, lag, value, kind) in steps {
        received += f64::from(*pause % 14);
        let id = ["a1", "a2", "b"][usize::from(*who % 3)];
        let time = received - f64::from(*lag % 20).abs();
        let value = match kind % 12 {
            0 => FieldValue::Double(f64::NAN),
            1 => FieldValue::Text("?".into()),
            _ => FieldValue::Double(f64::from(*value % 12)),
        };
        let name = if kind % 12 == 2 { "other" } else { "t" };
        let reading = match kind % 12 {
            // Delivered again.
            3 if !sent.is_empty() => Sample {
                received: at(received),
                ..sent[usize::from(*who) % sent.len()].clone()
            },
            _ => sample(id, time, received, &[(name, value)]),
        };
        sent.push(reading.clone());
        fed.push(Fed::Reading(reading));
        fed.push(Fed::Tick(received, kind % 37 == 36));
    }
    // Then silence for a while.
    for n in 1..20 {
        fed.push(Fed::Tick(received + 10.0 * f64::from(n), false));
    }
    fed
}

fn feed(engine: &mut Engine, fed: &Fed, out: &mut Vec<Transition>) {
    match fed {
        Fed::Reading(sample) => engine.sample(sample, out),
        Fed::Tick(secs, frozen) => engine.tick(at(*secs), *frozen, out),
    }
}

/// What the database holds.
#[derive(Default)]
struct Stored {
    documents: BTreeMap<String, InstanceDocument>,
    buckets: BTreeMap<u8, MarkBucket>,
    clock: StreamClock,
    position: usize,
    told: Vec<Transition>,
}

impl Stored {
    fn round(&mut self, dirty: Dirty, told: Vec<Transition>) {
        for document in dirty.documents {
            self.documents.insert(document.key.clone(), document);
        }
        for key in dirty.removed {
            self.documents.remove(&key);
        }
        self.told.extend(told);
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint, position: usize) {
        let Checkpoint {
            documents,
            removed,
            buckets,
            clock,
        } = checkpoint;
        self.round(Dirty { documents, removed }, Vec::new());
        self.buckets
            .extend(buckets.into_iter().map(|b| (b.bucket, b)));
        self.clock = clock;
        self.position = position;
    }

    fn engine(&self, rules: &Arc<RuleSet>) -> Engine {
        let mut engine = Engine::new(Arc::clone(rules));
        let mut out = Vec::new();
        let documents = self.documents.values().cloned();
        let buckets = self.buckets.values().cloned();
        engine.load(documents, buckets, self.clock, at(0.0), &mut out);
        assert_eq!(out, []);
        engine
    }
}

/// Alerts in order, each with its own changes in order.
fn by_alert(told: &[Transition]) -> BTreeMap<&str, Vec<&Transition>> {
    let mut alerts: BTreeMap<&str, Vec<&Transition>> = BTreeMap::new();
    for transition in told {
        alerts
            .entry(&transition.episode.key)
            .or_default()
            .push(transition);
    }
    alerts
}

/// Every instance there is, in full.
fn whole(engine: &mut Engine) -> BTreeMap<(String, String), Instance> {
    let mut all = BTreeMap::new();
    for entry in engine.entries.iter().flatten() {
        for (number, instance) in &entry.instances {
            let rule = engine.rules.rules()[*number as usize].id.to_string();
            let mut instance = instance.clone();
            instance.queued = 0;
            instance.dirt = Default::default();
            all.insert((rule, entry.device.as_str().to_owned()), instance);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn crashes_change_nothing(
        steps in proptest::collection::vec(any::<Step>(), 1..80),
        incidents in proptest::collection::vec((0_usize..220, 0_u8..3), 0..12),
    ) {
        let set = rules(RULES);
        let fed = stream(&steps);
        let mut undisturbed = Engine::new(Arc::clone(&set));
        let mut expected = Vec::new();
        for fed in &fed {
            feed(&mut undisturbed, fed, &mut expected);
        }

        let mut stored = Stored::default();
        let mut engine = stored.engine(&set);
        let mut incidents = incidents.clone();
        let mut position = 0;
        while position < fed.len() {
            let mut told = Vec::new();
            feed(&mut engine, &fed[position], &mut told);
            let incident = incidents.iter().position(|(place, _)| *place == position);
            match incident.map(|place| incidents.remove(place).1) {
                // Killed before anything of it was stored.
                Some(0) => {
                    engine = stored.engine(&set);
                    position = stored.position;
                    continue;
                }
                // Killed just after.
                Some(1) => {
                    stored.round(engine.take_dirty(), told);
                    engine = stored.engine(&set);
                    position = stored.position;
                    continue;
                }
                Some(_) => {
                    stored.round(engine.take_dirty(), told);
                    stored.checkpoint(engine.checkpoint(), position + 1);
                }
                None => stored.round(engine.take_dirty(), told),
            }
            position += 1;
        }
        prop_assert_eq!(by_alert(&stored.told), by_alert(&expected));
        prop_assert_eq!(whole(&mut engine), whole(&mut undisturbed));

        // And what was stored last says the same.
        stored.checkpoint(engine.checkpoint(), position);
        prop_assert_eq!(whole(&mut stored.engine(&set)), whole(&mut undisturbed));
    }

    #[test]
    fn what_was_applied_is_not_applied_again(
        steps in proptest::collection::vec(any::<Step>(), 1..60),
        from in 0_usize..60,
    ) {
        let set = rules(RULES);
        let fed = stream(&steps);
        let mut engine = Engine::new(set);
        let mut out = Vec::new();
        fed.iter().for_each(|fed| feed(&mut engine, fed, &mut out));
        let before = whole(&mut engine);
        let told = out.len();
        for fed in &fed[from.min(fed.len())..] {
            feed(&mut engine, fed, &mut out);
        }
        prop_assert_eq!(out.len(), told);
        prop_assert_eq!(whole(&mut engine), before);
    }

    #[test]
    fn every_alert_alternates_and_its_numbers_grow(
        steps in proptest::collection::vec(any::<Step>(), 1..120),
    ) {
        let fed = stream(&steps);
        let mut engine = Engine::new(rules(RULES));
        let mut out = Vec::new();
        fed.iter().for_each(|fed| feed(&mut engine, fed, &mut out));
        let _ = device("d");
        for (key, told) in by_alert(&out) {
            let mut open = false;
            let mut sequence = 0;
            for transition in told {
                use crate::alert::Change::{Fired, Resolved};
                prop_assert!(transition.episode.sequence > sequence, "{}", key);
                sequence = transition.episode.sequence;
                prop_assert_eq!(transition.change == Fired, !open, "{}", key);
                open = transition.change != Resolved;
                prop_assert_eq!(transition.episode.ended.is_none(), open);
            }
        }
    }
}
