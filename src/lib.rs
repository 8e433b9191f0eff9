//! Tidegate.

pub mod config;
pub mod decode;
pub mod model;
