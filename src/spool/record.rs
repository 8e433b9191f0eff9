//! A message as bytes on disk and back. Pure.
//!
//! Version 1: version, flags, receive time (8), stream, topic, payload, checksum (4). Numbers are
//! little-endian; stream and topic carry two bytes of length, the payload four. Flags: bits 0 and 1
//! the QoS, then retain, dup, and whether there is a stream.

use bytes::Bytes;
use flate2::Crc;

use crate::model::{Message, QoS, Spooled, Timestamp};

const VERSION: u8 = 1;
const RETAIN: u8 = 1 << 2;
const DUP: u8 = 1 << 3;
const STREAM: u8 = 1 << 4;

/// A message and the stream it was received under.
#[derive(Debug, Clone)]
pub struct Record {
    pub message: Message,
    pub stream: Option<String>,
}

/// The bytes of a message that was received under `stream`.
pub fn encode(message: &Message, stream: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length(message, stream));
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    bytes.push(VERSION);
    bytes.push(
        message.qos as u8
            | flag(message.retain, RETAIN)
            | flag(message.dup, DUP)
            | flag(stream.is_some(), STREAM),
    );
    bytes.extend(message.received_at.millis().to_le_bytes());
    short(&mut bytes, stream.unwrap_or_default().as_bytes());
    short(&mut bytes, &message.topic);
    let length = u32::try_from(message.payload.len()).expect("a packet has less than 256 MiB");
    bytes.extend(length.to_le_bytes());
    bytes.extend_from_slice(&message.payload);
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// How many bytes that will be.
pub fn length(message: &Message, stream: Option<&str>) -> usize {
    message.topic.len() + message.payload.len() + stream.map_or(0, str::len) + OVERHEAD
}

/// Bytes of a record beside its texts and payload.
const OVERHEAD: usize = 1 + 1 + 8 + 2 + 2 + 4 + 4;

/// Names and topics beyond 64 KiB do not exist in MQTT; a stream's name is cut.
fn short(bytes: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    let length = u16::try_from(text.len()).expect("cut above");
    bytes.extend(length.to_le_bytes());
    bytes.extend_from_slice(text);
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// The message of a record.
///
/// # Errors
/// What is wrong with it.
pub fn decode(record: &[u8]) -> Result<Record, &'static str> {
    let (body, sum) = record
        .split_last_chunk::<4>()
        .ok_or("shorter than a checksum")?;
    if checksum(body) != u32::from_le_bytes(*sum) {
        return Err("its checksum is wrong");
    }
    let mut rest = Rest(body);
    let [version, flags] = *rest.array::<2>()?;
    if version != VERSION {
        return Err("written by a later version of Tidegate");
    }
    let qos = match flags & 0b11 {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        2 => QoS::ExactlyOnce,
        _ => return Err("no such QoS"),
    };
    let received_at = Timestamp::from_millis(i64::from_le_bytes(*rest.array::<8>()?));
    let stream = rest.short()?;
    let topic = Bytes::copy_from_slice(rest.short()?);
    let length = u32::from_le_bytes(*rest.array::<4>()?) as usize;
    let payload = Bytes::copy_from_slice(rest.take(length)?);
    if !rest.0.is_empty() {
        return Err("longer than it says");
    }
    let stream = match flags & STREAM {
        0 => None,
        _ => Some(std::str::from_utf8(stream).map_err(|_| "its stream is not UTF-8")?),
    };
    Ok(Record {
        message: Message {
            topic,
            payload,
            cut_from: None,
            qos,
            retain: flags & RETAIN != 0,
            dup: flags & DUP != 0,
            spooled: Spooled::First,
            received_at,
        },
        stream: stream.map(str::to_owned),
    })
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or("shorter than it says")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], &'static str> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("shorter than it says")?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<&'a [u8], &'static str> {
        let length = u16::from_le_bytes(*self.array::<2>()?);
        self.take(usize::from(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message {
            topic: Bytes::from_static(b"a/\xff"),
            payload: Bytes::from_static(b"{}"),
            cut_from: None,
            qos: QoS::ExactlyOnce,
            retain: true,
            dup: false,
            spooled: Spooled::No,
            received_at: Timestamp::from_millis(-5),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for stream in [None, Some(""), Some("telemetry")] {
            let bytes = encode(&message(), stream);
            assert_eq!(bytes.len(), length(&message(), stream));
            let record = decode(&bytes).unwrap();
            assert_eq!(record.stream.as_deref(), stream);
            let expected = Message {
                spooled: Spooled::First,
                ..message()
            };
            assert_eq!(format!("{:?}", record.message), format!("{expected:?}"));
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let bytes = encode(&message(), Some("s"));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err());
        }
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            assert!(decode(&damaged).is_err(), "{position}");
        }
        let mut later = bytes[..bytes.len() - 4].to_vec();
        later[0] = 9;
        later.extend(checksum(&later).to_le_bytes());
        assert!(decode(&later).unwrap_err().contains("later version"));
    }
}
