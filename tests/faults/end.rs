//! The end of a world: the publisher stops, everything drains, and what is in MongoDB and at the receiver is judged.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use mongodb::bson::doc;

use crate::publisher::{Kind, WAVE};
use crate::support::alerting::{SECOND, assert_sound, open_alerts};
use crate::verdict::Verdict;
use crate::watch::Seen;
use crate::world::{Place, World};

/// The most memory a gateway may take: its window of 64 MiB, decoded, and batches on their way,
/// whatever happens. An outage fills the window, whenever it comes.
pub const MEMORY: u64 = 256 << 20;
/// How much more it may keep in the end than it took in its first minute.
pub const GROWTH: f64 = 1.5;
const SLACK: u64 = 32 << 20;

#[derive(Debug)]
pub struct Report {
    pub place: Place,
    pub verdict: Verdict,
    /// Of each gateway.
    pub seen: Vec<Seen>,
    /// Requests of the alerts, and those taken that said that something fires.
    pub told: usize,
    pub episodes: usize,
}

pub async fn judge(world: &mut World) -> Report {
    world.heal().await;
    world.receiver.work();
    let high = world.chance.bool();
    let value = if high { "high" } else { "low" };
    world.load.order(&format!("end {value}")).await;
    world.load.stop().await;
    world.stop_saving();
    let status = world.load.status();
    world.tally.say(format!(
        "the publisher has stopped: {} messages acknowledged",
        status.acked
    ));
    world.drained().await;
    world.tally.say("everything is drained");
    let verdict = stored(world, status.sent).await;
    alerts(world, high).await;
    let seen: Vec<Seen> = world.members.iter().map(|m| m.watch.seen()).collect();
    for (number, seen) in seen.iter().enumerate() {
        watched(world, number, seen);
    }
    let told = world.receiver.told();
    let fired = |told: &&crate::support::receiver::Told| told.kind() == "alert.firing";
    Report {
        place: world.place,
        verdict,
        seen,
        told: told.len(),
        episodes: world.receiver.accepted().iter().filter(fired).count(),
    }
}

async fn stored(world: &mut World, ids: u64) -> Verdict {
    let deadline = Instant::now() + 30 * SECOND;
    loop {
        let read = Verdict::read(&world.stored, world.load.log(), ids).await;
        match read {
            // What is late is not lost.
            Ok(verdict) if verdict.lost.is_empty() || Instant::now() > deadline => {
                report(world, &verdict);
                return verdict;
            }
            Err(error) if Instant::now() > deadline => {
                world
                    .tally
                    .violation(format!("the series cannot be read: {error}"));
                return Verdict::default();
            }
            Ok(verdict) => {
                let text = format!("{} messages are not there (yet)", verdict.lost.len());
                world.tally.say(text);
            }
            Err(error) => world.tally.say(error),
        }
        tokio::time::sleep(2 * SECOND).await;
    }
}

fn report(world: &mut World, verdict: &Verdict) {
    let Verdict {
        lost,
        doubled,
        changed,
        ..
    } = verdict;
    world.tally.say(format!(
        "{} acknowledged, {} lost, {} doubled",
        verdict.acknowledged(),
        lost.len(),
        doubled.len()
    ));
    for (letter, id, at) in lost.iter().take(5) {
        println!(
            "  lost: id {id}, a {}, acknowledged at {at}:\n{}",
            Kind::of(*letter),
            world.tally.around(*at)
        );
    }
    for (id, count) in doubled.iter().take(5) {
        let at = verdict.times.get(id).copied().unwrap_or_default();
        println!(
            "  {count} times: id {id}, of {at}:\n{}",
            world.tally.around(at)
        );
    }
    for line in changed.iter().take(5) {
        println!("  changed: {line}");
    }
    let counts = [
        (lost.len(), "acknowledged messages are lost"),
        (doubled.len(), "readings are there more than once"),
        (changed.len(), "readings are not as they were sent"),
    ];
    for (count, what) in counts {
        if count > 0 {
            world.tally.violation(format!("{count} {what}"));
        }
    }
}

/// The alert and the receiver say what the last value says, and nothing was told twice.
async fn alerts(world: &mut World, high: bool) {
    let device = BTreeSet::from([WAVE.to_owned()]);
    let expected = if high { device } else { BTreeSet::new() };
    let deadline = Instant::now() + 100 * SECOND;
    loop {
        let Ok(told) = catch_unwind(AssertUnwindSafe(|| assert_sound(&world.receiver))) else {
            world
                .tally
                .violation("an alert was told twice, or ended twice");
            return;
        };
        let told: BTreeSet<String> = told
            .iter()
            .map(|key| key.rsplit(':').next().unwrap_or_default().to_owned())
            .collect();
        let state = open_alerts(&world.stored, "hot").await;
        let rows = world.stored.collection("alert_outbox");
        let owed = rows.count_documents(doc! { "state": "queued" }).await;
        let owed = owed.unwrap_or(u64::MAX);
        if state == expected && told == expected && owed == 0 {
            return;
        }
        if Instant::now() > deadline {
            world.tally.violation(format!(
                "alerts: expected {expected:?}, the state is {state:?}, told was {told:?}, {owed} requests are owed"
            ));
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn watched(world: &mut World, number: usize, seen: &Seen) {
    if let Some(first) = seen.unbalanced.first() {
        world.tally.violation(format!(
            "gateway {number}: the ledger does not balance in {} of {} scrapes, such as {first}",
            seen.unbalanced.len(),
            seen.scrapes
        ));
    }
    let allowed = (seen.warm_memory as f64 * GROWTH) as u64 + SLACK;
    if seen.most_memory > MEMORY || seen.last_memory > allowed {
        world.tally.violation(format!(
            "gateway {number}: {} MiB of memory at the most, {} in its first minute, {} in the end",
            seen.most_memory >> 20,
            seen.warm_memory >> 20,
            seen.last_memory >> 20
        ));
    }
}
