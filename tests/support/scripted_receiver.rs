//! A receiver of webhooks that does what a test says: answers, keeps silent, hangs up, speaks TLS.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::eventually;

/// One request, as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    pub at: Instant,
    pub method: String,
    pub path: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("receivers are sent JSON")
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Status, further header lines, body.
    Status(u16, &'static str, String),
    /// Nothing: the connection is closed.
    HangUp,
    /// Nothing for so long, then 200.
    Late(Duration),
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply::Status(status, "", String::new())
    }
}

type Script = Arc<dyn Fn(usize, &Received) -> Reply + Send + Sync>;

/// A listening receiver; it ends with the test's runtime.
pub struct Receiver {
    pub port: u16,
    tls: bool,
    seen: Arc<Mutex<Vec<Received>>>,
    script: Arc<Mutex<Script>>,
}

impl Receiver {
    /// Says 200 to everything.
    pub async fn start() -> Receiver {
        Receiver::scripted(|_, _| Reply::status(200)).await
    }

    /// Answers the request number n, from 0, as the script says.
    pub async fn scripted(
        script: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::listen(script, None).await
    }

    /// The same over TLS.
    pub async fn tls(config: rustls::ServerConfig) -> Receiver {
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        Receiver::listen(|_, _| Reply::status(200), Some(acceptor)).await
    }

    async fn listen(
        script: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("the loopback interface has a free port");
        let receiver = Receiver {
            port: listener.local_addr().expect("it is bound").port(),
            tls: tls.is_some(),
            seen: Arc::default(),
            script: Arc::new(Mutex::new(Arc::new(script))),
        };
        let (seen, script) = (Arc::clone(&receiver.seen), Arc::clone(&receiver.script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, script, tls) = (Arc::clone(&seen), Arc::clone(&script), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &seen, &script).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, &seen, &script).await;
                            }
                        }
                    }
                });
            }
        });
        receiver
    }

    /// Answers otherwise from now on.
    pub fn answer(&self, script: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}/hook", self.port)
    }

    pub fn seen(&self) -> Vec<Received> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for so many requests; panics when more have come.
    pub async fn expect(&self, count: usize) -> Vec<Received> {
        let seen = eventually(
            Duration::from_secs(20),
            &format!("{count} requests arrive"),
            async || Some(self.seen()).filter(|seen| seen.len() >= count),
        )
        .await;
        assert_eq!(seen.len(), count, "{seen:#?}");
        seen
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: &Mutex<Vec<Received>>,
    script: &Mutex<Script>,
) {
    let mut buffer = Vec::new();
    while let Some(received) = read_request(&mut stream, &mut buffer).await {
        let reply = {
            let mut seen = seen.lock().unwrap();
            let number = seen.len();
            seen.push(received.clone());
            let script = Arc::clone(&script.lock().unwrap());
            script(number, &received)
        };
        let (status, headers, body) = match reply {
            Reply::HangUp => return,
            Reply::Late(long) => {
                tokio::time::sleep(long).await;
                (200, "", String::new())
            }
            Reply::Status(status, headers, body) => (status, headers, body),
        };
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Option<Received> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let mut lines = head.split("\r\n");
            let mut first = lines.next()?.split(' ');
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length: usize = headers
                .get("content-length")
                .map_or(0, |length| length.parse().unwrap_or(0));
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                return Some(Received {
                    at: Instant::now(),
                    method: first.next()?.to_owned(),
                    path: first.next()?.to_owned(),
                    headers,
                    body: String::from_utf8_lossy(&body).into_owned(),
                });
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => buffer.extend_from_slice(&chunk[..read]),
        }
    }
}
