//! `tidegate dead-letters export`: letters in, one JSON object a line out. One letter at a time is
//! held, and nothing at the server changes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::TryStreamExt;
use serde_json::{Map, Value, json};

use super::open;
use crate::app::Prepared;
use crate::store::{DeadLetter, DeadLetterFilter};

/// Writes all that match to `out`, or to standard output.
pub async fn export(
    prepared: Prepared,
    filter: DeadLetterFilter,
    out: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let store = open(&prepared).await?;
    let mut letters = store.stream_dead_letters(&filter, 0).await?;
    let mut sink: Box<dyn Write> = match &out {
        Some(path) => {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    let mut written = 0_u64;
    while let Some(letter) = letters.try_next().await? {
        writeln!(sink, "{}", json(&letter))?;
        written += 1;
    }
    sink.flush()?;
    if let Some(path) = out {
        writeln!(std::io::stdout(), "{written} written to {}", path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One letter as an object.
fn json(letter: &DeadLetter) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    put("id", json!(letter.id.to_hex()));
    put("at", json!(letter.at));
    put("topic", json!(letter.topic));
    if let Some(bytes) = &letter.topic_bytes {
        put("topicBase64", json!(STANDARD.encode(bytes)));
    }
    put("qos", json!(letter.qos as u8));
    put("retained", json!(letter.retained));
    match std::str::from_utf8(&letter.payload) {
        Ok(text) => put("payload", json!(text)),
        Err(_) => put("payloadBase64", json!(STANDARD.encode(&letter.payload))),
    }
    put("payloadBytes", json!(letter.payload_bytes));
    put("reason", json!(letter.reason));
    put("detail", json!(letter.detail));
    put("stream", json!(letter.stream));
    put("devices", json!(letter.devices));
    put("gateway", json!(letter.gateway));
    put("attempts", json!(letter.attempts));
    if let Some(last) = &letter.last_replay {
        put("lastReplay", json!(last));
    }
    if let Some(at) = letter.replayed_at {
        put("replayedAt", json!(at));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::model::{DeviceId, Message, QoS, Spooled, Timestamp};

    #[test]
    fn text_stays_text_and_bytes_become_base64() {
        let letter = |payload: &'static [u8]| {
            let message = Message {
                topic: Bytes::from_static(b"a/b"),
                payload: Bytes::from_static(payload),
                cut_from: None,
                qos: QoS::AtLeastOnce,
                retain: false,
                dup: false,
                spooled: Spooled::No,
                received_at: Timestamp::from_millis(0),
            };
            let device = DeviceId::new("b");
            json(&DeadLetter::new(
                &message,
                "no_values",
                "why",
                Some("s"),
                device.as_ref(),
                "gw",
            ))
        };
        let text = letter("{\"x\":\"\u{e4}\"}\n".as_bytes());
        assert_eq!(text["payload"], "{\"x\":\"\u{e4}\"}\n");
        assert_eq!(text["devices"], json!(["b"]));
        assert_eq!(text["at"], "1970-01-01T00:00:00.000Z");
        assert!(!text.to_string().contains('\n'));
        let bytes = letter(b"\xff\x00");
        assert_eq!(bytes["payloadBase64"], "/wA=");
        assert_eq!(bytes.get("payload"), None);
        assert_eq!(bytes["payloadBytes"], 2);
    }
}
