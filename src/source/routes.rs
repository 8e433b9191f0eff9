//! The streams in force, replaced as a whole on reload.

use std::sync::{Arc, PoisonError, RwLock};

use crate::config::StreamConfig;
use crate::decode::Router;
use crate::model::Message;
use crate::telemetry::Ledger;

/// Streams with what each message of them needs, by the stream's position in the file.
pub struct Routes {
    /// Decides and decodes.
    pub router: Router,
    /// What loads carry to the sink.
    pub configs: Vec<Arc<StreamConfig>>,
    /// Where messages are counted.
    pub ledger: Vec<usize>,
}

impl Routes {
    /// Puts a router to use.
    pub fn new(router: Router, ledger: &Ledger) -> Self {
        let configs: Vec<_> = router
            .streams()
            .iter()
            .map(|s| Arc::new(s.config().clone()))
            .collect();
        let ledger = configs
            .iter()
            .map(|config| ledger.stream(&config.name))
            .collect();
        Self {
            router,
            configs,
            ledger,
        }
    }

    /// The stream that a message belongs to, and its place in the ledger, without decoding it.
    pub fn claim(&self, message: &Message) -> (Option<Arc<StreamConfig>>, usize) {
        let topic = std::str::from_utf8(&message.topic).ok();
        let stream = topic.and_then(|topic| self.router.route(topic));
        match stream.map(|stream| stream.index()) {
            Some(index) => (Some(Arc::clone(&self.configs[index])), self.ledger[index]),
            None => (None, Ledger::NONE),
        }
    }
}

/// Shared by all connections.
#[derive(Clone)]
pub struct RoutesHandle(Arc<RwLock<Arc<Routes>>>);

impl RoutesHandle {
    /// Starts with `routes`.
    pub fn new(routes: Routes) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(routes))))
    }

    /// The routes in force.
    pub fn get(&self) -> Arc<Routes> {
        // A pointer is sound whatever a panicking holder was doing.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts new ones in force, for messages that arrive from now on.
    pub fn replace(&self, routes: Routes) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }
}
