//! Who is told what, and when: transitions and the fate of requests come in, requests go out.
//!
//! Level-triggered: for each alert and receiver the planner compares what should be known with
//! what was told, and says the difference as soon as nothing speaks against it. Silences, quiet
//! hours, cooldown, storms and outages are reasons to say nothing *now*; nothing waits in a queue
//! and grows stale. The order of what may speak against it: route, silence and quiet hours,
//! cooldown and flapping, group, storm gate. What a receiver accepted, or may have, is always
//! followed by its end.
//!
//! Pure: the time is an argument, and what is remembered is written down with what is to be sent.
//! If the process dies here, the next planner reads the same memory and decides the same.

mod alert;
mod alone;
mod due;
mod entry_turn;
mod flap;
mod gate;
mod gate_turn;
mod group;
mod group_turn;
mod identity;
mod labels;
mod members;
mod output;
mod planner;
mod quiet;
mod retire;
mod route;
mod settle;
mod silence;
mod standing;
mod storm;
mod storm_turn;
mod terms;
mod told;
mod transition;
mod window;

pub use alert::Alert;
pub use gate::Gate;
pub use group::Group;
pub use output::{By, Doc, Held, Plan, Remark, RemarkKind, Saved, Standing};
pub use planner::Planner;
pub use silence::{Matcher, Silence};
pub use storm::StormState;

#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
#[cfg(test)]
#[path = "group_tests.rs"]
mod group_tests;
#[cfg(test)]
#[path = "random_tests.rs"]
mod random_tests;
#[cfg(test)]
#[path = "storm_tests.rs"]
mod storm_tests;
#[cfg(test)]
#[path = "world_tests.rs"]
mod world_tests;
