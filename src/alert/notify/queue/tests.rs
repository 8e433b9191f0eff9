//! Order, pace, failures and recovery in virtual time: an hour passes in a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::classify::{Class, Verdict};
use super::super::receivers::Rendered;
use super::super::row::{Row, row};
use super::super::testing::{at, notice};
use super::*;
use crate::alert::{Delivery, NoticeKind};
use crate::model::Severity;

const SECOND: Duration = Duration::from_secs(1);

fn verdict(class: Class) -> Verdict {
    Verdict {
        class,
        ambiguous: false,
        pause: None,
        status: Some(500),
        why: "why".into(),
    }
}

fn made(receiver: &str, key: &str, sequence: u64, kind: NoticeKind, severity: Severity) -> Row {
    let mut notice = notice(kind);
    notice.id = format!("{receiver}-{key}-{sequence}");
    receiver.clone_into(&mut notice.receiver);
    key.clone_into(&mut notice.key);
    notice.sequence = sequence;
    notice.severity = severity;
    let rendered = Rendered {
        body: "whole".into(),
        minimal: Some("min".into()),
        flaws: Vec::new(),
    };
    row(&notice, rendered, Some("me"), at("10:00:00"))
}

fn firing(key: &str, sequence: u64) -> Row {
    made("r", key, sequence, NoticeKind::Firing, Severity::Critical)
}

/// A queue, its clock, and a receiver that answers by script.
struct World {
    queue: Queue,
    now: Timestamp,
    /// What was sent, when and in which order.
    sent: Vec<(Timestamp, String)>,
    ended: BTreeMap<String, Delivery>,
    news: Vec<News>,
}

impl World {
    fn new(pace: (f64, f64)) -> Self {
        let now = at("10:00:00");
        let mut queue = Queue::new("me");
        let paces = BTreeMap::from([("r".to_owned(), pace), ("other".to_owned(), pace)]);
        queue.configure(&paces, now);
        Self {
            queue,
            now,
            sent: Vec::new(),
            ended: BTreeMap::new(),
            news: Vec::new(),
        }
    }

    fn push(&mut self, row: Row) {
        assert!(self.queue.push(row, self.now));
    }

    /// Runs until `until`, each attempt taking no time and ending as `answer` says.
    fn run(&mut self, until: Timestamp, mut answer: impl FnMut(Timestamp, &Row) -> Verdict) {
        let mut rounds = 0;
        loop {
            for (id, step) in self.queue.expired(self.now) {
                self.settle(&id, step);
            }
            while let Some(job) = self.queue.next(self.now) {
                let id = job.row.id.clone();
                self.sent.push((self.now, id.clone()));
                let verdict = answer(self.now, &job.row);
                let outcome = self.queue.sent(&id, &verdict, self.now, 1.0).unwrap();
                self.news.extend(outcome.news);
                self.settle(&id, outcome.step);
            }
            rounds += 1;
            assert!(rounds < 100_000, "it turns without getting anywhere");
            match self.queue.wake(self.now) {
                Some(next) if next <= until => {
                    assert!(next >= self.now);
                    self.now = next;
                }
                _ => break,
            }
        }
        self.now = until;
    }

    fn settle(&mut self, id: &str, step: Step) {
        let ended = match step {
            Step::Finish { delivery, .. } => {
                self.ended.insert(id.to_owned(), delivery);
                true
            }
            Step::Retry { .. } => false,
        };
        self.queue.recorded(id, ended, self.now);
    }

    fn ids(&self) -> Vec<&str> {
        self.sent.iter().map(|(_, id)| id.as_str()).collect()
    }
}

fn ok(_: Timestamp, _: &Row) -> Verdict {
    verdict(Class::Ok)
}

#[test]
fn one_key_goes_in_order_and_the_urgent_first_across_keys() {
    let mut world = World::new((100.0, 100.0));
    world.push(made("r", "a", 2, NoticeKind::Resolved, Severity::Critical));
    world.push(made("r", "a", 1, NoticeKind::Firing, Severity::Warning));
    world.push(made("r", "b", 1, NoticeKind::Repeat, Severity::Critical));
    world.push(made("r", "c", 1, NoticeKind::Update, Severity::Critical));
    world.push(made("r", "d", 1, NoticeKind::Firing, Severity::Critical));
    world.push(made("r", "e", 5, NoticeKind::Resolved, Severity::Info));
    let until = world.now.plus(SECOND);
    world.run(until, ok);
    assert_eq!(
        world.ids(),
        ["r-d-1", "r-e-5", "r-a-1", "r-a-2", "r-c-1", "r-b-1"]
    );
    assert!(world.ended.values().all(|end| *end == Delivery::Accepted));
    assert_eq!(world.queue.oldest(), None);
}

#[test]
fn one_at_a_time_for_a_key_four_for_a_receiver_sixty_four_in_all() {
    let mut world = World::new((1_000.0, 1_000.0));
    for sequence in 1..=3 {
        world.push(firing("a", sequence));
    }
    let job = world.queue.next(world.now).unwrap();
    assert!(world.queue.next(world.now).is_none(), "the key is busy");
    assert_eq!(world.queue.recall("r-a-1"), Recall::Busy);
    assert!(world.queue.wanted_back("r-a-1"));
    // Also while the end is being written down.
    let sent = world
        .queue
        .sent(&job.row.id, &verdict(Class::Ok), world.now, 0.5);
    assert!(world.queue.next(world.now).is_none());
    world.settle(&job.row.id, sent.unwrap().step);
    assert_eq!(world.queue.next(world.now).unwrap().row.id, "r-a-2");
    for key in 0..10 {
        world.push(firing(&format!("k{key}"), 1));
    }
    let more = std::iter::from_fn(|| world.queue.next(world.now)).count();
    assert_eq!(more, 3);

    let mut world = World::new((1_000.0, 1_000.0));
    let names: Vec<String> = (0..30).map(|number| format!("r{number}")).collect();
    let paces = names
        .iter()
        .map(|name| (name.clone(), (100.0, 100.0)))
        .collect();
    world.queue.configure(&paces, world.now);
    for name in &names {
        for key in ["a", "b", "c", "d", "e"] {
            world.push(made(name, key, 1, NoticeKind::Firing, Severity::Error));
        }
    }
    assert_eq!(
        std::iter::from_fn(|| world.queue.next(world.now)).count(),
        64
    );
}

#[test]
fn an_outage_of_an_hour_costs_few_requests_and_no_flood_follows() {
    let mut world = World::new((10.0, 20.0));
    for key in 0..200 {
        world.push(firing(&format!("k{key:03}"), 1));
    }
    let back = world.now.plus(Duration::from_secs(3_600));
    let down = move |now: Timestamp, _: &Row| {
        verdict(if now < back {
            Class::Transient
        } else {
            Class::Ok
        })
    };
    world.run(back.minus(SECOND), down);
    assert!(
        world.sent.len() < 20,
        "{} requests to a dead receiver",
        world.sent.len()
    );
    assert!(world.ended.is_empty());
    assert_eq!(world.news, [News::Opened]);
    let standing = world.queue.standing(world.now);
    let standing = standing.iter().find(|one| one.receiver == "r").unwrap();
    assert_eq!((standing.waiting, standing.breaker), (200, 2));
    assert!(standing.trouble.is_some());
    let during = world.sent.len();

    world.run(back.plus(Duration::from_secs(900)), down);
    assert_eq!(world.ended.len(), 200);
    assert_eq!(world.news, [News::Opened, News::Recovered]);
    assert_eq!(world.sent.len() - during, 200, "each of them once");
    // As fast as the receiver takes it, and no faster.
    let times: Vec<Timestamp> = world.sent[during..].iter().map(|(at, _)| *at).collect();
    assert!(
        times
            .windows(31)
            .all(|window| window[30].since(window[0]) >= Duration::from_millis(900))
    );
    assert!(times[199].since(times[0]) < Duration::from_secs(60));
}

#[test]
fn a_lone_row_follows_the_schedule_until_the_breaker_takes_over() {
    let mut world = World::new((10.0, 20.0));
    world.push(firing("a", 1));
    let start = world.now;
    world.run(start.plus(Duration::from_secs(400)), |_, _| {
        verdict(Class::Transient)
    });
    let times: Vec<u64> = world
        .sent
        .iter()
        .map(|(at, _)| at.since(start).as_secs())
        .collect();
    assert_eq!(times, [0, 1, 6, 21, 51, 81, 141, 261]);
}

#[test]
fn given_up_after_a_day_an_end_after_three() {
    let mut world = World::new((10.0, 20.0));
    world.push(firing("a", 1));
    world.push(made("r", "b", 2, NoticeKind::Resolved, Severity::Info));
    let start = world.now;
    world.run(start.plus(Duration::from_secs(23 * 3_600)), |_, _| {
        verdict(Class::Transient)
    });
    assert!(world.ended.is_empty());
    world.run(start.plus(Duration::from_secs(25 * 3_600)), |_, _| {
        verdict(Class::Transient)
    });
    assert_eq!(
        world.ended["r-a-1"],
        Delivery::Dead {
            reason: "given up after 1d: why".into(),
            ambiguous: false
        }
    );
    assert_eq!(world.ended.len(), 1);
    world.run(start.plus(Duration::from_secs(73 * 3_600)), |_, _| {
        verdict(Class::Transient)
    });
    assert_eq!(world.ended.len(), 2);
}

#[test]
fn throttled_pauses_the_whole_receiver_and_nobody_else() {
    let mut world = World::new((100.0, 100.0));
    world.push(firing("a", 1));
    world.push(firing("b", 1));
    world.push(made("other", "c", 1, NoticeKind::Firing, Severity::Info));
    let start = world.now;
    let mut first = true;
    world.run(start.plus(Duration::from_secs(60)), |_, row| {
        if row.receiver == "r" && std::mem::take(&mut first) {
            let mut slow = verdict(Class::Throttled);
            slow.pause = Some(Duration::from_secs(30));
            return slow;
        }
        verdict(Class::Ok)
    });
    let of_r: Vec<u64> = world
        .sent
        .iter()
        .filter(|(_, id)| id.starts_with("r-"))
        .map(|(at, _)| at.since(start).as_secs())
        .collect();
    assert_eq!(of_r, [0, 33, 33]);
    assert_eq!(
        world
            .sent
            .iter()
            .find(|(_, id)| id == "other-c-1")
            .unwrap()
            .0,
        start
    );
    assert!(world.news.is_empty(), "that is no failure");
}

#[test]
fn a_refused_message_is_cut_once_then_dead_and_holds_up_nobody() {
    let mut world = World::new((100.0, 100.0));
    world.push(firing("a", 1));
    world.push(made("r", "a", 2, NoticeKind::Resolved, Severity::Info));
    let mut bodies = Vec::new();
    let until = world.now.plus(SECOND);
    world.run(until, |_, row| {
        bodies.push((row.id.clone(), row.use_minimal));
        verdict(if row.sequence == 1 {
            Class::Message
        } else {
            Class::Ok
        })
    });
    let expected = [("r-a-1", false), ("r-a-1", true), ("r-a-2", false)];
    assert_eq!(
        bodies,
        expected.map(|(id, minimal)| (id.to_owned(), minimal))
    );
    assert!(matches!(
        world.ended["r-a-1"],
        Delivery::Dead {
            ambiguous: false,
            ..
        }
    ));
    assert_eq!(world.ended["r-a-2"], Delivery::Accepted);
}

#[test]
fn a_mistake_in_the_configuration_is_tried_slowly_and_gone_is_parked() {
    let mut world = World::new((100.0, 100.0));
    world.push(firing("a", 1));
    world.push(firing("b", 1));
    let start = world.now;
    world.run(start.plus(Duration::from_secs(899)), |_, _| {
        verdict(Class::Configuration)
    });
    // The second was on its way already in a real run; here they go one after the other.
    assert_eq!(world.sent.len(), 3, "{:?}", world.sent);
    assert_eq!(world.news, [News::Misconfigured]);
    world.run(start.plus(Duration::from_secs(900)), |_, _| {
        verdict(Class::Gone)
    });
    let sent = world.sent.len();
    assert_eq!(world.news, [News::Misconfigured, News::Gone]);
    world.run(start.plus(Duration::from_secs(9_000)), ok);
    assert_eq!(world.sent.len(), sent, "nobody knocks where nobody lives");
    // Until somebody puts another address in.
    let paces = BTreeMap::from([("r".to_owned(), (10.0, 10.0))]);
    world.queue.configure(&paces, world.now);
    let until = world.now.plus(SECOND);
    world.run(until, ok);
    assert_eq!(world.ended.len(), 2);
}

#[test]
fn recalled_before_or_between_attempts() {
    let mut world = World::new((100.0, 100.0));
    world.push(firing("a", 1));
    world.push(firing("a", 2));
    assert_eq!(world.queue.recall("r-a-2"), Recall::Now);
    assert_eq!(world.queue.recall("r-a-2"), Recall::Busy);
    assert_eq!(world.queue.recall("nobody"), Recall::Unknown);
    let gone = world.queue.recorded("r-a-2", true, world.now).unwrap();
    assert_eq!((gone.attempts, gone.ambiguous), (0, false));
    let until = world.now.plus(Duration::from_millis(100));
    world.run(until, |_, _| Verdict {
        ambiguous: true,
        ..verdict(Class::Transient)
    });
    assert_eq!(world.queue.recall("r-a-1"), Recall::Now);
    let gone = world.queue.recorded("r-a-1", true, world.now).unwrap();
    assert_eq!((gone.attempts, gone.ambiguous), (1, true));
    assert_eq!(world.queue.wake(world.now), None);
}

#[test]
fn a_lease_that_cannot_be_had_is_no_attempt_and_no_spin() {
    let mut world = World::new((100.0, 100.0));
    world.push(firing("a", 1));
    for _ in 0..10 {
        let job = world.queue.next(world.now).unwrap();
        world.queue.not_sent(&job.row.id, SECOND, world.now);
        assert!(world.queue.next(world.now).is_none());
        world.now = world.queue.wake(world.now).unwrap();
    }
    assert_eq!(world.now, at("10:00:10"));
    // Nor as a probe.
    let until = world.now.plus(Duration::from_secs(60));
    world.run(until, |_, _| verdict(Class::Transient));
    world.now = world.queue.wake(world.now).unwrap();
    let job = world.queue.next(world.now).unwrap();
    assert_eq!(job.row.attempts, 5);
    world.queue.not_sent(&job.row.id, SECOND, world.now);
    assert!(world.queue.next(world.now).is_none());
    assert!(world.queue.wake(world.now).unwrap() >= world.now.plus(SECOND));
}

#[test]
fn rows_born_leased_go_without_asking_and_others_do_not() {
    let mut world = World::new((100.0, 100.0));
    world.push(firing("a", 1));
    let mut foreign = firing("b", 1);
    foreign.lease.as_mut().unwrap().owner = "somebody".into();
    world.push(foreign);
    let mut until = BTreeMap::new();
    while let Some(job) = world.queue.next(world.now) {
        until.insert(job.row.id.clone(), job.leased_until);
    }
    assert_eq!(until["r-a-1"], Some(at("10:00:20")));
    assert_eq!(until["r-b-1"], None);
    assert!(
        !world.queue.push(firing("a", 1), world.now),
        "known already"
    );
}

#[test]
fn a_receiver_that_is_not_configured_is_owed_until_it_is_given_up() {
    let mut world = World::new((100.0, 100.0));
    world.push(made("stranger", "a", 1, NoticeKind::Firing, Severity::Info));
    let start = world.now;
    world.run(start.plus(Duration::from_secs(3_600)), ok);
    assert!(world.sent.is_empty());
    world.run(start.plus(Duration::from_secs(25 * 3_600)), ok);
    let end = &world.ended["stranger-a-1"];
    assert!(
        matches!(end, Delivery::Dead { reason, .. } if reason.contains("not in the configuration"))
    );
    // One that is taken out stays known until its rows have ended.
    let mut late = firing("b", 1);
    late.queued_at = world.now;
    world.push(late);
    world.queue.configure(&BTreeMap::new(), world.now);
    let until = world.now.plus(SECOND);
    world.run(until, ok);
    assert_eq!(world.ended["r-b-1"], Delivery::Accepted);
}

#[test]
fn what_is_old_gets_its_turn() {
    let mut world = World::new((1.0, 1.0));
    world.push(made("r", "old", 1, NoticeKind::Repeat, Severity::Info));
    let mut sequence = 1;
    for _ in 0..100 {
        sequence += 1;
        let mut urgent = firing(&format!("k{sequence}"), 1);
        urgent.created = world.now;
        world.push(urgent);
        world.push({
            let mut urgent = firing(&format!("l{sequence}"), 1);
            urgent.created = world.now;
            urgent
        });
        let until = world.now.plus(SECOND);
        world.run(until, ok);
    }
    assert!(world.ended.contains_key("r-old-1"));
}

/// What may happen next in a random run.
#[derive(Debug, Clone)]
enum Event {
    Push {
        receiver: bool,
        key: u8,
    },
    Land {
        which: usize,
        class: Class,
        ambiguous: bool,
    },
    Written {
        which: usize,
    },
    Recall {
        which: usize,
    },
    NoLease {
        which: usize,
    },
    Wait {
        seconds: u16,
    },
}

fn event() -> impl proptest::strategy::Strategy<Value = Event> {
    use proptest::prelude::*;
    let classes = prop::sample::select(&Class::ALL[..]);
    prop_oneof![
        3 => (any::<bool>(), 0..6_u8).prop_map(|(receiver, key)| Event::Push { receiver, key }),
        6 => (any::<usize>(), classes, any::<bool>())
            .prop_map(|(which, class, ambiguous)| Event::Land { which, class, ambiguous }),
        6 => any::<usize>().prop_map(|which| Event::Written { which }),
        1 => any::<usize>().prop_map(|which| Event::Recall { which }),
        1 => any::<usize>().prop_map(|which| Event::NoLease { which }),
        3 => (0..900_u16).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

/// A run in which attempts and writes overlap in any way.
#[derive(Default)]
struct Random {
    sequence: u64,
    flying: Vec<Row>,
    writing: Vec<(String, bool)>,
    known: Vec<String>,
    /// Rows accepted, by receiver and key.
    accepted: BTreeMap<(String, String), Vec<u64>>,
    ended: std::collections::BTreeSet<String>,
}

fn pick<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.remove(which % from.len()))
}

impl Random {
    fn land(&mut self, world: &mut World, which: usize, class: Class, ambiguous: bool) {
        let Some(row) = pick(&mut self.flying, which) else {
            return;
        };
        let judged = Verdict {
            ambiguous,
            ..verdict(class)
        };
        let outcome = world.queue.sent(&row.id, &judged, world.now, 0.5).unwrap();
        let ended = matches!(outcome.step, Step::Finish { .. });
        if class == Class::Ok {
            let line = (row.receiver.clone(), row.key.clone());
            self.accepted.entry(line).or_default().push(row.sequence);
        }
        self.writing.push((row.id, ended));
    }

    fn written(&mut self, world: &mut World, which: usize) {
        let Some((id, ended)) = pick(&mut self.writing, which) else {
            return;
        };
        world.queue.recorded(&id, ended, world.now);
        if ended {
            assert!(self.ended.insert(id), "a row ends once");
        } else if world.queue.wanted_back(&id) && world.queue.recall(&id) == Recall::Now {
            self.writing.push((id, true));
        }
    }

    fn step(&mut self, world: &mut World, event: &Event) {
        match *event {
            Event::Push { receiver, key } => {
                self.sequence += 1;
                let receiver = if receiver { "r" } else { "other" };
                let kind = NoticeKind::ALL[usize::try_from(self.sequence % 4).unwrap()];
                let mut row = made(
                    receiver,
                    &format!("k{key}"),
                    self.sequence,
                    kind,
                    Severity::Error,
                );
                (row.created, row.queued_at) = (world.now, world.now);
                self.known.push(row.id.clone());
                world.push(row);
            }
            Event::Land {
                which,
                class,
                ambiguous,
            } => self.land(world, which, class, ambiguous),
            Event::Written { which } => self.written(world, which),
            Event::Recall { which } => {
                if let Some(id) = self.known.get(which % self.known.len().max(1)).cloned()
                    && world.queue.recall(&id) == Recall::Now
                {
                    self.writing.push((id, true));
                }
            }
            Event::NoLease { which } => {
                if let Some(row) = pick(&mut self.flying, which) {
                    world.queue.not_sent(&row.id, SECOND, world.now);
                }
            }
            Event::Wait { seconds } => {
                world.now = world.now.plus(Duration::from_secs(seconds.into()));
            }
        }
        for (id, step) in world.queue.expired(world.now) {
            assert!(matches!(step, Step::Finish { .. }));
            self.writing.push((id, true));
        }
        while let Some(job) = world.queue.next(world.now) {
            self.flying.push(job.row);
        }
        for receiver in ["r", "other"] {
            let mut keys: Vec<&String> = self
                .flying
                .iter()
                .filter(|row| row.receiver == receiver)
                .map(|row| &row.key)
                .collect();
            assert!(keys.len() <= 4);
            let count = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), count, "one at a time for a key");
        }
    }
}

proptest::proptest! {
    #[test]
    fn whatever_happens_order_is_kept_and_every_row_ends(events in proptest::collection::vec(event(), 1..200)) {
        let mut world = World::new((5.0, 10.0));
        let mut random = Random::default();
        for event in &events {
            random.step(&mut world, event);
        }
        // The receivers work again, and somebody has looked at their configuration.
        let paces = ["r", "other"].map(|name| (name.to_owned(), (50.0, 50.0)));
        world.queue.configure(&BTreeMap::from(paces), world.now);
        let mut rounds = 0;
        while random.ended.len() < random.known.len() {
            rounds += 1;
            assert!(rounds < 10_000, "{:?} of {:?} ended", random.ended, random.known);
            while !random.writing.is_empty() {
                random.written(&mut world, 0);
            }
            while !random.flying.is_empty() {
                random.land(&mut world, 0, Class::Ok, false);
            }
            random.step(&mut world, &Event::Wait { seconds: 1 });
        }
        for sequences in random.accepted.values() {
            assert!(sequences.is_sorted(), "{sequences:?}");
        }
        assert_eq!(world.queue.oldest(), None);
        assert_eq!(world.queue.wake(world.now), None);
        assert!(world.queue.standing(world.now).iter().all(|one| one.flying == 0 && one.waiting == 0));
    }
}
