//! How a driver call is made: in a task of its own, because its futures must not be dropped half
//! way, and waited for as long as it takes, because it has no time limit of its own. Giving a call
//! up could only lead to the same server, and to a second copy should it answer after all.

use std::time::Duration;

use super::health::Health;

/// Beyond the server's own time limit, before an answer counts as overdue.
const GRACE: Duration = Duration::from_secs(15);

/// Runs `call` to its end; says on `health` that `place` is in trouble when the answer takes
/// longer than the server's own `limit` allows.
pub async fn answer<T: Send + 'static>(
    health: &Health,
    place: &str,
    limit: Duration,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut call = tokio::spawn(call);
    let overdue = limit + GRACE;
    loop {
        match tokio::time::timeout(overdue, &mut call).await {
            Ok(ended) => {
                return ended
                    .expect("a driver call does not panic; if it does, the process must stop");
            }
            Err(_) => health.bad(place, &format!("no answer for {} s", overdue.as_secs())),
        }
    }
}
