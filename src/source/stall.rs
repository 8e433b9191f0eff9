//! Whether messages still flow on a connection, and what to do where they do not. Pure.
//!
//! A connection can stand, answer pings, and deliver nothing: the broker lost the subscription,
//! its queue hangs, or acknowledgements do not leave. A canary (a message of our own that must
//! come back) and the age of what waits tell. With messages un-acknowledged the canary proves
//! nothing: a broker whose window is full holds it back like everything else.

use std::time::{Duration, Instant};

use crate::runtime::Backoff;

/// A canary is overdue after this. With the longest pause between two of them by default (5 s) and
/// one look a second, a stall is seen within 14 s.
pub const OVERDUE: Duration = Duration::from_secs(8);

/// How long the first message in the order may stay unsettled, or its due acknowledgement unsent.
pub const STUCK: Duration = Duration::from_secs(10);

/// A broker with messages for us leaves no such gap between two of them.
const GAP: Duration = Duration::from_secs(2);

/// Where messages never stop coming, a backlog may still be before the first canary until then.
const BACKLOG: Duration = Duration::from_secs(300);

/// Pauses between two connections ended on purpose.
const FIRST_REBUILD_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_REBUILD_PAUSE: Duration = Duration::from_secs(300);

/// What is known of one connection at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Canaries are published and subscribed.
    pub watched: bool,
    /// For how long the broker has had a canary that did not come back.
    pub out: Option<Duration>,
    /// The broker said no to publishing or subscribing it.
    pub denied: bool,
    /// Found so at the last look, or guessed.
    pub was_denied: bool,
    /// A canary came back at least once since the process started.
    pub proven: bool,
    /// For how long none could be published.
    pub line_down: Option<Duration>,
    /// Since the last delivery of any kind, or since the connection was accepted.
    pub quiet: Duration,
    /// Something was delivered on this connection.
    pub heard: bool,
    /// The connection before was ended because of a stall.
    pub rebuilt: bool,
    /// Un-acknowledged deliveries.
    pub unacked: usize,
    /// For how long the same message has been the first that is not settled.
    pub held: Duration,
    /// For how long the same acknowledgement has been the first that does not leave.
    pub unsent: Duration,
}

/// What the facts say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Messages flow, or nothing says that they do not.
    Fine,
    /// A canary is overdue, but messages come: a backlog is before it.
    Late,
    /// Canaries do not come back and never did: they are not allowed, most likely.
    Denied,
    /// Nothing comes, and no canary can be published to find out why.
    Blind,
    /// A message waits for its write.
    Held,
    /// Acknowledgements do not leave: the connection is to be rebuilt.
    Unsent,
    /// The broker delivers nothing: the connection is to be rebuilt.
    Stalled,
    /// Rebuilt after a stall, and nothing was delivered yet.
    Mending,
}

/// Decides.
pub fn judge(facts: &Facts) -> Verdict {
    if facts.unsent > STUCK {
        return Verdict::Unsent;
    }
    if facts.held > STUCK {
        return Verdict::Held;
    }
    if !facts.watched {
        return Verdict::Fine;
    }
    if facts.denied {
        return Verdict::Denied;
    }
    let idle = |gap: Duration| facts.unacked == 0 && facts.quiet > gap;
    if let Some(out) = facts.out.filter(|out| *out > OVERDUE) {
        return match facts.proven {
            true if idle(OVERDUE) => Verdict::Stalled,
            false if facts.was_denied || idle(GAP) || out > BACKLOG => Verdict::Denied,
            _ => Verdict::Late,
        };
    }
    if idle(STUCK) && facts.line_down.is_some_and(|down| down > STUCK) {
        return Verdict::Blind;
    }
    if facts.rebuilt && !facts.heard {
        return Verdict::Mending;
    }
    Verdict::Fine
}

/// Why a connection is ended on purpose, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// The canary did not come back.
    Stalled,
    /// Acknowledgements did not leave.
    Unsent,
}

impl Rebuild {
    /// Every reason.
    pub const ALL: [Rebuild; 2] = [Self::Stalled, Self::Unsent];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stalled => "canary",
            Self::Unsent => "acks_unsent",
        }
    }
}

/// When a connection may be ended on purpose: never one right after the other.
#[derive(Debug)]
pub struct Rebuilds {
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Default for Rebuilds {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(FIRST_REBUILD_PAUSE, LONGEST_REBUILD_PAUSE),
            not_before: None,
        }
    }
}

impl Rebuilds {
    /// Whether one is due now; if so it counts as done. `chance` in 0..1 decides the jitter.
    pub fn take(&mut self, now: Instant, chance: f64) -> bool {
        let due = self.not_before.is_none_or(|at| now >= at);
        if due {
            self.not_before = Some(now + self.backoff.next_with(chance));
        }
        due
    }

    /// Messages flow again: the next pause is short.
    pub fn reset(&mut self) {
        self.backoff.reset();
    }
}

/// For how long the front of a queue has been the same.
#[derive(Debug, Default)]
pub struct Front(Option<(u64, Instant)>);

impl Front {
    /// The front is `message` now; zero where there is none or it moved.
    pub fn age(&mut self, message: Option<u64>, now: Instant) -> Duration {
        match (self.0, message) {
            (Some((same, since)), Some(message)) if same == message => {
                now.saturating_duration_since(since)
            }
            _ => {
                self.0 = message.map(|message| (message, now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
#[path = "stall_tests.rs"]
mod tests;
