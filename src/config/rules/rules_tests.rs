//! Rules as written: what is taken, what is refused with which key, and that the file, JSON and
//! BSON read alike.

use super::*;

fn rule(toml: &str) -> RuleConfig {
    toml::from_str(toml).unwrap_or_else(|error| panic!("{error}\n{toml}"))
}
