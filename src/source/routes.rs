//! The streams in force, replaced as a whole on reload.

use std::sync::{Arc, PoisonError, RwLock};

use crate::config::StreamConfig;
use crate::decode::Router;
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
