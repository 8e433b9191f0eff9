//! What is done to whom. Each scenario does its harm under load, once, and ends when messages flow again.

pub mod alerts;
pub mod broker;
pub mod clock;
pub mod database;
pub mod flood;
pub mod gateway;
pub mod network;
pub mod spool;

use std::pin::Pin;

use crate::world::{Place, World};

type Run = for<'a> fn(&'a mut World) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub place: Place,
    /// Part of the selection that always runs.
    pub quick: bool,
    pub run: Run,
}

macro_rules! scenarios {
    ($($name:literal $place:ident $quick:literal $run:path;)+) => {
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: $name,
            place: Place::$place,
            quick: $quick,
            run: |world| Box::pin($run(world)),
        },)+];
    };
}

scenarios! {
    "gateway-kill"          Main true  gateway::kill;
    "gateway-kill-unacked"  Main true  gateway::kill_after_the_insert;
    "gateway-kill-fed"      Main true  gateway::kill_between_feed_and_series;
    "gateway-kill-unfed"    Main false gateway::kill_between_series_and_feed;
    "gateway-term"          Main true  gateway::term;
    "primary-kill"          Main true  database::primary_kill;
    "primary-step-down"     Main true  database::step_down;
    "primary-stop"          Main false database::primary_stop;
    "majority-lost"         Main true  database::majority_lost;
    "mongod-stop"           Main true  database::stop;
    "mongod-slow"           Main false database::slow;
    "broker-kill"           Main true  broker::kill;
    "broker-kill-backlog"   Main false broker::kill_with_a_backlog;
    "broker-term"           Main false broker::term;
    "broker-forgets"        Main true  broker::forgets;
    "cut-broker"            Main false network::cut_from_the_broker;
    "cut-broker-one-way"    Main true  network::half_cut_from_the_broker;
    "cut-mongodb"           Main false network::cut_from_mongodb;
    "cut-mongodb-one-way"   Main true  network::half_cut_from_mongodb;
    "cut-devices"           Main true  network::cut_from_the_devices;
    "flood-poison"          Main false flood::poison;
    "flood-oversize"        Main false flood::oversize;
    "leader-kill"           Main false alerts::kill;
    "leader-cut"            Main true  alerts::cut;
    "leader-deposed"        Main false alerts::depose;
    "window-poison"         Window true  flood::poison;
    "window-oversize"       Window false flood::oversize;
    "window-gateway-kill"   Window true  gateway::kill;
    "window-primary-kill"   Window false database::primary_kill;
    "window-broker-kill"    Window false broker::kill;
    "share-kill"            Share true  gateway::kill;
    "share-kill-unacked"    Share false gateway::kill_after_the_insert;
    "share-cut"             Share false network::cut_from_the_broker;
    "share-term"            Share false gateway::term;
    "share-primary-kill"    Share false database::primary_kill;
    "spool-kill"            Spool true  spool::kill;
    "spool-kill-draining"   Spool false spool::kill_while_it_drains;
    "spool-broker-kill"     Spool false broker::kill;
    "spool-disk-full"       Spool false spool::disk_full;
    "clock-ahead"           Clock false clock::ahead;
    "clock-back"            Clock false clock::back;
}
