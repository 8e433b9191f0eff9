//! The transition table: a state and what is known in, the next state and its effect out.
//!
//! `rules test --coverage` shows the rows by number; the first one that fits decides. Everything about times has been worked out before: a row only asks for facts.

use serde::{Deserialize, Serialize};

use crate::alert::EndReason;
use crate::model::Severity;

/// Rows there are; the first is 1.
pub const ROWS: u8 = 20;

/// The state of one rule for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing to tell.
    #[default]
    Ok,
    /// The condition holds, not yet for long enough.
    Pending,
    /// An episode is open.
    Firing,
    /// It is open, and the condition is clear, not yet for long enough.
    Recovering,
}

impl State {
    /// Every state.
    pub const ALL: [State; 4] = [Self::Ok, Self::Pending, Self::Firing, Self::Recovering];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Recovering => "recovering",
        }
    }

    /// Whether an episode is open.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Firing | Self::Recovering)
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A reading was judged.
    Reading,
    /// A reading said nothing that can be judged.
    Unknown,
    /// A `for` on the clock of receipt ran out.
    Deadline,
    /// No data for so long that the episode is stale; or, with the flag, is to end.
    Silence(bool),
    /// The rule was edited, and the last value judged anew.
    Edit,
    /// The rule or the device is gone, or the device no longer among those selected.
    Retire(EndReason),
    /// Somebody ended the episode.
    Manual,
}

/// What is known when a row is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// The state.
    pub state: State,
    /// The level that fires.
    pub level: Option<Severity>,
    /// What happened.
    pub input: Input,
    /// Some trigger holds.
    pub breach: bool,
    /// The worst level whose trigger has held for long enough.
    pub qualified: Option<Severity>,
    /// The clear test of the level that fires holds.
    pub clear: bool,
    /// The worst milder level that is not clear.
    pub fallback: Option<Severity>,
    /// The level recovers with a delay.
    pub delayed: bool,
    /// The delay is over.
    pub recovered: bool,
    /// The pause before this reading was too long for a `for` to run on.
    pub gap: bool,
    /// Ended by hand, and not clear since.
    pub latched: bool,
}

impl Situation {
    /// Nothing known but where it stands.
    pub fn new(state: State, level: Option<Severity>, input: Input) -> Self {
        Self {
            state,
            level,
            input,
            breach: false,
            qualified: None,
            clear: false,
            fallback: None,
            delayed: false,
            recovered: false,
            gap: false,
            latched: false,
        }
    }

    fn reading(&self) -> bool {
        self.input == Input::Reading
    }

    fn worse(&self) -> bool {
        self.qualified > self.level
    }
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Keeps the timers that run.
    Timers,
    /// Drops them.
    DropTimers,
    /// Opens an episode at that level.
    Open(Severity),
    /// Moves it up.
    Escalate(Severity),
    /// Keeps value and peak.
    Remember,
    /// Moves it down.
    Deescalate(Severity),
    /// Ends it.
    Resolve(EndReason),
    /// Waits for the condition to stay clear.
    Recover,
    /// It is not clear after all.
    Refire,
    /// No data: marked.
    Stale,
    /// A reading was clear: what was ended by hand may fire again.
    Release,
}

/// A row's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The row.
    pub row: u8,
    /// The next state.
    pub state: State,
    /// What to do.
    pub effect: Effect,
}

struct Row {
    number: u8,
    from: &'static [State],
    guard: fn(&Situation) -> bool,
    then: fn(&Situation) -> (State, Effect),
}

use State::{Firing, Ok, Pending, Recovering};

/// In the order in which they are tried. Rows that hold for any state and input come first, then
/// by state.
const TABLE: &[Row] = &[
    Row {
        number: 16,
        from: &State::ALL,
        guard: |s| s.input == Input::Unknown,
        then: |s| (s.state, Effect::Nothing),
    },
    Row {
        number: 19,
        from: &State::ALL,
        guard: |s| matches!(s.input, Input::Retire(reason) if reason != EndReason::OutOfScope),
        then: retire,
    },
    Row {
        number: 18,
        from: &State::ALL,
        guard: |s| s.input == Input::Retire(EndReason::OutOfScope),
        then: retire,
    },
    Row {
        number: 18,
        from: &[Firing, Recovering],
        guard: |s| s.input == Input::Edit && s.clear && s.fallback.is_none(),
        then: |_| (Ok, Effect::Resolve(EndReason::RuleChanged)),
    },
    Row {
        number: 20,
        from: &[Firing, Recovering],
        guard: |s| s.input == Input::Manual,
        then: |_| (Ok, Effect::Resolve(EndReason::Manual)),
    },
    Row {
        number: 15,
        from: &[Firing, Recovering],
        guard: |s| s.input == Input::Silence(true),
        then: |_| (Ok, Effect::Resolve(EndReason::NoData)),
    },
    Row {
        number: 15,
        from: &[Firing, Recovering],
        guard: |s| s.input == Input::Silence(false),
        then: |s| (s.state, Effect::Stale),
    },
    // From ok.
    Row {
        number: 20,
        from: &[Ok],
        guard: |s| s.reading() && s.latched && s.breach,
        then: |_| (Ok, Effect::Nothing),
    },
    Row {
        number: 1,
        from: &[Ok],
        guard: |s| s.reading() && !s.breach,
        then: |s| match s.latched {
            true => (Ok, Effect::Release),
            false => (Ok, Effect::Nothing),
        },
    },
    Row {
        number: 2,
        from: &[Ok],
        guard: |s| s.reading() && s.qualified.is_some(),
        then: open,
    },
    Row {
        number: 3,
        from: &[Ok],
        guard: |s| s.reading() && s.breach,
        then: |_| (Pending, Effect::Timers),
    },
    // From pending.
    Row {
        number: 4,
        from: &[Pending],
        guard: |s| s.reading() && !s.breach,
        then: |_| (Ok, Effect::DropTimers),
    },
    Row {
        number: 5,
        from: &[Pending],
        guard: |s| s.reading() && s.qualified.is_some(),
        then: open,
    },
    Row {
        number: 6,
        from: &[Pending],
        guard: |s| s.reading() && s.gap,
        then: |_| (Pending, Effect::Timers),
    },
    Row {
        number: 17,
        from: &[Pending],
        guard: |s| s.input == Input::Deadline && s.qualified.is_some(),
        then: open,
    },
    // Still pending: as when it began.
    Row {
        number: 3,
        from: &[Pending],
        guard: |s| s.reading(),
        then: |_| (Pending, Effect::Timers),
    },
    // From firing.
    Row {
        number: 7,
        from: &[Firing],
        guard: |s| (s.reading() || s.input == Input::Deadline) && s.worse(),
        then: escalate,
    },
    Row {
        number: 8,
        from: &[Firing],
        guard: |s| (s.reading() || s.input == Input::Edit) && !s.clear,
        then: |_| (Firing, Effect::Remember),
    },
    Row {
        number: 11,
        from: &[Firing],
        guard: |s| s.reading() && s.delayed,
        then: |_| (Recovering, Effect::Recover),
    },
    Row {
        number: 9,
        from: &[Firing],
        guard: |s| (s.reading() || s.input == Input::Edit) && s.fallback.is_some(),
        then: fall,
    },
    Row {
        number: 10,
        from: &[Firing],
        guard: |s| s.reading(),
        then: fall,
    },
    // From recovering.
    Row {
        number: 12,
        from: &[Recovering],
        guard: |s| (s.reading() || s.input == Input::Deadline) && s.worse(),
        then: escalate,
    },
    Row {
        number: 13,
        from: &[Recovering],
        guard: |s| (s.reading() || s.input == Input::Edit) && !s.clear,
        then: |_| (Firing, Effect::Refire),
    },
    Row {
        number: 14,
        from: &[Recovering],
        guard: |s| (s.reading() && s.recovered) || s.input == Input::Edit,
        then: fall,
    },
    // Still recovering: as when it began.
    Row {
        number: 11,
        from: &[Recovering],
        guard: |s| s.reading(),
        then: |_| (Recovering, Effect::Recover),
    },
];

fn open(s: &Situation) -> (State, Effect) {
    match s.qualified {
        Some(level) => (Firing, Effect::Open(level)),
        None => (s.state, Effect::Nothing),
    }
}

fn escalate(s: &Situation) -> (State, Effect) {
    match s.qualified {
        Some(level) => (Firing, Effect::Escalate(level)),
        None => (s.state, Effect::Nothing),
    }
}

/// A level that fired counts as qualified for every milder one, whatever their own `for` says.
fn fall(s: &Situation) -> (State, Effect) {
    match s.fallback {
        Some(level) => (Firing, Effect::Deescalate(level)),
        None => (Ok, Effect::Resolve(EndReason::ConditionCleared)),
    }
}

fn retire(s: &Situation) -> (State, Effect) {
    match s.input {
        Input::Retire(reason) if s.state.is_open() => (Ok, Effect::Resolve(reason)),
        _ => (Ok, Effect::DropTimers),
    }
}

/// The first row that fits; `None`: nothing is to happen (a deadline that has passed already, an
/// end of what is not open).
pub fn decide(situation: &Situation) -> Option<Decision> {
    let fits = |row: &&Row| row.from.contains(&situation.state) && (row.guard)(situation);
    let row = TABLE.iter().find(fits)?;
    let (state, effect) = (row.then)(situation);
    Some(Decision {
        row: row.number,
        state,
        effect,
    })
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
