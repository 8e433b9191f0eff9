//! Tidegate takes what devices publish over MQTT and stores it in MongoDB native time-series
//! collections. A message is acknowledged to the broker only after MongoDB has acknowledged the
//! write, or after the message itself was written to the dead letters with the reason.
//!
//! # The way of one message
//!
//! ```text
//! broker ──MQTT──▶ source ──▶ decode ──▶ lane ──▶ sink ──▶ MongoDB series
//!                    ▲                               ├────▶ MongoDB feed (what rules select)
//!                    └───── ack, in arrival order ◀──┤
//!                                                    └────▶ MongoDB dead letters
//! feed ──change stream──▶ alert: judge ──▶ state + outbox + history ──▶ receivers
//! ```
//!
//! | step | files |
//! |---|---|
//! | a publish comes off the wire | `source/session` polls `source/link_v5` or `source/link_v311` |
//! | it gets its place in the arrival order | `source/intake`, `source/window`, `source/acks` |
//! | with a spool: it is put on disk, acknowledged, and read from there | `spool/writer`, `spool/store`, `spool/drain` |
//! | topic and payload become readings, or a reason | `decode/router`, `template`, `codecs`, `time`, `fields` |
//! | each reading goes to its device's lane | `lane/queue` |
//! | a free writer takes what has gathered | `sink/writer`, `sink/pace`, `sink/batch` |
//! | one unordered insert, an outcome for every reading | `sink/insert`, `sink/classify`, `store/series` |
//! | what cannot be stored is kept with its reason | `sink/dead_letter`, `store/dead_letters` |
//! | what rules look at is written to the feed as well | `sink/feed`, `store/feed` |
//! | the receipt is settled, the acknowledgement leaves | `model/receipt`, `source/window` |
//! | the feed comes in by change stream, to whoever leads | `alert/lead`, `alert/term`, `alert/watch` |
//! | each reading is judged by the rules that select it | `alert/events`, `alert/rules` |
//! | who is told is decided, and written with the state | `alert/notify/plan`, `alert/turn`, `store/alerts` |
//! | requests go out, their ends come back | `alert/telling`, `alert/notify` |
//!
//! # The promise, and where it is kept
//!
//! 1. Nothing but a durable write ends a QoS 1 or 2 message, or has it acknowledged: [`model::Receipt`] reports a message
//!    as delivered only if every part of it was settled by name.
//! 2. Nothing is acknowledged on a connection that did not deliver it: `source/window` queues
//!    acknowledgements and cuts connections off under one lock.
//! 3. Memory is bounded: by the window at QoS 1 and 2 (messages and bytes), by the lane at QoS 0.
//! 4. A repeated write keeps its ids, and a write of unclear outcome is looked up first:
//!    `sink/insert`.
//! 5. Every message is accounted for: [`telemetry::Ledger`].
//! 6. An alert that was told is later told to be over, and not told twice: the state and the
//!    requests that follow from it are one transaction (`alert/turn`), a leader that was thought
//!    dead writes nothing (`store/alerts`), a request keeps its id and body (`store/outbox`).
//!
//! # Who may use whom
//!
//! `main → cli → app → {source, spool, sink, alert, admin}`; stages never use each other and meet in
//! `model`, `lane` and the database; `source → decode, lane`; `sink → lane, devices, store`; `alert →
//! devices, store`; everything → `config → model, runtime, telemetry`. `tests/conventions.rs` keeps it so.

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
pub mod spool;
pub mod store;
pub mod telemetry;
