//! What a session asks of the broker on an accepted connection, and what it makes of the answer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{End, Life, Session};
use crate::model::QoS;
use crate::source::link::Link;
use crate::source::subscription::{ANSWER_LIMIT, Step, Subscription};

impl<L: Link> Session<L> {
    pub(super) fn connected(&mut self, session_present: bool, session_expiry: Option<Duration>) {
        self.series.connects.inc();
        self.condition
            .raise("connected, but the broker has not answered the subscription yet");
        self.window.open(session_present, self.link.outbox());
        self.vigil.connected();
        let connection = &self.connection;
        let again = self.asked.is_some();
        if !session_present && again {
            self.series.sessions_lost.inc();
            tracing::error!(
                connection,
                "The broker forgot the session: messages it had queued for us are gone. Check its persistence and session expiry"
            );
        } else {
            tracing::info!(connection, session_present, "Connected to the broker");
        }
        if let Some(kept) =
            session_expiry.filter(|kept| *kept < self.options.config.session_expiry.0)
        {
            tracing::warn!(
                connection,
                seconds = kept.as_secs(),
                "The broker keeps the session for less than mqtt.session_expiry asks for"
            );
        }
    }

    pub(super) fn ask(&mut self, life: &mut Life) -> ControlFlow<End> {
        let routes = self.routes.get();
        let wanted = Subscription::new(&routes.router.filters(), &self.share_group)
            .with_canary(self.vigil.topic());
        // What an earlier process asked for is not known, but how this one's filters would have
        // read with or without a share group is: both at once would deliver everything twice.
        let unwanted = match &self.asked {
            Some(asked) => asked.without(&wanted),
            None => wanted.other_spellings(&self.share_group),
        };
        self.link.unsubscribe(&unwanted);
        if let Err(error) = self.link.subscribe(&wanted.all()) {
            return ControlFlow::Break(End::Failed(error));
        }
        self.asked = Some(wanted.clone());
        life.progress.asked(wanted, Instant::now());
        life.asked_by = Some(routes);
        ControlFlow::Continue(())
    }

    pub(super) fn granted(&mut self, granted: &[Result<QoS, String>], life: &mut Life) {
        let refusals = life.progress.answered(granted, Instant::now());
        self.vigil.subscribed(refusals.canary);
        let refusals = refusals.filters;
        let connection = &self.connection;
        if refusals.is_empty() {
            self.series.subscribed.set(1);
            if self.condition.clear() {
                let filters = life.progress.subscription.filters.join(" ");
                tracing::info!(connection, filters, "Subscribed");
            }
            return;
        }
        self.series.subscribed.set(0);
        self.series.refusals.inc_by(refusals.len() as u64);
        let reason = format!("subscription refused: {}", refusals.join("; "));
        if self.condition.raise(reason.as_str()) {
            tracing::error!(
                connection,
                error = reason,
                "The broker did not grant everything that was asked for"
            );
        }
    }

    /// Asks again where due; ends a connection whose subscription was never answered.
    pub(super) fn watch_subscription(&mut self, life: &mut Life) -> ControlFlow<End> {
        let Some(asked_by) = &life.asked_by else {
            return ControlFlow::Continue(());
        };
        let changed = !Arc::ptr_eq(asked_by, &self.routes.get());
        match life.progress.step(Instant::now(), changed) {
            Step::Wait => ControlFlow::Continue(()),
            Step::Ask => self.ask(life),
            Step::Overdue => ControlFlow::Break(self.silent(life, ANSWER_LIMIT)),
        }
    }
}
