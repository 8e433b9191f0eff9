//! Who asks for readings beside the series: decided by whoever evaluates them, asked by whoever
//! writes them.

use super::Reading;

/// Says which readings are wanted.
pub trait Selection: Send + Sync {
    /// Whether this reading, which came on `topic` into `stream`, is wanted.
    fn selects(&self, reading: &Reading, topic: &str, stream: &str) -> bool;
}
