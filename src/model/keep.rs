//! Where messages are put on their way, so that they may be acknowledged before MongoDB has them.

use super::{Message, Receipt};

/// Keeps messages safe until they are stored.
pub trait Keep: Send + Sync {
    /// Takes a message that was received under `stream`; never waits. The receipt is settled as
    /// [`Spooled`](super::Outcome::Spooled) once the message is safe, and dropped unsettled if it
    /// never will be.
    fn keep(&self, message: Message, stream: Option<&str>, receipt: Receipt);
}
