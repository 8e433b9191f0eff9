//! From transitions to requests: who is told what and when, and the telling itself.

mod attempt;
mod breaker;
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

pub use classify::Class;
pub use deliver::{Deliverer, DeliveryHandle, ReceiverHealth};
pub use metrics::DeliveryMetrics;
pub use receivers::{Rendered, dedup_key, render};
pub use row::{Row, row};
pub mod plan;
