//! The devices: a process of its own that publishes, and writes down the id of every message the broker acknowledged.
//!
//! It is this same program, started again. It takes orders on standard input and ends when that closes. It behaves as careful
//! devices do: QoS 1, time stamps of their own that only grow, and after a lost connection everything un-acknowledged again, in
//! order, with DUP; the broker hands such a copy to the gateway as a message of its own. A message that the broker says
//! nobody has subscribed to (MQTT 5, reason 16) is not taken and is published again.
//! If the process dies, what it has not written down is not promised to anybody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::support::packets::{Publish, packet};
use crate::support::plan::now_ms;

/// Un-acknowledged messages at the most.
const WINDOW: usize = 3_000;
/// Nothing from the broker for so long while something is due: a new connection.
const PATIENCE: Duration = Duration::from_secs(8);

/// The device whose values alerts follow, above and below the threshold in turn.
pub const WAVE: &str = "room-1";

/// What a message is for, and the letter that stands for it in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A reading with its own time: stored exactly once.
    Timed,
    /// One without: stored at least once.
    Plain,
    /// Cannot be stored: a dead letter.
    Poison,
}

impl Kind {
    pub fn letter(self) -> char {
        match self {
            Kind::Timed => 't',
            Kind::Plain => 'r',
            Kind::Poison => 'p',
        }
    }
}

/// What it is started with.
#[derive(Debug)]
pub struct Order {
    pub port: u16,
    pub root: String,
    pub log: String,
    pub rate: f64,
    pub devices: usize,
    /// The wave changes this often.
    pub wave: Duration,
}

struct Waiting {
    kind: Kind,
    topic: String,
    payload: Vec<u8>,
    /// Has been on a connection before.
    sent: bool,
}

struct Fleet {
    order: Order,
    next: u64,
    /// Greatest time each device has given.
    clocks: Vec<i64>,
    wave_clock: i64,
    wave_due: Instant,
    wave_flips: Instant,
    wave_high: bool,
    wave_ends: bool,
    /// Poison to be sent as fast as it goes, by kind.
    flood: VecDeque<&'static str>,
    /// Messages due by the rate.
    budget: f64,
    generated: Instant,
    paused: bool,
    stopped: bool,
    waiting: BTreeMap<u64, Waiting>,
    acked: u64,
    untaken: u64,
    log: BufWriter<std::fs::File>,
}

/// One connection: packet numbers belong to it.
struct Link {
    ids: HashMap<u16, u64>,
    last: u16,
    heard: Instant,
    pinged: Instant,
}

pub fn run(order: Order) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be had");
    runtime.block_on(publish(order));
}

async fn publish(order: Order) {
    let log = std::fs::File::create(&order.log).expect("the log can be written");
    let now = Instant::now();
    let mut fleet = Fleet {
        clocks: vec![0; order.devices],
        order,
        next: 0,
        wave_clock: 0,
        wave_due: now,
        wave_flips: now,
        wave_high: false,
        wave_ends: false,
        flood: VecDeque::new(),
        budget: 0.0,
        generated: now,
        paused: true,
        stopped: false,
        waiting: BTreeMap::new(),
        acked: 0,
        untaken: 0,
        log: BufWriter::new(log),
    };
    let (orders, mut taken) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if orders.blocking_send(line).is_err() {
                return;
            }
        }
        // Whoever gave orders is gone.
        std::process::exit(0);
    });
    while !fleet.done() {
        if connected(&mut fleet, &mut taken).await.is_none() {
            fleet.report();
            while let Ok(line) = taken.try_recv() {
                fleet.take(&line);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    fleet.log.flush().expect("the log can be written");
    fleet.report();
    println!("done");
}

/// One connection's life; `None` when it broke.
async fn connected(fleet: &mut Fleet, orders: &mut mpsc::Receiver<String>) -> Option<()> {
    let connect = async {
        let mut stream = TcpStream::connect(("127.0.0.1", fleet.order.port))
            .await
            .ok()?;
        stream.set_nodelay(true).ok()?;
        let client = format!("devices-{}", fleet.order.root);
        let mut body = b"\0\x04MQTT\x05\x02\0\x3c\0".to_vec();
        body.extend(u16::try_from(client.len()).ok()?.to_be_bytes());
        body.extend(client.as_bytes());
        stream.write_all(&packet(0x10, &body)).await.ok()?;
        Some(stream)
    };
    let stream = tokio::time::timeout(PATIENCE, connect).await.ok()??;
    let (mut from, mut to) = stream.into_split();
    let now = Instant::now();
    let mut link = Link {
        ids: HashMap::new(),
        last: 0,
        heard: now,
        pinged: now,
    };
    let mut buffer = BytesMut::with_capacity(1 << 16);
    let mut accepted = false;
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut told = Instant::now();
    loop {
        let mut out = Vec::new();
        tokio::select! {
            read = from.read_buf(&mut buffer) => {
                if read.ok()? == 0 {
                    return None;
                }
                link.heard = Instant::now();
                while let Some((first, body)) = whole(&mut buffer) {
                    match first >> 4 {
                        2 => {
                            if body.get(1) != Some(&0) {
                                return None;
                            }
                            accepted = true;
                            fleet.again(&mut link, &mut out);
                        }
                        4 => fleet.acknowledged(&mut link, &body),
                        // The broker ends the connection.
                        14 => return None,
                        _ => {}
                    }
                }
            }
            _ = tick.tick() => {}
            Some(line) = orders.recv() => fleet.take(&line),
        }
        let now = Instant::now();
        if accepted {
            fleet.generate(now);
            fleet.send(&mut link, &mut out);
            if link.pinged.elapsed() > Duration::from_secs(2) {
                link.pinged = now;
                out.extend(packet(0xC0, &[]));
            }
        }
        if link.heard.elapsed() > PATIENCE {
            return None;
        }
        if !out.is_empty() {
            // A connection on which nothing moves is as good as none.
            tokio::time::timeout(PATIENCE, to.write_all(&out))
                .await
                .ok()?
                .ok()?;
        }
        if told.elapsed() > Duration::from_millis(100) {
            told = now;
            fleet.report();
        }
        if fleet.done() {
            return Some(());
        }
    }
}

impl Fleet {
    fn done(&self) -> bool {
        self.stopped && self.waiting.is_empty()
    }

    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("pause"), ..) => self.paused = true,
            (Some("resume"), ..) => (self.paused, self.budget) = (false, 0.0),
            (Some("stop"), ..) => self.stopped = true,
            (Some("rate"), Some(rate), _) => {
                self.order.rate = rate.parse().expect("orders are sound");
            }
            // A last value, and no more after it.
            (Some("end"), Some(value), _) => {
                self.wave_ends = true;
                self.wave_high = value == "high";
                self.wave();
            }
            (Some("flood"), Some(kind), Some(count)) => {
                let kind = POISON
                    .iter()
                    .find(|known| **known == kind)
                    .expect("orders are sound");
                let count: usize = count.parse().expect("orders are sound");
                self.flood.extend(std::iter::repeat_n(*kind, count));
            }
            _ => panic!("no such order: {line}"),
        }
    }

    /// Puts what is due into the queue, up to the window.
    fn generate(&mut self, now: Instant) {
        if self.stopped {
            return;
        }
        while self.waiting.len() < WINDOW
            && let Some(kind) = self.flood.pop_front()
        {
            self.poison(kind);
        }
        if self.paused {
            return;
        }
        if !self.wave_ends && now >= self.wave_due && self.waiting.len() < WINDOW {
            self.wave_due = now + Duration::from_millis(400);
            if now >= self.wave_flips {
                self.wave_flips = now + self.order.wave;
                self.wave_high ^= true;
            }
            self.wave();
        }
        // What could not be sent in time is not made up for.
        let passed = now - std::mem::replace(&mut self.generated, now);
        let due = self.budget + self.order.rate * passed.as_secs_f64();
        self.budget = due.min(self.order.rate * 0.2);
        while self.budget >= 1.0 && self.waiting.len() < WINDOW {
            self.budget -= 1.0;
            match self.next {
                n if n % 500 == 499 => self.poison(POISON[(n / 500) as usize % POISON.len()]),
                n if n % 20 == 19 => self.plain(),
                _ => self.timed(),
            }
        }
    }

    fn timed(&mut self) {
        let device = self.next as usize % self.clocks.len();
        let time = now_ms().max(self.clocks[device] + 1);
        self.clocks[device] = time;
        let payload = format!("{{\"ts\":{time},\"id\":{},\"v\":{time}}}", self.next);
        let topic = format!("{}/d-{device:04}/telemetry", self.order.root);
        self.put(Kind::Timed, topic, payload.into_bytes());
    }

    fn wave(&mut self) {
        let time = now_ms().max(self.wave_clock + 1);
        self.wave_clock = time;
        let value = if self.wave_high { 9 } else { 1 };
        let payload = format!(
            "{{\"ts\":{time},\"id\":{},\"v\":{time},\"t\":{value}}}",
            self.next
        );
        let topic = format!("{}/{WAVE}/telemetry", self.order.root);
        self.put(Kind::Timed, topic, payload.into_bytes());
    }

    fn plain(&mut self) {
        let device = self.next % 50;
        let payload = format!("{{\"id\":{}}}", self.next);
        let topic = format!("{}/p-{device:04}/plain", self.order.root);
        self.put(Kind::Plain, topic, payload.into_bytes());
    }

    fn poison(&mut self, kind: &str) {
        let mut payload = format!("{{\"id\":{},", self.next).into_bytes();
        let mut device = "d-0001";
        match kind {
            "syntax" => {}
            "size" => {
                payload.extend(b"\"pad\":\"");
                payload.resize(OVERSIZE, b'x');
                payload.extend(b"\"}");
            }
            _ => {
                device = "";
                payload.extend(format!("\"ts\":{}}}", now_ms()).as_bytes());
            }
        }
        let topic = format!("{}/{device}/telemetry", self.order.root);
        self.put(Kind::Poison, topic, payload);
    }

    fn put(&mut self, kind: Kind, topic: String, payload: Vec<u8>) {
        let waiting = Waiting {
            kind,
            topic,
            payload,
            sent: false,
        };
        self.waiting.insert(self.next, waiting);
        self.next += 1;
    }

    /// On a new connection: what was on an earlier one goes first, as a repetition.
    fn again(&mut self, link: &mut Link, out: &mut Vec<u8>) {
        for (id, waiting) in &self.waiting {
            if waiting.sent {
                link.write(*id, waiting, true, out);
            }
        }
    }

    /// What has not been on any connection.
    fn send(&mut self, link: &mut Link, out: &mut Vec<u8>) {
        // New messages have the highest ids; what nobody took is anywhere.
        let due: Vec<u64> = if link.ids.len() < self.waiting.len() {
            let unsent = self.waiting.iter().filter(|(_, waiting)| !waiting.sent);
            unsent.map(|(id, _)| *id).collect()
        } else {
            Vec::new()
        };
        for id in due {
            let waiting = self.waiting.get_mut(&id).expect("it is there");
            waiting.sent = true;
            link.write(id, waiting, false, out);
        }
    }

    fn acknowledged(&mut self, link: &mut Link, body: &[u8]) {
        let Some(number) = body.get(..2) else { return };
        let number = u16::from_be_bytes([number[0], number[1]]);
        let Some(id) = link.ids.remove(&number) else {
            return;
        };
        let reason = body.get(2).copied().unwrap_or(0);
        if reason == 0 {
            let waiting = self.waiting.remove(&id).expect("only we remove");
            writeln!(self.log, "{} {id} {}", waiting.kind.letter(), now_ms())
                .expect("the log can be written");
            self.acked += 1;
        } else {
            self.waiting.get_mut(&id).expect("only we remove").sent = false;
            self.untaken += 1;
        }
    }

    fn report(&mut self) {
        self.log.flush().expect("the log can be written");
        println!(
            "status {} {} {} {}",
            self.next,
            self.acked,
            self.waiting.len() + self.flood.len(),
            self.untaken
        );
    }
}

impl Link {
    fn write(&mut self, id: u64, waiting: &Waiting, dup: bool, out: &mut Vec<u8>) {
        let number = loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.ids.contains_key(&self.last) {
                break self.last;
            }
        };
        self.ids.insert(number, id);
        let publish = Publish {
            dup,
            ..Publish::new(number, waiting.topic.as_str(), waiting.payload.clone())
        };
        out.extend(publish.encode(5));
    }
}

/// What cannot be stored.
const POISON: [&str; 3] = ["syntax", "size", "topic"];
/// Beyond the stream's limit, which the world sets to 4 KiB.
const OVERSIZE: usize = 5_000;

/// The first byte and the body of the next whole packet.
fn whole(buffer: &mut BytesMut) -> Option<(u8, Vec<u8>)> {
    let (mut length, mut at) = (0_usize, 1);
    loop {
        let byte = *buffer.get(at)?;
        length |= usize::from(byte & 0x7F) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    if buffer.len() < at + length {
        return None;
    }
    let packet = buffer.split_to(at + length);
    Some((packet[0], packet[at..].to_vec()))
}
