//! A broker that does what the test says, for faults no real broker shows on demand.
//!
//! The test is the script: it accepts one connection after another and says step by step what to expect and what to
//! send. Both protocol levels are spoken, as the client's CONNECT asks. Whatever a client sends is also kept in one log, with
//! connection number and time. Pings are answered in the background unless the test wants silence.
//!
//! ```ignore
//! let broker = ScriptedBroker::start().await;
//! let mut first = broker.accept_session(false).await;
//! first.send_publish(Publish::new(1, "devices/a/telemetry", "1")).await;
//! first.close().await;
//! let mut second = broker.accept_session(true).await;
//! second.send_publish(Publish::new(1, "devices/a/telemetry", "1").again()).await;
//! second.expect_puback(1).await;
//! ```

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::packets::{self, Connect, Publish, Received, Subscribe};

/// How long a step waits for what it expects.
const PATIENCE: Duration = Duration::from_secs(20);

/// One packet from a client.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Counted from 1, in the order of `accept`.
    pub connection: usize,
    pub at: Instant,
    pub packet: Received,
}

type Log = Arc<Mutex<Vec<Entry>>>;

#[derive(Debug)]
pub struct ScriptedBroker {
    listener: TcpListener,
    port: u16,
    accepted: AtomicUsize,
    log: Log,
}

impl ScriptedBroker {
    pub async fn start() -> ScriptedBroker {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        ScriptedBroker {
            listener,
            port,
            accepted: AtomicUsize::new(0),
            log: Log::default(),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// The next connection, before any packet of it. Until then a client that connects gets no answer.
    pub async fn accept(&self) -> Connection {
        self.accept_within(PATIENCE).await.unwrap_or_else(|| {
            panic!(
                "no connection within {PATIENCE:?}; so far: {:#?}",
                self.log()
            )
        })
    }

    /// The next connection, or `None` when the client keeps away for so long.
    pub async fn accept_within(&self, time: Duration) -> Option<Connection> {
        let accepted = tokio::time::timeout(time, self.listener.accept())
            .await
            .ok()?;
        let (stream, _) = accepted.expect("a listening socket accepts");
        let number = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Connection::new(number, stream, self.log.clone()))
    }

    /// The next connection, accepted with all it subscribes to at QoS 1.
    pub async fn accept_session(&self, session_present: bool) -> Connection {
        let mut connection = self.accept().await;
        connection.expect_connect().await;
        connection.send_connack(session_present, 0).await;
        connection.grant_subscription().await;
        connection
    }

    /// Everything received so far on all connections, pings included.
    pub fn log(&self) -> Vec<Entry> {
        self.log
            .lock()
            .expect("no holder of the log panics")
            .clone()
    }

    /// The acknowledgements so far, as (connection, packet id), in order of arrival.
    pub fn pubacks(&self) -> Vec<(usize, u16)> {
        self.log()
            .iter()
            .filter_map(|entry| match entry.packet {
                Received::PubAck { pkid, .. } => Some((entry.connection, pkid)),
                _ => None,
            })
            .collect()
    }
}

/// One client connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    pub number: usize,
    /// 4 or 5, once CONNECT was seen.
    pub level: u8,
    incoming: UnboundedReceiver<Received>,
    writer: Arc<AsyncMutex<OwnedWriteHalf>>,
    answers_pings: Arc<AtomicBool>,
    reader: JoinHandle<()>,
    log: Log,
}

impl Connection {
    fn new(number: usize, stream: TcpStream, log: Log) -> Connection {
        stream.set_nodelay(true).expect("TCP has this option");
        let (read, write) = stream.into_split();
        let (sender, incoming) = unbounded_channel();
        let writer = Arc::new(AsyncMutex::new(write));
        let answers_pings = Arc::new(AtomicBool::new(true));
        let reader = tokio::spawn(read_all(
            read,
            Recorder {
                connection: number,
                log: log.clone(),
                sender,
            },
            writer.clone(),
            answers_pings.clone(),
        ));
        Connection {
            number,
            level: 0,
            incoming,
            writer,
            answers_pings,
            reader,
            log,
        }
    }

    // --- what the client is expected to send ---

    /// The next packet that is no ping; at the end of the connection `Received::Closed`.
    pub async fn next(&mut self) -> Received {
        self.next_within(PATIENCE)
            .await
            .unwrap_or_else(|| self.fail(&format!("anything within {PATIENCE:?}"), None))
    }

    /// The same, or `None` when nothing arrives for so long.
    pub async fn next_within(&mut self, time: Duration) -> Option<Received> {
        let next = tokio::time::timeout(time, self.incoming.recv())
            .await
            .ok()?;
        Some(next.unwrap_or(Received::Closed))
    }

    pub async fn expect_connect(&mut self) -> Connect {
        match self.next().await {
            Received::Connect(connect) => {
                self.level = connect.level;
                connect
            }
            other => self.fail("CONNECT", Some(other)),
        }
    }

    pub async fn expect_subscribe(&mut self) -> Subscribe {
        match self.next().await {
            Received::Subscribe(subscribe) => subscribe,
            other => self.fail("SUBSCRIBE", Some(other)),
        }
    }

    /// The acknowledgement of exactly this message, as the next packet.
    pub async fn expect_puback(&mut self, pkid: u16) {
        let next = self.next_puback().await;
        assert_eq!(
            next, pkid,
            "connection {}: acknowledged out of turn",
            self.number
        );
    }

    /// The packet id of the next packet, which must be an acknowledgement.
    pub async fn next_puback(&mut self) -> u16 {
        match self.next().await {
            Received::PubAck { pkid, .. } => pkid,
            other => self.fail("PUBACK", Some(other)),
        }
    }

    /// A message published by the client, as the next packet. It is not acknowledged by itself.
    pub async fn expect_publish(&mut self) -> Publish {
        match self.next().await {
            Received::Publish(publish) => publish,
            other => self.fail("PUBLISH", Some(other)),
        }
    }

    pub async fn expect_disconnect(&mut self) {
        match self.next().await {
            Received::Disconnect { .. } => {}
            other => self.fail("DISCONNECT", Some(other)),
        }
    }

    /// The client gives the connection up; what it sends before that is passed over.
    pub async fn expect_closed(&mut self) {
        while self.next().await != Received::Closed {}
    }

    /// Nothing but pings arrives for so long.
    pub async fn expect_quiet(&mut self, time: Duration) {
        if let Some(packet) = self.next_within(time).await {
            self.fail("nothing", Some(packet));
        }
    }

    // --- what the broker does ---

    /// `code` is a return code in 3.1.1 (0 to 5) and a reason code in 5 (0, 0x80 and above).
    pub async fn send_connack(&mut self, session_present: bool, code: u8) {
        self.send_bytes(&packets::connack(self.level, session_present, code))
            .await;
    }

    pub async fn send_suback(&mut self, pkid: u16, codes: &[u8]) {
        self.send_bytes(&packets::suback(self.level, pkid, codes))
            .await;
    }

    /// Takes the next SUBSCRIBE and grants QoS 1 for each filter in it.
    pub async fn grant_subscription(&mut self) -> Subscribe {
        let subscribe = self.expect_subscribe().await;
        self.send_suback(subscribe.pkid, &vec![1; subscribe.filters.len()])
            .await;
        subscribe
    }

    pub async fn send_publish(&mut self, publish: Publish) {
        self.send_bytes(&publish.encode(self.level)).await;
    }

    pub async fn send_puback(&mut self, pkid: u16) {
        self.send_bytes(&packets::puback(pkid)).await;
    }

    /// The broker's own DISCONNECT, which only version 5 has; the connection stays open until `close`.
    pub async fn send_disconnect(&mut self, reason: u8) {
        self.send_bytes(&packets::disconnect(reason)).await;
    }

    /// Anything: half a packet, garbage, or several packets in one write. A client that is gone does not matter.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.writer.lock().await.write_all(bytes).await;
    }

    /// From here on pings get no answer; everything else is still read and can be answered.
    pub fn silence(&self) {
        self.answers_pings.store(false, Ordering::SeqCst);
    }

    pub fn answer_pings(&self) {
        self.answers_pings.store(true, Ordering::SeqCst);
    }

    /// From here on nothing is read or recorded, so that the client's send buffer fills up. The connection stays open, but the
    /// `next` and `expect` methods have nothing more to say.
    pub fn stop_reading(&self) {
        self.reader.abort();
    }

    /// Closes the connection without a word.
    pub async fn close(self) {
        let _ = self.writer.lock().await.shutdown().await;
    }

    fn fail(&self, expected: &str, got: Option<Received>) -> ! {
        let log = self
            .log
            .lock()
            .expect("no holder of the log panics")
            .clone();
        panic!(
            "connection {}: expected {expected}, got {got:?}; everything so far: {log:#?}",
            self.number
        );
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

struct Recorder {
    connection: usize,
    log: Log,
    sender: UnboundedSender<Received>,
}

impl Recorder {
    fn record(&self, packet: Received) {
        self.log
            .lock()
            .expect("no holder of the log panics")
            .push(Entry {
                connection: self.connection,
                at: Instant::now(),
                packet: packet.clone(),
            });
        if packet != Received::Ping {
            // The test may have dropped its end; the log has the packet.
            let _ = self.sender.send(packet);
        }
    }
}

async fn read_all(
    mut read: OwnedReadHalf,
    recorder: Recorder,
    writer: Arc<AsyncMutex<OwnedWriteHalf>>,
    answers_pings: Arc<AtomicBool>,
) {
    let mut buffer = BytesMut::new();
    let mut level = 0;
    loop {
        while let Some(packet) = packets::decode(&mut level, &mut buffer) {
            if packet == Received::Ping && answers_pings.load(Ordering::SeqCst) {
                let _ = writer.lock().await.write_all(&packets::pingresp()).await;
            }
            recorder.record(packet);
        }
        if !matches!(read.read_buf(&mut buffer).await, Ok(1..)) {
            break;
        }
    }
    recorder.record(Received::Closed);
}
