//! The MQTT packets a broker sends and receives, for protocol levels 4 (3.1.1) and 5.
//!
//! Written from the standards rather than taken from the client library: a test must be able to send what the library's types
//! forbid (unknown codes, packets in pieces, garbage behind a good packet), and a mistake of the library must not be
//! on both sides.

use bytes::{Buf, BytesMut};

/// What a client sends, in the terms of the tests.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    Connect(Connect),
    Subscribe(Subscribe),
    Unsubscribe {
        pkid: u16,
        filters: Vec<String>,
    },
    Publish(Publish),
    /// `reason` is 0 in 3.1.1.
    PubAck {
        pkid: u16,
        reason: u8,
    },
    PubRec {
        pkid: u16,
    },
    PubRel {
        pkid: u16,
    },
    PubComp {
        pkid: u16,
    },
    Ping,
    /// `reason` is 0 in 3.1.1.
    Disconnect {
        reason: u8,
    },
    /// The client closed the connection, or it broke.
    Closed,
    /// Bytes that are no packet of this protocol level.
    Unreadable(String),
}

/// A CONNECT; what 3.1.1 does not have is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Connect {
    pub level: u8,
    pub client_id: String,
    /// Clean session in 3.1.1.
    pub clean_start: bool,
    pub keep_alive: u16,
    pub username: Option<String>,
    pub password: Option<String>,
    pub has_will: bool,
    pub session_expiry: Option<u32>,
    pub receive_maximum: Option<u16>,
    pub max_packet_size: Option<u32>,
    pub topic_alias_maximum: Option<u16>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    pub pkid: u16,
    pub filters: Vec<Filter>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    pub path: String,
    pub qos: u8,
    /// 0 always, 1 for a new subscription, 2 never; 0 in 3.1.1.
    pub retain_handling: u8,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Publish {
    /// 0 for QoS 0.
    pub pkid: u16,
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub dup: bool,
    pub retain: bool,
}

impl Publish {
    /// QoS 1, first delivery.
    pub fn new(pkid: u16, topic: impl Into<String>, payload: impl Into<Vec<u8>>) -> Publish {
        Publish {
            pkid,
            topic: topic.into(),
            payload: payload.into(),
            qos: 1,
            ..Publish::default()
        }
    }

    /// The same as a redelivery.
    pub fn again(self) -> Publish {
        Publish { dup: true, ..self }
    }

    pub fn encode(&self, level: u8) -> Vec<u8> {
        let mut body = string(&self.topic);
        if self.qos > 0 {
            body.extend(self.pkid.to_be_bytes());
        }
        body.extend(no_properties(level));
        body.extend(&self.payload);
        let flags = u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain);
        packet(0x30 | flags, &body)
    }
}

pub fn connack(level: u8, session_present: bool, code: u8) -> Vec<u8> {
    let mut body = vec![u8::from(session_present), code];
    body.extend(no_properties(level));
    packet(0x20, &body)
}

pub fn suback(level: u8, pkid: u16, codes: &[u8]) -> Vec<u8> {
    let mut body = pkid.to_be_bytes().to_vec();
    body.extend(no_properties(level));
    body.extend(codes);
    packet(0x90, &body)
}

pub fn puback(pkid: u16) -> Vec<u8> {
    packet(0x40, &pkid.to_be_bytes())
}

pub fn pubrel(pkid: u16) -> Vec<u8> {
    packet(0x62, &pkid.to_be_bytes())
}

pub fn pingresp() -> Vec<u8> {
    packet(0xD0, &[])
}

/// The broker's DISCONNECT, which only version 5 has.
pub fn disconnect(reason: u8) -> Vec<u8> {
    packet(0xE0, &[reason, 0])
}

/// Any packet: first byte as given, the length worked out.
pub fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first_byte];
    let mut length = body.len();
    loop {
        let more = length >= 128;
        bytes.push((length % 128) as u8 | u8::from(more) << 7);
        length /= 128;
        if !more {
            break;
        }
    }
    bytes.extend(body);
    bytes
}

fn string(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("a string of MQTT is at most 65,535 bytes long");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

fn no_properties(level: u8) -> &'static [u8] {
    if level == 5 { &[0] } else { &[] }
}

/// Takes the next whole packet off the buffer; `None` when more bytes are needed.
///
/// `level` is that of the connection; it is learnt from the CONNECT.
pub fn decode(level: &mut u8, buffer: &mut BytesMut) -> Option<Received> {
    let (header, length) = remaining_length(buffer)?;
    if buffer.len() < header + length {
        return None;
    }
    let first_byte = buffer[0];
    buffer.advance(header);
    let mut body = Body(&buffer.split_to(length));
    let received = body.packet(first_byte, level);
    Some(received.unwrap_or_else(|| {
        Received::Unreadable(format!("packet {first_byte:#04x} of {length} bytes"))
    }))
}

/// Size of the fixed header and of what follows it.
fn remaining_length(buffer: &[u8]) -> Option<(usize, usize)> {
    let mut body = Body(buffer.get(1..)?);
    let length = body.variable_int()?;
    Some((buffer.len() - body.0.len(), length))
}

/// The rest of a packet's body; each method takes something off its front, or answers `None` when it is not there.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn packet(&mut self, first_byte: u8, level: &mut u8) -> Option<Received> {
        Some(match first_byte >> 4 {
            1 => {
                let connect = self.connect()?;
                *level = connect.level;
                Received::Connect(connect)
            }
            3 => {
                let qos = (first_byte >> 1) & 3;
                let topic = self.string()?;
                let pkid = if qos > 0 { self.u16()? } else { 0 };
                self.skip_properties(*level)?;
                Received::Publish(Publish {
                    pkid,
                    topic,
                    payload: self.0.to_vec(),
                    qos,
                    dup: first_byte & 8 != 0,
                    retain: first_byte & 1 != 0,
                })
            }
            4 => Received::PubAck {
                pkid: self.u16()?,
                reason: self.u8().unwrap_or(0),
            },
            5 => Received::PubRec { pkid: self.u16()? },
            6 => Received::PubRel { pkid: self.u16()? },
            7 => Received::PubComp { pkid: self.u16()? },
            8 => {
                let pkid = self.u16()?;
                self.skip_properties(*level)?;
                let mut filters = Vec::new();
                while !self.0.is_empty() {
                    let path = self.string()?;
                    let options = self.u8()?;
                    filters.push(Filter {
                        path,
                        qos: options & 3,
                        retain_handling: (options >> 4) & 3,
                    });
                }
                Received::Subscribe(Subscribe { pkid, filters })
            }
            10 => {
                let pkid = self.u16()?;
                self.skip_properties(*level)?;
                let mut filters = Vec::new();
                while !self.0.is_empty() {
                    filters.push(self.string()?);
                }
                Received::Unsubscribe { pkid, filters }
            }
            12 => Received::Ping,
            14 => Received::Disconnect {
                reason: self.u8().unwrap_or(0),
            },
            _ => return None,
        })
    }

    fn connect(&mut self) -> Option<Connect> {
        let _protocol_name = self.string()?;
        let mut connect = Connect {
            level: self.u8()?,
            ..Connect::default()
        };
        let flags = self.u8()?;
        connect.clean_start = flags & 0x02 != 0;
        connect.has_will = flags & 0x04 != 0;
        connect.keep_alive = self.u16()?;
        if connect.level == 5 {
            let mut properties = self.properties()?;
            while let Some(id) = properties.u8() {
                match id {
                    17 => connect.session_expiry = Some(properties.u32()?),
                    33 => connect.receive_maximum = Some(properties.u16()?),
                    34 => connect.topic_alias_maximum = Some(properties.u16()?),
                    39 => connect.max_packet_size = Some(properties.u32()?),
                    23 | 25 => drop(properties.u8()?),
                    21 | 22 => drop(properties.binary()?),
                    38 => drop((properties.binary()?, properties.binary()?)),
                    _ => return None,
                }
            }
        }
        connect.client_id = self.string()?;
        if connect.has_will {
            self.skip_properties(connect.level)?;
            self.binary()?;
            self.binary()?;
        }
        if flags & 0x80 != 0 {
            connect.username = Some(self.string()?);
        }
        if flags & 0x40 != 0 {
            connect.password = Some(self.string()?);
        }
        Some(connect)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn variable_int(&mut self) -> Option<usize> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            value |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(value)
    }

    fn binary(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.binary()?.to_vec()).ok()
    }

    fn properties(&mut self) -> Option<Body<'a>> {
        let length = self.variable_int()?;
        self.take(length).map(Body)
    }

    fn skip_properties(&mut self, level: u8) -> Option<()> {
        if level == 5 {
            self.properties()?;
        }
        Some(())
    }
}
