//! Tidegate.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod decode;
pub mod lane;
pub mod model;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod store;
pub mod telemetry;
