//! 7. Alerts: the feed comes in by change stream, rules judge each reading, receivers are told.
//!
//! State, outbox, history and the place in the stream are written in one transaction. If the
//! process dies here, the next leader goes on from that place and finds every request that is
//! still owed.

mod beat;
mod clock;
mod episode;
mod notice;
pub mod notify;
pub mod rules;
mod watch;

pub use beat::Pulse;
pub use episode::{Change, EndReason, Ended, Episode, Transition, Wishes};
pub use notice::{Delivery, Notice, NoticeKind, Settled, Storm};
