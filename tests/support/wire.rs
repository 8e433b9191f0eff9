//! A wire between clients and one server, which can be cut, one way or both, slowed down, and watched.
//!
//! Unlike [`super::gate`] it treats both directions, can hold an answer back although the server has given it, can stand before
//! each node of a replica set (it puts its own port in place of the servers' where they name themselves), and can keep what
//! the server says until somebody has seen it saved. What is on the wire when it is cut is late, not lost, unless
//! the connections are dropped: that is how TCP fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of bytes in one direction.
#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    Pass,
    /// Nothing gets through until the rule changes; then what waited goes on.
    Stall,
    /// Each piece takes this long.
    Slow(Duration),
    /// Towards the server: what contains this waits. Towards the client: answers to what contains this wait, with all that
    /// the connection carries after them.
    Hold(Vec<u8>),
    /// Towards the client: what was read waits until [`Wire::saved`] names its turn.
    UntilSaved,
}

#[derive(Debug)]
pub struct Wire {
    port: u16,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server_port: u16,
    /// Towards the server, towards the client.
    up: watch::Sender<Way>,
    down: watch::Sender<Way>,
    /// Goes up when all connections are to be dropped.
    dropped: watch::Sender<u64>,
    /// Pieces read now belong to this turn.
    turn: AtomicU64,
    saved: watch::Sender<u64>,
    held: AtomicUsize,
    /// What the server says of addresses, and what the client is told instead, of the same length.
    names: watch::Sender<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Wire {
    pub async fn start(server_port: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        let shared = Arc::new(Shared {
            server_port,
            up: watch::Sender::new(Way::Pass),
            down: watch::Sender::new(Way::Pass),
            dropped: watch::Sender::new(0),
            turn: AtomicU64::new(1),
            saved: watch::Sender::new(0),
            held: AtomicUsize::new(0),
            names: watch::Sender::new(Vec::new()),
        });
        let of_all = Arc::clone(&shared);
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, Arc::clone(&of_all)));
            }
        });
        Wire {
            port,
            shared,
            listener,
        }
    }

    /// One before each of these servers; each tells its clients the wires' addresses for those of the servers.
    pub async fn start_before(ports: &[u16]) -> Vec<Wire> {
        let mut wires = Vec::new();
        for port in ports {
            wires.push(Wire::start(*port).await);
        }
        let address = |port: u16| format!("127.0.0.1:{port}").into_bytes();
        let names: Vec<_> = wires
            .iter()
            .map(|wire| (address(wire.shared.server_port), address(wire.port)))
            .collect();
        for (from, to) in &names {
            assert_eq!(from.len(), to.len(), "ports have five digits");
        }
        for wire in &wires {
            wire.shared.names.send_replace(names.clone());
        }
        wires
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn up(&self, way: Way) {
        self.shared.up.send_replace(way);
    }

    pub fn down(&self, way: Way) {
        self.shared.down.send_replace(way);
    }

    /// Both directions.
    pub fn both(&self, way: Way) {
        self.up(way.clone());
        self.down(way);
    }

    /// Whether something on its way to the server may be held.
    pub fn holds(&self) -> bool {
        matches!(*self.shared.up.borrow(), Way::Hold(_))
    }

    /// Ends all connections; what was held on them is lost.
    pub fn drop_all(&self) {
        self.shared.dropped.send_modify(|count| *count += 1);
    }

    /// How many pieces a `Hold` has applied to so far.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// The turn of everything read so far; what is read from now on belongs to the next.
    pub fn next_turn(&self) -> u64 {
        self.shared.turn.fetch_add(1, Ordering::SeqCst)
    }

    /// What was read in this turn or before may go on.
    pub fn saved(&self, turn: u64) {
        self.shared
            .saved
            .send_modify(|saved| *saved = turn.max(*saved));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listener.abort();
        self.drop_all();
    }
}

async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let mut dropped = shared.dropped.subscribe();
    let both = async {
        let Ok(server) = TcpStream::connect(("127.0.0.1", shared.server_port)).await else {
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        // Set by what goes up, heeded by what comes down.
        let answer_held = AtomicBool::new(false);
        tokio::select! {
            () = ask(client_read, server_write, &shared, &answer_held) => {}
            () = answer(server_read, client_write, &shared, &answer_held) => {}
        }
    };
    tokio::select! {
        () = both => {}
        _ = dropped.changed() => {}
    }
}

async fn ask(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    shared: &Shared,
    answer_held: &AtomicBool,
) {
    let mut rule = shared.up.subscribe();
    let mut buffer = vec![0; 1 << 18];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..read];
        let mut counted = false;
        loop {
            let now = rule.borrow_and_update().clone();
            match now {
                Way::Pass | Way::UntilSaved => break,
                Way::Slow(delay) => {
                    tokio::time::sleep(delay).await;
                    break;
                }
                Way::Stall => {}
                Way::Hold(marker) => {
                    if !contains(bytes, &marker) {
                        break;
                    }
                    if !counted {
                        shared.held.fetch_add(1, Ordering::SeqCst);
                        counted = true;
                    }
                }
            }
            if rule.changed().await.is_err() {
                return;
            }
        }
        if let Way::Hold(marker) = &*shared.down.borrow()
            && contains(bytes, marker)
        {
            answer_held.store(true, Ordering::SeqCst);
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}

async fn answer(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    shared: &Shared,
    answer_held: &AtomicBool,
) {
    let mut rule = shared.down.subscribe();
    let mut saved = shared.saved.subscribe();
    let mut buffer = vec![0; 1 << 18];
    let mut kept = Vec::new();
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let turn = shared.turn.load(Ordering::SeqCst);
        let mut counted = false;
        loop {
            let now = rule.borrow_and_update().clone();
            match now {
                Way::Pass => break,
                Way::Slow(delay) => {
                    tokio::time::sleep(delay).await;
                    break;
                }
                Way::UntilSaved => {
                    if *saved.borrow_and_update() >= turn {
                        break;
                    }
                }
                Way::Stall => {}
                Way::Hold(_) => {
                    if !answer_held.load(Ordering::SeqCst) {
                        break;
                    }
                    if !counted {
                        shared.held.fetch_add(1, Ordering::SeqCst);
                        counted = true;
                    }
                }
            }
            let still = tokio::select! {
                changed = rule.changed() => changed,
                changed = saved.changed() => changed,
            };
            if still.is_err() {
                return;
            }
        }
        let names = shared.names.borrow().clone();
        kept.extend_from_slice(&buffer[..read]);
        let rest = rename(&mut kept, &names);
        if to.write_all(&kept).await.is_err() {
            return;
        }
        kept = rest;
    }
}

fn contains(bytes: &[u8], marker: &[u8]) -> bool {
    marker.is_empty() || bytes.windows(marker.len()).any(|part| part == marker)
}

/// Puts the new names for the old ones, and returns the end of the bytes that may be the beginning of a name.
///
/// No message of MongoDB's ends so: each ends in a zero byte.
fn rename(bytes: &mut Vec<u8>, names: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let Some((first, _)) = names.first() else {
        return Vec::new();
    };
    let mut at = 0;
    while at + first.len() <= bytes.len() {
        // Most bytes begin nothing.
        if bytes[at] == first[0]
            && let Some((from, to)) = names.iter().find(|(from, _)| bytes[at..].starts_with(from))
        {
            bytes[at..at + from.len()].copy_from_slice(to);
            at += from.len();
        } else {
            at += 1;
        }
    }
    let begins = (1..first.len().min(bytes.len() + 1))
        .rev()
        .find(|length| {
            let end = &bytes[bytes.len() - length..];
            names.iter().any(|(from, _)| from.starts_with(end))
        })
        .unwrap_or(0);
    bytes.split_off(bytes.len() - begins)
}
