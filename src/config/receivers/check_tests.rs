//! Every mistake with its key, and no secret in any message.

use super::*;

const MARKER: &str = "h1dden-w0rd";

/// Keys and messages for one receiver, written as in a file.
fn problems(text: &str) -> Vec<(String, String)> {
    let receiver: ReceiverConfig = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
    let mut problems = Problems::default();
    ReceiverConfig::validate_all(&[receiver], &mut problems);
    let found = problems.0.into_iter();
    found
        .map(|problem| (problem.key, problem.message))
        .collect()
}

const GOOD: &str = "name = 'r'\nurl = 'https://h.example/x'\n";

#[test]
fn what_is_sound() {
    for text in [
        GOOD.to_owned(),
        "name = 'a'\nkind = 'pagerduty'\nrouting_key = 'k'".into(),
        "name = 'a'\nkind = 'opsgenie'\ntoken = 'k'".into(),
        format!("{GOOD}kind = 'slack'"),
        format!("{GOOD}kind = 'ntfy'\ntopic = 'alarms'\ntoken = 'tk_x'"),
        format!("{GOOD}kind = 'template'\nbody = {{ text = '{{{{ summary }}}}', n = [1, true] }}"),
        format!(
            "{GOOD}secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'\nprevious_secret = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX'\nprevious_until = '2026-12-31T00:00:00Z'"
        ),
        format!(
            "{GOOD}headers = {{ X-Team = 'cold' }}\nrate = 0.5\nallow_cidrs = ['10.0.0.0/8', 'fd00::/8']"
        ),
        "name = 'a'\nurl = 'http://h/'\nallow_http = true".into(),
    ] {
        assert_eq!(problems(&text), [], "{text}");
    }
}

#[test]
fn every_mistake_has_its_key() {
    for (text, key) in [
        ("url = 'https://h/'".to_owned(), "name"),
        ("name = 'a b'\nurl = 'https://h/'".into(), "name"),
        ("name = 'a'".into(), "url"),
        ("name = 'a'\nurl = ''".into(), "url"),
        ("name = 'a'\nurl = 'no address'".into(), "url"),
        ("name = 'a'\nurl = 'http://h/'".into(), "url"),
        ("name = 'a'\nurl = 'ftp://h/'".into(), "url"),
        (format!("name = 'a'\nurl = 'https://u:{MARKER}@h/'"), "url"),
        (format!("name = 'a'\nurl = 'https://h/#{MARKER}'"), "url"),
        (
            format!("name = 'a'\nurl = \"https://h/\\n{MARKER}\""),
            "url",
        ),
        ("name = 'a'\nurl_file = '/no/such/file'".into(), "url_file"),
        (
            "name = 'a'\nurl_env = 'TIDEGATE_TEST_NO_SUCH'".into(),
            "url_env",
        ),
        (format!("{GOOD}url_file = '/x'"), "url_file"),
        (format!("{GOOD}secret = '{MARKER}'"), "secret"),
        (format!("{GOOD}secret = 'whsec_{MARKER}'"), "secret"),
        (format!("{GOOD}secret = 'whsec_AAEC'"), "secret"),
        (
            format!("{GOOD}kind = 'slack'\nsecret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'"),
            "secret",
        ),
        (
            format!("{GOOD}previous_secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'"),
            "previous_secret",
        ),
        (
            format!("{GOOD}previous_until = '2026-12-31T00:00:00Z'"),
            "previous_until",
        ),
        ("name = 'a'\nkind = 'pagerduty'".into(), "routing_key"),
        (format!("{GOOD}routing_key = '{MARKER}'"), "routing_key"),
        ("name = 'a'\nkind = 'opsgenie'".into(), "token"),
        (format!("{GOOD}kind = 'slack'\ntoken = '{MARKER}'"), "token"),
        (format!("{GOOD}token = \"{MARKER}\\r\\nX: y\""), "token"),
        (format!("{GOOD}headers = {{ 'a b' = 'x' }}"), "headers.a b"),
        (format!("{GOOD}headers = {{ Host = 'x' }}"), "headers.Host"),
        (
            format!("{GOOD}headers = {{ Webhook-Id = 'x' }}"),
            "headers.Webhook-Id",
        ),
        (
            format!("{GOOD}headers = {{ A = \"{MARKER}\\n\" }}"),
            "headers.A",
        ),
        (
            format!("{GOOD}headers = {{ A = 'x' }}\nheaders_env = {{ a = 'PATH' }}"),
            "headers_env.a",
        ),
        (
            format!("{GOOD}headers_file = {{ A = '/no/such/file' }}"),
            "headers_file.A",
        ),
        (
            format!("{GOOD}token = 'x'\nheaders = {{ Authorization = 'y' }}"),
            "headers.Authorization",
        ),
        (format!("{GOOD}kind = 'ntfy'"), "topic"),
        (format!("{GOOD}kind = 'ntfy'\ntopic = 'a/b'"), "topic"),
        (format!("{GOOD}topic = 'a'"), "topic"),
        (format!("{GOOD}kind = 'template'"), "body"),
        (format!("{GOOD}kind = 'template'\nbody = 'x'"), "body"),
        (format!("{GOOD}body = {{ a = 'x' }}"), "body"),
        (
            format!("{GOOD}allow_cidrs = ['10.0.0.0/8', 'ten']"),
            "allow_cidrs.1",
        ),
        (format!("{GOOD}ca_file = '/no/such/file'"), "ca_file"),
        (format!("{GOOD}cert_file = '/dev/null'"), "key_file"),
        (format!("{GOOD}key_file = '/dev/null'"), "cert_file"),
        (
            format!("{GOOD}timeout = '500ms'\nconnect_timeout = '200ms'"),
            "timeout",
        ),
        (format!("{GOOD}timeout = '3s'"), "connect_timeout"),
        (format!("{GOOD}rate = 0.0"), "rate"),
        (format!("{GOOD}max_alerts = 0"), "max_alerts"),
    ] {
        let found = problems(&text);
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, [format!("receivers.0.{key}")], "{text}: {found:?}");
        assert!(
            found.iter().all(|(_, message)| !message.contains(MARKER)),
            "{found:?}"
        );
    }
}

#[test]
fn names_are_unique_and_secrets_come_from_files_and_variables() {
    let receiver: ReceiverConfig = toml::from_str(GOOD).unwrap();
    let mut found = Problems::default();
    ReceiverConfig::validate_all(&[receiver.clone(), receiver], &mut found);
    assert_eq!(found.0[0].key, "receivers.1.name");

    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"https://h.example/from-file\n").unwrap();
    let text = format!(
        "name = 'a'\nurl_file = {:?}",
        file.path().display().to_string()
    );
    let receiver: ReceiverConfig = toml::from_str(&text).unwrap();
    let url = receiver.url_source().read().unwrap().unwrap();
    assert_eq!(url.expose(), "https://h.example/from-file");
    // PATH is set wherever tests run, and is no address.
    assert_eq!(
        problems("name = 'a'\nurl_env = 'PATH'")[0].0,
        "receivers.0.url_env"
    );
}
