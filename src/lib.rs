//! Tidegate takes what devices publish over MQTT and stores it in MongoDB native time-series
//! collections. A message is acknowledged to the broker only after MongoDB has acknowledged the
//! write, or after the message itself was written to the dead letters with the reason.
//!
//! # The way of one message
//!
//! ```text
//! broker ──MQTT──▶ source ──▶ decode ──▶ lane ──▶ sink ──▶ MongoDB series
//!                    ▲                               └────▶ MongoDB dead letters
//!                    └───── ack, in arrival order ◀──┘
//! ```
//!
//! | step | files |
//! |---|---|
//! | a publish comes off the wire | `source/session` polls `source/link_v5` or `source/link_v311` |
//! | it gets its place in the arrival order | `source/intake`, `source/window`, `source/acks` |
//! | topic and payload become readings, or a reason | `decode/router`, `template`, `codecs`, `time`, `fields` |
//! | each reading goes to its device's lane | `lane/queue` |
//! | a free writer takes what has gathered | `sink/writer`, `sink/pace`, `sink/batch` |
//! | one unordered insert, an outcome for every reading | `sink/insert`, `sink/classify`, `store/series` |
//! | what cannot be stored is kept with its reason | `sink/dead_letter`, `store/dead_letters` |
//! | the receipt is settled, the acknowledgement leaves | `model/receipt`, `source/window` |
//!
//! # The promise, and where it is kept
//!
//! 1. Nothing but a durable write ends a QoS 1 or 2 message: [`model::Receipt`] reports a message
//!    as delivered only if every part of it was settled by name.
//! 2. Nothing is acknowledged on a connection that did not deliver it: `source/window` queues
//!    acknowledgements and cuts connections off under one lock.
//! 3. Memory is bounded: by the window at QoS 1 and 2 (messages and bytes), by the lane at QoS 0.
//! 4. A repeated write keeps its ids, and a write of unclear outcome is looked up first:
//!    `sink/insert`.
//! 5. Every message is accounted for: [`telemetry::Ledger`].
//!
//! # Who may use whom
//!
//! `main → cli → app → {source, sink, admin}`; stages never use each other and meet in `model` and
//! `lane`; `source → decode, lane`; `sink → lane, store`; everything → `config → model, runtime,
//! telemetry`. `tests/conventions.rs` keeps it so.

pub mod admin;
pub mod alert;
pub mod app;
pub mod cli;
pub mod config;
pub mod decode;
pub mod devices;
pub mod lane;
pub mod model;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod store;
pub mod telemetry;
