//! What to do next where an incident is one alert: the table of suppression, as one pure function.
//!
//! An end is told whenever the beginning was, or may have been; nothing keeps it back. A beginning
//! waits for whatever speaks against it, and is told late rather than never.

use super::output::{By, Held};
use super::told::Line;
use crate::alert::{Episode, NoticeKind};
use crate::model::{Severity, Timestamp};

/// What is looked at.
pub(super) struct View<'a> {
    pub line: &'a Line,
    /// The alert's current episode.
    pub episode: &'a Episode,
    /// The alert comes and goes: it is held as firing where that was told.
    pub flapping: bool,
    /// The receiver, or the way to it, is gone: it is told ends only.
    pub ends_only: bool,
    /// The episode began and was not told to this receiver, nor is it part of a storm.
    pub waiting: bool,
    /// Tell also what is already over.
    pub short_lived: bool,
    pub min_severity: Severity,
    /// Next reminder; `None`: no more.
    pub repeat_at: Option<Timestamp>,
    /// Until when reminders are not wanted.
    pub acked_until: Option<Timestamp>,
    /// End of the cooldown.
    pub cool_at: Option<Timestamp>,
    /// End of the catching up.
    pub hold_until: Option<Timestamp>,
    /// Silence or quiet hours, asked only where it matters.
    pub muted: &'a dyn Fn() -> Option<Held>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing until something changes.
    Idle,
    /// Nothing until then.
    Wait(Timestamp),
    /// There is something to say, but.
    Held(Held),
    /// Ask the row under way back.
    Recall,
    /// Say `firing`, if that is not one too many.
    Open,
    /// Say this about the current episode.
    Say(NoticeKind),
    /// Say `resolved` about the episode last told.
    Close,
}

/// Decides.
pub(super) fn decide(view: &View<'_>, now: Timestamp) -> Step {
    if view.line.row.is_some() {
        return under_way(view);
    }
    match &view.line.told {
        Some(_) if !still_open(view) => match view.line.free_at(view.episode.severity, true) {
            Some(at) if at > now => Step::Wait(at),
            _ => Step::Close,
        },
        Some(_) => known(view, now),
        None => unknown(view, now),
    }
}

/// Whether what was told still holds: the episode fires, or is held as if it did.
fn still_open(view: &View<'_>) -> bool {
    let told = view.line.told.as_ref().and_then(|t| t.episode.as_deref());
    let same = told == Some(view.episode.id.as_str());
    same && (view.episode.ended.is_none() || view.flapping)
}

fn under_way(view: &View<'_>) -> Step {
    let Some(row) = view.line.row.as_ref().filter(|row| !row.recalling) else {
        return Step::Idle;
    };
    if row.kind == NoticeKind::Resolved {
        return Step::Idle;
    }
    let fires =
        row.episode.as_deref() == Some(view.episode.id.as_str()) && view.episode.ended.is_none();
    let wanted = fires
        || (view.flapping && view.line.told.is_some())
        || (view.short_lived && row.kind == NoticeKind::Firing);
    let stale = !wanted
        || view.ends_only
        || (fires && view.episode.severity > row.severity)
        || (fires && row.kind != NoticeKind::Firing && view.episode.severity != row.severity)
        || (row.kind == NoticeKind::Repeat && view.acked_until.is_some())
        || (view.muted)().is_some();
    if stale { Step::Recall } else { Step::Idle }
}

/// The receiver knows that it fires.
fn known(view: &View<'_>, now: Timestamp) -> Step {
    let Some(told) = view.line.told.as_ref().filter(|_| !view.ends_only) else {
        return Step::Idle;
    };
    let fires = view.episode.ended.is_none();
    let flaps = view.flapping && !told.flapping;
    let news = (fires && told.severity != Some(view.episode.severity)) || flaps;
    let due = match (news, view.repeat_at.filter(|_| fires)) {
        (true, _) => now,
        (false, Some(at)) => at,
        (false, None) => return Step::Idle,
    };
    let due = match view.line.free_at(view.episode.severity, false) {
        Some(at) => due.max(at),
        None => due,
    };
    if due > now {
        return Step::Wait(due);
    }
    if !news && let Some(until) = view.acked_until {
        return held(By::Acked, Some(until));
    }
    match (view.hold_until, (view.muted)()) {
        (Some(until), _) => held(By::CatchUp, Some(until)),
        (None, Some(muted)) => Step::Held(muted),
        (None, None) if news => Step::Say(NoticeKind::Update),
        (None, None) => Step::Say(NoticeKind::Repeat),
    }
}

/// The receiver knows nothing.
fn unknown(view: &View<'_>, now: Timestamp) -> Step {
    let fires = view.episode.ended.is_none();
    if !view.waiting || view.ends_only || !(fires || view.short_lived) {
        return Step::Idle;
    }
    if view.episode.severity < view.min_severity {
        return held(By::MinSeverity, None);
    }
    if let Some(at) = view.line.free_at(view.episode.severity, false)
        && at > now
    {
        return held(By::Refused, Some(at));
    }
    if let Some(until) = view.hold_until {
        return held(By::CatchUp, Some(until));
    }
    if let Some(muted) = (view.muted)() {
        return Step::Held(muted);
    }
    match view.cool_at {
        Some(at) if at > now => held(By::Cooldown, Some(at)),
        _ => Step::Open,
    }
}

fn held(by: By, until: Option<Timestamp>) -> Step {
    Step::Held(Held { by, until })
}

#[cfg(test)]
#[path = "alone_tests.rs"]
mod tests;
