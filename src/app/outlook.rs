//! How long the broker's queue lasts without the database, at the rate that is seen: a broker that
//! is full tells devices "yes" and throws away. No broker says how much it queues, so the operator
//! has to (`mqtt.broker_queue`). Told once a minute has been watched, and again as a warning.

use std::convert::Infallible;
use std::time::Duration;

use crate::config::Config;
use crate::telemetry::Ledger;

/// How long the rate is watched.
const WATCHED: Duration = Duration::from_secs(60);

/// Looks of that length between two warnings: six hours.
const WARN_EVERY: u32 = 360;

/// What a rate means for an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlook {
    /// Nothing comes, or the outage is covered.
    Covered,
    /// Nobody said how much the broker queues; so many messages would be needed.
    Unknown(u64),
    /// It lasts only so long; so many messages would be needed.
    Short(Duration, u64),
}

/// `queue` in messages, 0 where unknown; `received` messages within [`WATCHED`].
fn outlook(received: u64, outage: Duration, queue: u64) -> Outlook {
    let watched = WATCHED.as_secs();
    let needed = received.saturating_mul(outage.as_secs()).div_ceil(watched);
    match queue {
        _ if received == 0 || (queue > 0 && queue >= needed) => Outlook::Covered,
        0 => Outlook::Unknown(needed),
        _ => Outlook::Short(Duration::from_secs(queue * watched / received), needed),
    }
}

/// Watches what comes for as long as the process lives.
pub async fn watch(config: Config, ledger: Ledger) -> Result<(), Infallible> {
    let (outage, queue) = (config.spool.outage, config.mqtt.broker_queue);
    let (mut before, mut quiet) = (0, 0);
    loop {
        tokio::time::sleep(WATCHED).await;
        let received = ledger
            .snapshot()
            .iter()
            .map(|(_, counts)| counts.received)
            .sum();
        let (since, total): (u64, u64) = (before, received);
        before = total;
        if quiet > 0 {
            quiet -= 1;
            continue;
        }
        match outlook(total - since, outage.0, queue) {
            Outlook::Covered => continue,
            Outlook::Unknown(needed) => {
                tracing::info!(
                    needed,
                    outage = %outage,
                    "Messages the broker has to queue to bridge an outage at the present rate (max_queued_messages in mosquitto; mqtt.broker_queue tells the gateway, which then warns)"
                );
                // Said once.
                quiet = u32::MAX;
            }
            Outlook::Short(lasts, needed) => {
                tracing::warn!(
                    broker_queue = queue,
                    lasts_seconds = lasts.as_secs(),
                    needed,
                    outage = %outage,
                    "The broker's queue is full before an outage of spool.outage is over, and then it drops messages that it confirmed to devices: let it queue more, or turn on the spool"
                );
                quiet = WARN_EVERY;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_held_against_the_outage_asked_for() {
        let hour = Duration::from_secs(3600);
        for (received, queue, expected) in [
            (0, 0, Outlook::Covered),
            (0, 1, Outlook::Covered),
            // 100 a second.
            (6_000, 360_000, Outlook::Covered),
            (6_000, 0, Outlook::Unknown(360_000)),
            (
                6_000,
                1_000,
                Outlook::Short(Duration::from_secs(10), 360_000),
            ),
            (1, 59, Outlook::Short(Duration::from_secs(3540), 60)),
        ] {
            assert_eq!(
                outlook(received, hour, queue),
                expected,
                "{received} {queue}"
            );
        }
    }
}
