//! Tidegate.

pub mod config;
pub mod model;
pub mod runtime;
pub mod telemetry;
