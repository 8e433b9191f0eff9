//! From transitions to requests: who is told what and when, and the telling itself.

mod attempt;
mod breaker;
mod check;
mod classify;
mod deliver;
mod guard;
mod metrics;
mod pace;
mod queue;
mod receivers;
mod request;
mod retry;
mod row;
mod sandbox;
pub mod sign;
mod target;
#[cfg(test)]
mod testing;
mod text;
mod tryout;
mod watchdog;

pub use check::{check_receivers, check_template};
pub use classify::{Class, Verdict};
pub use deliver::{Deliverer, DeliveryHandle, ReceiverHealth};
pub use metrics::DeliveryMetrics;
pub use receivers::{Rendered, render};
pub use row::{Row, row};
pub mod plan;
pub use tryout::{Tried, host, try_out};
pub use watchdog::Watchdog;
