//! From a notice and its rendered body to a row of the outbox.

use std::time::Duration;

use super::receivers::Rendered;
use crate::alert::{Notice, NoticeKind};
use crate::model::Timestamp;
use crate::store::{OutboxRow, RowLease, RowState};

/// A row about a notice.
pub type Row = OutboxRow<Notice>;

/// How long a row that is born leased is its maker's, by the maker's clock; whoever takes over from
/// a maker that was killed has to wait for it.
const BORN_LEASE: Duration = Duration::from_secs(30);

/// How long after its birth the maker may send it without asking the server. The difference is how
/// far the two clocks may be apart.
pub const BORN_USABLE: Duration = Duration::from_secs(20);

/// A row to be inserted. With an `owner` it is born leased, so that the owner may send it right
/// after the commit, without another round trip.
pub fn row(notice: &Notice, rendered: Rendered, owner: Option<&str>, now: Timestamp) -> Row {
    Row {
        id: notice.id.clone(),
        receiver: notice.receiver.clone(),
        key: notice.key.clone(),
        sequence: notice.sequence,
        kind: notice.kind.name().to_owned(),
        severity: notice.severity,
        created: now,
        queued_at: now,
        notice: notice.clone(),
        body: rendered.body,
        minimal: rendered.minimal,
        state: RowState::Queued,
        attempts: 0,
        ambiguous: false,
        use_minimal: false,
        next_at: None,
        lease: owner.map(|owner| RowLease {
            owner: owner.to_owned(),
            until: now.plus(BORN_LEASE),
        }),
        last: None,
        ended_at: None,
    }
}

/// How long a row is tried. A page nobody took for a day is for the list of dead rows; an end is
/// owed longer, because an incident that stays open hides the next one.
pub fn give_up_after(kind: NoticeKind) -> Duration {
    let hours = match kind {
        NoticeKind::Resolved => 72,
        NoticeKind::Firing | NoticeKind::Update | NoticeKind::Repeat => 24,
        NoticeKind::Test => 1,
    };
    Duration::from_secs(hours * 3_600)
}
