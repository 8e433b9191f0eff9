//! The driver's errors in words for an operator: without the parts that only say what is not
//! there, and without the labels, whose order changes from one time to the next.

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
    let mut brief = String::with_capacity(rest.len());
    while let Some((before, after)) = rest.split_once(", labels: {") {
        brief.push_str(before);
        rest = after
            .split_once('}')
            .map_or(String::new(), |(_, after)| after.to_owned());
    }
    brief + &rest
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
    }
}
