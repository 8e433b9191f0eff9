//! The driver's errors in words for an operator: without the parts that only say what is not
//! there, without the labels, whose order changes from one time to the next, and without the bytes
//! of the server's answer.

use mongodb::error::Error;

/// The error as one short sentence.
pub fn words(error: &Error) -> String {
    brief(&error.to_string())
}

fn brief(text: &str) -> String {
    let mut rest = text.replace("Kind: ", "");
    for nothing in [", source: None", ", server response: None"] {
        rest = rest.replace(nothing, "");
    }
    let rest = without(&rest, ", labels: {", "}");
    without(&rest, ", server response: Some(", "\" })")
}

/// The text without every part that begins and ends like this.
fn without(text: &str, begins: &str, ends: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(begins) {
        kept.push_str(before);
        rest = after.split_once(ends).map_or("", |(_, after)| after);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn noise_is_left_out() {
        let text = "Kind: Server selection timeout: { Address: h:1, Error: Kind: I/O error: refused, labels: {\"A\", \"B\"}, source: None, server response: None }, labels: {}, source: None, server response: None";
        assert_eq!(
            brief(text),
            "Server selection timeout: { Address: h:1, Error: I/O error: refused }"
        );
        let text = "Kind: Command failed: Error code 286 (ChangeStreamHistoryLost): gone, labels: {\"A\"}, source: None, server response: Some(RawDocumentBuf { data: \"9401\" })";
        assert_eq!(
            brief(text),
            "Command failed: Error code 286 (ChangeStreamHistoryLost): gone"
        );
    }
}
