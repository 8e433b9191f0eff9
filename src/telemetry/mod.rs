//! How the gateway is seen from outside: log lines, metric families, the ledger of messages.

mod ledger;
mod log;
mod metrics;

pub use ledger::{Ledger, LedgerCounts};
pub use log::init as init_log;
pub use metrics::{Registry, buckets};
