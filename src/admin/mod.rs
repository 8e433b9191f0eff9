//! HTTP for operators and Prometheus, on loopback unless told otherwise.
//!
//! * `/livez`   the process runs;
//! * `/readyz`  it can do its job right now: 200, or 503 with the reasons as JSON;
//! * `/metrics` Prometheus text.
//!
//! With a token set, everything but the first two asks for it.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::config::{AdminConfig, Secret, secret::value_or_file};
use crate::runtime::Readiness;
use crate::telemetry::Registry;

/// Why there is no admin server.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The token file cannot be read.
    #[error("admin.token_file: {0}")]
    Secret(String),
    /// The address is taken or not ours.
    #[error(
        "admin.listen: cannot listen on {address}: {error}. Stop what uses it, or set another address"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        error: std::io::Error,
    },
}

/// A bound server.
pub struct Admin {
    listener: TcpListener,
    router: Router,
    /// Where it listens.
    pub address: SocketAddr,
}

#[derive(Clone)]
struct Shared {
    registry: Registry,
    readiness: Readiness,
    token: Option<Secret>,
}

impl Admin {
    /// Binds the address.
    ///
    /// # Errors
    /// Where it cannot be bound, or the token cannot be read.
    pub async fn build(
        config: &AdminConfig,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Result<Self, AdminError> {
        let token = value_or_file(&config.token, &config.token_file).map_err(AdminError::Secret)?;
        let listen = |error| AdminError::Listen {
            address: config.listen,
            error,
        };
        let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let shared = Shared {
            registry: registry.clone(),
            readiness: readiness.clone(),
            token,
        };
        let guarded = Router::new()
            .route("/metrics", get(metrics))
            .route_layer(middleware::from_fn_with_state(shared.clone(), authorize));
        let router = Router::new()
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .merge(guarded)
            .with_state(shared);
        Ok(Self {
            listener,
            router,
            address,
        })
    }

    /// Serves until dropped.
    ///
    /// # Errors
    /// Where the listener fails for good.
    pub async fn run(self) -> std::io::Result<()> {
        axum::serve(self.listener, self.router).await
    }
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(shared): State<Shared>) -> Response {
    let reasons = shared.readiness.reasons();
    let status = if reasons.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = serde_json::json!({ "ready": reasons.is_empty(), "reasons": reasons });
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        format!("{body}\n"),
    )
        .into_response()
}

async fn metrics(State(shared): State<Shared>) -> Response {
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        shared.registry.text(),
    )
        .into_response()
}

async fn authorize(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let allowed = match &shared.token {
        None => true,
        Some(token) => given
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|given| same(given.as_bytes(), token.expose().as_bytes())),
    };
    if allowed {
        return next.run(request).await;
    }
    (
        StatusCode::UNAUTHORIZED,
        [(header::WWW_AUTHENTICATE, "Bearer")],
        "a bearer token is needed: admin.token_file\n",
    )
        .into_response()
}

/// Compares without telling by its duration where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .fold(0, |difference, (x, y)| difference | (x ^ y))
            == 0
}
