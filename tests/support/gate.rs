//! A door in front of MongoDB: what goes to the server can be held up, whole or in part, and answers can be cut off.
//!
//! The gateway connects to the gate as to a single server (`directConnection`); every connection is passed on byte by byte.
//! Unlike a frozen process it can hold one insert while all others pass, it costs nothing to start, and it can lose an
//! answer at will.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to bytes on their way to the server.
#[derive(Debug, Clone, PartialEq)]
enum Rule {
    Pass,
    /// Whatever contains this waits, and its connection with it. Empty: everything.
    Hold(Vec<u8>),
    /// Whatever contains this makes the client lose its connection, as often as told. It reaches the server at once, or only when the
    /// rule changes.
    Cut {
        marker: Vec<u8>,
        deliver_late: bool,
        left: usize,
    },
}

#[derive(Debug)]
pub struct Gate {
    port: u16,
    rule: watch::Sender<Rule>,
    met: Arc<AtomicUsize>,
    listener: JoinHandle<()>,
}

impl Gate {
    pub async fn start(server_port: u16) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port is free");
        let port = listener
            .local_addr()
            .expect("a bound socket has an address")
            .port();
        let (rule, watched) = watch::channel(Rule::Pass);
        let met = Arc::new(AtomicUsize::new(0));
        let counter = met.clone();
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server_port, watched.clone(), counter.clone()));
            }
        });
        Gate {
            port,
            rule,
            met,
            listener,
        }
    }

    pub fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// Lets everything through, first what was held.
    pub fn open(&self) {
        self.rule.send_replace(Rule::Pass);
    }

    /// Nothing gets through any more.
    pub fn hold_all(&self) {
        self.rule.send_replace(Rule::Hold(Vec::new()));
    }

    /// What contains this text is held; what was held for another reason goes on.
    pub fn hold(&self, marker: &str) {
        self.rule.send_replace(Rule::Hold(marker.into()));
    }

    /// What contains this text reaches the server, but its answer never comes, so many times: the connection breaks.
    pub fn lose_answers_to(&self, marker: &str, times: usize) {
        self.rule.send_replace(Rule::Cut {
            marker: marker.into(),
            deliver_late: false,
            left: times,
        });
    }

    /// The same, but it reaches the server only when the rule changes; what comes after it passes it.
    pub fn deliver_late(&self, marker: &str, times: usize) {
        self.rule.send_replace(Rule::Cut {
            marker: marker.into(),
            deliver_late: true,
            left: times,
        });
    }

    /// How many pieces a rule other than passing has applied to so far.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

fn contains(bytes: &[u8], marker: &[u8]) -> bool {
    marker.is_empty() || bytes.windows(marker.len()).any(|part| part == marker)
}

async fn pass(
    client: TcpStream,
    server_port: u16,
    mut rule: watch::Receiver<Rule>,
    met: Arc<AtomicUsize>,
) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let answers = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut server_read, &mut client_write).await;
        let _ = client_write.shutdown().await;
    });
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = client_read.read(&mut buffer).await {
        let bytes = &buffer[..read];
        let mut counted = false;
        loop {
            let now = rule.borrow_and_update().clone();
            let (applies, cut) = match &now {
                Rule::Pass => (false, None),
                Rule::Hold(marker) => (contains(bytes, marker), None),
                Rule::Cut {
                    marker,
                    deliver_late,
                    left,
                } => {
                    let applies = contains(bytes, marker) && met.load(Ordering::SeqCst) < *left;
                    (applies, Some(*deliver_late))
                }
            };
            if !applies {
                break;
            }
            if !counted {
                met.fetch_add(1, Ordering::SeqCst);
                counted = true;
            }
            if let Some(late) = cut {
                // The client's side goes first, so that no answer can slip through.
                answers.abort();
                drop(client_read);
                if late {
                    let _ = rule.changed().await;
                }
                let _ = server_write.write_all(bytes).await;
                // The server gets to the end of the command before it notices.
                let _ =
                    tokio::time::timeout(std::time::Duration::from_secs(20), rule.changed()).await;
                return;
            }
            if rule.changed().await.is_err() {
                return;
            }
        }
        if server_write.write_all(bytes).await.is_err() {
            break;
        }
    }
    let _ = server_write.shutdown().await;
    answers.abort();
}
